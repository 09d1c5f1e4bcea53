"""What bench/compare decides without another library at hand: cells, truth, ratios, floors, tables; and one call of heed.

No test here takes a time; samples are invented.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from compare import accuracy_listed, floors, heed_library, pages, report, tensors  # noqa: E402
from compare.__main__ import arguments as compare_arguments, thread_counts  # noqa: E402
from compare.cells import CELLS, MASKS, Cell  # noqa: E402
from compare.peers import NAMES  # noqa: E402
from compare.timing import Crew, Failed, Lacks, Row, Run  # noqa: E402

PEERS = list(NAMES)


def row_of(cell, threads=1, **microseconds):
    row = Row(cell, threads, peaks=[99.0, 100.0], rows_checked=cell.queries)
    for name, time in microseconds.items():
        name = name.replace("one_thread", "heed, one thread")
        row.runs[name] = Run(samples=[time * 1e-6, time * 1.01e-6], calls=1, error=1e-7)
    return row


def test_every_cell_has_a_name_of_its_own():
    assert len({cell.name for cell in CELLS}) == len(CELLS)


def test_every_kind_of_mask_layout_and_shape_is_among_the_cells():
    assert {cell.mask_kind for cell in CELLS} == set(MASKS)
    assert {cell.layout for cell in CELLS} == {"bhtd", "bthd"}
    assert any(cell.weights for cell in CELLS) and any(cell.max_isa == "avx2" for cell in CELLS)
    odd = [cell for cell in CELLS if cell.odd]
    assert {72, 80, 96} <= {cell.d for cell in odd}
    assert {24, 63, 197, 1111} <= {cell.queries for cell in odd}
    assert any(cell.dv == 3 * cell.d for cell in odd)
    assert any(cell.kv_heads < cell.heads and cell.layout == "bthd" for cell in odd)
    assert all(cell.floor for cell in CELLS if not cell.odd)


@pytest.mark.parametrize("mask,pairs", [("none", 30), ("causal", 15), ("causal-window=2", 9),
                                        ("keep", 30), ("padded", 15)])
def test_flops_count_visible_pairs(mask, pairs):
    cell = Cell(1, 2, 5, 4, keys=6, dv=3, mask=mask)
    assert cell.flops == 2 * (4 + 3) * 2 * pairs
    if mask != "keep":
        assert tensors.visible_pairs(cell, tensors.inputs_of(cell)).sum() == pairs


def test_gradients_count_five_products_and_their_truth_is_what_a_step_of_q_does():
    cell = Cell(1, 2, 5, 4, kv_heads=1, keys=6, dv=3, mask="causal", backward=True)
    assert cell.flops == (2 * (4 + 3) + 6 * 4 + 4 * 3) * 2 * 15 and cell.name.endswith("-backward")
    inputs = {name: array.astype(np.float64) for name, array in tensors.inputs_of(cell).items()}
    plain = Cell(1, 2, 5, 4, kv_heads=1, keys=6, dv=3, mask="causal")

    def loss(step):
        moved = inputs | {"q": inputs["q"] + step}
        return (tensors.truth(plain, moved, np.arange(5))[0] * inputs["d_output"]).sum()
    dq = tensors.truth(cell, inputs, np.arange(5))[0]
    step = np.zeros_like(inputs["q"])
    step[0, 1, 3, 2] = 1e-6
    assert abs((loss(step) - loss(-step)) / 2e-6 - dq[0, 1, 3, 2]) < 1e-8


@pytest.mark.parametrize("dtype,wanted", [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_16_bit_inputs_are_the_nearest_numbers_and_keep_their_places(dtype, wanted):
    drawn = tensors.inputs_of(Cell(1, 2, 50, 40, layout="bthd"))["q"]
    held = tensors.inputs_of(Cell(1, 2, 50, 40, layout="bthd", dtype=dtype))["q"]
    assert held.dtype == np.float32 and held.strides == drawn.strides
    assert np.array_equal(held, drawn.astype(wanted).astype(np.float32))
    bits = tensors.bits_of(held, dtype)
    assert [s // 2 for s in bits.strides] == [s // 4 for s in held.strides]
    assert np.array_equal(bits, held.astype(wanted).view(np.uint16))
    assert np.array_equal(tensors.values_of(bits, dtype), held)


@pytest.mark.parametrize("mask", ["none", "causal", "causal-window=3", "keep", "bias", "padded"])
def test_truth_is_softmax_over_the_keys_that_the_mask_array_shows(mask):
    cell = Cell(2, 4, 7, 3, kv_heads=2, keys=8, mask=mask, weights=True, layout="bthd")
    inputs = tensors.inputs_of(cell)
    array = tensors.mask_array(cell, inputs)
    if mask == "causal":
        array = np.tril(np.ones((7, 8), bool))
    added = 0 if array is None else array if array.dtype != bool else np.where(array, 0, -np.inf)
    q, k, v = (inputs[name].astype(np.float64) for name in "qkv")
    k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
    weights = np.exp(np.einsum("bhic,bhjc->bhij", q, k) / 3**0.5 + added)
    weights /= weights.sum(-1, keepdims=True)
    true = tensors.truth(cell, inputs, np.arange(7))
    assert tensors.largest_error((np.einsum("bhij,bhjx->bhix", weights, v), weights), true) < 1e-14
    wrong = true[0].copy()
    wrong[1, 3, 6, 2] = np.nan
    assert tensors.largest_error((wrong, true[1]), true) == np.inf
    assert tensors.largest_error((true[0], None), true) == np.inf


def test_dropout_of_the_truth_is_philox_by_place_and_of_the_rate():
    assert [int(word) for word in tensors.philox((0, 0, 0, 0), (0, 0))] == [
        0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]   # published
    cell = Cell(1, 2, 200, 4, keys=300, dropout=0.1)
    assert "dropout=0.1" in cell.name
    factor = tensors.kept(cell, 1, np.arange(200))
    assert set(np.unique(factor)) == {0, 65536 / (65536 - 6554)}
    assert abs((factor == 0).mean() - 0.1) < 5 * (0.09 / factor.size) ** 0.5
    rows = np.arange(3)
    inputs = tensors.inputs_of(cell)
    whole = tensors.truth(cell, inputs, rows, dropped=False)[0]
    assert np.abs(tensors.truth(cell, inputs, rows)[0] - whole).max() > 1e-3


def test_long_cells_are_checked_at_their_beginning_middle_and_end():
    cell = Cell(1, 8, 8192, 64)
    rows = tensors.rows_to_check(cell)
    assert rows[0] == 0 and rows[-1] == 8191 and 4096 in rows and len(rows) < 8192
    assert len(tensors.rows_to_check(Cell(1, 1, 4, 8))) == 4


def test_ratio_is_of_minima_and_the_best_peer_is_the_fastest_that_is_right():
    row = row_of(CELLS[0], heed=100, torch=150, onnxruntime=120, openvino=90, jax=300)
    assert row.best_peer() == "openvino"
    row.runs["openvino"].fail(Failed("wrong by 1"))
    row.runs["jax"].fail(Lacks("values have the size of keys"))
    assert row.best_peer() == "onnxruntime" and row.ratio("onnxruntime") == pytest.approx(1.2)
    assert row.ratio("openvino") is None
    row.runs["onnxruntime"].error = None   # no error, no row
    assert row.best_peer() == "torch"


def test_floor_holds_at_its_figure_and_fails_below_it():
    cell = Cell(1, 8, 64, 64, floor=1.25)
    for time, holds in ((125.1, True), (124.9, False)):
        verdict, = floors.verdicts(row_of(cell, heed=100, torch=time, jax=200), NAMES)
        assert verdict.holds is holds and verdict.got == pytest.approx(time / 100)


def test_floor_against_one_peer_looks_at_no_other():
    cell = Cell(1, 8, 64, 64, floor=1.4, against="torch")
    verdict, = floors.verdicts(row_of(cell, heed=100, torch=141, onnxruntime=50), NAMES)
    assert verdict.holds


def test_floor_without_a_measurement_does_not_hold():
    cell = Cell(1, 8, 64, 64, floor=1.0, against="torch")
    verdict, = floors.verdicts(row_of(cell, heed=100, jax=500), NAMES)
    assert not verdict.holds and "torch: not asked for" in str(verdict)
    broken = row_of(cell, heed=100, torch=500)
    broken.heed.fail(Failed("boom"))
    verdict, = floors.verdicts(broken, NAMES)
    assert not verdict.holds and "boom" in str(verdict)


def test_a_floor_beside_the_best_is_not_known_where_one_failed():
    """It might have been the best. One that is wrong, or lacks the operation, is none."""
    row = row_of(Cell(1, 8, 64, 64, floor=1.25), heed=100, torch=90, onnxruntime=150)
    right, row.runs["torch"].error = row.runs["torch"].error, 1.0
    row.runs["torch"].fail(Failed("wrong by 1"))
    assert floors.verdicts(row, NAMES)[0].holds
    row.runs["torch"].error = None
    row.runs["torch"].fail(Lacks("no such mask"))
    assert floors.verdicts(row, NAMES)[0].holds
    row.runs["torch"].fail(Failed("its process ended with -11"))
    for row.runs["torch"].error in None, right:   # when its first rows were looked at, or later
        verdict, = floors.verdicts(row, NAMES)
        assert not verdict.holds and "best peer / heed not known (torch: its process ended with -11)" in str(verdict)


def test_heed_that_fails_holds_no_cell_even_one_without_a_floor():
    row = row_of(Cell(1, 8, 64, 64), heed=100, torch=500)
    assert floors.verdicts(row, NAMES) == []
    row.heed.fail(Lacks("no such instructions"))
    assert floors.verdicts(row, NAMES) == []
    row.heed.fail(Failed("boom"))
    verdict, = floors.verdicts(row, NAMES)
    assert not verdict.holds and "boom" in str(verdict)


def test_scaling_is_asked_of_two_threads_and_ratios_of_one():
    cell = Cell(1, 8, 64, 64, floor=1.07, scaling=1.85)
    assert [v.floor for v in floors.verdicts(row_of(cell, heed=1, torch=2), NAMES)] == [1.07]
    row = row_of(cell, threads=2, heed=100, one_thread=190, torch=90)
    verdict, = floors.verdicts(row, NAMES)
    assert verdict.holds and verdict.floor == 1.85 and row.best_peer() == "torch"
    assert floors.verdicts(row_of(cell, threads=4, heed=100, torch=500), NAMES) == []


def test_share_of_the_peak_is_held_where_the_peak_stood_still():
    cell = Cell(1, 8, 64, 64, percent=80)
    row = row_of(cell, heed=100, torch=150)
    for peaks, holds in (([row.gflops / 0.801] * 2, True), ([row.gflops / 0.799] * 2, False),
                         ([row.gflops, row.gflops / 0.9], False)):
        row.peaks = peaks
        verdict, = floors.verdicts(row, NAMES)
        assert verdict.holds is holds
    assert "the peak moved" in str(verdict)


def test_small_call_is_held_to_its_microseconds_from_c():
    row = row_of(Cell(1, 1, 4, 8, microseconds=1.0), heed=100, torch=150)
    assert floors.verdicts(row, NAMES) == []
    for seconds, holds in ((0.9e-6, True), (1.1e-6, False)):
        row.heed.in_c = seconds
        verdict, = floors.verdicts(row, NAMES)
        assert verdict.holds is holds


def test_peak_that_moved_is_marked():
    row = row_of(Cell(1, 8, 64, 64), heed=100, torch=150)
    assert "~" not in report.speed_line(row, ["torch"])[3]
    row.peaks = [90.0, 100.0]
    assert row.peak == 100 and "~" in report.speed_line(row, ["torch"])[3]


def test_capped_instruction_set_is_compared_only_where_its_peak_is_the_cpus():
    cell = Cell(1, 8, 64, 64, max_isa="avx2", floor=1.0)
    row = row_of(cell, heed=100, torch=60)
    row.uncapped_peak = 200.0
    assert floors.verdicts(row, NAMES) == []
    assert any("floor is left out" in note for note in report.notes([row], {"missing": {}}))
    row.uncapped_peak = 101.0
    verdict, = floors.verdicts(row, NAMES)
    assert not verdict.holds


def test_tables_have_a_line_for_each_row_and_say_what_is_absent():
    row = row_of(CELLS[0], heed=100, torch=150)
    row.runs["jax"] = Run()
    row.runs["jax"].fail(Lacks("no such thing"))
    row.runs["openvino"] = Run()
    row.runs["openvino"].fail(Failed("it broke"))
    machine = {"date": "2026-01-02", "cpu": "some CPU", "cpus": 2, "python": "3.11",
               "heed": "0.1.0", "source": "source 0123456789ab", "compiler": "g++ 12", "instruction_set": "avx512",
               "versions": {"PyTorch": "2.13.0"}, "command": "./dev compare",
               "missing": {"ONNX Runtime": "no such package"}}
    text = report.markdown([row], machine, floors.verdicts(row, NAMES), PEERS, NAMES)
    line, = [line for line in text.splitlines() if line.startswith(f"| {row.cell.name} | 100 us")]
    assert [cell.strip() for cell in line.split("|")[5:9]] == ["150 us (1.50)", "!", "!", "-"]
    for fact in ("2026-01-02", "some CPU", "heed 0.1.0, source 0123456789ab, avx512", "PyTorch 2.13.0", "    ./dev compare\n", "it broke",
                 "ONNX Runtime is missing: no such package"):
        assert fact in text
    read = json.loads(report.json_of([row], machine, floors.verdicts(row, NAMES)))
    assert read["rows"][0]["runs"]["jax"]["reason"] == "no such thing"
    assert read["floors"][0]["why"] == "openvino: it broke" and not read["floors"][0]["holds"]


def test_a_section_replaces_the_one_between_marks_and_nothing_else(tmp_path):
    page = tmp_path / "page.md"
    text = "# Title\n\n<!-- compare -->\nold\n<!-- /compare -->\n\nend\n"
    page.write_text(text)
    pages.replace(page, "compare", "new\n")
    assert page.read_text() == text.replace("old\n", "new\n")


@pytest.mark.parametrize("program", [["compare"], ["compare.growth"], ["compare.accuracy", "--dtype", "float16"]], ids=lambda words: words[0])
@pytest.mark.parametrize("text", ["important\n", "<!-- {0} -->\nbegun, and not ended\n", "<!-- /{0} -->\n<!-- {0} -->\n", None])
def test_a_page_without_the_section_is_refused_before_anything_is_measured(program, text, tmp_path):
    page = tmp_path / "README.md"
    if text is not None:
        page.write_text(text.format(program[0].partition(".")[2] or program[0]))
    before = page.read_text() if text else None
    done = subprocess.run([sys.executable, "-m", *program, "--markdown", page], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "bench"), "HEED_BENCH_ABI": "/nowhere"})
    assert done.returncode == 2 and f"--markdown: {page}" in done.stderr
    assert "No such file" in done.stderr if text is None else "has no section to replace: expected a line <!--" in done.stderr
    assert (page.read_text() if page.exists() else None) == before


@pytest.mark.parametrize("arguments, told", [
    (["--threads", "x"], "--threads: expected numbers, or all, with commas between them, got 'x'"),
    (["--threads", "1,"], "--threads: expected numbers, or all, with commas between them, got '1,'"),
    (["--cells", "("], "--cells: expected a regular expression: missing ), unterminated subpattern at position 0"),
    (["--cells", "nothing"], "--cells: no cell has such a name; --list prints them"),
    (["--seconds", "nan"], "--seconds: expected a number above 0 and at most 3600"),
    (["--seconds", "inf"], "--seconds: expected a number above 0 and at most 3600"),
    (["--check", "--cells", "d72"], "--check: none of these cells has a floor; --list prints them")])
def test_a_wrong_argument_is_told_by_its_name(arguments, told, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        compare_arguments()
    assert ended.value.code == 2 and capsys.readouterr().err.endswith(f"error: {told}\n")


class Invented:
    """A child whose peaks and times are these, one after the other."""

    def __init__(self, **told):
        self.told = {name: iter(values) for name, values in told.items()}

    def ask(self, name, *_):
        try:
            return next(self.told[name])
        except StopIteration:
            raise Failed("its process ended") from None


def test_a_second_chance_is_judged_by_its_own_peaks_and_calls_from_c():
    cell = next(cell for cell in CELLS if cell.microseconds)
    row = row_of(cell, heed=2, torch=10)
    row.peaks, row.heed.in_c = [100.0, 90.0], 1.5e-6
    heed = Invented(fma_peak=[99.0, 100.0, 98.0], sample=[2e-6] * 3, seconds_in_c=[0.8e-6])
    with Crew(1, []) as crew:
        crew.sample_again(row, {"heed": heed}, 0)
        assert row.peaks == [100.0, 90.0, 99.0, 100.0] and not row.peak_moved and row.heed.in_c == 0.8e-6 and len(row.heed.samples) == 5
        assert all(verdict.holds for verdict in floors.verdicts(row, NAMES))
        crew.sample_again(row, {"heed": heed}, 0)   # ends within its rounds
    assert not row.peak_moved and row.heed.in_c == 0.8e-6 and row.peak == 100.0   # the largest of all: samples are of both times


def test_library_that_cannot_start_is_a_reason_and_not_an_end(monkeypatch):
    monkeypatch.setenv("HEED_BENCH_ABI", "/no/such/library.so")
    with Crew(1, []) as crew:
        row, able = crew.measure(Cell(1, 1, 2, 3), seconds=0.01)
    assert able == {} and "library.so" in row.heed.reason and "heed" in crew.missing


def test_thread_counts_are_those_asked_for_and_two_for_the_scaling():
    assert thread_counts("1,all", 1) == {1: True}
    assert thread_counts("1,all", 2) == {1: True, 2: True}
    assert thread_counts("1,all", 8) == {1: True, 2: False, 8: True}
    with pytest.raises(ValueError):
        thread_counts("3", 2)


def test_the_library_that_is_measured_computes_what_it_is_asked_for(monkeypatch):
    program = pathlib.Path(os.environ.get("HEED_BIN", ROOT / "build/release/cli/heed"))
    monkeypatch.setenv("HEED_BENCH_ABI", str(program.parents[1] / "bench/libheed_bench_abi.so"))
    made = heed_library.Heed(1)
    assert {"version", "instruction_set", "threads", "compiler", "cpu"} <= made.facts().keys()
    cell = Cell(1, 2, 5, 4, kv_heads=1, keys=6, dv=3, mask="causal")
    inputs = tensors.inputs_of(cell)
    call, results = made.prepare(cell, inputs)
    call()
    errors = abs(results()[0] - tensors.truth(cell, inputs, np.arange(5))[0])
    assert all(error <= accuracy_listed.bound(cell, inputs, at) for at, error in np.ndenumerate(errors))


def test_structs_of_python_have_the_fields_of_the_header():
    header = (ROOT / "bench" / "c_abi.h").read_text()
    for struct, mirror in (("HeedBenchTensor", heed_library.Tensor),
                           ("HeedBenchCall", heed_library.Call)):
        body = re.search(rf"struct {struct} {{(.*?)}};", header, re.S)[1]
        names = re.findall(r"^ *[\w:*]+\*? (\w+)(?:\[4\])?;", body, re.M)
        assert names == [name for name, *_ in mirror._fields_]
