"""The report of ./dev coverage: lines and branches of the kernels belong to an instruction set."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kernels  # noqa: E402
import report  # noqa: E402

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
    every = "avx2 avx512f avx512_bf16"
    assert report.report_kernels(lines, {}, every)[1] == []
    text, (below,) = report.report_kernels(lines | {"AVX2": part}, {}, every)
    assert below.startswith("src/kernels, AVX2: 94.0 %") and "| k.h | 0, 1, 2, 3, 4, 5 | AVX2 |" in text
    text, below = report.report_kernels(lines | {"AVX2": part}, {}, "sse2")
    assert below == [] and "| AVX2 | this CPU lacks it | |" in text
    assert report.report_kernels({**lines, "scalar": {}}, {}, every)[1]
