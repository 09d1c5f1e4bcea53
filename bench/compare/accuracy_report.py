"""The tables of ./dev accuracy in Markdown, and what of them does not hold."""

import numpy as np

from . import accuracy_limits as limits
from .accuracy_limits import FEWEST, LISTED, LONG, MEDIAN, PERCENTILE, RMS, RMS_LONG, SHORT_HEAD
from .accuracy_listed import listing, ratios
from .accuracy_runs import LIBRARIES, PEERS, truth_of
from .accuracy_steps import by_steps, has_steps, steps_of
from .tensors import inputs_of

FEW = 5   # cases that are told one by one
COLUMNS = "cases | T2: median | 95 % | largest | T3: median | largest | long: median | largest |"


class Ledger:
    """What is above a limit in cells of one type and class of values: exceptions, and what fails."""

    def __init__(self, dtype, values, fail):
        self.of, self.fail, self.known = (dtype, values), fail, {}   # known: [Known][name of a cell] ratio

    def judge(self, kind, library, found):
        """found: {name of a cell, or "" of a statistic of all: ratio}."""
        limit, unknown = limits.KINDS[kind], {}
        for name, ratio in found.items():
            if not ratio > limit:
                continue
            known = next((known for known in limits.KNOWN if known.covers(kind, *self.of, library, name)), None)
            if known is None:
                unknown[name] = ratio
            else:
                self.known.setdefault(known, {})[name] = ratio
                if round(ratio, 2) > known.ceiling:
                    self._fails(kind, library, {name: ratio}, f"above {known.ceiling}, the most that was measured")
        if unknown:
            self._fails(kind, library, unknown, f"above {limit}, and no exception is known")

    def _fails(self, kind, library, found, why):
        most = max(found, key=found.get)
        where = f" in {most}" * bool(most) + f" and {len(found) - 1} more" * (len(found) > 1)
        self.fail(f"{kind}, {', '.join(self.of)}, beside {LIBRARIES.get(library, 'the best library')}: {found[most]:.2f}{where}, {why}")

    def lines(self):
        """Each exception that was met, with its reason."""
        for known, found in self.known.items():
            most = max(found, key=found.get)
            where = f" ({most}; {len(found)} case{'s' * (len(found) > 1)})" * bool(most)
            measured = ", ".join(f"{ratio:.2f} on {place}" for place, ratio in known.measured.items())
            yield (f"* {self.of[1]}, {LIBRARIES.get(known.library, 'best library')}: {known.kind} {found[most]:.2f}{where}. {known.reason} "
                   f"Measured: {measured}.")


def beyond(listed, found, library, kinds):
    """Of few cases above T3's limits beside one library, what makes heed's error; "" where there are none, or many.

    kinds: (which of the cells, limit).
    """
    told, alone = [], set()
    heed, other = found["heed"][:, 1], found[library][:, 1]
    for chosen, limit in kinds:
        over = np.flatnonzero(chosen & (ratios(heed, other) > limit))
        for at in sorted(set(over) - alone) if over.size <= FEW else ():
            alone.add(at)
            told.append(f"{listed[at].name} {heed[at]:.1e}, not {other[at]:.1e}")
            if has_steps(listed[at]):
                inputs, true = inputs_of(listed[at]), truth_of(listed[at])
                rms = {step: np.sqrt(np.mean(np.square(by_steps(listed[at], inputs, (step,)) - true))) for step in steps_of(listed[at])}
                told[-1] += f" ({', '.join(f'{step} {value:.1e}' for step, value in rms.items())})"
    return f"{LIBRARIES[library]}: {'; '.join(told)}" if told else ""


def extent(cells):
    """Of which cells T3 speaks, and which of these are long."""
    wide = np.array([cell.batch * cell.heads * cell.queries * cell.dv >= FEWEST for cell in cells])
    return wide, wide & np.array([cell.d <= SHORT_HEAD and cell.keys >= LONG for cell in cells])


def row(title, heed, other, wide, long):
    """A line of the table; nan in `other` is a cell that the library lacks."""
    there = np.isfinite(other[:, 0])
    ratio = ratios(heed[there, 0], other[there, 0])
    line = f"| {title} | {there.sum()} | {np.median(ratio):.2f} | {np.percentile(ratio, 95):.2f} | {ratio.max():.2f} |"
    for chosen in (wide & there, long & there):
        rms = ratios(heed[chosen, 1], other[chosen, 1])
        line += f" {np.median(rms):.2f} | {rms.max():.2f} |" if rms.size else " | |"
    return line


def judged(cells, found, wide, long, ledger, library):
    """T2 and T3 beside one library."""
    there = np.isfinite(found[library][:, 0])
    if library == "torch":
        ratio = ratios(found["heed"][there, 0], found[library][there, 0])
        ledger.judge("T2 median", library, {"": np.median(ratio)})
        ledger.judge("T2 95 %", library, {"": np.percentile(ratio, 95)})
    rms = ratios(found["heed"][:, 1], found[library][:, 1])
    for kind, chosen in (("T3", wide & there), ("T3 long", long & there)):
        ledger.judge(kind, library, {cells[n].name: rms[n] for n in np.flatnonzero(chosen)})


def by_reason(lacking):
    """Of cells without a result: each reason with how many, and the first ones by name."""
    names = {}
    for name, reason in lacking:
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{reason} ({len(of)}: {', '.join(of[:FEW])}{', ..' * (len(of) > FEW)})" for reason, of in names.items())


def group_report(dtype, values, cells, found, why, fail, without):
    """Rows of the table and lines below it, of the cells of one class of values."""
    wide, long = extent(cells)
    ledger, rows = Ledger(dtype, values, fail), []
    lead = "" if values == "normal" else f"{values}: "
    there = {library: int(np.isfinite(found[library][:, 0]).sum()) for library in PEERS}
    for library in PEERS:
        before = limits.MEASURED.get((dtype, values), {}).get(library, 0)
        if there[library] < before and library not in without:
            fail(f"{dtype}, {values}: {LIBRARIES[library]} has results in {there[library]} cells; it had them in {before}; none elsewhere: "
                 + by_reason((cell.name, why[library][cell.name]) for cell in cells if cell.name in why[library]))
        if there[library]:
            rows.append(row(lead + LIBRARIES[library], found["heed"], found[library], wide, long))
            judged(cells, found, wide, long, ledger, library)
        elif library == "torch" and library not in without:
            fail(f"T2, {dtype}, {values}: {LIBRARIES[library]}, has no result to be beside")
    best = np.fmin.reduce([found[library] for library in PEERS])   # nan where no library has a number
    alone = [cell.name for cell, numbers in zip(cells, best, strict=True) if not np.isfinite(numbers).all()]
    if alone:
        fail(f"{dtype}: no library has a result in {len(alone)} of {len(cells)} cells: " + "; ".join(alone))
    rows.append(row(lead + "the best of them", found["heed"], best, wide, long))
    ratio = ratios(found["heed"][:, 0], best[:, 0])
    ledger.judge("T2 case", "best", {cell.name: x for cell, x in zip(cells, ratio, strict=True)})
    notes = [*ledger.lines()]
    for library in PEERS if values == "normal" else ():
        if there[library]:
            steps = beyond(cells, found, library, ((wide, RMS), (long, RMS_LONG)))
            notes += [f"* Root mean squares above T3's limits, heed's, not theirs (and heed's if only one step rounds): {steps}."] * bool(steps)
    return rows, notes, [n for n in np.argsort(-np.nan_to_num(ratio)) if ratio[n] > LISTED]


def report(dtype, cells, found, why, fail, without=()):
    """Lines of Markdown on the cells of one type; fail(text) for what does not hold."""
    # No comparison below is true of nan, so none of them would fail.
    broken = [cell.name for cell, numbers in zip(cells, found["heed"], strict=True) if not np.isfinite(numbers).all()]
    if broken:
        fail(f"{dtype}: heed has no result in {len(broken)} of {len(cells)} cells: "
             + "; ".join(f"{name} ({why['heed'].get(name, 'no number')})" for name in broken))
    lines, notes, far = [f"| {dtype}, heed beside | {COLUMNS}", "|---" * 9 + "|"], [], []
    anew = []   # of each class those that are furthest off are drawn anew
    for values in dict.fromkeys(cell.values for cell in cells):
        at = np.array([n for n, cell in enumerate(cells) if cell.values == values])
        rows, told, above = group_report(dtype, values, [cells[n] for n in at],
                                         {library: numbers[at] for library, numbers in found.items()}, why, fail, without)
        lines, notes, far, anew = lines + rows, notes + told, far + sorted(at[above]), anew + sorted(at[above[:FEW]])
    silent = [library for library in LIBRARIES if not np.isfinite(found[library]).any()]
    wide, long = extent(cells)
    lines += ["", f"T3 speaks of {wide.sum()} of these {len(cells)} cases, those of {FEWEST:,} outputs or more; {long.sum()} are long: heads "
              f"up to {SHORT_HEAD}, {LONG} keys or more."]
    if silent:
        lines += ["", "No results: " + "; ".join(f"{LIBRARIES[library]} ({next(iter(why[library].values()))})" for library in silent) + "."]
    best = np.fmin.reduce([found[library][:, 0] for library in PEERS])
    above = [f"{cells[n].name}: {found['heed'][n, 0]:.1e}, best {best[n]:.1e}" for n in far]
    lines += ["", f"Above {LISTED:g} times the best library: " + ("; ".join(above) if above else "none") + ".", ""]
    if notes:
        lines += [f"Above T2's limits ({MEDIAN}, {PERCENTILE:g}, {LISTED:g} times the best library) or T3's ({RMS}, long {RMS_LONG}), and why:", "",
                  *notes, ""]
    if anew:
        lines += [*listing([cells[n] for n in anew], [library for library in LIBRARIES if library not in silent], fail), ""]
    return lines
