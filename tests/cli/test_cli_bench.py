"""heed bench: a row with its error, hash and machine; no test asserts a time."""

import json
import math

import pytest

from cli_support import heed_ok

QUICK = ["--seconds", "0.05", "--json"]


def bench(*arguments, **more):
    return json.loads(heed_ok("bench", *QUICK, *arguments, **more))


def test_row_is_complete_and_consistent():
    row = bench("--n", "256", "--d", "64", "--threads", "1")
    assert row["cell"] == "float32, batch 1, heads 1, n 256, d 64"
    assert row["samples"] >= 3
    assert 0 < row["minimum_seconds"] <= row["median_seconds"]
    work = 2 * (64 + 64) * 256 * 256
    assert row["gflops"] == pytest.approx(work / row["median_seconds"] * 1e-9)
    assert row["gflops_best"] == pytest.approx(work / row["minimum_seconds"] * 1e-9)
    assert row["percent_of_peak"] == pytest.approx(100 * row["gflops"] / max(row["fma_peak_gflops"]))
    assert row["error_rows"] == row["rows"] == 256 and row["error_against"] == "float64"
    assert 0 < row["max_error"] < 1e-5
    assert len(row["hash"]) == 16 and int(row["hash"], 16)
    assert row["stable"] == (row["doubts"] == [])
    for name in ("instruction_set", "path", "compiler", "cpu", "version"):
        assert row[name]


def pairs_of_causal(n, m):
    return sum(min(i + 1, m) for i in range(n))


@pytest.mark.parametrize("flags,pairs,sizes", [
    (["--n", "100x37", "--d", "16x24", "--causal"], pairs_of_causal(100, 37), 40),
    (["--n", "64", "--d", "8", "--window", "7,0"], sum(min(i + 1, 8) for i in range(64)), 16),
    (["--n", "64", "--d", "8", "--window", "inf,2"], sum(min(i + 3, 64) for i in range(64)), 16),
    (["--n", "32", "--d", "8", "--batch", "3", "--heads", "4/2"], 3 * 4 * 32 * 32, 16)])
def test_work_counts_visible_pairs(flags, pairs, sizes):
    row = bench(*flags)
    assert row["gflops"] * row["median_seconds"] * 1e9 == pytest.approx(2 * pairs * sizes)
    assert row["max_error"] < 1e-5


def test_equal_bits_have_equal_hashes_and_options_change_them():
    cell = ["--n", "130", "--d", "40"]
    one = bench(*cell, "--threads", "1")["hash"]
    assert bench(*cell, "--threads", "2")["hash"] == one
    assert bench(*cell, "--threads", "0")["hash"] == one
    assert bench(*cell, "--causal")["hash"] != one
    assert bench(*cell, "--window", "3,3")["hash"] != one


def test_float64_is_compared_with_long_double():
    row = bench("--n", "64x80", "--d", "16", "--heads", "4/2", "--dtype", "f64", "--causal")
    assert row["error_against"] == "long double" and row["max_error"] < 1e-14


def test_long_cell_is_compared_on_a_sample_that_is_told():
    row = bench("--n", "5000x64", "--d", "8", "--causal")
    assert row["error_rows"] == 384 and row["rows"] == 5000 and row["max_error"] < 1e-5
    text = heed_ok("bench", "--seconds", "0.05", "--n", "5000x64", "--d", "8")
    assert "on a sample of 384 of 5000 rows" in text


def test_cap_on_the_instruction_set_holds_for_the_cell_and_the_peak():
    best = bench("--n", "128")
    scalar = bench("--n", "128", env={"HEED_MAX_ISA": "scalar"})
    assert scalar["instruction_set"] == "scalar" and scalar["hash"] == best["hash"]
    if best["instruction_set"] != "scalar":
        assert max(best["fma_peak_gflops"]) > 2 * max(scalar["fma_peak_gflops"])


def test_text_has_a_line_for_everything():
    text = heed_ok("bench", "--seconds", "0.05", "--n", "128")
    assert [line.split()[0] for line in text.splitlines()][:8] == [
        "cell", "path", "time", "speed", "peak", "error", "output", "machine"]
    assert math.isfinite(float(text.split("error    ")[1].split()[0]))
