"""commands.py finds each flag that should not be there, and each that is missing, in lists that are made wrong."""

import json
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
GOOD = ("-O3 -ffp-contract=off -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -MD -fPIC -fno-trapping-math "
        "-DNAME=-march")
MADE = "cli/CMakeFiles/heed_cli.dir/main.cc.o"


def said(folder, *changed, hardened=True):
    """Of a build of 50 good objects and these, (object, flags), in two folders, as generators of Makefiles have it."""
    (folder / "x.cc").write_text("// X.\n")
    (folder / "empty.cc").write_text("")
    (folder / "src").mkdir(exist_ok=True)
    good = [{"directory": str(folder / "src"), "file": str(folder / "x.cc"), "command": f"c++ {GOOD} -o x{i}.cc.o -c x.cc"}
            for i in range(50)]
    more = [{"directory": str(folder), "file": str(folder / "x.cc"), "command": f"c++ {flags} -o {made} -c x.cc"}
            for made, flags in changed]
    empty = {"directory": str(folder), "file": str(folder / "empty.cc"), "command": "c++ -o empty.o -c empty.cc"}
    (folder / "compile_commands.json").write_text(json.dumps([*good, *more, empty]))
    done = subprocess.run([sys.executable, HERE / "commands.py", folder / "compile_commands.json",
                           *["--hardened"] * hardened], capture_output=True, text=True)
    assert done.returncode == bool(done.stdout.strip()) and not done.stderr, done
    return done.stdout.strip()


def test_good_commands_pass(tmp_path):
    kernels = GOOD + " -fno-stack-protector"
    assert said(tmp_path, (MADE, GOOD), ("src/CMakeFiles/heed.dir/kernels/bf16.cc.o", kernels), ("tests/x.o", "-ffp-contract=off"),
                ("training/CMakeFiles/heed_training_text.dir/x.cc.o", "-ffp-contract=off")) == ""
    assert said(tmp_path, (MADE, "-ffp-contract=off"), hardened=False) == ""


@pytest.mark.parametrize("flag", [
    "-mavx2", "-march=native", "-ffast-math", "-Ofast", "-ffp-contract=fast", "-ffp-contract=on", "-fno-signed-zeros",
    "-fcx-limited-range", "-ffinite-math-only", "-funsafe-math-optimizations", "-fassociative-math", "-freciprocal-math",
    "-ffp-model=fast", "-fapprox-func", "-fno-honor-nans", "-fdenormal-fp-math=preserve-sign"])
def test_a_flag_that_changes_the_arithmetic_is_found_wherever_it_stands(flag, tmp_path):
    for flags in (f"{flag} {GOOD}", f"{GOOD} {flag}"):
        for made in (MADE, "tests/x.o"):
            assert f"{made}: {flag} changes the machine or the arithmetic" in said(tmp_path, (made, flags), hardened=False)


@pytest.mark.parametrize("made", [MADE, "src/io/CMakeFiles/heed_io.dir/npy.cc.o", "src/CMakeFiles/heed.dir/kernels/targets.cc.o",
                                  "python/CMakeFiles/heed_python.dir/src/array.cc.o",
                                  "training/CMakeFiles/heed_training.dir/learning.cc.o"])
def test_what_is_shipped_without_hardening_is_found(made, tmp_path):
    for flags, told in ((GOOD.replace("-fstack-protector-strong", ""), "nothing where -fstack-protector-strong"),
                        (GOOD + " -fno-stack-protector", "-fno-stack-protector where -fstack-protector-strong"),
                        (GOOD + " -U_FORTIFY_SOURCE", "-U_FORTIFY_SOURCE where -D_FORTIFY_SOURCE=2"),
                        (GOOD.replace("=2", "=0"), "-D_FORTIFY_SOURCE=0 where -D_FORTIFY_SOURCE=2")):
        assert said(tmp_path, (made, flags)).startswith(f"{made}: {told}"), flags


def test_a_reader_of_files_without_the_assertions_of_the_standard_library_is_found(tmp_path):
    made, told = "src/io/CMakeFiles/heed_io.dir/npz_reader.cc.o", "where -D_GLIBCXX_ASSERTIONS is expected: it reads files"
    asserts = f"{GOOD} -D_GLIBCXX_ASSERTIONS"
    assert said(tmp_path, (made, asserts)) == said(tmp_path, (MADE, GOOD)) == said(tmp_path, (made, GOOD), hardened=False) == ""
    assert said(tmp_path, (made, GOOD)) == f"{made}: nothing {told}"
    assert said(tmp_path, (made, f"{asserts} -U_GLIBCXX_ASSERTIONS")) == f"{made}: -U_GLIBCXX_ASSERTIONS {told}"


def test_contraction_that_nobody_forbade_is_found(tmp_path):
    assert said(tmp_path, ("tests/x.o", "-O3")) == "tests/x.o: nothing where -ffp-contract=off is expected"


def test_a_list_of_nothing_is_found(tmp_path):
    (tmp_path / "compile_commands.json").write_text("[]")
    done = subprocess.run([sys.executable, HERE / "commands.py", tmp_path / "compile_commands.json"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("0 objects of what is shipped")
