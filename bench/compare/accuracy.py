"""How far results are from the truth: heed beside its peers on the same inputs.

    ./dev accuracy
    ./dev accuracy --check --markdown docs/numerics.md

The truth o* is NumPy's in float64. T2 of docs/numerics.md: the ratio of max|o - o*|, heed / a library, over all cases;
beside PyTorch's fused kernel its median is at most 1.15 and its 95th percentile at most 2; cases above 4 times the best
library are listed. T3: in cases of 4,096 outputs or more the root mean square of o - o* is at most 1.6 times the best
library's, 1.1 times for heads up to 128 and 512 keys or more. Each library runs in a process of its own. It may lack cells,
as the number of its cases shows; the comparison fails where heed has no finite result of the right shape, where PyTorch's
fused kernel has none at all, and where no library can do a cell.

Of the cases that are listed a second table says where heed's largest error is, what the others have there, and how all do
when the case is drawn anew; and which of heed's roundings make that error.
"""

import argparse
import concurrent.futures
import contextlib
import datetime
import functools
import itertools
import multiprocessing
import pathlib
import sys
from unittest import mock

import numpy as np

from . import tensors
from .accuracy_steps import by_steps, has_steps, steps_of
from .cells import Cell
from .peers import NAMES
from .tensors import SEED, inputs_of, truth, visible_pairs

LIBRARIES = {"heed": "heed", "torch": "PyTorch, fused", "math": "PyTorch, plain"} | {
    name: NAMES[name] for name in ("onnxruntime", "openvino", "jax")}
SIZES = (1, 8, 16, 32, 40, 64, 80, 128, 192, 256)
LENGTHS = ((1, 1), (5, 7), (16, 16), (33, 64), (1, 700), (100, 129), (256, 256), (300, 520), (64, 1024), (520, 520))
MASKS = ("none", "causal", "keep", "bias", "padded")
GROUPED = (32, 64, 128)                                  # sizes of heads of which three share keys and values
UNEVEN = ((64, 32), (32, 64), (192, 128), (128, 1), (1, 128))   # d and d_v
WINDOWS = (7, 100)
FEW = 5                                                  # cases that are told one by one
MEDIAN, PERCENTILE, LISTED = 1.15, 2.0, 4.0              # T2
FEWEST, RMS, RMS_LONG, SHORT_HEAD, LONG = 4096, 1.6, 1.1, 128, 512   # T3
DRAWS = range(50)                                        # seeds of the cases that are listed
BEGIN, END = "<!-- accuracy -->\n", "<!-- /accuracy -->\n"


def cells(dtype):
    heads = [*({"heads": 3, "d": d} for d in SIZES), *({"heads": 6, "kv_heads": 2, "d": d} for d in GROUPED),
             *({"heads": 3, "d": d, "dv": dv} for d, dv in UNEVEN)]
    masked = [Cell(2, queries=queries, keys=keys, dtype=dtype, mask=mask, **head)
              for head, mask, (queries, keys) in itertools.product(heads, MASKS, LENGTHS)
              if mask != "causal" or queries == keys]   # where they differ, libraries do too
    return masked + [Cell(2, 3, n, d, dtype=dtype, mask=f"causal-window={window}")
                     for d, (n, keys), window in itertools.product(SIZES, LENGTHS, WINDOWS) if n == keys and n > 1]


def drawn(cell, seed):
    with mock.patch.object(tensors, "SEED", seed):
        return inputs_of(cell)


def truth_of(cell, seed=SEED):
    return truth(cell, drawn(cell, seed), np.arange(cell.queries))[0]


def results_of(library, draws):
    """Version, and an output of each (cell, seed) or why there is none. Runs in a process of its own."""
    from . import heed_library, peers
    made = heed_library.Heed(1) if library == "heed" else peers.load("torch" if library == "math" else library, 1)
    backend = contextlib.nullcontext
    if library in ("torch", "math"):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        backend = functools.partial(sdpa_kernel, SDPBackend.MATH if library == "math" else SDPBackend.FLASH_ATTENTION)
    found = []
    for cell, seed in draws:
        try:
            call, result = made.prepare(cell, drawn(cell, seed))
            with backend():
                call()
            found.append(np.array(result()[0], np.float64))
        except Exception as error:   # whatever a library throws: it has no result there
            found.append(str(error).splitlines()[0][:100])
    return getattr(made, "version", ""), found


def by_library(library, draws):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(results_of, library, draws).result()


def difference(result, true):
    """o - o*, or in words why there is none."""
    if isinstance(result, str):
        return result
    if result.shape != true.shape:
        return f"shape {result.shape}, not {true.shape}"
    return result - true if np.isfinite(result).all() else "not finite"


def deviations(dtype):
    """[library][cell] of (largest, root mean square) of o - o*, nan where there is none; versions; [library][name of a cell] why."""
    versions, found, why = {}, {}, {}
    truths = [truth_of(cell) for cell in cells(dtype)]
    for library in LIBRARIES:
        versions[library], results = by_library(library, [(cell, SEED) for cell in cells(dtype)])
        errors = {cell.name: difference(*pair) for cell, *pair in zip(cells(dtype), results, truths, strict=True)}
        found[library] = np.array([(np.nan, np.nan) if isinstance(error, str) else (np.abs(error).max(), np.sqrt((error**2).mean()))
                                   for error in errors.values()])
        why[library] = {name: error for name, error in errors.items() if isinstance(error, str)}
    return found, versions, why


def ratios(ours, theirs):
    """Element by element; 1 where both are exact, nan where there is no result."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((ours == 0) & (theirs == 0), 1.0, ours / theirs)


def bound(cell, inputs, at):
    """T1 of docs/numerics.md of one output, its last terms left out: they are below all that is printed."""
    b, h, i, x = at
    kv = h // (cell.heads // cell.kv_heads)
    q, k, v = inputs["q"][b, h, i], inputs["k"][b, kv], inputs["v"][b, kv, :, x]
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    bias = inputs["bias"][0, 0, i] if "bias" in inputs else np.zeros(cell.keys)
    scores = k @ q * cell.d**-0.5 + bias
    p = np.where(visible_pairs(cell, inputs)[0, 0, i], np.exp(scores - scores.max()), 0)
    p /= p.sum()
    a = np.abs(k) @ np.abs(q) * cell.d**-0.5 + np.abs(bias)
    m = p @ np.abs(v)
    u_out, u_p = {"float32": (2**-24, 0), "float16": (2**-11, 0), "bfloat16": (2**-8, 2**-8)}[cell.dtype]
    return u_out * abs(p @ v) + u_p * m + 2**-24 * (
        (4 + cell.d / 64) * (p * (1 + p @ a + a)) @ np.abs(v) + (32 + cell.keys / 1536) * m)


def beyond(listed, found, library, kinds):
    """What is above T3's limits beside one library, and of few such cases what makes heed's error; "" if nothing is.

    kinds: (which of the cells, limit).
    """
    told, alone = [], set()
    heed, other = found["heed"][:, 1], found[library][:, 1]
    for chosen, limit in kinds:
        over = np.flatnonzero(chosen & (ratios(heed, other) > limit))
        if over.size > FEW:
            most = over[ratios(heed[over], other[over]).argmax()]
            told.append(f"{over.size} above {limit}, most in {listed[most].name}")
            continue
        for at in sorted(set(over) - alone):
            alone.add(at)
            told.append(f"{listed[at].name} {heed[at]:.1e}, not {other[at]:.1e}")
            if has_steps(listed[at]):
                inputs, true = inputs_of(listed[at]), truth_of(listed[at])
                rms = {step: np.sqrt(np.mean(np.square(by_steps(listed[at], inputs, (step,)) - true))) for step in steps_of(listed[at])}
                told[-1] += f" ({', '.join(f'{step} {value:.1e}' for step, value in rms.items())})"
    return f"{LIBRARIES[library]}: {'; '.join(told)}" if told else ""


def listing(listed, libraries, fail):
    """Lines of Markdown on the cases above LISTED; fail(text) where heed has no result."""
    seeds = (SEED, *DRAWS)
    draws = [(cell, seed) for cell in listed for seed in seeds]
    errors = {library: [] for library in libraries}
    for library in libraries:
        for (cell, seed), result in zip(draws, by_library(library, draws)[1]):
            true = truth_of(cell, seed)
            error = difference(result, true)
            errors[library].append(np.full(true.shape, np.nan) if isinstance(error, str) else error)
            if library == "heed" and isinstance(error, str):
                fail(f"heed has no result in {cell.name} drawn with seed {seed}: {error}")
    lines = ["| | " + " | ".join(LIBRARIES[library] for library in libraries) + " |", "|---" * (len(libraries) + 1) + "|"]
    steps = []
    for n, cell in enumerate(listed):
        inputs, true = inputs_of(cell), truth_of(cell)
        own = {library: errors[library][n * len(seeds):][:len(seeds)] for library in libraries}
        at = np.unravel_index(np.abs(own["heed"][0]).argmax(), true.shape)
        unit = 2.0**(np.frexp(true[at])[1] - {"float32": 24, "float16": 11, "bfloat16": 8}[cell.dtype])
        largest = {library: np.array([np.abs(error).max() for error in own[library]]) for library in libraries}
        anew = {}
        for library in libraries:
            others = [largest[other][1:] for other in libraries if other != library and not np.isnan(largest[other][0])]
            anew[library] = ratios(largest[library][1:], np.min(others, axis=0))
        rows = {
            f"{cell.name}, {true.size:,} outputs: largest error": lambda x: f"{largest[x][0]:.1e}",
            f"where heed's is: o* = {true[at]:.4f}, in its last place {unit:.1e}, T1 {bound(cell, inputs, at):.1e}":
                lambda x: f"{own[x][0][at]:.1e}",
            f"drawn {len(DRAWS)} times anew: root mean square": lambda x: f"{np.sqrt(np.mean(np.square(own[x][1:]))):.1e}",
            f"largest error / the best other's: median, draws above {LISTED:g}":
                lambda x: f"{np.median(anew[x]):.2f}, {(anew[x] > LISTED).sum()}"}
        for title, shown in rows.items():
            lines.append(f"| {title} | " + " | ".join("" if np.isnan(largest[x][0]) else shown(x) for x in libraries) + " |")
        if has_steps(cell):
            parts = []
            for step in steps_of(cell):
                away = [by_steps(cell, drawn(cell, seed), (step,)) - truth_of(cell, seed)
                        for seed in (seeds if true.size < FEWEST else seeds[:1])]
                parts.append(f"{step} {away[0][at]:.1e} ({np.sqrt(np.mean(np.square(away))):.1e})")
            steps.append(f"{cell.name}: " + ", ".join(parts))
    if steps:
        lines += ["", "heed's error there if only this rounds (`bench/compare/accuracy_steps.py`), and the root mean square of all outputs "
                  "and draws: " + ". ".join(steps) + "."]
    return lines


def report(dtype, found, why, fail):
    """Lines of Markdown; fail(text) for what does not hold."""
    listed, heed = cells(dtype), found["heed"]
    # No comparison below is true of nan, so none of them would fail.
    broken = [cell.name for cell, numbers in zip(listed, heed, strict=True) if not np.isfinite(numbers).all()]
    if broken:
        fail(f"{dtype}: heed has no result in {len(broken)} of {len(listed)} cells: "
             + "; ".join(f"{name} ({why['heed'].get(name, 'no number')})" for name in broken))
    wide = np.array([cell.batch * cell.heads * cell.queries * cell.dv >= FEWEST for cell in listed])
    long = wide & np.array([cell.d <= SHORT_HEAD and cell.keys >= LONG for cell in listed])
    lines = [f"| {dtype}, heed beside | cases | T2: median | 95 % | largest | T3: median | largest | long: median | largest |",
             "|---|---|---|---|---|---|---|---|---|"]
    above_t3 = []
    for library, name in list(LIBRARIES.items())[1:]:
        there = np.isfinite(found[library][:, 0])
        if not there.any():
            if library == "torch":
                fail(f"T2, {dtype}: {name}, has no result to be beside")
            continue
        ratio = ratios(heed[there, 0], found[library][there, 0])
        median, high = np.median(ratio), np.percentile(ratio, 95)
        line = f"| {name} | {there.sum()} | {median:.2f} | {high:.2f} | {ratio.max():.2f} |"
        for chosen in (wide & there, long & there):
            rms = ratios(heed[chosen, 1], found[library][chosen, 1])
            line += f" {np.median(rms):.2f} | {rms.max():.2f} |"
        lines.append(line)
        above_t3.append(beyond(listed, found, library, ((wide & there, RMS), (long & there, RMS_LONG))))
        if library == "torch" and (median > MEDIAN or high > PERCENTILE):
            fail(f"T2, {dtype}: median {median:.2f}, 95 % {high:.2f}")
    best = np.fmin.reduce([found[library] for library in list(LIBRARIES)[1:]])   # nan where no library has a number
    alone = [cell.name for cell, numbers in zip(listed, best, strict=True) if not np.isfinite(numbers).all()]
    if alone:
        fail(f"{dtype}: no library has a result in {len(alone)} of {len(listed)} cells: " + "; ".join(alone))
    at = np.flatnonzero(ratios(heed[:, 0], best[:, 0]) > LISTED)
    above = [f"{listed[n].name}: {heed[n, 0]:.1e}, best {best[n, 0]:.1e}" for n in at]
    without = [library for library in LIBRARIES if not np.isfinite(found[library]).any()]
    if without:
        lines += ["", "No results: " + "; ".join(f"{LIBRARIES[library]} ({next(iter(why[library].values()))})" for library in without) + "."]
    lines += ["", f"Above {LISTED:g} times the best library: " + ("; ".join(above) if above else "none") + ".", ""]
    if above:
        lines += [*listing([listed[n] for n in at], [library for library in LIBRARIES if library not in without], fail), ""]
    rms = ratios(heed[:, 1], best[:, 1])
    worst, worst_long = (listed[np.flatnonzero(chosen)[rms[chosen].argmax()]].name for chosen in (wide, long))
    lines += [f"T3, beside the best library in each case: median {np.median(rms[wide]):.2f}, largest {rms[wide].max():.2f} ({worst}; "
              f"{wide.sum()} cases of {FEWEST:,} outputs or more, {(rms[wide] > RMS).sum()} above {RMS}); long, heads up to {SHORT_HEAD} and "
              f"{LONG} keys or more: median {np.median(rms[long]):.2f}, largest {rms[long].max():.2f} ({worst_long}; {long.sum()} cases, "
              f"{(rms[long] > RMS_LONG).sum()} above {RMS_LONG}).", ""]
    if any(above_t3):
        lines += ["Root mean squares above T3's limits beside one library, heed's and that library's (and heed's if only one step rounds):", "",
                  *(f"* {told}." for told in above_t3 if told), ""]
    over = long & (rms > RMS_LONG)
    if over.any():
        lines += [f"Root mean squares in the {over.sum()} of them above {RMS_LONG}: " + "; ".join(
            f"{name} {np.nanmin(found[library][over, 1]):.1e} to {np.nanmax(found[library][over, 1]):.1e}"
            for library, name in LIBRARIES.items() if np.isfinite(found[library][over, 1]).any()) + ".", ""]
    if rms[wide].max() > RMS or rms[long].max() > RMS_LONG:
        fail(f"T3, {dtype}: {rms[wide].max():.2f} of {RMS}, {rms[long].max():.2f} of {RMS_LONG}")
    return lines


def main():
    parser = argparse.ArgumentParser(prog="./dev accuracy", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32,bfloat16,float16")
    parser.add_argument("--check", action="store_true", help="exit with 1 if T2 or T3 does not hold")
    parser.add_argument("--markdown", metavar="FILE", help="replaces the section that FILE has between its marks")
    chosen = parser.parse_args()
    failed, lines, versions = [], [], {}
    for dtype in chosen.dtype.split(","):
        found, versions, why = deviations(dtype)
        lines += report(dtype, found, why, failed.append)
    cpu = next((line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown CPU")
    told = ", ".join(f"{LIBRARIES[name]} {version}" for name, version in versions.items() if version and name != "math")
    text = "\n".join([f"`./dev accuracy`, {datetime.date.today()}, {cpu}, {told}; standard normal q, k, v, masks {', '.join(MASKS)}, "
                      f"causal windows of {' and '.join(map(str, WINDOWS))}:", "",
                      *lines])
    if chosen.markdown:
        page = pathlib.Path(chosen.markdown)
        before, rest = page.read_text().split(BEGIN)
        page.write_text(before + BEGIN + text + END + rest.split(END)[1])
    else:
        print(text)
    for line in failed:
        print("FAILS ", line, file=sys.stderr)
    return 1 if failed and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
