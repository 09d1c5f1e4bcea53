"""What ./dev accuracy decides without a library at hand: a heed that is broken or too far off fails, whatever its peers do.

Method: few cells; every library's result is the truth and the same small errors, and is then changed.
"""

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from compare import accuracy  # noqa: E402
from compare.cells import Cell  # noqa: E402

CELLS = [Cell(2, 3, 5, 8, keys=7), Cell(2, 3, 11, 64, keys=512), Cell(2, 3, 11, 64, keys=512, mask="keep")]
BROKEN = CELLS[1]
PEERS = [library for library in accuracy.LIBRARIES if library != "heed"]


def never(*_):
    return "it fell over"


def not_a_number(result, _):
    result[1, 2, 3, 4] = np.nan
    return result


def infinite(result, _):
    result[0, 0, 0, 0] = np.inf
    return result


def one_entry_for_all(result, _):
    return result[:1]


def times(factor):
    return lambda result, true: true + factor * (result - true)


@pytest.fixture
def checked(monkeypatch, capsys):
    """checked({library: (cells or None for all, change, change where drawn anew)}) runs ./dev accuracy --check:
    (exit code, table, what fails)."""
    def ran(changes):
        def by_library(library, draws):
            results = []
            for cell, seed in draws:
                true = accuracy.truth_of(cell, seed)
                result = true + 1e-7 * np.random.default_rng(seed).standard_normal(true.shape)
                of, *change = changes.get(library, ([], None))
                if of is None or cell in of:
                    result = change[0 if seed == accuracy.SEED else -1](result, true)
                results.append(result)
            return "1.0", results
        monkeypatch.setattr(accuracy, "by_library", by_library)
        monkeypatch.setattr(accuracy, "cells", lambda dtype: CELLS)
        monkeypatch.setattr(accuracy, "DRAWS", range(2))
        monkeypatch.setattr(sys, "argv", ["accuracy", "--check", "--dtype", "float32"])
        code = accuracy.main()
        told = capsys.readouterr()
        return code, told.out, told.err
    return ran


def test_results_like_those_of_all_libraries_pass(checked):
    code, table, failed = checked({})
    assert (code, failed) == (0, "")
    assert table.count("| 3 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00 |") == len(PEERS)


@pytest.mark.parametrize("change, reason", [(never, "it fell over"), (not_a_number, "not finite"), (infinite, "not finite"),
                                            (one_entry_for_all, "shape (1, 3, 11, 64), not (2, 3, 11, 64)")])
def test_one_cell_without_a_result_of_heed_fails_by_its_name(checked, change, reason):
    code, _, failed = checked({"heed": ([BROKEN], change)})
    assert code == 1 and f"heed has no result in 1 of 3 cells: {BROKEN.name} ({reason})" in failed


def test_a_heed_that_never_answers_fails(checked):
    code, table, failed = checked({"heed": (None, never)})
    assert code == 1 and "heed has no result in 3 of 3 cells: " + "; ".join(f"{cell.name} (it fell over)" for cell in CELLS) in failed
    assert "No results: heed (it fell over)." in table


def test_errors_above_the_limits_fail(checked):
    code, table, failed = checked({"heed": (None, times(1.3)), "jax": (CELLS, times(1.3))})
    assert code == 1 and "T2, float32: median 1.30, 95 % 1.30" in failed and "T3, float32: 1.30 of 1.6, 1.30 of 1.1" in failed
    told = [line for line in table.splitlines() if line.startswith("* ")]
    assert len(told) == len(PEERS) - 1 and not any("JAX" in line for line in told)
    assert all(line.count("1.3e-07, not 1.0e-07 (q . k ") == 2 and BROKEN.name in line for line in told)


def test_of_many_cases_above_a_limit_the_worst_is_told(checked, monkeypatch):
    monkeypatch.setattr(accuracy, "FEW", 1)
    _, table, _ = checked({"heed": (CELLS[1:2], times(1.2)), "jax": (CELLS[2:], times(0.5))})
    assert "* PyTorch, plain: b2-h3-n11x512-d64 " in table and f"; 2 above 1.1, most in {CELLS[2].name}." in table


def test_a_cell_above_four_times_the_best_is_listed_and_drawn_anew(checked):
    few = CELLS[0]   # of which T3 does not speak
    code, table, failed = checked({"heed": ([few], times(5)), "jax": ([few], never)})
    assert f"Above 4 times the best library: {few.name}: " in table and f"| {few.name}, 240 outputs: largest error |" in table
    assert code == 1 and "T2, float32" in failed and "no result" not in failed


@pytest.mark.parametrize("change, reason", [(never, "it fell over"), (not_a_number, "not finite"),
                                            (one_entry_for_all, "shape (1, 3, 5, 8), not (2, 3, 5, 8)")])
def test_a_case_drawn_anew_without_a_result_of_heed_fails(checked, change, reason):
    few = CELLS[0]
    code, _, failed = checked({"heed": ([few], times(5), change)})
    assert code == 1 and all(f"{few.name} drawn with seed {seed}: {reason}" in failed for seed in (0, 1))


def test_a_library_may_lack_a_cell(checked):
    code, table, failed = checked({"jax": ([BROKEN], never)})
    assert (code, failed) == (0, "") and "| JAX | 2 |" in table and "No results" not in table


@pytest.mark.parametrize("change, reason", [(never, "it fell over"), (not_a_number, "not finite")])
def test_a_library_without_any_result_is_named(checked, change, reason):
    code, table, failed = checked({"jax": (None, change)})
    assert (code, failed) == (0, "") and f"No results: JAX ({reason})." in table and "| JAX |" not in table


def test_without_the_fused_kernel_t2_is_not_kept(checked):
    code, _, failed = checked({"torch": (None, never)})
    assert code == 1 and "T2, float32: PyTorch, fused, has no result" in failed


def test_a_cell_that_no_library_can_do_fails_by_its_name(checked):
    code, _, failed = checked(dict.fromkeys(PEERS, ([BROKEN], never)))
    assert code == 1 and f"no library has a result in 1 of 3 cells: {BROKEN.name}" in failed
