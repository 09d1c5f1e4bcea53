"""How time and memory of one head grow with its length, and what a first call costs.

Prints the section of docs/performance.md, or puts it between its marks there with --markdown FILE.
"""

import argparse
import datetime
import math
import multiprocessing
import pathlib
import re
import shlex
import sys
import time

from . import pages
from .cells import Cell
from .heed_library import Heed
from .tensors import inputs_of

LENGTHS = [1024 << i for i in range(8)]   # to 131,072
FIRST = (Cell(1, 1, 4, 8), Cell(1, 12, 16, 64), Cell(1, 8, 2048, 64))
REPEATED = 100
WIDTH = 44   # characters of the longest bar


def resident(field):
    """Bytes of VmRSS (now) or VmHWM (the most since it was reset)."""
    text = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(rf"{field}:\s+(\d+) kB", text)[1])


def caller(cell, threads):
    call, results = Heed(threads).prepare(cell, inputs_of(cell))
    for array in results():
        if array is not None:
            array.fill(0)   # its pages are there before anything is timed
    return call


def timed(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def grow(length):
    """Seconds of the best call and bytes that a call adds to what is resident."""
    cell = Cell(1, 1, length, 64)
    call = caller(cell, 1)
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident("VmRSS")
    first = timed(call)
    added = max(0, resident("VmHWM") - before)
    return min(first, *(timed(call) for _ in range(1 if length > 40000 else 3))), added


def first_calls(cell, threads):
    """Seconds of the first call, of the second, of the hundredth, and of the best of all."""
    call = caller(cell, threads)
    seconds = [timed(call) for _ in range(REPEATED)]
    return seconds[0], seconds[1], seconds[-1], min(seconds)


def apart(function, *arguments):
    """In a process of its own, which has made no call yet."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def human_seconds(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            break
    return f"{seconds / size:.3g} {unit}"


def human_bytes(count):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            break
    return f"{count / size:.3g} {unit}"


def chart(title, show, **series):
    """Bars of all series on one logarithmic axis: one more character for each `step` times as much."""
    every = [value for values in series.values() for value in values]
    step = (max(every) / min(every)) ** (1 / (WIDTH - 1))
    lines = [f"{title}, logarithmic: a character is {step:.2f} times as much"]
    for row, length in enumerate(LENGTHS):
        for number, (name, values) in enumerate(series.items()):
            bar = "#" * (1 + round(math.log(values[row] / min(every), step)))
            lines.append(f"{'' if number else f'{length:,}':>8} {name:{max(map(len, series))}} {bar} {show(values[row])}")
    return lines


def section(threads):
    grown = [apart(grow, length) for length in LENGTHS]
    matrix = [4 * length * length for length in LENGTHS]
    lines = ["| n | time | GFLOP/s | memory of the call | the n x n matrix alone |",
             "|---|---|---|---|---|"]
    for length, (seconds, added), bytes_ in zip(LENGTHS, grown, matrix):
        lines.append(f"| {length:,} | {human_seconds(seconds)} | "
                     f"{4 * 64 * length * length / seconds * 1e-9:.0f} | {human_bytes(added)} | "
                     f"{human_bytes(bytes_)} |")
    lines += ["", "```", *chart("time", human_seconds, heed=[seconds for seconds, _ in grown]), "",
              *chart("memory", human_bytes, heed=[added for _, added in grown], matrix=matrix), "```", "",
              "| call | threads | first | second | hundredth | best of these |", "|---|---|---|---|---|---|"]
    for cell in FIRST:
        for count in sorted({1, threads}):
            times = " | ".join(map(human_seconds, apart(first_calls, cell, count)))
            lines.append(f"| {cell.name} | {count} | {times} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="./dev growth", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", metavar="FILE", help="put it between FILE's marks")
    parser.add_argument("--threads", type=int, default=2, help="of the second kind of first calls")
    chosen = parser.parse_args()
    page = pages.opened(parser, chosen.markdown, ["growth"]) if chosen.markdown else None
    facts = Heed(1).facts()
    text = (f"{datetime.date.today().isoformat()}, {facts['cpu']}, {facts['compiler']}, heed "
            f"{facts['version']}, {pages.evidence.SOURCE}, {facts['instruction_set']}: `{shlex.join(['./dev', 'growth', *sys.argv[1:]])}`\n\n"
            + section(chosen.threads))
    if page:
        pages.replace(page, "growth", text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
