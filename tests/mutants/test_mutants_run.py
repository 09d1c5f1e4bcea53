"""tests/mutants/run.py: only a test that failed has noticed a fault; all else fails the run.

Method: a tree of one file, whose tests are scripts of a few lines that print as GoogleTest does; cmake is one, too.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

found = importlib.util.spec_from_file_location("mutants_run", pathlib.Path(__file__).resolve().parent / "run.py")
mutants = importlib.util.module_from_spec(found)   # tests/full has a run.py, too
found.loader.exec_module(mutants)

# Copies the named programs from the tree, if what it stands for compiles.
CMAKE = """#!/bin/sh
if [ "$1" = --preset ]; then mkdir -p build/$2 && touch build/$2/build.ninja; exit; fi
build=$2; shift 5
if grep -q ';;' src/sum.cc; then echo 'src/sum.cc:1: error: a declaration is empty'; exit 1; fi
for target; do cp tests/$target $build/$target && cat src/sum.cc >> $build/$target; done
"""
# Its test `failing` fails where the tree is not right; no other can be started there.
CTEST = """#!/bin/sh
grep -q '^# a + b' "$2/../../src/sum.cc" && exit
case $4 in *failing*) echo '1/1 Test #1: failing ....***Failed  0.00 sec' ;; *) echo 'Could not find executable' ;; esac; exit 8
"""
RIGHT = "# a + b\n"
GOOD = "#!/bin/sh\nif grep -q '^# a + b' $0; then echo '[  PASSED  ] 1 test.'; else echo '[  FAILED  ] sums.are_sums (0 ms)'; exit 1; fi\n"
BLIND = "#!/bin/sh\necho '[  PASSED  ] 1 test.'\n"
# Fails once of what may be many times, as by chance.
ONCE = GOOD.replace("if grep", "if [ -e $0.run ] || grep").replace("else echo", "else touch $0.run; echo")


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """tree(patches, programs, arguments): the status of a run over patches {name: (Tests: and Race:, what a + b becomes)}."""
    root = tmp_path / "root"
    for folder in ("src", "tests/mutants", "bin"):
        (root / folder).mkdir(parents=True)
    (root / "src/sum.cc").write_text(RIGHT)
    for name, script in {"cmake": CMAKE, "ctest": CTEST}.items():
        (root / "bin" / name).write_text(script)
        (root / "bin" / name).chmod(0o755)
    (root / ".gitignore").write_text("build\n")
    subprocess.run(["git", "init", "-q", root], check=True)
    monkeypatch.setenv("PATH", f"{root}/bin:{os.environ['PATH']}")
    work = root / "build/mutants"
    for name, value in {"ROOT": root, "HERE": root / "tests/mutants", "WORK": work, "TREE": work / "tree", "RESULTS": work / "results.json",
                        "BUILDS": {preset: work / "tree/build" / preset for preset in ("release", "tsan")}}.items():
        monkeypatch.setattr(mutants, name, value)

    def ran(patches, programs, *arguments):
        for name, script in programs.items():
            (root / "tests" / name).write_text(script)
            (root / "tests" / name).chmod(0o755)
        for name, (tests, line) in patches.items():
            (root / f"tests/mutants/{name}.patch").write_text(
                f"What is wrong.\n\n{tests}\n\n--- a/src/sum.cc\n+++ b/src/sum.cc\n@@ -1 +1 @@\n-# a + b\n+{line}\n")
        monkeypatch.setattr(sys, "argv", ["run.py", "--jobs", "1", "--summary", str(tmp_path / "page.md"), *arguments])
        status = mutants.main()
        assert (mutants.TREE / "src/sum.cc").read_text() == RIGHT   # no fault stays in the tree
        return status
    return ran


def test_a_fault_that_a_test_notices_is_killed_and_the_page_names_the_test(tree, tmp_path, capsys):
    assert tree({"1-difference": ("Tests: blind good", "# a - b")}, {"good": GOOD, "blind": BLIND}) == 0
    assert "1 killed, 0 survived, 0 could not be tried" in capsys.readouterr().out
    page = (tmp_path / "page.md").read_text()
    assert "1 of 1 are killed" in page and "| 1-difference | What is wrong. | `good: sums.are_sums` |" in page


def test_a_fault_that_no_test_notices_survives_again_and_again(tree, tmp_path, capsys):
    for _ in range(2):   # the second time, it is known
        assert tree({"1-difference": ("Tests: blind", "# a - b")}, {"blind": BLIND}) == 1
        assert "0 killed, 1 survived, 0 could not be tried" in capsys.readouterr().out
    assert "0 of 1 are killed" in (tmp_path / "page.md").read_text()


def test_what_was_killed_is_tried_again_when_a_test_is_another(tree, capsys):
    fault = {"1-difference": ("Tests: good", "# a - b")}
    assert tree(fault, {"good": GOOD}) == 0 and "1-difference: killed" in capsys.readouterr().out
    assert tree(fault, {"good": GOOD}) == 0 and "1-difference: killed" not in capsys.readouterr().out
    assert tree(fault, {"good": BLIND}) == 1 and "1-difference: survived" in capsys.readouterr().out


UNTRIED = {
    "does not compile": (("Tests: good", "# a - b;;"), "does not build: src/sum.cc:1: error: a declaration is empty"),
    "does not apply": (("Tests: good", "# a - b\n--- a/src/gone.cc\n+++ b/src/gone.cc\n@@ -1 +1 @@\n-x\n+y"), "does not apply: "),
    "is ended by the system": (("Tests: killed", "# a - b"), "was ended from outside, by SIGKILL"),
    "has no such test": (("Tests: none:sums.*", "# a - b"), "none has no test sums.*"),
    "fails once": (("Tests: once", "# a - b"), "once: sums.are_sums failed once only"),
    "cannot be loaded": (("Tests: unloaded", "# a - b"), "unloaded ends with 127, and no test of it failed"),
    "cannot be started by ctest": (("Tests: ctest:gone", "# a - b"), "ctest:gone ends with 8, and no test of it failed"),
}
PROGRAMS = {"good": GOOD, "once": ONCE,
            "unloaded": "#!/bin/sh\ngrep -q '^# a + b' $0 || { echo 'error while loading shared libraries'; exit 127; }\n",
            "killed": "#!/bin/sh\ngrep -q '^# a + b' $0 || kill -9 $$\n",
            "none": "#!/bin/sh\ngrep -q '^# a + b' $0 || echo '[==========] 0 tests from 0 test suites ran.'\n"}


@pytest.mark.parametrize("case", UNTRIED)
def test_a_fault_that_could_not_be_tried_is_not_killed(case, tree, tmp_path, capsys):
    fault, told = UNTRIED[case]
    assert tree({"1-fault": ("Tests: good", "# a - b")}, PROGRAMS) == 0   # what was known of another patch is forgotten
    capsys.readouterr()
    assert tree({"1-fault": fault}, PROGRAMS) == 1
    out = capsys.readouterr().out
    assert told in out and "0 killed, 0 survived, 1 could not be tried" in out
    assert "0 of 1 are killed by tests of the first tier, 1 were not run" in (tmp_path / "page.md").read_text()


def test_the_test_that_failed_fails_again_alone(tree, capsys):
    told = GOOD.replace("#!/bin/sh\n", "#!/bin/sh\necho $* >> $0.runs\n")
    assert tree({"1-difference": ("Tests: good", "# a - b")}, {"good": told}) == 0
    runs = next(mutants.BUILDS["release"].rglob("good.runs")).read_text().splitlines()
    assert [run.split("=")[1] for run in runs] == ["*", "*", "sums.are_sums"]   # the first is without the fault


def test_of_pytests_file_the_test_that_failed_fails_again_alone(monkeypatch, tmp_path):
    calls = []
    told = "FAILED tests/cli/test_a.py::test_b[one two] - AssertionError: no - yes\n1 failed, 3 passed in 0.1s\n"
    monkeypatch.setattr(mutants, "program_of", lambda test: tmp_path / "heed")
    monkeypatch.setattr(mutants, "run", lambda command, log, **more: calls.append(command[-1]) or (1, told))
    name, alone = mutants.killer_of_the_command("pytest:tests/cli/test_a.py", tmp_path / "log")
    assert (name, alone) == ("cli/test_a.py::test_b[one two]", "pytest:tests/cli/test_a.py::test_b[one two]")
    mutants.killer_of_the_command(alone, tmp_path / "log")
    assert calls[1] == mutants.TREE / "tests/cli/test_a.py::test_b[one two]" and mutants.target_of(alone) == "heed_cli"


def test_what_is_known_is_of_the_instruction_sets_of_this_cpu(tree, monkeypatch, capsys):
    fault, programs = {"1-difference": ("Tests: good", "# a - b")}, {"good": GOOD}
    assert tree(fault, programs) == 0 and tree(fault, programs) == 0
    assert "of 1 it is known what became of them" in capsys.readouterr().out
    monkeypatch.setattr(mutants.evidence, "instruction_sets", lambda: ["scalar"])
    assert tree(fault, programs) == 0 and "it is known" not in capsys.readouterr().out


def test_a_crash_is_noticed_and_so_is_what_fails_in_ctest(tree, tmp_path):
    crashes = "#!/bin/sh\necho '[ RUN      ] sums.are_sums'; grep -q '^# a + b' $0 || kill -SEGV $$\n"
    faults = {"1-crash": ("Tests: crashes", "# a - b"), "2-failure": ("Tests: ctest:failing", "# a - b")}
    assert tree(faults, {"crashes": crashes}) == 0
    page = (tmp_path / "page.md").read_text()
    assert "`crashes: sums.are_sums (it crashed, -11)`" in page and "`failing`" in page


@pytest.mark.parametrize("line, status", [("", 1), ("\nHangs: yes", 0)])
def test_a_test_without_an_end_notices_only_what_is_to_hang(line, status, tree, monkeypatch, capsys):
    monkeypatch.setattr(mutants, "LIMIT", 2)
    loops = "#!/bin/sh\ngrep -q '^# a + b' $0 || exec sleep 60\n"
    assert tree({"1-loop": (f"Tests: loops{line}", "# a - b")}, {"loops": loops}) == status
    assert "loops has no end after 2 s" in capsys.readouterr().out


def test_tests_that_fail_without_a_fault_notice_none(tree):
    with pytest.raises(SystemExit, match="^without any fault, this fails: red: sums.are_red"):
        tree({"1-difference": ("Tests: red", "# a - b")}, {"red": "#!/bin/sh\necho '[  FAILED  ] sums.are_red (0 ms)'; exit 1\n"})


RACY = """#!/bin/sh
case $0 in */tsan/*) grep -q '^# a + b' $0 && echo '[  PASSED  ] 1 test.' || echo 'WARNING: ThreadSanitizer: {} (pid=1)' ;;
*) grep -q '^# a + b' $0 || {{ echo '[  FAILED  ] sums.are_sums (0 ms)'; exit 1; }} ;; esac
"""


@pytest.mark.parametrize("report, status", [("data race", 0), ("signal handler", 1), ("heap-use-after-free", 1)])
def test_a_race_is_killed_by_the_report_of_a_race_alone(report, status, tree, tmp_path):
    assert tree({"1-race": ("Tests: racy\nRace: racy", "# a - b")}, {"racy": RACY.format(report)}) == status
    assert ("racy: sums.are_sums; ThreadSanitizer: data race" in (tmp_path / "page.md").read_text()) == (status == 0)


def test_a_race_that_is_reported_need_not_be_lost_twice(tree):
    assert tree({"1-race": ("Tests: once\nRace: racy", "# a - b")}, {"once": ONCE, "racy": RACY.format("data race")}) == 0


def test_a_race_without_a_report_was_not_tried(tree, capsys):
    quiet = RACY.format("data race").replace("|| echo 'WARNING", "|| false 'WARNING")
    assert tree({"1-race": ("Tests: racy\nRace: racy", "# a - b")}, {"racy": quiet}) == 1
    assert "under ThreadSanitizer ends with 1, and without a report" in capsys.readouterr().out


def test_two_runs_at_once_are_refused(tree, capsys):
    fault, programs = {"1-difference": ("Tests: good", "# a - b")}, {"good": GOOD}
    assert tree(fault, programs) == 0
    with open(mutants.WORK / "lock", "w") as other:
        mutants.fcntl.flock(other, mutants.fcntl.LOCK_EX)
        with pytest.raises(SystemExit):
            tree(fault, programs)
    assert "another run is at work in build/mutants" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, told", [(("nothing",), "no patch has such a name: nothing"),
                                             (("1", "12"), "no patch has such a name: 12"), (("1",), "expected no names beside --summary")])
def test_names_are_of_patches_and_a_summary_is_of_all(arguments, told, tree, capsys):
    with pytest.raises(SystemExit):
        tree({"1-difference": ("Tests: good", "# a - b")}, {"good": GOOD}, *arguments)
    assert told in capsys.readouterr().err


def test_no_fault_of_the_tree_is_lost():
    """A patch that is gone would leave a page of fewer, on which all are killed."""
    faults = [mutants.Mutant(path) for path in pathlib.Path(__file__).resolve().parent.glob("*.patch")]
    assert sorted(fault.number for fault in faults) == [*range(1, 76)]
    assert sum(bool(fault.races) for fault in faults) == 1 and all(fault.tests and fault.what for fault in faults)
