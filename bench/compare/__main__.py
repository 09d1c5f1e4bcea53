"""heed and its peers on the same cells, one library at a time in alternating rounds.

Prints a table; a FILE of - is stdout, instead of the table. Exit codes: 0, 1 with --check if a
floor does not hold, 2 for a wrong call, 130 if interrupted.
"""

import argparse
import datetime
import os
import pathlib
import platform
import re
import shlex
import sys

from . import floors, pages, report
from .cells import CELLS
from .peers import NAMES
from .timing import Crew

MOST_SECONDS = 3600
TINY_FLOPS = 1e7   # below it, heed is also timed with its loop in C


def arguments():
    parser = argparse.ArgumentParser(prog="./dev compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the cells and their floors")
    parser.add_argument("--cells", default="", metavar="REGEX", help="only cells with such names")
    parser.add_argument("--peers", default=",".join(NAMES), help="default: %(default)s")
    parser.add_argument("--threads", default="1,all", help="numbers of threads (default: 1,all)")
    parser.add_argument("--seconds", type=float, help="of rounds for a cell (default 2)")
    parser.add_argument("--quick", action="store_true", help="0.2 seconds: does all run?")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a floor does not hold")
    parser.add_argument("--markdown", metavar="FILE",
                        help="a section, in place of the one that FILE has between its marks")
    parser.add_argument("--json", metavar="FILE", help="everything, all samples")
    chosen = parser.parse_args()
    if chosen.seconds is None:
        chosen.seconds = 0.2 if chosen.quick else 2.0
    chosen.peers = [name for name in chosen.peers.split(",") if name]
    if unknown := set(chosen.peers) - set(NAMES):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    if not 0 < chosen.seconds <= MOST_SECONDS:
        parser.error(f"--seconds: expected a number above 0 and at most {MOST_SECONDS}")
    try:
        chosen.cells = [cell for cell in CELLS if re.search(chosen.cells, cell.name)]
    except re.error as error:
        parser.error(f"--cells: expected a regular expression: {error}")
    if not chosen.cells:
        parser.error("--cells: no cell has such a name; --list prints them")
    try:
        chosen.threads = thread_counts(chosen.threads, len(os.sched_getaffinity(0)))
    except ValueError as error:
        parser.error(str(error))
    if chosen.check and not any(cell.floor or cell.percent or cell.microseconds or cell.scaling for cell in chosen.cells):
        parser.error("--check: none of these cells has a floor; --list prints them")
    if chosen.markdown and chosen.markdown != "-":
        pages.opened(parser, chosen.markdown, ["compare"])
    return chosen


def thread_counts(text, cpus):
    """{threads: whether all cells are wanted}; two threads are also needed where floors scale."""
    try:
        counts = {cpus if word == "all" else int(word): True for word in text.split(",")}
    except ValueError:
        raise ValueError(f"--threads: expected numbers, or all, with commas between them, got {text!r}") from None
    if min(counts) < 1 or max(counts) > cpus:
        raise ValueError(f"--threads: expected 1 to {cpus}, which this process may use, or all")
    if max(counts) > 2:
        counts.setdefault(2, False)
    return dict(sorted(counts.items()))


def compare(chosen):
    """Rows, and what was measured on what."""
    rows, missing, versions, heed = [], {}, {}, {}
    for threads, everything in chosen.threads.items():
        wanted = [cell for cell in chosen.cells if cell.scaling or everything]
        if threads > 1:   # a capped instruction set is a question of one core
            wanted = [cell for cell in wanted if not cell.max_isa]
        with Crew(threads, chosen.peers) as crew:
            for number, cell in enumerate(wanted, 1):
                print(f"threads {threads}, cell {number} of {len(wanted)}: {cell.name}", end="  ",
                      file=sys.stderr, flush=True)
                row, able = crew.measure(cell, chosen.seconds, cell.flops < TINY_FLOPS)
                kept = all(one.holds for one in floors.verdicts(row, NAMES))
                if chosen.check and row.heed.valid and not kept:   # noise gets a second chance
                    crew.sample_again(row, able, 2 * chosen.seconds)
                ratio = row.ratio(row.best_peer())
                print(row.heed.reason or (f"{ratio:.2f}" if ratio else "no peer"), file=sys.stderr)
                rows.append(row)
            heed = crew.child("heed").facts
            missing |= {NAMES.get(name, name): why for name, why in crew.missing.items()}
            versions |= {NAMES[name]: crew.child(name).facts.get("version", "missing")
                         for name in chosen.peers}
    return rows, {
        "date": datetime.date.today().isoformat(), "cpu": heed.get("cpu", platform.machine()),
        "cpus": len(os.sched_getaffinity(0)), "python": platform.python_version(),
        "heed": heed.get("version", "missing"), "source": pages.evidence.SOURCE, "compiler": heed.get("compiler", "unknown"),
        "instruction_set": heed.get("instruction_set", "unknown"), "versions": versions,
        "missing": missing, "command": shlex.join(["./dev", "compare", *sys.argv[1:]])}


def write(place, text):
    if place == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(place).write_text(text, encoding="utf-8")


def print_tables(rows, machine, peers):
    speeds, errors = report.heads(peers, NAMES)
    for threads in sorted({row.threads for row in rows}):
        of = [row for row in rows if row.threads == threads]
        print(f"\nthreads {threads}; heed: minimum / median, ~: unstable; peers: minimum (ratio)")
        print(report.text_table(speeds, [report.speed_line(row, peers) for row in of]))
        print("largest errors against float64")
        print(report.text_table(errors, [report.error_line(row, peers) for row in of]))
    for note in report.notes(rows, machine):
        print("note:", note)


def main():
    chosen = arguments()
    if chosen.list:
        lines = [[cell.name, f"{cell.floor:g} to {cell.against}" if cell.floor else "",
                  f"{cell.percent:g}" if cell.percent else "",
                  f"{cell.microseconds:g}" if cell.microseconds else "", f"{cell.scaling:g}" if cell.scaling else ""] for cell in chosen.cells]
        print(report.text_table(["cell", "floor", "% of peak", "us from C++", "speed-up on 2 threads"], lines), end="")
        return 0
    rows, machine = compare(chosen)
    verdicts = [verdict for row in rows for verdict in floors.verdicts(row, NAMES)]
    if "-" not in (chosen.markdown, chosen.json):
        print_tables(rows, machine, chosen.peers)
    if chosen.markdown:
        section = report.markdown(rows, machine, verdicts, chosen.peers, NAMES)
        if chosen.markdown == "-":
            sys.stdout.write(section)
        else:
            pages.replace(pathlib.Path(chosen.markdown), "compare", section)
    if chosen.json:
        write(chosen.json, report.json_of(rows, machine, verdicts))
    if not chosen.check:
        return 0
    out = sys.stderr if "-" in (chosen.markdown, chosen.json) else sys.stdout
    for verdict in verdicts:
        print(verdict, file=out)
    failed = sum(not verdict.holds for verdict in verdicts)
    print(f"{len(verdicts) - failed} of {len(verdicts)} floors hold", file=out)
    return 1 if failed or not verdicts else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
