"""heed bench: cells, rows and formats; no test asserts a time."""

import csv
import io
import itertools
import json
import math
import platform
import re
import signal
import subprocess

import pytest

from cli_support import HEED, ROOT, SANITIZED, heed, heed_ok, memory_is_known, no_new_threads

QUICK = ["--seconds", "0.02"]


def rows_of(*arguments, **more):
    return json.loads(heed_ok("bench", *QUICK, "--json", *arguments, **more))


def bench(*arguments, **more):
    (row,) = rows_of(*arguments, **more)
    return row


def test_row_is_complete_and_consistent():
    row = bench("--n", "256", "--d", "64", "--threads", "1")
    assert row["cell"] == "float32, batch 1, heads 1, n 256, d 64"
    assert row["samples"] >= 3 and 1 <= row["attempts"] <= 3
    assert 0 < row["minimum_seconds"] <= row["median_seconds"]
    assert row["visible_pairs"] == 256 * 256
    work = 2 * (64 + 64) * 256 * 256
    assert row["gflops"] == pytest.approx(work / row["median_seconds"] * 1e-9)
    assert row["gflops_best"] == pytest.approx(work / row["minimum_seconds"] * 1e-9)
    peak = max(row["fma_peak_gflops_before"], row["fma_peak_gflops_after"])
    assert row["percent_of_peak"] == pytest.approx(100 * row["gflops"] / peak)
    assert row["percent_of_peak_best"] == pytest.approx(100 * row["gflops_best"] / peak)
    assert row["gb_per_second"] == pytest.approx(4 * 256 * 64 * 4 / row["median_seconds"] * 1e-9)
    assert row["percent_of_read"] == pytest.approx(100 * row["gb_per_second"] / row["read_gb_per_second"])
    assert (row["peak_bytes"] is not None) == memory_is_known()
    assert row["peak_bytes"] is None or 0 <= row["peak_bytes"] < 2**26
    assert 0 <= row["median_absolute_deviation_seconds"] < row["median_seconds"] and row["threads_used"] == 1
    tile = [int(size) for size in re.match(r"tiles of (\d+) queries x (\d+) keys", row["path"]).groups()]
    assert (row["tiles_computed"], row["tiles_skipped"]) == (math.prod(math.ceil(256 / size) for size in tile), 0)
    assert row["scratch_bytes"] > 0
    assert row["error_rows"] == row["queries"] == 256 and row["error_against"] == "float64"
    assert 0 < row["max_error"] < 1e-5
    assert len(row["hash"]) == 16 and int(row["hash"], 16)
    assert row["stable"] == (row["doubts"] == [])
    assert row["stable"] or row["attempts"] == 3
    for name in ("instruction_set", "path", "compiler", "cpu", "version"):
        assert row[name]
    told = (ROOT / "docs/bench.md").read_text(encoding="utf-8")
    assert [name for name in row if f"`{name}`" not in told] == []


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
def test_memory_of_a_call_is_what_it_takes_whatever_ran_before():
    first, second = rows_of("--n", "512,512", "--d", "256", "--heads", "4")
    a, b, asked = first["peak_bytes"], second["peak_bytes"], first["scratch_bytes"]
    assert (a is not None and b is not None) == memory_is_known()
    assert not memory_is_known() or asked / 2 <= min(a, b) <= max(a, b) <= asked + 2**15 and abs(a - b) <= 2**14


def test_zero_threads_are_told_as_what_they_are():
    zero, one = rows_of("--n", "8", "--d", "4", "--threads", "0,1", env={"HEED_NUM_THREADS": "3"})
    assert (zero["threads"], one["threads"]) == (3, 1) and zero["cell"] == one["cell"] + ", threads 3"


@pytest.mark.parametrize("dtype,unit", [("float16", 2**-11), ("bfloat16", 2**-8)])
@pytest.mark.parametrize("extra", [[], ["--mask", "bias", "--weights", "--statistics", "--layout", "bthd"]])
def test_16_bit_types_are_measured_and_err_by_their_rounding(dtype, unit, extra):
    row = bench("--n", "200", "--d", "40", "--dtype", dtype, *extra)
    assert row["dtype"] == dtype and row["cell"].startswith(dtype) and dtype in row["path"]
    assert row["gb_per_second"] == pytest.approx(4 * 200 * 40 * 2 / row["median_seconds"] * 1e-9)
    # outputs and their weighted sums of |v| are below 4; P is rounded too where the CPU has dot products
    assert 0 < row["max_error"] <= 2 * 4 * unit


def test_the_peak_of_bfloat16_is_that_of_what_multiplies_it():
    with_products = "neon_bf16" if platform.machine() == "aarch64" else "avx512_bf16"
    native, = rows_of("--n", "64", "--dtype", "bf16", env={"HEED_MAX_ISA": with_products})
    wide, = rows_of("--n", "64", "--dtype", "bf16", env={"HEED_MAX_ISA": "avx512"})
    assert "widened to float32" in wide["path"] and wide["instruction_set"] != with_products
    assert wide["fma_peak_of"].endswith("of float32")
    if native["instruction_set"] != with_products:
        pytest.skip("this CPU has no dot products of bfloat16")
    assert native["path"].endswith("bfloat16, dot products of bfloat16")
    assert native["fma_peak_of"].endswith("dot products of bfloat16")


def test_threads_that_the_system_refuses_are_told_and_memory_is_not_known():
    done = heed("bench", *QUICK, "--n", "300", "--threads", "2", "--json", preexec_fn=no_new_threads)
    assert (done.returncode, done.stderr) == (
        0, "heed bench: the system refused to start a thread; fewer did the work\n")
    (row,) = json.loads(done.stdout)
    assert row["peak_bytes"] is None and row["max_error"] < 1e-5


def test_lists_cross_in_the_order_of_the_flags_the_last_one_fastest():
    rows = rows_of("--layout", "bthd,bhtd", "--d", "8,4x6", "--n", "5", "--heads", "2/1", "--batch", "2,1")
    seen = [(row["batch"], row["d"], row["d_v"], row["layout"]) for row in rows]
    assert seen == [(b, *d, layout) for b, d, layout in itertools.product(
        (2, 1), ((8, 8), (4, 6)), ("bthd", "bhtd"))]
    assert {(row["heads"], row["kv_heads"], row["queries"], row["keys"]) for row in rows} == {(2, 1, 5, 5)}


def test_lists_of_types_and_threads_cross_too():
    rows = rows_of("--n", "16", "--d", "4", "--dtype", "f64,float32", "--threads", "2,1")
    assert [(row["dtype"], row["threads"]) for row in rows] == [
        ("float64", 2), ("float64", 1), ("float32", 2), ("float32", 1)]
    assert [row["cell"].endswith(", threads 2") for row in rows] == [True, False, True, False]


@pytest.mark.parametrize("command", ["bench", "run"])
def test_help_and_messages_tell_every_name_of_a_type(command, tmp_path):
    names = re.search(r"--dtype TYPE.*?\n  --", heed_ok(command, "--help"), re.S)[0]
    told = heed(command, "--dtype", "f3").stderr
    for name, short in (("float16", "f16"), ("bfloat16", "bf16"), ("float32", "f32"), ("float64", "f64")):
        assert re.search(rf"\b{name} \({short}\b", names) and f"{name} ({short})" in told
    rows = rows_of("--n", "4", "--d", "4", "--dtype", "f16,bf16,f32,f64")
    assert [row["dtype"] for row in rows] == ["float16", "bfloat16", "float32", "float64"]


def test_decoding_key_by_key_is_another_order_of_the_same_sums():
    rows = rows_of("--n", "1x900", "--d", "64", "--heads", "2,2/1", "--decode-order", "prefill,key-by-key")
    assert [(row["kv_heads"], row["decode_order"]) for row in rows] == [
        (2, "prefill"), (2, "key-by-key"), (1, "prefill"), (1, "key-by-key")]
    assert ["key by key" in row["path"] for row in rows] == [False, True, False, False]
    assert [row["cell"].endswith(", key by key") for row in rows] == [False, True, False, True]
    assert rows[0]["hash"] != rows[1]["hash"] and rows[2]["hash"] == rows[3]["hash"]
    assert all(row["max_error"] < 1e-5 for row in rows)


def pairs_of_causal(n, m):
    return sum(min(i + 1, m) for i in range(n))


PAIRS = {
    "none": lambda n, m: n * m,
    "causal": pairs_of_causal,
    "window=7:0": lambda n, m: sum(max(min(i + 1, m) - max(i - 7, 0), 0) for i in range(n)),
    "window=inf:2": lambda n, m: sum(min(i + 3, m) for i in range(n)),
    "window=0:inf": lambda n, m: sum(max(m - i, 0) for i in range(n)),
    "causal-window=3": lambda n, m: sum(max(min(i + 1, m) - max(i - 3, 0), 0) for i in range(n)),
    "causal-window=inf": pairs_of_causal,
    "bias": lambda n, m: n * m,
    "padded": lambda n, m: n * ((m + 1) // 2),
}


@pytest.mark.parametrize("n,m", [(70, 37), (32, 64)])
def test_work_counts_visible_pairs_of_every_mask(n, m):
    rows = rows_of("--n", f"{n}x{m}", "--d", "8x12", "--heads", "4/2", "--batch", "3",
                   "--mask", ",".join(PAIRS))
    assert [row["mask"] for row in rows] == list(PAIRS)
    for row in rows:
        pairs = 3 * 4 * PAIRS[row["mask"]](n, m)
        assert row["visible_pairs"] == pairs, row["mask"]
        assert row["gflops"] * row["median_seconds"] * 1e9 == pytest.approx(2 * pairs * 20)
        assert row["max_error"] < 1e-5, row["mask"]
    of_mask = {row["mask"]: row["hash"] for row in rows}
    assert of_mask["causal-window=inf"] == of_mask["causal"]
    assert len(set(of_mask.values())) == len(of_mask) - 1


def test_keep_hides_about_half_and_leaves_a_key_to_every_row():
    row = bench("--n", "100x80", "--d", "8", "--mask", "keep")
    assert 0.45 < row["visible_pairs"] / (100 * 80) < 0.55 and row["max_error"] < 1e-5
    # Of one key, half of the rows would see none.
    assert bench("--n", "50x1", "--d", "8", "--mask", "keep")["visible_pairs"] == 50


def test_traffic_is_what_some_query_needs():
    for mask, keys in (("none", 64), ("padded", 32), ("causal", 16)):
        row = bench("--n", "16x64", "--d", "8x4", "--heads", "4/2", "--mask", mask)
        traffic = 4 * (8 + 4) * (4 * 16 + 2 * keys)
        assert row["gb_per_second"] * row["median_seconds"] * 1e9 == pytest.approx(traffic), mask


@pytest.mark.parametrize("dtype,error,masks", [
    ("f32", 1e-5, ["none", "window=9:2", "keep", "bias"]),
    ("f64", 1e-14, ["none", "keep", "bias", "padded"])])
def test_layouts_threads_weights_and_statistics_change_no_bit(dtype, error, masks):
    more = ["--n", "70x90", "--d", "24x16", "--heads", "4/2", "--batch", "2", "--dtype", dtype]
    rows = rows_of(*more, "--mask", ",".join(masks), "--layout", "bhtd,bthd", "--threads", "2")
    assert max(row["max_error"] for row in rows) < error
    assert [row["hash"] for row in rows[::2]] == [row["hash"] for row in rows[1::2]]
    assert len({row["hash"] for row in rows}) == len(masks)
    weighed = bench(*more, "--weights", "--threads", "0")
    assert weighed["weights"] and not rows[0]["weights"] and weighed["hash"] == rows[0]["hash"]
    counted = bench(*more, "--statistics")
    assert counted["statistics"] and not rows[0]["statistics"]
    assert counted["hash"] == rows[0]["hash"]
    assert weighed["visible_pairs"] == rows[0]["visible_pairs"]


def test_float64_is_compared_with_long_double():
    row = bench("--n", "64x80", "--d", "16", "--heads", "4/2", "--dtype", "f64", "--mask", "causal")
    assert row["error_against"] == "long double" and row["max_error"] < 1e-14


@pytest.mark.parametrize("mask", ["causal", "keep", "bias"])
def test_long_cell_is_compared_on_a_sample_that_is_told(mask):
    row = bench("--n", "5000x64", "--d", "8", "--mask", mask)
    assert row["error_rows"] == 384 and row["queries"] == 5000 and row["max_error"] < 1e-5


def test_cap_on_the_instruction_set_holds_for_the_cell_and_the_peak():
    best = bench("--n", "128")
    scalar = bench("--n", "128", env={"HEED_MAX_ISA": "scalar"})
    assert scalar["instruction_set"] == "scalar" and scalar["hash"] == best["hash"]
    assert scalar["fma_peak_of"] == "std::fma of float32"
    assert (best["fma_peak_of"] == scalar["fma_peak_of"]) == (best["instruction_set"] == "scalar")


# ---- formats -----------------------------------------------------------------------------------

TWO = ["--n", "16x24,8", "--d", "4"]
KEYS = ["cell", "queries", "keys", "mask", "hash", "max_error", "visible_pairs"]


def test_csv_json_and_lines_have_the_same_fields_and_values():
    as_json = rows_of(*TWO)
    lines = [json.loads(line) for line in
             heed_ok("bench", *QUICK, *TWO, "--format", "jsonl").splitlines()]
    as_csv = list(csv.DictReader(io.StringIO(heed_ok("bench", *QUICK, *TWO, "--format", "csv"))))
    assert len(as_json) == len(lines) == len(as_csv) == 2
    for one, line, words in zip(as_json, lines, as_csv, strict=True):
        assert list(one) == list(line) == list(words)
        assert [one[key] for key in KEYS] == [line[key] for key in KEYS]
        assert [str(one[key]) for key in KEYS if key != "max_error"] == [
            words[key] for key in KEYS if key != "max_error"]
        assert float(words["max_error"]) == one["max_error"]
        assert words["weights"] == "false" and words["stable"] in ("true", "false")
        assert (words["doubts"] == "") == (words["stable"] == "true")


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_rows_stay_when_the_run_is_killed(form):
    cells = [8, 16, 32, 64, 128]   # two seconds more: the kill comes before the last one even where the machine is busy
    command = [HEED, "bench", "--n", ",".join(map(str, cells)), "--seconds", "0.5", "--format", form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        lines = [run.stdout.readline() for _ in range(2 if form == "csv" else 1)]
        run.kill()
        lines += run.stdout.read().splitlines(keepends=True)
    assert run.returncode == -signal.SIGKILL   # its first row was there while it ran
    assert all(line.endswith("\n") for line in lines)
    rows = csv.DictReader(lines) if form == "csv" else map(json.loads, lines)
    found = [int(row["queries"]) for row in rows]
    assert found and found == cells[:len(found)] != cells


def test_text_of_one_cell_has_a_line_for_everything():
    text = heed_ok("bench", *QUICK, "--n", "5000x64", "--d", "8")
    assert [line.split()[0] for line in text.splitlines()][:10] == [
        "cell", "path", "time", "speed", "peak", "read", "memory", "error", "output", "machine"]
    assert 0 < float(text.split("error    ")[1].split()[0]) < 1e-5
    assert "on a sample of 384 of 5000 rows" in text


def test_table_has_columns_for_what_differs():
    text = heed_ok("bench", *QUICK, "--n", "16,128", "--d", "8", "--mask", "none,causal-window=5")
    machine, common, empty, header, *rows = text.splitlines()
    assert "heed" in machine and empty == ""
    assert common.startswith("batch 1, heads 1, d 8, dtype float32, layout bhtd, decode-order prefill, threads 1; peak ")
    assert header.split()[:4] == ["n", "mask", "median", "minimum"]
    assert [row.split()[:2] for row in rows[:4]] == [
        ["16", "none"], ["16", "causal-window=5"], ["128", "none"], ["128", "causal-window=5"]]
    # Every row in doubt is marked, and told below what for.
    notes = rows[5:]
    assert rows[4:5] in ([], [""]) and all(note.startswith("* n ") for note in notes)
    marked = [row.split()[:2] for row in rows[:4] if " * " in row]
    assert marked == [list(pair) for pair in dict.fromkeys(
        (note.split()[2].rstrip(","), note.split()[4].rstrip(":")) for note in notes)]
    # All columns but the last end where their names do.
    for row in rows[:4]:
        at = header.index("error") + len("error")
        assert row[at] == " " and row[at - 1] != " "


def test_markdown_is_a_table():
    text = heed_ok("bench", *QUICK, *TWO, "--format", "markdown")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 4 and len({line.count("|") for line in table}) == 1
    assert set(table[1]) <= set("|-:") and table[0].split("|")[1].strip() == "n"
    assert [line.split("|")[1].strip() for line in table[2:]] == ["16x24", "8"]
    one = heed_ok("bench", *QUICK, "--n", "8", "--format", "markdown")
    assert sum(line.startswith("|") for line in one.splitlines()) == 3


# ---- checks ------------------------------------------------------------------------------------

def test_checks_that_hold_say_nothing():
    heed_ok("bench", *QUICK, *TWO, "--check", "gflops>=1e-9", "--check", "max_error<=1e-3",
            "--check", "visible_pairs<=384", "--format", "csv")


def test_check_that_fails_names_cell_field_limit_and_value_and_exits_with_1():
    done = heed("bench", *QUICK, *TWO, "--format", "jsonl", "--check", "visible_pairs>=100",
                "--check", "max_error<=1", "--check", "d<=3.5")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and len(rows) == 2
    assert done.stderr.splitlines() == [
        "heed bench: float32, batch 1, heads 1, n 16x24, d 4: d is 4, expected at most 3.5",
        "heed bench: float32, batch 1, heads 1, n 8, d 4: visible_pairs is 64, expected at least 100; "
        "d is 4, expected at most 3.5",
        "heed bench: --check: of the cells 2 failed, 0 held"]


def test_check_that_fails_by_little_is_told_to_the_last_digit():
    done = heed("bench", *QUICK, "--n", "64", "--d", "4", "--check", "queries<=63.9999999", "--check", "d>=4.0000001")
    assert done.returncode == 1 and done.stderr.splitlines()[0].endswith(
        " n 64, d 4: queries is 64, expected at most 63.9999999; d is 4, expected at least 4.0000001")


def test_full_disk_ends_the_run():
    with open("/dev/full", "w") as full:
        done = subprocess.run([HEED, "bench", *QUICK, *TWO, "--format", "csv"], stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (
        4, "heed bench: cannot write to standard output: No space left on device\n")


# ---- calls that are refused, before anything is measured -----------------------------------------

MASKS = ("--mask: expected none, causal, window=L:R, causal-window=L, keep, bias or padded, "
         "with L and R counts of keys or inf, got ")
REFUSED = {
    "word": (["--mask", "diagonal"], MASKS + "'diagonal'"),
    "one_side": (["--mask", "none,window=3"], MASKS + "'window=3' in 'none,window=3'"),
    "below_zero": (["--mask", "window=-1:3"], MASKS + "'window=-1:3'"),
    "no_number": (["--mask", "causal-window="], MASKS + "'causal-window='"),
    "empty_part": (["--n", "8,,9"], "--n: expected one size or two with x between, each at least 1 and below 2^63, "
                                    "got '' in '8,,9'"),
    "layout": (["--layout", "bhtd,htbd"], "--layout: expected bhtd or bthd, got 'htbd' in 'bhtd,htbd'"),
    "decode_order": (["--decode-order", "prefill,fast"],
                     "--decode-order: expected prefill or key-by-key, got 'fast' in 'prefill,fast'"),
    "later_heads": (["--heads", "4,3/2"],
                    "--heads: the number of query heads must be a multiple of that of key heads, got 3/2"),
    "later_type": (["--dtype", "f32,int8"],
                   "--dtype: expected float16 (f16), bfloat16 (bf16), float32 (f32) or float64 (f64), "
                   "got 'int8' in 'f32,int8'"),
    "many": (["--batch", ",".join("1" * 200), "--n", ",".join("8" * 200)],
             "the lists cross to more than 10000 cells"),
    "format": (["--format", "xml"], "--format: expected table, markdown, csv or jsonl, got 'xml'"),
    "json_format": (["--format", "json"], "--format: JSON has a flag of its own, --json"),
    "two_formats": (["--format", "csv", "--json"], "--json and --format exclude each other"),
    "table_and_json": (["--format", "table", "--json"], "--json and --format exclude each other"),
    "no_bound": (["--check", "gflops"], "--check: expected FIELD>=NUMBER or FIELD<=NUMBER, got 'gflops'"),
    "strict_bound": (["--check", "gflops>3"],
                     "--check: expected FIELD>=NUMBER or FIELD<=NUMBER, got 'gflops>3'"),
    "no_field": (["--check", ">=3"], "--check: expected FIELD>=NUMBER or FIELD<=NUMBER, got '>=3'"),
    "misspelt": (["--check", "max_eror<=1"],
                 "--check: no field is named 'max_eror'; did you mean max_error?"),
    "strange": (["--check", "joy>=1"],
                "--check: no field is named 'joy'; the fields of numbers are those of --json"),
    "text": (["--check", "hash>=1"], "--check: hash is no number"),
    "limit": (["--check", "gflops>=fast"], "--check gflops>=: expected a number of float64, got 'fast'"),
    "nan": (["--check", "gflops>=nan"], "--check: the limit of gflops must be finite, got 'nan'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_call_is_refused_in_one_line(case):
    arguments, message = REFUSED[case]
    done = heed("bench", "--seconds", "3600", *arguments, limit=20)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"heed bench: {message}\n")


def test_cell_without_enough_memory_is_refused_before_the_first_is_measured():
    done = heed("bench", "--seconds", "3600", "--n", "8,1000000", "--weights", limit=20)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.startswith("heed bench: float32, batch 1, heads 1, n 1000000, d 64, weights: takes "
                                  "about 3.6 TiB, more than the ")


def test_statistics_are_part_of_the_memory_that_is_told():
    told = {}
    for more in ([], ["--statistics"]):
        done = heed("bench", "--seconds", "3600", "--n", "1000000000000x1", "--d", "1", *more, limit=20)
        told[bool(more)] = float(re.search(r": takes about ([\d.]+) TiB, more than the ", done.stderr)[1])
        assert (done.returncode, done.stdout) == (5, "")
    # Eight numbers of float32 and two of int64 for each row.
    assert told[True] - told[False] == pytest.approx((8 * 4 + 2 * 8) * 1e12 / 2**40, abs=0.1)
