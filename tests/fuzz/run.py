"""Runs the fuzz targets for a stated time each, and tells what came of it as a table.

    python3 tests/fuzz/run.py SECONDS [TARGET..] [--jobs N] [--least N] [--minimise] [--keep FILE] [--summary FILE]
                              [--called COMMAND]

What a fuzzer finds worth keeping stays in build/fuzz/corpus; --minimise makes tests/fuzz/corpus/TARGET.inputs
of it: each input after its length in four bytes.
What breaks a promise leaves a file in build/fuzz/findings, the input or, where a run had none to leave, its log, and is
a finding until somebody takes that file away; who is stopped by somebody else has found nothing. Once it is mended, --keep FILE puts an input into
tests/fuzz/corpus/TARGET.kept, of the same format, from which nothing is ever taken away.
Each target runs for SECONDS; a reader of files then goes on until the program that build/fuzz has for it had as many
executions as --least says, under the present source, or found something.
The table, build/fuzz/fuzzing.md, adds up all runs of this checkout, says what of it the programs executed that build/fuzz
has now, in runs under the source that it names, and names COMMAND, else this one. --summary puts it into FILE between its
marks; with 0 SECONDS nothing runs and the table is written anew. Exits with 1 while there is a finding, if a target
executed nothing, and if a reader had fewer executions than --least.
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import evidence  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/fuzz"
HERE = ROOT / "tests/fuzz"

# What each target is, with the instruction sets of the CPU that it ran on, and how long its inputs may be.
TARGETS = {
    "npy_header": ("F1: header of .npy", 1024),
    "npy": ("F2: .npy to a tensor", 1024),
    "npz": ("F3: .npz", 2048),
    "safetensors": ("F4: .safetensors", 1024),
    "flag_values": ("F5: command line, values of flags", 64),
    "command_line": ("F5: command line, the program", 512),
    "attention": ("F6: views and options, against the oracle", 48),
    "instruction_sets": ("F7: {sets}", 32),
    "merge": ("F9: merging parts, against one call", 64),
    "packing": ("F10: sequences end to end, against each alone", 64),
    "round_trip": ("F12: write, read back", 512),
}
READERS = ("npy_header", "npy", "npz", "safetensors")  # what --least is asked of
LONGEST = 600        # seconds of one run beyond SECONDS: what was executed counts when a run ends
STOPPED = (72, *(-number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)))   # by somebody else; libFuzzer ends with 72
MOST_BYTES = 75_000  # of inputs of a target that --minimise leaves in the tree, the smallest first

# Freed memory is watched for a megabyte's worth of frees instead of 256: caches stay warm.
ENVIRONMENT = {"ASAN_OPTIONS": "quarantine_size_mb=1:malloc_context_size=2:strict_string_checks=1",
               "UBSAN_OPTIONS": "print_stacktrace=1", "PATH": os.environ["PATH"], "LC_ALL": "C"}
ALL = pathlib.Path("fuzzing")   # the table of a CPU with all instruction sets; one without some has its own place behind it


def fuzzer(target):
    return str(BUILD / f"tests/fuzz/fuzz_{target}")


def these(target):
    """What a run is by: the source that the page names, and the SHA-256 of the program that build/fuzz has now. One without
    the other is not enough: a program outlives its source until it is built anew."""
    path = pathlib.Path(fuzzer(target))
    return f"{evidence.SOURCE}, program {hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None}"


def minimal(target):
    return HERE / "corpus" / f"{target}.inputs"


def kept(target):
    """Inputs that once found something."""
    return HERE / "corpus" / f"{target}.kept"


def pack(inputs):
    return b"".join(len(data).to_bytes(4, "little") + data for data in inputs)


def unpack(path):
    """The inputs of a file, none if there is no file."""
    inputs, packed = [], path.read_bytes() if path.exists() else b""
    while packed:
        size = int.from_bytes(packed[:4], "little")
        inputs.append(packed[4:4 + size])
        packed = packed[4 + size:]
    return inputs


def spread(target, folder):
    """The inputs that the tree has, as files, which is how libFuzzer reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in unpack(minimal(target)) + unpack(kept(target)):
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def keep(target, data):
    inputs = unpack(kept(target))
    if data not in inputs:
        kept(target).write_bytes(pack([*inputs, data]))


def results(target):
    """What all runs came to, {} without any; "programs" has the executions by what these() was, where that was kept."""
    path = BUILD / f"results/{target}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def by_these(target):
    """Executions by the program that build/fuzz has now, in runs under the present source."""
    return results(target).get("programs", {}).get(these(target), 0)


def findings(target):
    """Files of what is not known to be mended."""
    return sorted((BUILD / "findings").glob(f"{target}-[0-9]*"))


def fuzz(target, seconds, runs=0):
    """Adds a run to the results, of so many executions at most if `runs` says so; how many it had."""
    corpus = BUILD / "corpus" / target
    spread(target, corpus)
    (BUILD / "findings").mkdir(exist_ok=True)
    prefix = f"{BUILD}/findings/{target}-{datetime.datetime.now():%Y%m%d%H%M%S}-"
    # A timeout counts time, also that of a stopped or starved process: it is far above any input's.
    command = [fuzzer(target), f"-max_total_time={seconds}", *([f"-runs={runs}"] if runs else []), f"-max_len={TARGETS[target][1]}",
               "-timeout=300", "-report_slow_units=300", "-print_final_stats=1",
               f"-artifact_prefix={prefix}"]
    dictionary = HERE / f"dictionaries/{target}.dict"
    command += [f"-dict={dictionary}"] if dictionary.exists() else []
    command.append(str(corpus))
    program = these(target)
    begin = time.monotonic()
    with open(BUILD / f"{target}.log", "w", encoding="utf-8", errors="replace") as log:
        code = subprocess.run(command, stdout=log, stderr=log, env=ENVIRONMENT, cwd=BUILD).returncode
    log = (BUILD / f"{target}.log").read_text(encoding="utf-8", errors="replace")
    if code not in (0, *STOPPED) and not any(str(path).startswith(prefix) for path in findings(target)):
        shutil.copyfile(BUILD / f"{target}.log", prefix + "log")
    number = lambda pattern: int((re.findall(pattern, log) or ["0"])[-1])
    past, executed = results(target), number(r"number_of_executed_units: +(\d+)")
    programs = past.get("programs", {})
    done = {"executions": past.get("executions", 0) + executed,
            "programs": {**programs, program: programs.get(program, 0) + executed},
            "seconds": past.get("seconds", 0) + round(time.monotonic() - begin), "edges": number(r"cov: (\d+)"),
            "inputs": number(r"corp: (\d+)"), "date": f"{datetime.date.today()}", "sets": evidence.instruction_sets()}
    (BUILD / "results").mkdir(exist_ok=True)
    beside = BUILD / f"results/{target}.new"   # a stop or a full disk loses this one at most
    beside.write_text(json.dumps(done))
    beside.replace(BUILD / f"results/{target}.json")
    return executed


def fuzz_until(target, seconds, least):
    """For so long, and a reader until it had `least` executions; how many the last run had."""
    executed = fuzz(target, seconds)
    while target in READERS and executed and not findings(target) and by_these(target) < least:
        executed = fuzz(target, LONGEST, least - by_these(target))
    return executed


def minimise(target):
    """The fewest inputs that reach what all reach, as many of them as the tree shall hold; those kept are there anyway."""
    corpus, fresh = BUILD / "corpus" / target, BUILD / "minimal" / target
    spread(target, corpus)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    subprocess.run([fuzzer(target), "-merge=1", str(fresh), str(corpus)], env=ENVIRONMENT, cwd=BUILD,
                   check=True, capture_output=True)
    inputs = {path.read_bytes() for path in fresh.iterdir()} - set(unpack(kept(target)))
    chosen, size = [], 0
    # Of one length in no order: the first byte may say of what type a call is.
    for data in sorted(inputs, key=lambda data: (len(data), hashlib.sha1(data).digest())):
        size += 4 + len(data)
        if size > MOST_BYTES:
            break
        chosen.append(data)
    minimal(target).write_bytes(pack(chosen))


def page(called):
    lines = [f"`{called}`, {evidence.today()}. Executions and seconds add up all runs of a build folder, whose",
             "programs were built anew in between; \"by these\" counts the programs that it had when this was written, by the SHA-256",
             "of each, in runs under this source. Edges are those that libFuzzer counts in the code that is instrumented, all but the",
             "kernels, and inputs those kept for reaching something new, both after the last run, which the date is of, as are the",
             "instruction sets that its CPU had. Findings are those that are not mended.", *evidence.lacking(), "",
             "| target | what | executions | by these | seconds | edges | inputs | findings | date |",
             "|---|---|---:|---:|---:|---:|---:|---:|---|"]
    for target, (what, _) in TARGETS.items():
        done = results(target)
        what = what.format(sets=", ".join(done.get("sets", [])) or "instruction sets")
        lines.append(f"| {target} | {what} | {done['executions']:,} | {by_these(target):,} | {done['seconds']} "
                     f"| {done['edges']} | {done['inputs']} | {len(findings(target))} | {done['date']} |" if done
                     else f"| {target} | {what} | not run | | | | | | |")
    return "\n".join(lines) + "\n"


def marks(name):
    return f"<!-- {name} -->\n", f"<!-- /{name} -->\n"


def put(text, summary):
    """Between the marks of the file that are of this CPU; the rest of it is written by hand."""
    page, (_, end_of_all), (begin, end) = summary.read_text(), marks(ALL), marks(evidence.page_here(ALL))
    if begin not in page:
        page = page.replace(end_of_all, end_of_all + "\n" + begin + end)
    before, rest = page.split(begin)
    summary.write_text(before + begin + text + end + rest.split(end)[1])


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seconds", type=int)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--least", type=int, default=0, metavar="N")
    parser.add_argument("--minimise", action="store_true")
    parser.add_argument("--keep", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--summary", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--called", metavar="COMMAND", default=shlex.join(["python3", "tests/fuzz/run.py", *words]))
    arguments = parser.parse_intermixed_args(words)
    targets = arguments.targets or list(TARGETS)
    for target in targets:
        if target not in TARGETS:
            parser.error(f"no target {target}; there are {', '.join(TARGETS)}")
    if arguments.keep and len(arguments.targets) != 1:
        parser.error("--keep wants one target, whose input FILE is")
    if arguments.summary:
        text = arguments.summary.read_text() if arguments.summary.exists() else ""
        begin, end = marks(ALL)
        if [text.count(mark) for mark in (begin, end)] != [1, 1] or text.index(begin) > text.index(end):
            parser.error(f"{arguments.summary} has no place for the table: {begin.strip()} and {end.strip()}")
    fuzzed = targets if arguments.seconds else []   # given 0 seconds, libFuzzer would go on for ever
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        executed = dict(zip(fuzzed, pool.map(lambda target: fuzz_until(target, arguments.seconds, arguments.least), fuzzed)))
    if arguments.keep:
        keep(targets[0], arguments.keep.read_bytes())
    if arguments.minimise:
        for target in targets:
            minimise(target)
    text = page(arguments.called)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "fuzzing.md").write_text(text)
    if arguments.summary:
        put(text, arguments.summary)
    print(text)
    broken = [f"{target}: see build/fuzz/{target}.log and build/fuzz/findings" for target in targets if findings(target)]
    broken += [f"{target}: executed nothing; see build/fuzz/{target}.log" for target, count in executed.items() if count == 0]
    for target in (target for target in READERS if target in targets):
        count = by_these(target)
        if count < arguments.least:
            broken.append(f"{target}: {count:,} executions by the program and of the source that are there; "
                          f"at least {arguments.least:,} are asked for")
    for line in broken:
        print(line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
