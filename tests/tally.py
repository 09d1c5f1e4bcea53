"""Sums what several test programs wrote as JUnit XML: what was skipped and why, what failed, then one line.

    python3 tests/tally.py [--status N] [--summary FILE --called COMMAND] [--seconds N TESTED [--goal MINUTES]]
                           [--known LIST [--without REGEX=REASON]..]
                           build/release/ctest.xml=1211 build/release/pytest.xml=2086

Exits with 1 if a test failed, if a file is missing (its program never got to the end) or has no test that passed, if it has not the number
of tests that stands behind it, or one name twice, if a test was skipped that ALLOWED does not know for the reason it told, or if the
status is not 0: of a command of which something failed that is no test, such as a build. The summary is
a page of docs/evidence, with the seconds that the command took and those of them in which tests ran. That tests took longer than their
goal is told, and fails nothing: a machine may be busy. What of x86-64 this CPU lacks is told. Where only a part of the tests is run, LIST is
what `ctest --show-only=json-v1` knows of all: the page then names the suites that ran and those that were left out, and a test that was left
out must fit a REGEX, whose REASON the page tells.
"""

import argparse
import collections
import json
import pathlib
import platform
import re
import sys
import xml.etree.ElementTree as ElementTree

import evidence

BF16 = {"avx512_bf16", "bf16"}   # as x86 and arm64 call them
SANITIZERS = ("asan", "clang", "tsan")

# (name, what it says, where that may be, why). Name and words are regular expressions, of the whole name and of a part
# of the words. Where: "sanitizers", in a folder of theirs; "no bf16", on a CPU without these instructions; "not x86_64";
# "anywhere", of which ./dev bare takes none: there root has the rights and the addresses, so each of these tests runs.
ALLOWED = (
    (r"inspect_weights\.of_a_large_map_take_little_more_than_its_sums", "a sanitizer's own memory counts", "sanitizers",
     "it measures this process's memory"),
    (r"tests\.cli\.test_cli_(bench|errors|hostile|inspect_files|inspect_gradients|run_gradients)::.*",
     "AddressSanitizer('s own memory| needs its own address space)", "sanitizers", "it measures or limits this process's memory"),
    (r"tests\.cli\.test_cli_study::.*", "training takes minutes under AddressSanitizer", "sanitizers",
     "time; the passes that it calls are tested there"),
    (r"tests\.faults\.test_program::.*", "AddressSanitizer has an allocator of its own", "sanitizers",
     "the faults are preloaded before the C library's functions, as the sanitizer's are"),
    (r"(paired|bf16_kernels|decode_order)\..*", "this CPU has no dot products of bfloat16", "no bf16", "nothing there could run"),
    (r"tests\.cli\.test_cli_bench::.*", "this CPU has no dot products of bfloat16", "no bf16", "nothing there could run"),
    (r"tests\.(python\.test_python_import|package\.test_binaries|cli\.test_cli_info)::.*", "sets MXCSR|AVX", "not x86_64",
     "it is about this architecture"),
    (r"isa\.neon_runs_where_the_cpu_has_aes", "Highway's NEON asks for AES", "not x86_64", "such a CPU runs the scalar kernels"),
    (r"write\..*|tests\.faults\.test_program::.*", "this process may not mount a tmpfs", "anywhere",
     "mounting asks for rights that a user need not have"),
    (r"tests\.faults\.test_program::.*", "no control group can be made here", "anywhere",
     "making one asks for rights that a user need not have"),
    (r"placement\..*", "no address space for", "anywhere", "`ulimit -v`; no memory is used"),
)


def outcome(case):
    """ctest tells it in the attribute status, pytest by a child element."""
    status, skipped = case.get("status"), case.find("skipped")
    if status == "disabled":
        return "skipped"
    if status == "notrun":  # skipped by its own word, or ctest could not even start it
        return "skipped" if skipped.get("message", "").startswith("SKIP_") else "failed"
    if status == "fail" or case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "passed" if skipped is None else "skipped"


def name_of(case):
    """ctest's names stand alone, and pytest's in their module."""
    return case.get("name") if case.get("status") else f"{case.get('classname')}::{case.get('name')}"


def words_of(case):
    """Why it was skipped: pytest's message, or the line that GoogleTest prints below the place."""
    skipped = case.find("skipped")
    if case.get("status") is None:
        return skipped.get("message", "")
    told = re.search(r": Skipped\n(.*)", case.findtext("system-out") or "")
    return told[1] if told else ""


def may_be(where, path, flags):
    return {"anywhere": True, "sanitizers": pathlib.Path(path).resolve().parent.name in SANITIZERS,
            "no bf16": not BF16 & set(flags), "not x86_64": platform.machine() != "x86_64"}[where]


def split(path):
    """A file of results, and how many tests it has to have, or None."""
    name, _, number = str(path).rpartition("=")
    return (name, int(number)) if name and number.isdigit() else (str(path), None)


def why(name, words, path, flags):
    """Why this test may be skipped; None if it may not."""
    return next((reason for pattern, said, where, reason in ALLOWED
                 if re.fullmatch(pattern, name) and re.search(said, words) and may_be(where, path, flags)), None)


def suite_of(name):
    """Of a test of ctest; the types that a suite is written for count as one, and a program that was not built as a suite."""
    return re.sub(r"/\d+$", "", name.removesuffix("_NOT_BUILT").partition(".")[0])


def left_out(known, ran, without):
    """{reason: (suite, test)s} of what was not run, and the names of those for which there is no reason."""
    found, unknown = collections.defaultdict(list), []
    for name in known:
        if name not in ran:
            reason = next((reason for pattern, reason in without if re.search(pattern, name)), None)
            unknown += [] if reason else [name]
            found[reason or "nobody says why"].append((suite_of(name), re.split("[/<]", name.partition(".")[2])[0]))
    return found, unknown


def subset(ran, left):
    """The part of the page on what ran and what did not: of suites that ran in part the tests that did not."""
    suites = collections.Counter(suite_of(name) for name in ran)
    lines = ["", "What ran:", "", "| suite | tests |", "|---|---:|", *(f"| {suite} | {count} |" for suite, count in sorted(suites.items())),
             "", "What did not, of all that is known to this build: programs that are not built, suites with their number of tests, tests.", ""]
    for reason, tests in left.items():
        whole = collections.Counter(suite for suite, test in tests if suite not in suites and test)
        names = {suite for suite, test in tests if not test} | {f"{suite} ({count})" for suite, count in whole.items()}
        names |= {f"{suite}.{test}" for suite, test in tests if test and suite in suites}
        lines.append(f"* {', '.join(sorted(names))}: {reason}")
    return lines


def page(called, rows, skipped, last_line, seconds, remarks, more=()):
    """What a run found, to be kept."""
    took = "" if seconds is None else f", {seconds[0] / 60:.0f} minutes with builds, {seconds[1] / 60:.0f} of them tests"
    lines = [f"# {called}", "",
             f"`{called}`, {evidence.today()}: {last_line}{took}. Seconds are of all",
             "tests of a file, some of which ran side by side, on a machine that may be busy.", *remarks, "",
             "| results | passed | failed | skipped | seconds |", "|---|---:|---:|---:|---:|",
             *(f"| {name} | {counts['passed']} | {counts['failed']} | {counts['skipped']} | {counts['seconds']:.0f} |" for name, counts in rows)]
    if skipped:
        lines += ["", "Skipped:", "", *(f"* {line}" + (f", {times} times" if times > 1 else "") for line, times in skipped.items())]
    return "\n".join([*lines, *more, ""])


# What tests/sanitized.h and draws of tests/forward/draws.h leave out.
THINNED = ["Under sanitizers C++ tests take one in 17 of more than 50 cases, 20 of 200 draws and a part of other problems; the release build",
           "takes all of them, and under sanitizers `./dev test --full` takes all cases of the matrix and all draws of forward calls."]


def slow(tested, goal):
    """A line if tests took more seconds than the goal, in minutes, allows."""
    if goal is None or tested <= 60 * goal:
        return []
    return [f"The tests took {tested / 60:.1f} minutes; expected at most {goal:g}, on two cores that do nothing else."]


def main(paths, summary=None, called=None, seconds=None, goal=None, known=None, without=(), status=0):
    failed, skipped, rows, ran = [], collections.Counter(), [], set()
    flags = BF16 if known else set(evidence.of_cpu("flags", "Features").split())   # an emulator has them all
    for path, expected in map(split, paths):
        counts = collections.Counter(passed=0, failed=0, skipped=0)
        rows.append((path, counts))
        try:
            cases = list(ElementTree.parse(path).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            counts["failed"] += 1
            failed.append(f"no results: {error}")
            continue
        if not any(outcome(case) == "passed" for case in cases):
            counts["failed"] += 1
            failed.append(f"{path}: no test passed")
        if expected is not None and len(cases) != expected:
            counts["failed"] += 1
            failed.append(f"{path}: {len(cases)} tests were found; expected {expected}, the number in scripts: some are lost, or new and not "
                          "counted there")
        for name, times in collections.Counter(map(name_of, cases)).items():
            if times > 1:
                counts["failed"] += 1
                failed.append(f"{path}: {name} is there {times} times")
        for case in cases:
            counts["seconds"] += float(case.get("time") or 0)
            what, name = outcome(case), name_of(case)
            ran.add(name)
            if what == "failed":
                failed.append(f"{path}: {name}")
            elif what == "skipped":
                words = words_of(case)
                reason = why(name, words, path, flags)
                if reason is None:
                    what = "failed"
                    failed.append(f"{path}: {name} was skipped, and tests/tally.py has no reason for it: {words or 'nothing said'}")
                else:
                    skipped[f"{path}: {name.partition('[')[0]}: {words} ({reason})"] += 1
            counts[what] += 1
    counts = sum((collections.Counter(each) for _, each in rows), collections.Counter())
    if status and not failed:
        counts["failed"] += 1
        failed.append(f"no test, but the command, which ended with {status}: see above")
    remarks = [] if known else [*evidence.lacking()]   # of a part, for another CPU
    remarks += slow(seconds[1], goal) if seconds else []
    remarks += THINNED if any(pathlib.Path(path).parent.name in SANITIZERS for path, _ in map(split, paths)) else []
    more = ()
    if known:
        left, unknown = left_out([test["name"] for test in json.loads(known.read_text())["tests"]], ran, without)
        counts["failed"] += len(unknown)
        failed += [f"{name} was left out, and nobody says why" for name in unknown]
        more = subset(ran, left)
    for line, times in skipped.items():
        print("skipped:", line + (f", {times} times" if times > 1 else ""))
    for line in failed:
        print("failed:", line)
    for line in remarks:
        print(line)
    last_line = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    if summary:
        evidence.page_here(summary).write_text(page(called, rows, skipped, last_line, seconds, remarks, more))
    print(last_line)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--status", type=int, default=0, metavar="N")
    parser.add_argument("--summary", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--called", metavar="COMMAND")
    parser.add_argument("--seconds", type=float, nargs=2, metavar=("N", "TESTED"))
    parser.add_argument("--goal", type=float, metavar="MINUTES")
    parser.add_argument("--known", type=pathlib.Path, metavar="LIST")
    parser.add_argument("--without", action="append", default=[], type=lambda text: tuple(text.rsplit("=", 1)), metavar="REGEX=REASON")
    parser.add_argument("paths", nargs="+")
    chosen = parser.parse_args()
    if chosen.seconds and chosen.seconds[1] > chosen.seconds[0]:
        parser.error(f"--seconds: tests ran {chosen.seconds[1]:.0f} s; expected at most the {chosen.seconds[0]:.0f} s of the command")
    sys.exit(main(chosen.paths, chosen.summary, chosen.called, chosen.seconds, chosen.goal, chosen.known, chosen.without, chosen.status))
