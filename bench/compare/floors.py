"""Whether heed keeps its floors: what `--check` turns into an exit code."""

import dataclasses

SAME_PEAK = 1.1


@dataclasses.dataclass(frozen=True)
class Verdict:
    cell: str
    threads: int
    what: str           # "best peer / heed", "PyTorch / heed", "one thread / 2 threads"
    floor: float
    got: float = None   # None: there is no such ratio, see why
    why: str = ""

    @property
    def holds(self):
        return self.got is not None and self.got >= self.floor

    def __str__(self):
        got = f"{self.got:.3f}" if self.got is not None else f"not known ({self.why})"
        word = "holds" if self.holds else "FAILS"
        return f"{word}  {self.cell}, {self.threads} thread{'s' * (self.threads > 1)}: " \
               f"{self.what} {got}, floor {self.floor}"


def capped_peak(row):
    """Whether the cell's max_isa also caps the rate of multiply-adds; its floor is then left out.

    A peer keeps its best instruction set. Where AVX2 multiplies and adds as fast as AVX-512 (Zen 4)
    heed can keep up; where the units for AVX-512 are twice as wide (Zen 5) the floor would ask for
    more than the peak.
    """
    return row.uncapped_peak > SAME_PEAK * row.peak


def verdicts(row, names):
    """The floors of a row: ratios to peers hold for one thread, the scaling for two.

    A floor that was not measured does not hold. `names` are the libraries as people write them.
    """
    cell, found = row.cell, []
    if cell.floor and row.threads == 1 and not capped_peak(row):
        rival = cell.against if cell.against != "best" else row.best_peer()
        what = f"{'best peer' if cell.against == 'best' else names[cell.against]} / heed"
        lost = row.lost_peer() if cell.against == "best" else None
        found.append(_verdict(row, what, cell.floor, None if lost else row.ratio(rival), _why(row, lost or rival)))
    if cell.percent and row.threads == 1:
        moved = row.peak_moved or not row.peak
        got = None if moved or not row.heed.valid else 100 * row.gflops / row.peak
        found.append(_verdict(row, "percent of the peak", cell.percent, got,
                              "the peak moved" if moved else _why(row, "heed")))
    if cell.microseconds and row.heed.in_c and row.heed.valid:
        found.append(Verdict(cell.name, row.threads, f"{cell.microseconds:g} us / heed from C++", 1.0,
                             1e-6 * cell.microseconds / row.heed.in_c))
    if cell.scaling and row.threads == 2:
        found.append(_verdict(row, "heed on one thread / on two", cell.scaling,
                              row.ratio("heed, one thread"), _why(row, "heed, one thread")))
    if row.heed.failed and not found:   # a cell without a floor asks for an answer
        found.append(_verdict(row, "heed", 1.0, None, _why(row, "heed")))
    return found


def _verdict(row, what, floor, got, why):
    return Verdict(row.cell.name, row.threads, what, floor, got, "" if got is not None else why)


def _why(row, rival):
    if not row.heed.valid:
        return f"heed: {row.heed.reason or 'no time'}"
    run = row.runs.get(rival)
    return "no peer ran" if rival is None else f"{rival}: {run.reason if run else 'not asked for'}"
