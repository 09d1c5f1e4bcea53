"""Tables for people and JSON for programs, of the same rows."""

import json
import math

from .floors import capped_peak
from .timing import UNSTABLE

METHOD = f"""\
- heed: least / median time of a call over the samples; `~` where the median is {UNSTABLE} times
  the least or more.
- GFLOP/s: of heed's least time, 2 (d + dv) for each visible pair (in `keep` for each pair), with gradients
  6 d + 4 dv more, and their share of the peak of
  multiply-adds, of bfloat16 that of `vdpbf16ps` where heed multiplies by it, measured before and after each cell; `~` where it
  moved by more than 3 %.
- Peers: least time, in brackets that time / heed's, above 1 where heed is faster. `-`: the library
  lacks the operation, or is not asked for it; `!`: it failed, see the notes.
- Error: the largest difference of output and weights, with gradients of dQ, from NumPy's in float64, on all rows or on
  some from the beginning, the middle and the end.
- MiB: resident memory that the first call of a cell adds at its highest, and code that is touched for the first time, in a
  process that has done the cells above: memory that the library freed and kept is not seen again, results included. Cells
  alone, each in a process of its own: `--cells` with one name.
- Dropout: peers draw other weights; their error is that of the same call without it.
- Calls come from Python, heed's through ctypes: in cells of microseconds every time includes the
  way from Python into the library. "From C++" is heed's time without it.
- heed, ONNX Runtime and OpenVINO write into memory they already have, PyTorch and JAX allocate
  their results.
- Masks that a peer's function has no option for are given to it as an array, the padded keys of ONNX Runtime too; PyTorch's
  FlexAttention, which has windows and compiles, is not asked. OpenVINO's graph repeats keys and values that heads share.
  PyTorch returns weights by plain operations, JAX by compiled ones."""


def duration(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            break
    value = seconds / size
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def times(run):
    return f"{duration(run.minimum)} / {duration(run.median)}{'' if run.stable else ' ~'}"


def missing(run):
    """The word for a run without a time: what cannot be, or what should have been."""
    return "!" if run is None or run.failed else "-"


def peer_time(row, name):
    run, ratio = row.runs.get(name), row.ratio(name)
    if ratio is None:
        return missing(run)
    return f"{duration(run.minimum)} ({ratio:.2f}){'' if run.stable else ' ~'}"


def speed_line(row, peers):
    """Cells of the table's first part: times, ratios, floor."""
    cell = row.cell
    line = [cell.name]
    if row.heed.valid:
        line += [times(row.heed), f"{row.gflops:.0f}" if row.gflops >= 10 else f"{row.gflops:.1f}",
                 f"{100 * row.gflops / row.peak:.0f}{' ~' if row.peak_moved else ''}"]
    else:
        line += [row.heed.reason or "!", "-", "-"]
    line += [peer_time(row, name) for name in peers]
    best = row.best_peer()
    ratio = row.ratio(best)
    line.append("-" if ratio is None else f"{ratio:.2f}")
    floor = cell.floor if row.threads == 1 else 0
    line.append(f"{floor:g}{' to torch' if cell.against == 'torch' else ''}" if floor else "")
    return line


def error_line(row, peers):
    runs = [row.runs.get(name) for name in ["heed", *peers]]
    errors = [missing(run) if run is None or run.error is None else f"{run.error:.1e}"
              for run in runs]
    checked = "all" if row.rows_checked == row.cell.queries else str(row.rows_checked)
    memory = [missing(run) if run is None or not run.calls else f"{run.memory / 2**20:.1f}"
              for run in runs]
    return [row.cell.name, *errors, checked, row.heed.hash, *memory]


def text_table(head, lines):
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
                     for line in [head, *lines]) + "\n"


def markdown_table(head, lines):
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines]) + "\n"


def heads(peers, names):
    people = [names[name] for name in peers]
    return (["cell", "heed", "GFLOP/s", "% of peak", *people, "best peer / heed", "floor"],
            ["cell", "heed", *people, "rows", "hash of heed's output",
             *(f"{name}, MiB" for name in ["heed", *people])])


def notes(rows, machine):
    """What a reader must not miss: losses, doubts, absences."""
    found = [f"{name} is missing: {why}" for name, why in machine["missing"].items()]
    for row in rows:
        ratio = row.ratio(row.best_peer())
        if ratio is not None and ratio < 1:
            found.append(f"{row.cell.name}, threads {row.threads}: {row.best_peer()} is faster, "
                         f"{ratio:.2f}")
        found += [f"{row.cell.name}, threads {row.threads}: {name}: {run.reason}"
                  for name, run in row.runs.items() if run.failed]
        if capped_peak(row):
            found.append(f"{row.cell.name}: the peak of {row.cell.max_isa} is {row.peak:.0f} "
                         f"GFLOP/s, the CPU's {row.uncapped_peak:.0f}; its floor is left out")
        if row.heed.in_c and row.heed.valid:
            found.append(f"{row.cell.name}, threads {row.threads}: heed from C++ "
                         f"{duration(row.heed.in_c)}, from Python {duration(row.heed.minimum)}")
        scaling = row.ratio("heed, one thread")
        if scaling is not None:
            found.append(f"{row.cell.name}: heed on {row.threads} threads is {scaling:.2f} times "
                         "as fast as on one")
    return found


def markdown(rows, machine, verdicts, peers, names):
    """The section that docs/performance.md has."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    facts = (f"Date: {machine['date']}. CPU: {machine['cpu']}, {machine['cpus']} cores of it. heed "
             f"{machine['heed']}, {machine['source']}, {machine['instruction_set']}, {machine['compiler']}. {versions}, "
             f"Python {machine['python']}.")
    parts = [facts + "\n", f"    {machine['command']}\n", METHOD + "\n"]
    speeds, errors = heads(peers, names)
    for threads in sorted({row.threads for row in rows}):
        of = [row for row in rows if row.threads == threads]
        parts += [f"### {threads} thread{'s' * (threads > 1)}\n",
                  markdown_table(speeds, [speed_line(row, peers) for row in of]),
                  "Errors and memory:\n", markdown_table(errors, [error_line(row, peers) for row in of])]
    said = notes(rows, machine) + [str(verdict) for verdict in verdicts if not verdict.holds]
    if said:
        parts += ["### Notes\n", "\n".join(f"- {note}" for note in said) + "\n"]
    return "\n".join(parts)


def json_of(rows, machine, verdicts):
    def run_of(row, name, run):
        error = run.error if run.error is not None and math.isfinite(run.error) else None
        found = {"reason": run.reason or None, "max_error": error, "hash": run.hash or None,
                 "calls_per_sample": run.calls, "memory_bytes": run.memory, "ratio": row.ratio(name)}
        if run.samples:
            found |= {"minimum_seconds": run.minimum, "median_seconds": run.median,
                      "stable": run.stable, "samples": run.samples}
        return found | ({"seconds_from_c": run.in_c} if run.in_c else {})

    return json.dumps({
        "machine": machine,
        "rows": [{"cell": row.cell.name, "threads": row.threads, "odd": row.cell.odd,
                  "flops": row.cell.flops, "fma_peak_gflops": row.peaks,
                  "gflops": row.gflops if row.heed.valid else None,
                  "best_peer": row.best_peer(), "rows_checked": row.rows_checked,
                  "runs": {name: run_of(row, name, run) for name, run in row.runs.items()}}
                 for row in rows],
        "floors": [{"cell": v.cell, "threads": v.threads, "what": v.what, "floor": v.floor,
                    "got": v.got, "holds": v.holds, "why": v.why or None} for v in verdicts],
    }, indent=1, allow_nan=False) + "\n"
