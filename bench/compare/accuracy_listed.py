"""Of cases in which heed's largest error is far above the best library's: where it is, and what becomes of it when drawn anew."""

import numpy as np

from . import accuracy_runs as runs
from .accuracy_limits import FEWEST, LISTED
from .accuracy_runs import LIBRARIES, difference, drawn, truth_of
from .accuracy_steps import by_steps, has_steps, steps_of
from .tensors import SEED, inputs_of, visible_pairs

DRAWS = range(50)  # seeds


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


def listing(listed, libraries, fail):
    """Lines of Markdown on the cases above LISTED; fail(text) where heed has no result."""
    seeds = (SEED, *DRAWS)
    draws = [(cell, seed) for cell in listed for seed in seeds]
    errors = {library: [] for library in libraries}
    for library in libraries:
        for (cell, seed), result in zip(draws, runs.by_library(library, draws)[1]):
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
