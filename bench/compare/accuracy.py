"""How far results are from the truth: heed beside its peers on the same inputs.

    ./dev accuracy
    ./dev accuracy --check --markdown docs/numerics.md

The truth o* is NumPy's in float64. T2 of docs/numerics.md: the ratio of max|o - o*|, heed / a library, over all cases;
beside PyTorch's fused kernel its median is at most 1.15 and its 95th percentile at most 2; cases above 4 times the best
library are listed. T3: in cases of 4,096 outputs or more the root mean square of o - o* is at most 1.6 times the best
library's, 1.1 times for heads up to 128 and 512 keys or more. Each library runs in a process of its own.
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

import numpy as np

from .cells import Cell
from .peers import NAMES
from .tensors import inputs_of, truth

LIBRARIES = {"heed": "heed", "torch": "PyTorch, fused", "math": "PyTorch, plain"} | {
    name: NAMES[name] for name in ("onnxruntime", "openvino", "jax")}
SIZES = (1, 8, 16, 32, 40, 64, 80, 128, 192, 256)
LENGTHS = ((1, 1), (5, 7), (16, 16), (33, 64), (1, 700), (100, 129), (256, 256), (300, 520), (64, 1024), (520, 520))
MASKS = ("none", "causal", "keep", "bias", "padded")
MEDIAN, PERCENTILE, LISTED = 1.15, 2.0, 4.0              # T2
FEWEST, RMS, RMS_LONG, SHORT_HEAD, LONG = 4096, 1.6, 1.1, 128, 512   # T3
BEGIN, END = "<!-- accuracy -->\n", "<!-- /accuracy -->\n"


def cells(dtype):
    return [Cell(2, 3, queries, d, keys=keys, dtype=dtype, mask=mask)
            for mask, d, (queries, keys) in itertools.product(MASKS, SIZES, LENGTHS)
            if mask != "causal" or queries == keys]   # where they differ, libraries do too


def results_of(library, dtype):
    """Version, and an output of each cell or why there is none. Runs in a process of its own."""
    from . import heed_library, peers
    made = heed_library.Heed(1) if library == "heed" else peers.load("torch" if library == "math" else library, 1)
    backend = contextlib.nullcontext
    if library in ("torch", "math"):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        backend = functools.partial(sdpa_kernel, SDPBackend.MATH if library == "math" else SDPBackend.FLASH_ATTENTION)
    found = []
    for cell in cells(dtype):
        try:
            call, result = made.prepare(cell, inputs_of(cell))
            with backend():
                call()
            found.append(np.array(result()[0], np.float64))
        except Exception as error:   # whatever a library throws: it has no result there
            found.append(str(error).splitlines()[0][:100])
    return getattr(made, "version", ""), found


def deviations(dtype):
    """[library][cell] of (largest, root mean square) of o - o*, nan where there is no result; versions; why a library has none."""
    versions, found, why = {}, {}, {}
    truths = [truth(cell, inputs_of(cell), np.arange(cell.queries))[0] for cell in cells(dtype)]
    for library in LIBRARIES:
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            versions[library], results = process.submit(results_of, library, dtype).result()
        rows = []
        for result, true in zip(results, truths):
            if isinstance(result, str) or result.shape != true.shape or not np.isfinite(result).all():
                rows.append((np.nan, np.nan))
            else:
                away = np.abs(result - true)
                rows.append((away.max(), np.sqrt((away**2).mean())))
        found[library] = np.array(rows)
        if all(isinstance(result, str) for result in results):
            why[library] = results[0]
    return found, versions, why


def ratios(ours, theirs):
    """Element by element; 1 where both are exact, nan where there is no result."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((ours == 0) & (theirs == 0), 1.0, ours / theirs)


def report(dtype, found, why, fail):
    """Lines of Markdown; fail(text) for what does not hold."""
    listed, heed = cells(dtype), found["heed"]
    wide = np.array([cell.batch * cell.heads * cell.queries * cell.dv >= FEWEST for cell in listed])
    long = wide & np.array([cell.d <= SHORT_HEAD and cell.keys >= LONG for cell in listed])
    lines = [f"| {dtype}, heed beside | cases | T2: median | 95 % | largest | T3: median | largest | long: median | largest |",
             "|---|---|---|---|---|---|---|---|---|"]
    for library, name in list(LIBRARIES.items())[1:]:
        there = np.isfinite(found[library][:, 0])
        if not there.any():
            continue
        ratio = ratios(heed[there, 0], found[library][there, 0])
        median, high = np.median(ratio), np.percentile(ratio, 95)
        line = f"| {name} | {there.sum()} | {median:.2f} | {high:.2f} | {ratio.max():.2f} |"
        for chosen in (wide & there, long & there):
            rms = ratios(heed[chosen, 1], found[library][chosen, 1])
            line += f" {np.median(rms):.2f} | {rms.max():.2f} |"
        lines.append(line)
        if library == "torch" and (median > MEDIAN or high > PERCENTILE):
            fail(f"T2, {dtype}: median {median:.2f}, 95 % {high:.2f}")
    best = np.nanmin([found[library] for library in list(LIBRARIES)[1:]], axis=0)
    above = [f"{cell.name}: {heed[n, 0]:.1e}, best {best[n, 0]:.1e}" for n, cell in enumerate(listed)
             if ratios(heed[n, 0], best[n, 0]) > LISTED]
    if why:
        lines += ["", "No results: " + "; ".join(f"{LIBRARIES[library]} ({reason})" for library, reason in why.items()) + "."]
    lines += ["", f"Above {LISTED:g} times the best library: " + ("; ".join(above) if above else "none") + ".", ""]
    rms = ratios(heed[:, 1], best[:, 1])
    worst, worst_long = (listed[np.flatnonzero(chosen)[rms[chosen].argmax()]].name for chosen in (wide, long))
    lines += [f"T3, beside the best library in each case: median {np.median(rms[wide]):.2f}, largest {rms[wide].max():.2f} ({worst}; "
              f"{wide.sum()} cases of {FEWEST:,} outputs or more, {(rms[wide] > RMS).sum()} above {RMS}); long, heads up to {SHORT_HEAD} and "
              f"{LONG} keys or more: median {np.median(rms[long]):.2f}, largest {rms[long].max():.2f} ({worst_long}; {long.sum()} cases, "
              f"{(rms[long] > RMS_LONG).sum()} above {RMS_LONG}).", ""]
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
    text = "\n".join([f"`./dev accuracy`, {datetime.date.today()}, {cpu}, {told}; standard normal q, k, v, masks {', '.join(MASKS)}:", "",
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
