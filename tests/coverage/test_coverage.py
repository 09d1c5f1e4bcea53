"""The report of ./dev coverage: what is missed and not listed fails it, and what is listed and reached."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kernels  # noqa: E402
import report  # noqa: E402
import unreached  # noqa: E402

SOURCE = "if (a || b) {\n  x();\n}\nif (a || b) {\n"


def gcovr(*lines):
    """gcovr's JSON of one file: of each line its number, times run, and times each branch was taken."""
    return [{"file": "src/io/a.cc", "lines": [
        {"line_number": number, "count": count, "branches": [{"branchno": i, "count": n} for i, n in enumerate(branches)]}
        for number, count, branches in lines]}]


@pytest.fixture
def root(tmp_path):
    (tmp_path / "src/io").mkdir(parents=True)
    (tmp_path / "src/io/a.cc").write_text(SOURCE)
    return tmp_path


def table(*rows):
    return "\n".join(["# Title", "", unreached.HEAD, "|---|---|---|---|", *rows, "", "after"])


def found(root, *lines):
    return unreached.missed(gcovr(*lines), root, "src/io")


def test_what_is_reached_is_no_place(root):
    assert found(root, (1, 2, [1, 1]), (2, 1, [])) == {}


def test_branches_and_lines_that_are_missed_are_places_by_their_text(root):
    assert found(root, (1, 2, [2, 0]), (2, 0, [])) == {("src/io/a.cc", "if (a || b) {"): 1, ("src/io/a.cc", "x();"): 0}


def test_a_brace_that_is_not_run_is_no_place(root):
    assert found(root, (3, 0, [])) == {}


def test_lines_of_one_text_are_one_place(root):
    assert found(root, (1, 2, [2, 0]), (4, 2, [0, 0])) == {("src/io/a.cc", "if (a || b) {"): 3}


def test_a_branch_that_one_instance_takes_is_taken(root):
    assert found(root, (1, 2, [2, 0]), (1, 1, [0, 1])) == {}


def test_readers_in_other_folders_are_reached_whole():
    (name,) = report.REACHED
    line = next(n for n, text in enumerate((report.ROOT / name).read_text().splitlines(), 1) if text.strip().startswith("if ("))

    def told(*branches):
        (file,) = gcovr((line, 2, branches))
        return list(report.not_reached([file | {"file": name}]))
    assert told(1, 1) == []
    (missed,) = told(2, 0)
    assert missed.startswith(f"no test reaches {name}: `if (")
    assert list(report.not_reached([])) == [f"{name} was not measured"]


def test_other_folders_are_left_out(root):
    assert unreached.missed(gcovr((1, 2, [2, 0])), root, "src/attention") == {}


def test_the_table_is_read(root):
    rows = ["| a.cc | 2 | `if (a \\|\\| b) {` | because |", "| | 0 | `x();` | as above |", "| b.cc | 1 | `y();` | so |"]
    assert unreached.listed(table(*rows), "src/io") == {
        ("src/io/a.cc", "if (a || b) {"): 2, ("src/io/a.cc", "x();"): 0, ("src/io/b.cc", "y();"): 1}
    place = "src/io/a.cc", "if (a || b) {"
    assert unreached.listed(table(unreached.row(place, 2, "src/io") + " because |"), "src/io") == {place: 2}


@pytest.mark.parametrize("rows", [["| a.cc | 2 | `x();` | |"], ["| a.cc | 2 | `x();` | so |", "| | 1 | `x();` | so |"]])
def test_a_row_without_a_reason_and_a_place_that_occurs_twice_are_refused(rows):
    with pytest.raises(ValueError):
        unreached.listed(table(*rows), "src/io")


@pytest.mark.parametrize("known, words", [
    ({}, "does not have"), ({("a", "x"): 2}, "1 branches are not reached"), ({("a", "x"): 1, ("a", "y"): 1}, "what the tests reach")])
def test_each_way_to_disagree_is_told(known, words):
    (told,) = unreached.differences({("a", "x"): 1}, known, "src/io")
    assert words in told


def test_a_new_place_does_not_hide_behind_an_old_one():
    assert len(list(unreached.differences({("a", "new"): 1}, {("a", "old"): 1}, "src/io"))) == 2


def test_the_table_of_the_tree_names_lines_that_are_there():
    for (file, source), _ in unreached.listed(report.UNREACHED.read_text(), report.LISTED).items():
        assert source in map(str.strip, (report.ROOT / file).read_text().splitlines()), f"{file}: {source}"


KERNEL = """int f() {
  if constexpr (kBig) {
    big();
  } else if constexpr (kHuge) {
    huge();
  }
  if (a) {
    rare();
  }
  return 0;
}
"""


def exported(*instances):
    """llvm-cov's export: of each instance its name and the regions (first, column, last, column, count)."""
    return {"data": [{"functions": [
        {"name": name, "filenames": ["/x/src/kernels/k.h"], "regions": [[*region, 0, 0, kernels.CODE] for region in regions],
         "branches": branches} for name, branches, *regions in instances]}]}


def lines_of(tmp_path, *instances):
    (tmp_path / "src/kernels").mkdir(parents=True, exist_ok=True)
    (tmp_path / "src/kernels/k.h").write_text(KERNEL)
    lines, branches = kernels.measure(exported(*instances), tmp_path)
    return {target: {line: count for (_, line), count in own.items()} for target, own in lines.items()}, branches


WHOLE = (1, 9, 11, 2, 4)
RARE = (7, 10, 9, 4, 0)


def test_lines_belong_to_the_instruction_set_in_the_functions_name(tmp_path):
    lines, _ = lines_of(tmp_path, ("_ZN6N_AVX21fE", [], WHOLE, RARE), ("_ZN6N_AVX36paired1fE", [], (1, 9, 11, 2, 0)),
                        ("_ZN8N_EMU1281fE", [], WHOLE), ("_ZN1fE", [], WHOLE))
    assert lines["AVX2"][8] == 0 and lines["AVX2"][10] == 4
    assert set(lines["AVX-512 BF16"].values()) == {0}
    assert lines["scalar"][8] == lines["all"][8] == 4 and "AVX-512" not in lines


def test_a_line_is_reached_where_one_instance_reaches_it(tmp_path):
    lines, _ = lines_of(tmp_path, ("_ZN6N_AVX21fIiE", [], WHOLE, RARE), ("_ZN6N_AVX21fIdE", [], WHOLE, (7, 10, 9, 4, 1)),
                        ("_ZN6N_AVX21fIlE", [], WHOLE, RARE))
    assert lines["AVX2"][8] == 1


def test_a_branch_that_was_not_compiled_is_neither_reached_nor_missed(tmp_path):
    template = ("_ZN6N_AVX21fIiE", [], WHOLE, (2, 23, 2, 24, 0))       # an instance without it
    other = ("_ZN6N_AVX31fIiE", [], WHOLE, (2, 23, 4, 4, 0))           # elsewhere it is there, and not run
    lines, _ = lines_of(tmp_path, template, other)
    assert 3 not in lines["AVX2"]
    plain = ("_ZN6N_AVX21fE", [], WHOLE, (2, 23, 4, 4, 4), (4, 10, 6, 4, 0), (4, 31, 6, 4, 0))  # no template
    lines, _ = lines_of(tmp_path, plain)
    assert lines["AVX2"][3] == 4 and 5 not in lines["AVX2"]


def test_a_function_that_is_not_called_is_missed(tmp_path):
    lines, _ = lines_of(tmp_path, ("_ZN6N_AVX21fE", [], (1, 9, 11, 2, 0), (2, 23, 4, 4, 0)))
    assert set(lines["AVX2"].values()) == {0} and 3 in lines["AVX2"]


def test_floors_hold_on_each_instruction_set_that_the_cpu_has():
    whole = {("k.h", line): 1 for line in range(100)}
    part = whole | {("k.h", line): 0 for line in range(6)}
    lines = {target: whole for target in [*kernels.TARGETS, kernels.ALL]}
    sides = {target: {("k.h", 1): (1, 1)} for target in lines}
    every = "avx2 avx512f avx512_bf16"
    assert report.report_kernels(lines, sides, every)[1] == []
    assert report.report_kernels(lines, sides | {"AVX2": {("k.h", 1): (1, 0)}}, every)[1]
    text, (below,) = report.report_kernels(lines | {"AVX2": part}, sides, every)
    assert below.startswith("src/kernels, AVX2: 94.0 %") and "| k.h | 0, 1, 2, 3, 4, 5 | AVX2 |" in text
    text, below = report.report_kernels(lines | {"AVX2": part}, sides, "sse2")
    assert below == [] and "| AVX2 | this CPU lacks it | |" in text
    assert report.report_kernels({**lines, "scalar": {}}, sides, every)[1]
    assert report.report_kernels(lines, {**sides, "scalar": {}}, every)[1]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """command(flags, arguments): the status of a report to coverage.md, where all is reached, on a CPU with these flags."""
    lines = {target: {("k.h", 1): 1} for target in [*kernels.TARGETS, kernels.ALL]}
    sides = {target: {("k.h", 1): (1, 1)} for target in lines}
    reached = {"line_covered": 1, "line_total": 1, "branch_covered": 2, "branch_total": 2}
    files = [{"filename": f"{folder}/a.cc", **reached} for folder in report.FLOORS]
    monkeypatch.setattr(report, "measure", lambda *_: (files, []))
    monkeypatch.setattr(report, "measure_kernels", lambda _: (lines, sides))
    monkeypatch.setattr(unreached, "differences", lambda *_: [])
    monkeypatch.setattr(report, "not_reached", lambda _: [])
    monkeypatch.setattr(report.evidence, "KERNEL_ISAS", ("avx2", "avx512f", "avx512_bf16"))

    def ran(flags, *arguments):
        monkeypatch.setattr(report.evidence, "of_cpu", lambda *names: flags if "flags" in names else "")
        page = str(tmp_path / "coverage.md")
        monkeypatch.setattr(sys, "argv", ["report.py", "--build", ".", "--kernels", ".", "--summary", page, *arguments])
        return report.main()
    return ran


def test_kernels_that_this_cpu_cannot_run_fail_the_report(command, tmp_path, capsys):
    assert command("avx2") == 1 and not list(tmp_path.iterdir())
    told = capsys.readouterr()
    assert "| AVX-512 | this CPU lacks it | |" in told.out
    assert told.err == "this CPU has no avx512f and no avx512_bf16: kernels stay untested; --allow-missing-isa goes on without\n"


def test_with_leave_the_report_of_fewer_instruction_sets_is_a_page_of_its_own(command, tmp_path):
    assert command("avx2 avx512f avx512_bf16") == 0
    every = (tmp_path / "coverage.md").read_text()
    assert "on a CPU without" not in every
    assert command("avx2 avx512f", "--allow-missing-isa") == 0
    assert (tmp_path / "coverage.md").read_text() == every
    assert "`./dev coverage`, on a CPU without avx512_bf16, " in (tmp_path / "coverage_without_avx512_bf16.md").read_text()
