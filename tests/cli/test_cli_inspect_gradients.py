"""What heed inspect says about gradients: norms, rows that vanish, heads that differ; against NumPy."""

import json
import math
import re

import numpy as np
import pytest

from cli_support import SANITIZED, draw, heed, heed_ok, peak_bytes, save_file
from inspect_support import healthy, in_terminal, inspect, save, scores_of, sentences, softmax, suggestions, warned


def backward(q, k, v, d_output, seen=True, scale=None):
    """Norms of dQ [B, H], dK and dV [B, Hk], of the rows of dS, and of those of uniform weights."""
    group = q.shape[1] // k.shape[1]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    wide = [np.repeat(x.astype(np.float64), group, axis=1) for x in (k, v)]
    g = d_output.astype(np.float64)
    seen = np.broadcast_to(seen, (*q.shape[:3], k.shape[2]))
    p = softmax(np.where(seen, scores_of(q, k, scale), -np.inf))
    dp = g @ wide[1].swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    shared = lambda x: x.reshape(*k.shape[:2], group, *x.shape[2:]).sum(2)
    norm = lambda x: np.sqrt((x**2).sum((-1, -2)))
    spread = norm(wide[1] - wide[1].mean(-2, keepdims=True)) / math.sqrt(k.shape[2])
    uniform = np.linalg.norm(g, axis=-1) * spread[..., None] / np.sqrt(v.shape[-1] * seen.sum(-1))
    return (norm(scale * ds @ wide[0]), norm(shared(scale * ds.swapaxes(-1, -2) @ q)),
            norm(shared(p.swapaxes(-1, -2) @ g)), np.linalg.norm(ds, axis=-1), uniform)


def assert_gradients(found, q, k, v, d_output, seen=True, first_row=0, vanishing=1e-3):
    dq, dk, dv, ds, uniform = backward(q, k, v, d_output, seen)
    group = q.shape[1] // k.shape[1]
    for head in found:
        gradients, at = head["gradients"], (head["layer"], head["head"])
        assert gradients["dq_norm"] == pytest.approx(dq[at], rel=1e-4)
        assert gradients["dk_norm"] == pytest.approx(dk[at[0], at[1] // group], rel=1e-4)
        assert gradients["dv_norm"] == pytest.approx(dv[at[0], at[1] // group], rel=1e-4)
        norms, passed = ds[at][first_row:], (ds / uniform)[at][first_row:]
        for name, values in (("ds_norm", norms), ("passed_on", passed)):
            assert gradients[name]["rows"] == len(values)
            assert gradients[name]["mean"] == pytest.approx(values.mean(), rel=1e-4)
            assert gradients[name]["quantiles"] == pytest.approx(
                np.quantile(values, [0, .25, .5, .75, 1]), rel=1e-3, abs=1e-6)
        assert gradients["vanishing"] == pytest.approx((passed < vanishing).mean())


def columns_of(path):
    """Names and first row of the table in a wide terminal: two spaces stand between columns at least."""
    lines = in_terminal(200, path).splitlines()
    at = next(i for i, line in enumerate(lines) if "rests on" in line)
    return [re.split(r"  +", line.strip()) for line in lines[at:at + 2]]


def test_norms_of_all_layers_and_heads(tmp_path):
    q, k = draw(1, 2, 4, 30, 16), draw(2, 2, 2, 50, 16)
    v, g = draw(3, 2, 2, 50, 9), 1e-6 * draw(4, 2, 4, 30, 9)
    path = save(tmp_path, q=q, k=k, v=v, d_output=g)
    assert_gradients(inspect(path)["found"], q, k, v, g)
    found = inspect(path, "--vanishing", "1")["found"]
    assert any(0 < head["gradients"]["vanishing"] < 1 for head in found)
    assert_gradients(found, q, k, v, g, vanishing=1)
    seen = np.tri(30, 50, dtype=bool)     # row 0 sees one key and has no choice
    assert_gradients(inspect(path, "--causal")["found"], q, k, v, g, seen, first_row=1)


def test_the_gradient_comes_in_the_file_or_in_one_of_its_own(tmp_path):
    q, k, v, g = (draw(n, 1, 2, 20, 8) for n in range(5, 9))
    whole = inspect(save(tmp_path, q=q, k=k, v=v, d_output=g))
    for name, tensor in (("q", q), ("k", k), ("v", v), ("g", g)):
        np.save(tmp_path / f"{name}.npy", tensor)
    files = [tmp_path / f"{name}.npy" for name in "qkv"]
    apart = json.loads(heed_ok("inspect", *files, "--d-output", tmp_path / "g.npy", "--json"))
    assert apart["found"] == whole["found"]
    for name in "qkvg":
        np.save(tmp_path / f"{name}.npy", np.load(tmp_path / f"{name}.npy").swapaxes(1, 2))
    turned = json.loads(heed_ok("inspect", *files, "--d-output", tmp_path / "g.npy", "--layout",
                                "bthd", "--json"))
    assert turned["found"] == whole["found"]
    flat = inspect(save(tmp_path, q=q[0, 0], k=k[0, 0], v=v[0, 0], d_output=g[0, 0]))
    assert flat["found"][0]["gradients"]["dq_norm"] == whole["found"][0]["gradients"]["dq_norm"]


def test_half_precision_and_float64(tmp_path):
    tensors = {name: draw(n, 1, 2, 20, 8) for n, name in enumerate(("q", "k", "v", "d_output"))}
    for dtype in (np.float16, np.float64):
        cast = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
        found = inspect(save(tmp_path, **cast))["found"]
        assert_gradients(found, cast["q"], cast["k"], cast["v"], cast["d_output"])


def test_without_a_gradient_nothing_is_said_of_it(tmp_path):
    q, k = healthy()
    path = save(tmp_path, q=q, k=k, v=k)
    assert "gradients" not in inspect(path)["found"][0]
    assert "vanishing" not in heed_ok("inspect", path)
    assert "comparable" not in sentences(inspect(path)["found"][0])


def test_comparable_gradients_are_called_so(tmp_path):
    q, k = healthy()
    alone = inspect(save(tmp_path, q=q, k=k, v=k, d_output=q))["found"][0]
    assert sentences(alone) == "weights neither uniform nor peaked, scores in range"   # with no other
    q, k = np.repeat(q, 2, 1), np.repeat(k, 2, 1)
    beside_nothing = inspect(save(tmp_path, q=q, k=k, v=k, d_output=q * np.float32([1, 0])[:, None, None]))["found"][0]
    assert sentences(beside_nothing) == sentences(alone)
    for found in inspect(save(tmp_path, q=q, k=k, v=k, d_output=q))["found"]:
        assert sentences(found) == "weights neither uniform nor peaked, scores in range, gradients comparable"


def test_rows_of_a_saturated_head_vanish_and_the_scale_is_named(tmp_path):
    q, k, v, g = (draw(n, 1, 2, 30, 64) for n in range(10, 14))
    q[:, 1] *= 200
    path = save(tmp_path, q=q, k=k, v=v, d_output=g)
    well, ill = inspect(path, "--scale", "0.125")["found"]
    assert well["gradients"]["vanishing"] == 0 and "next to no gradient" not in sentences(well)
    assert ill["gradients"]["vanishing"] > 0.8 and warned(ill)
    assert "% of the rows get next to no gradient: less than 0.001 of what uniform weights would " \
           "pass on" in sentences(ill)
    assert "next to no gradient" not in sentences(inspect(path, "--vanished", "1")["found"][1])
    unscaled = inspect(path, "--scale", "1")["found"][1]
    assert "use the scale 1/sqrt(64) = 0.125 instead of 1" in suggestions(unscaled)


def test_long_uniform_rows_do_not_vanish(tmp_path):
    v, g = draw(15, 1, 1, 20000, 64), draw(16, 1, 1, 4, 64)
    q, k = np.zeros((1, 1, 4, 8), np.float32), np.zeros((1, 1, 20000, 8), np.float32)
    gradients = inspect(save(tmp_path, q=q, k=k, v=v, d_output=g))["found"][0]["gradients"]
    assert gradients["vanishing"] == 0 and 0.8 < gradients["passed_on"]["mean"] < 1.2
    assert gradients["ds_norm"]["mean"] < 1e-2 * np.linalg.norm(g, axis=-1).mean()


def test_keys_with_the_same_values_are_noticed(tmp_path):
    q, k = np.ones((1, 1, 40, 64), np.float32), np.zeros((1, 1, 40, 64), np.float32)
    v = np.ones((1, 1, 40, 4), np.float32)
    k[:, :, 20:], v[:, :, 20:] = -100, -1                 # all weight is on keys that hold 1
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=draw(18, 1, 1, 40, 4)))["found"][0]
    assert "next to no gradient" in sentences(found) and found["saturated"] == 0
    assert "the keys that have the weight hold much the same" in suggestions(found)


def test_heads_whose_gradients_differ_are_told_against_the_median(tmp_path):
    q, k, v, g = (draw(n, 1, 5, 30, 16) for n in range(20, 24))
    g[:, 1] *= 1e-3
    g[:, 3] *= 1e3
    path = save(tmp_path, q=q, k=k, v=v, d_output=g)
    found = inspect(path)["found"]
    assert [warned(head) for head in found] == [False, True, False, True, False]
    norms = [head["gradients"]["dq_norm"] for head in found]
    low, high = np.median(norms) / norms[1], norms[3] / np.median(norms)
    assert f"the median head's gradient dQ is {low:.0f} times that of this one" in sentences(found[1])
    assert f"its gradient dQ is {high:.0f} times that of the median head" in sentences(found[3])
    assert not any(warned(head) for head in inspect(path, "--comparable", "1e5")["found"])
    g[:, 3] *= 1e20
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=g))["found"]
    high = found[3]["gradients"]["dq_norm"] / np.median([head["gradients"]["dq_norm"] for head in found])
    assert f"its gradient dQ is {high:.3g} times that of the median head" in sentences(found[3])


def test_nan_and_silence_are_told(tmp_path):
    q, k = healthy(30, rows=10)
    v, g = k.copy(), q.copy()
    g[0, 0, 3, 5] = np.nan
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=g))["found"][0]
    assert "1 of 10 rows has a NaN gradient, but no NaN score" in sentences(found)
    assert found["gradients"]["nan_rows"] == 1 and found["gradients"]["ds_norm"]["rows"] == 9
    assert found["gradients"]["dq_norm"] is None
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=0 * q))["found"][0]
    assert "d_output is 0 wherever a row has a choice" in sentences(found)
    assert found["gradients"]["vanishing"] is None and found["gradients"]["silent_rows"] == 10
    g = q.copy()
    g[0, 0, 4] = 0                                        # a row of padding, say, among others that are taught
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=g))["found"][0]
    assert found["gradients"]["silent_rows"] == 1 and "d_output is 0" not in sentences(found)
    found = inspect(save(tmp_path, q=q, k=k, v=np.ones_like(v), d_output=g))["found"][0]
    assert "v is the same for all keys" in sentences(found) and "d_output is 0" not in sentences(found)
    assert found["gradients"]["vanishing"] is None and found["gradients"]["silent_rows"] == 1
    g = q.copy()
    q[0, 0, 2] = np.nan                                   # the scores say so already
    found = inspect(save(tmp_path, q=q, k=k, v=v, d_output=g))["found"][0]
    assert found["gradients"]["nan_rows"] == 0 and "NaN gradient" not in sentences(found)


def test_padding_does_not_count_among_the_values(tmp_path):
    q, k, v, g = (draw(n, 1, 1, 20, 8) for n in range(40, 44))
    short = inspect(save(tmp_path, q=q, k=k[:, :, :12], v=v[:, :, :12], d_output=g))["found"][0]
    v[:, :, 12:] = 1e6
    padded = inspect(save(tmp_path, q=q, k=k, v=v, d_output=g), "--key-lengths", "12")["found"][0]
    assert padded["gradients"]["passed_on"] == short["gradients"]["passed_on"]


def test_the_table_and_the_page_have_them(tmp_path):
    q, k, v, g = (draw(n, 1, 2, 20, 8) for n in range(50, 54))
    path = save(tmp_path, q=q, k=k, v=v, d_output=g)
    wide = in_terminal(200, path).splitlines()
    header = next(i for i, line in enumerate(wide) if "rests on" in line)
    gradients = inspect(path)["found"][0]["gradients"]
    for name in ("|dQ|", "|dK|", "|dV|", "|dS|", "passed on", "vanishing"):
        assert name in wide[header]
    assert f"{gradients['dq_norm']:.2g}" in wide[header + 1].split()
    assert f"{gradients['passed_on']['quantiles'][2]:.2g}" in wide[header + 1].split()
    name, *narrow = heed_ok("inspect", path).splitlines()
    assert name == f"{path}:" or (name.startswith(f"{path}: ") and len(name) <= 80)  # a path is as long as it is
    assert any("vanishing" in line for line in narrow) and all(len(line) <= 80 for line in narrow)
    heed_ok("inspect", path, "--html", tmp_path / "page.html", "-q")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '"passed_on"' in page and '"vanishing"' in page
    heed_ok("inspect", save(tmp_path, q=q, k=k), "--html", tmp_path / "page.html", "-q")
    assert '"vanishing"' not in (tmp_path / "page.html").read_text(encoding="utf-8")


NOTHING_COUNTED = {"one_key": (1, 1, 1), "zero_gradients": (10, 0, 1), "zero_values": (10, 1, 0)}


@pytest.mark.parametrize("case", NOTHING_COUNTED)
def test_a_head_without_a_counted_row_has_a_dash_for_them(case, tmp_path):
    keys, gradient, value = NOTHING_COUNTED[case]
    q, k = healthy(30, rows=10)
    path = save(tmp_path, q=q, k=k[:, :, :keys], v=value * k[:, :, :keys], d_output=gradient * q)
    header, row = columns_of(path)
    assert [row[header.index(name)] for name in ("|dS|", "passed on", "vanishing")] == ["-", "-", "-"]
    assert "nan" not in row and inspect(path)["found"][0]["gradients"]["vanishing"] is None


@pytest.mark.parametrize("name", ["q", "d_output"])
def test_a_head_whose_gradients_are_all_nan_says_so_in_the_table(name, tmp_path):
    q, k = healthy(30, rows=10)
    header, row = columns_of(save(tmp_path, **{"q": q, "k": k, "v": k, "d_output": q, name: np.nan * q}))
    assert [row[header.index(name)] for name in ("|dQ|", "|dS|", "passed on", "vanishing")] == ["nan"] * 4


def test_differences_have_gradients_where_both_runs_have(tmp_path):
    q, k, v, g = (draw(n, 1, 2, 20, 8) for n in range(60, 64))
    save_file({"q": q, "k": k, "v": v, "d_output": 2 * g}, tmp_path / "after.safetensors")
    save_file({"q": q, "k": k, "v": v, "d_output": g}, tmp_path / "before.safetensors")
    heed_ok("inspect", tmp_path / "after.safetensors", "--against", tmp_path / "before.safetensors",
            "--pictures", tmp_path / "changes", "-q")
    lines = (tmp_path / "changes" / "difference_numbers.csv").read_text().splitlines()
    layer, head, name, before, after, change = next(x for x in lines if "dq_norm" in x).split(",")
    assert float(after) == pytest.approx(2 * float(before)) == pytest.approx(2 * float(change))
    save_file({"q": q, "k": k}, tmp_path / "before.safetensors")
    heed_ok("inspect", tmp_path / "after.safetensors", "--against", tmp_path / "before.safetensors",
            "--pictures", tmp_path / "weights", "-q")
    assert "dq_norm" not in (tmp_path / "weights" / "difference_numbers.csv").read_text()


@pytest.mark.parametrize("change, flags, code, message", [
    ({"v": None}, [], 3, "d_output is given, but no v: gradients take both; put v into the file"),
    ({"d_output": (1, 2, 20, 7)}, [], 2, "d_output has shape [1, 2, 20, 7]; expected [1, 2, 20, 8]"),
    ({"v": (1, 2, 19, 8)}, [], 2, "number of keys of v is 19, of k 20; they must be equal"),
    ({}, ["--vanishing", "-1"], 2, "--vanishing: expected 0 to 1, got -1"),
    ({}, ["--vanished", "1.5"], 2, "--vanished: expected 0 to 1, got 1.5"),
    ({}, ["--comparable", "0.5"], 2, "--comparable: expected a finite number from 1 on, got 0.5"),
])
def test_what_cannot_be_is_refused(tmp_path, change, flags, code, message):
    shapes = {name: (1, 2, 20, 8) for name in ("q", "k", "v", "d_output")} | change
    path = save(tmp_path, **{name: draw(70, *shape) for name, shape in shapes.items() if shape})
    done = heed("inspect", path, *flags)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


def test_a_gradient_that_a_flag_gave_is_told_by_the_flag(tmp_path):
    q, k, v = (tmp_path / f"{name}.npy" for name in "qkv")
    for seed, path in enumerate((q, k, v)):
        np.save(path, draw(71 + seed, 1, 2, 20, 8))
    np.save(tmp_path / "g.npy", draw(74, 1, 2, 20, 7))
    gradient = ("--d-output", tmp_path / "g.npy")
    shape = "--d-output has shape [1, 2, 20, 7]; expected [1, 2, 20, 8]"
    for call, message in ((("inspect", q, k), "heed inspect: --d-output is given, but no v: gradients take both; give "
                           "Q.npy K.npy V.npy, or a file with v\n"),
                          (("inspect", q, k, v), f"heed inspect: {shape}"),
                          (("run", q, k, v, "--gradients", "-o", tmp_path / "o.npz"), f"heed run: {shape}")):
        done = heed(*call, *gradient)
        assert (done.returncode, done.stderr.startswith(message)) == (2, True), done.stderr


def test_memory_counts_the_gradients(tmp_path):
    tensors = {name: draw(n, 1, 2, 2000, 64) for n, name in enumerate(("q", "k", "v", "d_output"))}
    path = save(tmp_path, **tensors)
    done = heed("inspect", path, "--max-bytes", "24M")
    assert done.returncode == 5 and "the inspection takes" in done.stderr
    heed_ok("inspect", path, "--max-bytes", "100M")
    heed_ok("inspect", save(tmp_path, q=tensors["q"], k=tensors["k"]), "--max-bytes", "24M")


def test_memory_is_told_before_a_large_mask_is_read_for_each_tile_of_rows(tmp_path):
    """Which would take a quarter of an hour, and no second otherwise."""
    rows = 2**22
    tensors = {name: np.zeros((1, 1, rows, 1), np.float16) for name in ("q", "k", "v", "d_output")}
    path = save(tmp_path, **tensors, keep=np.ones((1, 1, 1, rows), bool))
    done = heed("inspect", path, "--max-bytes", "40M", limit=300)
    assert done.returncode == 5 and "the inspection takes" in done.stderr, done


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
@pytest.mark.parametrize("threads", [1, 16])
def test_memory_counts_what_threads_take_for_gradients(threads, tmp_path):
    """With chunks of keys as tasks each thread may keep a dQ of all rows."""
    tensors = {name: draw(n, 1, 1, 40_000 if n in (0, 3) else 12_288, 64) for n, name in enumerate(("q", "k", "v", "d_output"))}
    call = ["inspect", save(tmp_path, **tensors), "--window", "9,9", "--threads", threads]
    least = 64 << 20
    while heed(*call, "--max-bytes", least).returncode == 5:
        least = least * 9 // 8
    assert least / 2 < peak_bytes(*call) - peak_bytes("info") < least
