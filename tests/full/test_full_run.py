"""tests/full/run.py: what did not run is not passed, and arguments are refused before anything runs.

Method: programs of a few lines of Python stand where the tests would be.
"""

import json
import pathlib
import re
import shutil
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run as full  # noqa: E402

ALL = "fpu fma avx2 avx512f avx512_bf16"
ALL_SHARDS = 2 + 1 + 2 + 2 + len(full.BLOCKS) - 1  # properties, a drawn test, sweeps, core block, each other block
CASES = full.BLOCKS[full.MATRIX][1]
MERGE = next(iter(full.DRAWN))
OLD = "fpu fma avx2 avx512f"
PROGRAM = '''#!{python}
import json, os, sys
names = {names}
if sys.argv[1] == "--gtest_list_tests":
    print("Running main()", "all.", *("  " + name for name in names), sep="\\n")
else:
    name = sys.argv[1].removeprefix("--gtest_filter=all.")
    one = {{"name": name, **names[name]}}
    code = one.pop("code", 0)
    open(sys.argv[2].removeprefix("--gtest_output=json:"), "w").write(json.dumps({{"testsuites": [{{"testsuite": [one]}}]}}))
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)
'''


@pytest.fixture
def tier(tmp_path, monkeypatch):
    """A tier of two properties, a drawn test of another program, two sweeps, two shards of the core block and one of each other; tier(changes) runs it."""
    monkeypatch.setattr(full, "ROOT", tmp_path)
    monkeypatch.setattr(full, "BUILD", tmp_path / "bin")
    monkeypatch.setattr(full, "KEPT", tmp_path / "kept")
    first, second = full.PROPERTIES
    left_out = {second, *list(full.DRAWN)[1:]}
    monkeypatch.setattr(full, "PRESETS", {name: (called, tuple("p/p_bits" if one == first else one for one in programs if one not in left_out))
                                          for name, (called, programs) in full.PRESETS.items()})
    monkeypatch.setattr(full, "DRAWN", {MERGE: ("drawn", 1)})
    monkeypatch.setattr(full, "SWEPT", {"all.sweep": 100, "all.another": 70})
    monkeypatch.setattr(full, "BLOCKS", {block: (2 if block == full.MATRIX else 1, cases)
                                         for block, (_, cases) in full.BLOCKS.items()})
    monkeypatch.setattr(full, "digest", lambda program: "the same")
    monkeypatch.setattr(full, "WITHOUT_KEYS", {full.MATRIX: 3})
    monkeypatch.setattr(full, "kind", lambda shard: shard[0])
    (tmp_path / "tests/p").mkdir(parents=True)
    (tmp_path / "tests/p/bits.cc").write_text("TEST(all, one) {}\nTEST_F(all, two) {}\n")
    written = full.written_tests
    monkeypatch.setattr(full, "written_tests", lambda program: written(program, tmp_path))

    def counted(block):
        return {"mistrusted": "0"} if block in full.COUNTED else {}

    def write_programs(changes):
        wanted = {"p/p_bits": {"one": {"cases": "5000"}, "two": {"cases": "5000"}}, full.SWEEPS: {"sweep": {"cases": "100"}, "another": {"cases": "70"}, "other": {}},
                  MERGE: {"drawn": {"cases": "5000"}, "other": {}},
                  **{block: {block.replace("/", "_"): {"cases": str(cases), **counted(block)}} for block, (_, cases) in full.BLOCKS.items()},
                  full.MATRIX: {name: {"cases": str(CASES), **counted(full.MATRIX)} for name in ("f32", "f64")}}
        for program, tests in changes.items():
            wanted[program] = {**wanted[program], **tests}
        for program, tests in wanted.items():
            path = tmp_path / "bin" / program
            path.parent.mkdir(parents=True, exist_ok=True)
            names = {name: told for name, told in tests.items() if told is not None}
            path.write_text(PROGRAM.format(python=sys.executable, names=repr(names)))
            path.chmod(0o755)

    def ran(changes=None, *arguments, flags=ALL):
        write_programs(changes or {})
        monkeypatch.setattr(full, "KEPT", tmp_path / "kept")   # as a process begins
        return full.main(["--summary", "summary.md", *arguments], flags)
    return ran


def told(tmp_path):
    return (tmp_path / "summary.md").read_text()


def test_what_passes_passes_and_is_not_run_again(tier, tmp_path, capsys):
    assert tier() == 0 and "Failed: none." in told(tmp_path)
    assert capsys.readouterr().err.count("passed ") == 1 + ALL_SHARDS
    assert tier({full.MATRIX: {"f32": {"code": 1}}}) == 0
    assert f"{ALL_SHARDS} of them passed before" in capsys.readouterr().err


@pytest.mark.parametrize("program, tests", [
    (full.MATRIX, {"f32": {"cases": str(CASES), "code": 1}}),
    (full.MATRIX, {"f32": {"cases": str(CASES - 1)}}),
    (full.BASES, {"full_full_bases": {"cases": "3219"}}),
    (full.MATRIX, {"f32": {"cases": str(CASES)}}),  # without a word on zeros
    (full.SWEEPS, {"sweep": {"cases": "99"}}),  # as without HEED_EXHAUSTIVE
    (full.SWEEPS, {"another": {"cases": "0"}}),
    ("p/p_bits", {"one": {"cases": str(full.DRAWS), "code": 1}}),
    ("p/p_bits", {"one": {"cases": "200"}}),  # as without HEED_TEST_DRAWS
    (MERGE, {"drawn": {"cases": "25"}}),
])
def test_what_fails_or_runs_other_cases_fails(tier, tmp_path, program, tests):
    assert tier({program: tests}) == 1 and "Failed: `all." in told(tmp_path)


@pytest.mark.parametrize("program, test", [(full.MATRIX, "f32"), ("p/p_bits", "two")])
def test_what_is_skipped_has_not_passed(tier, tmp_path, capsys, program, test):
    skipped = {program: {test: {"result": "SKIPPED"}}}
    assert tier(skipped) == 1
    assert f"| {program} | 2 | 1 | 0 | 1 | 0 |" in told(tmp_path) and "has no instructions for" not in told(tmp_path)
    (result,) = (tmp_path / "kept").rglob(f"all.{test}.json")
    assert json.loads(result.read_text())["passed"] is False
    assert f"Failed: `all.{test}`, skipped" in told(tmp_path)
    assert tier(skipped, "--allow-missing-isa") == 1   # nothing is missing
    assert f"{ALL_SHARDS - 1} of them passed before" in capsys.readouterr().err


def test_where_instructions_are_missing_what_needs_them_alone_may_be_skipped(tier, tmp_path):
    page = tmp_path / "summary_without_avx512_bf16.md"
    dots = {"f32": None, "bf16_dots": {"result": "SKIPPED"}}
    assert tier({full.MATRIX: dots}, "--allow-missing-isa", flags=OLD) == 0
    assert "Failed: none." in page.read_text() and "not known to be right: 1 shards" in page.read_text()
    assert tier({full.MATRIX: dots}, "--allow-missing-isa") == 1   # they are not missing here
    assert tier({full.MATRIX: {"f32": {"result": "SKIPPED"}}}, "--allow-missing-isa", flags=OLD) == 1
    assert "Failed: `all.f32`, skipped" in page.read_text()


@pytest.mark.parametrize("changes", [
    {full.MATRIX: {"f32": None}},
    {full.BASES: {"full_full_bases": None}},
    {full.MATRIX: {"f16": {}}},
    {full.SWEEPS: {"sweep": None}},
    {full.SWEEPS: {"another": None}},
    {MERGE: {"drawn": None}},
    {"p/p_bits": {"two": None}},
])
def test_a_missing_shard_is_noticed_before_anything_runs(tier, tmp_path, capsys, changes):
    assert tier(changes) == 4 and not (tmp_path / "kept").exists()
    assert "expected" in capsys.readouterr().err


def test_each_program_that_draws_is_one_of_the_tier():
    programs = [program.split("/") for program in (*full.PROPERTIES, *full.DRAWN)]
    drawing = [path for path in (full.ROOT / "tests").rglob("*_test.cc") if re.search(r"\b(for_)?draws\(", path.read_text())]
    assert len(drawing) == len(programs) + 1   # shrink_test, of draws() itself
    for path in drawing:
        assert path.stem == "shrink_test" or any(path.parent.name == folder and name.endswith(path.stem) for folder, name in programs), path


def test_a_cpu_without_an_instruction_set_needs_leave(tier, tmp_path, capsys):
    assert tier({}, flags=OLD) == 4 and not (tmp_path / "kept").exists()
    assert "this CPU has no avx512_bf16" in capsys.readouterr().err
    assert tier({}, "--check", flags=OLD) == 4
    assert tier({}, "--allow-missing-isa", flags=OLD) == 0
    with pytest.raises(SystemExit):
        tier({}, "--allow-missing", flags=OLD)   # ./dev looks for the whole word, for ./dev coverage


@pytest.mark.parametrize("lacking, told", [("avx2", "avx2"), ("fma", "fma"), ("fma avx2", "avx2 and no fma")])
def test_a_cpu_that_cannot_run_the_oracle_gets_no_leave(tier, tmp_path, capsys, lacking, told):
    old = " ".join(word for word in OLD.split() if word not in lacking.split())
    for more in ([], ["--check"]):
        assert tier({}, "--allow-missing-isa", *more, flags=old) == 4 and not (tmp_path / "kept").exists()
        assert capsys.readouterr().err == f"this CPU has no {told}: the oracle of the core block cannot run\n"


def test_a_page_of_more_instruction_sets_stays(tier, tmp_path, capsys):
    (tmp_path / "summary.md").write_text("all of them\n")
    assert tier({}, "--allow-missing-isa", "--check", flags=OLD) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'summary_without_avx512_bf16.md'}\n"
    assert tier({}, "--allow-missing-isa", flags=OLD) == 0
    assert told(tmp_path) == "all of them\n"
    assert "on a CPU without avx512_bf16, " in (page := (tmp_path / "summary_without_avx512_bf16.md").read_text())
    assert not full.evidence.wrong(page)
    assert tier({}, "--allow-missing-isa") == 0
    assert "on a CPU without" not in told(tmp_path) and "Failed: none." in told(tmp_path)


def test_what_passed_on_fewer_instruction_sets_has_not_passed_on_more(tier, tmp_path, capsys):
    assert tier({}, "--allow-missing-isa", flags=OLD) == 0
    fails = {full.MATRIX: {"f32": {"cases": str(CASES), "code": 1}}}
    assert tier(fails) == 1 and "Failed: `all.f32`" in told(tmp_path)
    assert tier(fails, "--allow-missing-isa", flags=OLD) == 0
    before = [line for line in capsys.readouterr().err.splitlines() if line.endswith("passed before")]
    assert [int(line.split()[2]) for line in before] == [0, 0, ALL_SHARDS]


def test_what_failed_once_has_failed(tier, tmp_path, capsys):
    assert tier({full.MATRIX: {"f32": {"cases": str(CASES), "code": 1}}}) == 1
    assert tier() == 1 and "Failed: `all.f32`" in told(tmp_path)
    (forgotten,) = re.findall("FAILED before  all.f32; without (.*) it would run again", capsys.readouterr().err)
    pathlib.Path(forgotten).unlink()
    assert tier() == 0 and "Failed: none." in told(tmp_path)


def test_what_somebody_else_ended_has_not_run(tier, tmp_path):
    for name in (signal.SIGKILL, signal.SIGTERM):   # others may be ignored here, as under nohup
        assert name in full.ENDED
        assert tier({full.MATRIX: {"f32": {"cases": str(CASES), "code": -name}}}) == 3
        assert f"| {full.MATRIX} | 2 | 1 | 0 | 0 | 1 |" in told(tmp_path)
    assert tier() == 0


@pytest.mark.parametrize("arguments", [["--minutes", "soon"], ["--minutes", "0"], ["--minutes", "-3"], ["--minutes", "nan"],
                                       ["--minutes", "inf"], ["--jobs", "0"], ["--only", "["]])
def test_a_bad_argument_is_refused_before_anything_runs(tier, tmp_path, capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        tier({}, *arguments)
    assert stop.value.code == 2 and not (tmp_path / "kept").exists()
    assert f"is {arguments[1]!r}; expected" in capsys.readouterr().err


def test_a_pattern_that_fits_no_shard_is_refused_before_anything_runs(tier, tmp_path, capsys):
    (tmp_path / "summary.md").write_text("all of them\n")
    with pytest.raises(SystemExit) as stop:
        tier({}, "--only", "swepe")
    assert stop.value.code == 2 and not (tmp_path / "kept").exists() and told(tmp_path) == "all of them\n"
    assert f"--only: 'swepe' fits none of {ALL_SHARDS} shards" in capsys.readouterr().err


def test_a_part_runs_alone_and_its_summary_is_printed(tier, tmp_path, capsys):
    (tmp_path / "summary.md").write_text("all of them\n")
    assert tier({full.MATRIX: {"f32": {"code": 1}}}, "--only", "f(32|64)$") == 1
    assert told(tmp_path) == "all of them\n" and len(list((tmp_path / "kept").rglob("*.json"))) == 2
    output = capsys.readouterr().out
    assert f"| {full.MATRIX} | 2 | 1 | 1 | 0 | 0 |" in output and "Failed: `all.f32`" in output


def test_checking_runs_nothing(tier, tmp_path):
    assert tier({}, "--check", "--minutes", "3") == 0 and not (tmp_path / "kept").exists()


def test_another_preset_has_programs_and_results_of_its_own(tier, tmp_path, capsys):
    assert tier({}, "--preset", "asan") == 4
    assert f"{full.MATRIX} is not built" in capsys.readouterr().err
    (tmp_path / "build/asan").mkdir(parents=True)
    (tmp_path / "bin").rename(tmp_path / "build/asan/tests")
    assert tier({}, "--preset", "asan") == 0
    assert "AddressSanitizer" in told(tmp_path) and [path.name for path in (tmp_path / "kept").iterdir()] == ["asan"]


def test_thread_sanitizer_runs_what_has_threads(tier, tmp_path, capsys):
    assert tier({}, "--preset", "tsan") == 4
    assert capsys.readouterr().err == f"{full.BASES} is not built\n"
    (tmp_path / "build/tsan").mkdir(parents=True)
    (tmp_path / "bin").rename(tmp_path / "build/tsan/tests")
    assert tier({}, "--preset", "tsan") == 0
    assert capsys.readouterr().err.count("passed ") == 1 + 1
    assert "ThreadSanitizer" in told(tmp_path) and f"| {full.BASES} | 1 | 1 |" in told(tmp_path)
    assert full.MATRIX not in told(tmp_path) and "core block" not in told(tmp_path)


def test_shards_are_left_when_the_time_is_over(tier):
    assert tier({}, "--minutes", "1e-9") == 3


def test_another_program_is_not_known_to_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(full, "BUILD", tmp_path)
    seen = set()
    for text in (b"a program", b"another", b"a program"):
        (tmp_path / "one").write_bytes(text)
        seen.add(full.digest("one"))
    assert len(seen) == 2


def test_of_shards_that_are_all_skipped_nothing_is_counted(tier, tmp_path):
    dots = {"f32": None, "f64": None} | {f"bf16_dots/{n}": {"result": "SKIPPED"} for n in (1, 2)}
    assert tier({full.MATRIX: dots}, "--allow-missing-isa", flags=OLD) == 0
    assert "Failed: none." in (tmp_path / "summary_without_avx512_bf16.md").read_text()


def test_too_many_outputs_of_zeros_fail(tier, tmp_path):
    most = 3 + (2 * (CASES - 3)) // 100   # of two shards: those without keys, and one in a hundred of the others
    assert tier({full.MATRIX: {"f32": {"cases": str(CASES), "mistrusted": str(most)}}}) == 0
    assert f"| {2 * CASES:,} | {most - 3} |" in told(tmp_path)
    shutil.rmtree(tmp_path / "kept")
    assert tier({full.MATRIX: {"f32": {"cases": str(CASES), "mistrusted": str(most + 1)}}}) == 1
    assert "outputs are nearly all zeros" in told(tmp_path)


@pytest.mark.parametrize("program", [full.OPTIONS, full.RANDOM])
def test_zeros_are_judged_in_each_part_that_counts_them(tier, tmp_path, program):
    name, cases = program.replace("/", "_"), full.BLOCKS[program][1]
    assert tier({program: {name: {"cases": str(cases), "mistrusted": str(cases // 100)}}}) == 0
    assert f"| {cases:,} | {cases // 100} |" in told(tmp_path)
    assert f"| {full.BLOCKS[full.BASES][1]:,} | - |" in told(tmp_path)   # where none are counted
    shutil.rmtree(tmp_path / "kept")
    assert tier({program: {name: {"cases": str(cases), "mistrusted": str(cases // 100 + 1)}}}) == 1
    assert f"{program}: {cases // 100 + 1} of {cases} outputs are nearly all zeros" in told(tmp_path)


def test_the_tests_of_a_program_are_found():
    assert all(full.written_tests(program) > 5 for program in full.PROPERTIES)
