"""Seeded faults: applies each patch of this folder to a copy of the tree, and asks whether a test notices.

    python3 tests/mutants/run.py [NUMBER|NAME ..] [--jobs N] [--summary FILE]

A patch begins with what is wrong and a line `Tests:`, programs of the first tier that are built and run in
their order until one fails; `PROGRAM:FILTER` runs a part of one, `ctest:NAME` a test of ctest that needs no build,
`pytest:FILE` or `pytest:FILE::NAME` tests of the command. The test that failed must fail again when it runs alone. Of a fault
with a line `Race:` the program that this names must instead report a data race, built with the preset tsan; a line
`Hangs: yes` says that a test may notice by having no end. The copy lies in build/mutants/tree and has else the preset
release, so that ccache gives back all that a fault does not touch. What was tried once is not tried again as long
as the patch, src, include, cli, cmake, tests/rules and the programs it names are the same: the run can be stopped at any
time. Before the first fault all named programs must pass on the tree as it is. Exits with 1 if a fault survives, does not
apply or does not compile, or if no test can be told from what failed.
"""

import argparse
import datetime
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import evidence  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
BUILDS = {preset: TREE / "build" / preset for preset in ("release", "tsan")}
RESULTS = WORK / "results.json"
RACE = "ThreadSanitizer: data race"
ENDED = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)   # who was ended by somebody else has noticed nothing
LIMIT = 900  # seconds of one test program; the longest takes a tenth of it on two cores


class Broken(Exception):
    """The fault says nothing about the tests: its patch is out of date or does not compile, or what failed is no test."""


class Mutant:
    def __init__(self, path):
        self.path, self.name, self.text = path, path.stem, path.read_text(encoding="utf-8")
        self.number = int(self.name.split("-")[0])
        self.what = self.text.split("\n\n")[0].replace("\n", " ")
        self.tests = re.search(r"^Tests: (.+)$", self.text, re.M)[1].split()
        self.hangs = re.search(r"^Hangs: yes$", self.text, re.M) is not None
        self.races = [test for line in re.findall(r"^Race: (.+)$", self.text, re.M) for test in line.split()]

    def called(self, name):
        return name == self.name or (name.isdigit() and int(name) == self.number)


def run(command, log, **more):
    """Status and output, which also goes to a log."""
    done = subprocess.run([str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", **more)
    log.write_text(done.stdout, encoding="utf-8")
    if -done.returncode in ENDED:
        raise Broken(f"{command[0]} was ended from outside, by {signal.Signals(-done.returncode).name}")
    return done.returncode, done.stdout


def tracked(*folders):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *folders], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    return [name for name in sorted(listed) if name and (ROOT / name).is_file()]


def copy_tree():
    """The files of the working tree; those that did not change keep their times, so little is built again."""
    names = set(tracked())
    for old in [path for path in TREE.rglob("*") if path.is_file()] if TREE.exists() else []:
        name = old.relative_to(TREE).as_posix()
        if name not in names and not name.startswith("build/"):
            old.unlink()
    for name in names:
        source, to = ROOT / name, TREE / name
        if not to.is_file() or to.read_bytes() != source.read_bytes():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, to)
            shutil.copymode(source, to)


def digest(*texts):
    """Of library and command, of what builds them and looks at the build (`ctest:` tests), and of these texts."""
    whole = hashlib.sha256()
    for name in tracked("src", "include", "cli", "cmake", "CMakeLists.txt", "CMakePresets.json", "tests/rules"):
        whole.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    for text in texts:
        whole.update(text.encode())
    return whole.hexdigest()


def apply(patch, *flags):
    # Inside a repository git would take the patch's paths for its own.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(WORK)}
    done = subprocess.run(["git", "apply", *flags, str(patch)], cwd=TREE, env=environment,
                          capture_output=True, text=True)
    if done.returncode:
        raise Broken(f"does not apply: {done.stderr.strip()}")


def build(programs, jobs, log, preset="release"):
    cache = {**os.environ, "CCACHE_NOHASHDIR": "1"}
    cache.setdefault("CCACHE_BASEDIR", str(ROOT))
    if not (BUILDS[preset] / "build.ninja").exists():
        status, output = run(["cmake", "--preset", preset], log, cwd=TREE, env=cache)
        if status:
            raise Broken(f"does not configure: {output[-2000:]}")
    if not programs:
        return
    status, output = run(["cmake", "--build", BUILDS[preset], "-j", jobs, "--target", *programs], log, cwd=TREE, env=cache)
    if status:
        errors = [line for line in output.split("\n") if "error" in line]
        raise Broken("does not build: " + "\n".join(errors[:5] or [output[-2000:]]))


def target_of(test):
    """What is built for this test, or None."""
    kind = test.split(":")[0]
    return {"ctest": None, "pytest": "heed_cli"}.get(kind, kind)


def programs_of(tests):
    return sorted({target_of(test) for test in tests} - {None})


def program_of(test, preset="release"):
    name = {"heed_cli": "heed"}.get(target_of(test), target_of(test))
    return next(path for path in BUILDS[preset].rglob(name) if path.is_file())


def program_digest(test, preset="release"):
    """Of the program, and of what pytest runs with it."""
    whole = hashlib.sha256(program_of(test, preset).read_bytes())
    if test.startswith("pytest:"):
        for name in (test.removeprefix("pytest:").split("::")[0], "tests/cli/cli_support.py"):
            whole.update((ROOT / name).read_bytes())
    return whole.hexdigest()


def killer(test, log, hangs=False):
    """What failed, and what runs that alone; or None."""
    find = {"ctest": killer_of_ctest, "pytest": killer_of_the_command}.get(test.split(":")[0], killer_of_a_program)
    try:
        return find(test, log)
    except subprocess.TimeoutExpired:
        told = f"{test} has no end after {LIMIT} s"
        if not hangs:   # on a machine that is busy enough, anything
            raise Broken(told) from None
        return told, test


def killer_of_ctest(test, log):
    name = test.removeprefix("ctest:")
    status, output = run(["ctest", "--test-dir", BUILDS["release"], "-R", f"^{re.escape(name)}$", "--no-tests=error"], log)
    if status and "***Failed" not in output:
        raise Broken(f"{test} ends with {status}, and no test of it failed")
    return (name, test) if status else None


def killer_of_a_program(test, log):
    program = program_of(test)
    part = test.partition(":")[2] or "*"
    status, output = run([program, "--gtest_fail_fast", f"--gtest_filter={part}"], log, cwd=program.parent, timeout=LIMIT)
    if "] 0 tests from" in output:
        raise Broken(f"{program.name} has no test {part}")
    if status == 0:
        return None
    failed = re.findall(r"^\[  FAILED  \] (\S+?),? ", output, re.M)
    begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
    if not failed and (status > 0 or not begun):   # it could not be started, or ended by itself
        raise Broken(f"{program.name} ends with {status}, and no test of it failed")
    name = failed[0] if failed else begun[-1]
    return f"{program.name}: {name}{'' if failed else f' (it crashed, {status})'}", f"{program.name}:{name}"


def killer_of_the_command(test, log):
    """One that skips says nothing."""
    status, output = run([ROOT / ".venv/bin/python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
                          TREE / test.removeprefix("pytest:")], log, cwd=TREE, timeout=LIMIT,
                         env={**os.environ, "HEED_BIN": str(program_of(test))})
    failed = re.search(r"^FAILED (?:tests/)?(.+?)(?: - .*)?$", output, re.M)
    if failed:
        return failed[1], f"pytest:tests/{failed[1]}"
    if status or " skipped" in output or " passed" not in output:
        raise Broken(f"{test} says nothing: {output[-2000:]}")
    return None


def race(test, log):
    """What ThreadSanitizer reports of this test, or None. It is called as ./dev sanitize does."""
    alone = ["setarch", "-R"] if subprocess.run(["setarch", "-R", "true"], capture_output=True).returncode == 0 else []
    part = test.partition(":")[2] or "*"
    try:
        status, output = run([*alone, program_of(test, "tsan"), f"--gtest_filter={part}"], log, timeout=LIMIT,
                             env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"})
    except subprocess.TimeoutExpired:
        raise Broken(f"{test} under ThreadSanitizer has no end after {LIMIT} s") from None
    found = re.search(r"^WARNING: (ThreadSanitizer: [a-z -]+)", output, re.M)
    if found:
        return found[1].strip()
    if status or "[  PASSED  ]" not in output or "] 0 tests from" in output:
        raise Broken(f"{test} under ThreadSanitizer ends with {status}, and without a report")
    return None


def attempt(mutant, jobs):
    """What kills it, or None."""
    build(programs_of(mutant.tests), jobs, WORK / f"{mutant.name}.build.log")
    log = WORK / f"{mutant.name}.log"
    found, alone = next(filter(None, (killer(test, log, mutant.hangs) for test in mutant.tests)), (None, None))
    if not found:
        return None
    if not mutant.races:
        if not killer(alone, WORK / f"{mutant.name}.again.log", mutant.hangs):
            raise Broken(f"{found} failed once only")
        return found
    # A race need not be lost twice: ThreadSanitizer's report takes the place of the second time.
    build(programs_of(mutant.races), jobs, WORK / f"{mutant.name}.tsan.build.log", "tsan")
    reports = {race(test, WORK / f"{mutant.name}.tsan.log") for test in mutant.races}
    return f"{found}; {reports.pop()}" if reports == {RACE} else None


def load():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(results, name, **entry):
    results[name] = {**entry, "date": datetime.date.today().isoformat()}
    beside = RESULTS.with_suffix(".new")   # a stop or a full disk loses this one at most
    beside.write_text(json.dumps(results, indent=1, sort_keys=True))
    beside.replace(RESULTS)


def baseline(mutants, results):
    """Every named program passes on the tree as it is; one that is the same file need not be run again."""
    for test in sorted({test for mutant in mutants for test in mutant.tests}):
        key = program_digest(test) if target_of(test) else digest(test)
        if results.get(f"none {test}", {}).get("key") == key:
            continue
        found = killer(test, WORK / "none.log")
        if found:
            raise SystemExit(f"without any fault, this fails: {found[0]}")
        keep(results, f"none {test}", key=key)
        print(f"as it is, {test} passes", flush=True)
    for test in sorted({test for mutant in mutants for test in mutant.races}):
        key = program_digest(test, "tsan")
        if results.get(f"no race in {test}", {}).get("key") == key:
            continue
        if found := race(test, WORK / "none.log"):
            raise SystemExit(f"without any fault, {test}: {found}")
        keep(results, f"no race in {test}", key=key)
        print(f"as it is, {test} has no race", flush=True)


def key_of(mutant):
    """What decides whether a killed fault stays killed: patch, library, CPU, and the programs on the tree as it is."""
    return digest(mutant.text, *evidence.instruction_sets(), *(program_digest(test) for test in mutant.tests if target_of(test)))


def try_one(mutant, key, jobs, results):
    started, log = time.monotonic(), {}
    apply(mutant.path, "--check")
    apply(mutant.path)
    try:
        found = attempt(mutant, jobs)
        log = {"outcome": "killed" if found else "survived", "by": found or ""}
    finally:
        apply(mutant.path, "-R")
    keep(results, mutant.name, key=key, seconds=round(time.monotonic() - started), **log)


def summary(mutants, results):
    rows = [(mutant, results.get(mutant.name, {})) for mutant in mutants]
    killed = sum(entry.get("outcome") == "killed" for _, entry in rows)
    dates = sorted({entry["date"] for _, entry in rows if "date" in entry})
    lines = ["# Seeded faults", "",
             f"{killed} of {len(rows)} are killed by tests of the first tier"
             f"{f', {open_} were not run' if (open_ := sum(not entry for _, entry in rows)) else ''}. `./dev mutants`, "
             f"{' to '.join(sorted({dates[0], dates[-1]})) if dates else 'never run'}, {evidence.cpu()}, {evidence.SOURCE}.",
             "", "Each fault is a patch in `tests/mutants`; the test named is the first one that failed of the "
             "programs that its patch names, and failed again alone. A race must instead be reported by ThreadSanitizer, too.", "",
             "| fault | what is wrong | noticed by |", "|---|---|---|"]
    for mutant, entry in rows:
        by = f"`{entry['by']}`" if entry.get("by") else f"**{entry.get('outcome', 'not run')}**"
        lines.append(f"| {mutant.name} | {mutant.what} | {by} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="numbers or names of patches; without: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--summary", type=pathlib.Path, help="where to write what is known of all faults")
    arguments = parser.parse_args()
    every = sorted((Mutant(path) for path in HERE.glob("*.patch")), key=lambda mutant: mutant.number)
    if unknown := [name for name in arguments.names if not any(mutant.called(name) for mutant in every)]:
        parser.error(f"no patch has such a name: {', '.join(unknown)}")
    chosen = [mutant for mutant in every if not arguments.names or any(map(mutant.called, arguments.names))]
    if arguments.names and arguments.summary:
        parser.error("a summary is of all faults; expected no names beside --summary")
    WORK.mkdir(parents=True, exist_ok=True)
    alone = open(WORK / "lock", "w")  # until the process ends: two runs would take each other's tree away
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        parser.error(f"another run is at work in {WORK.relative_to(ROOT)}")
    copy_tree()
    results, broken = load(), 0
    build(programs_of(test for mutant in chosen for test in mutant.tests), arguments.jobs, WORK / "none.build.log")
    racing = programs_of(test for mutant in chosen for test in mutant.races)
    if racing:
        build(racing, arguments.jobs, WORK / "none.build.log", "tsan")
    keys = {mutant.name: key_of(mutant) for mutant in chosen}
    todo = [mutant for mutant in chosen if results.get(mutant.name, {}).get("key") != keys[mutant.name]]
    if len(todo) < len(chosen):   # a survivor too: who tries until it is killed proves nothing
        print(f"of {len(chosen) - len(todo)} it is known what became of them; rm -r {WORK.relative_to(ROOT)} to run all")
    baseline(todo, results)
    for mutant in todo:
        try:
            try_one(mutant, keys[mutant.name], arguments.jobs, results)
        except Broken as error:
            broken += 1
            results.pop(mutant.name, None)
            print(f"{mutant.name}: {error}", flush=True)
            continue
        entry = results[mutant.name]
        print(f"{mutant.name}: {entry['outcome']} {entry['by']} ({entry['seconds']} s)", flush=True)
    if arguments.summary:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(summary(every, results), encoding="utf-8")
    survived = [mutant.name for mutant in chosen if results.get(mutant.name, {}).get("outcome") == "survived"]
    print(f"{len(chosen) - len(survived) - broken} killed, {len(survived)} survived, {broken} could not be tried")
    return 1 if survived or broken else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Broken as error:   # without any fault
        sys.exit(f"the tree as it is: {error}")
