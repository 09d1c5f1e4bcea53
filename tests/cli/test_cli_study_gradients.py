"""heed study gradients: its backward pass beside NumPy drawing and computing the same."""

import json
import re
import math

import numpy as np
import pytest
from safetensors.numpy import load_file

from cli_support import ROOT, heed, heed_ok, save
from inspect_support import softmax


def backward_figures(q, k, v, g, scale):
    """Means over rows and heads of [.., T, X], the first axis kept; k and v may have fewer heads."""
    shared = k.shape
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    p = softmax(q @ k.swapaxes(-1, -2) * scale)
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    length = lambda x: np.linalg.norm(x, axis=-1)
    mean = lambda x: x.mean((1, 2))
    grouped = lambda x: x.reshape(*shared[:2], -1, *x.shape[2:]).sum(2)
    spread = np.sqrt((length(v - v.mean(-2, keepdims=True))**2).mean(-1))
    passed = length(ds) / (length(g) * spread[..., None] / math.sqrt(v.shape[-1] * k.shape[-2]))
    return {"dq_norm": mean(length(ds @ k * scale)),
            "dk_norm": mean(length(grouped(ds.swapaxes(-1, -2) @ q * scale))),
            "dv_norm": mean(length(grouped(p.swapaxes(-1, -2) @ g))), "ds_norm": mean(length(ds)),
            "passed_on": mean(passed), "vanishing": mean(passed < 1e-3)}


def assert_backward(rows, q, k, v, g):
    for kind, scale in (("scaled", q.shape[-1]**-0.5), ("unscaled", 1.0)):
        expected = backward_figures(q, k, v, g, scale)
        for name in ("dq_norm", "dk_norm", "passed_on", "vanishing"):
            np.testing.assert_allclose([row[f"{name}_{kind}"] for row in rows], expected[name], rtol=1e-9, atol=1e-13)


def test_gradients_of_the_backward_pass():
    found = json.loads(heed_ok("study", "gradients", "--numpy-seed", 42, "--json"))["gradients"]
    sample = {name: x.astype(np.float64) for name, x in load_file(ROOT / "examples/data/it.safetensors").items()}
    np.random.seed(42)
    q, k = map(np.array, zip(*[(np.random.randn(1, 512), np.random.randn(4, 512)) for _ in range(1001)]))
    v, g = map(np.array, zip(*[(np.random.randn(4, 512), np.random.randn(1, 512)) for _ in range(1000)]))
    rows = found["tables"]["backward"]
    assert [row["scores"] for row in rows] == ["scaled", "unscaled"]
    for row, scale in zip(rows, (512**-0.5, 1.0), strict=True):
        figures = backward_figures(q[1:, None], k[1:, None], v[:, None], g[:, None], scale)
        for name, values in figures.items():
            assert row[name] == pytest.approx(values.mean(), rel=1e-9), name
    g = np.random.randn(*sample["v"].shape)       # the next numbers
    assert_backward(found["tables"]["tensors_backward"], sample["q"], sample["k"], sample["v"], g)
    assert found["d_output_from"] == "normal numbers"
    dq = [f"{row['dq_norm']:.3g}" for row in rows]
    assert f"dQ is {dq[0]} scaled and {dq[1]} unscaled" in " ".join(found["findings"])


def test_gradients_of_the_users_own_backward_pass(tmp_path):
    rng = np.random.default_rng(3)
    tensors = {"q": rng.standard_normal((2, 4, 5, 16)), "k": rng.standard_normal((2, 2, 7, 16)),
               "v": rng.standard_normal((2, 2, 7, 6)), "d_output": rng.standard_normal((2, 4, 5, 6))}
    save(tmp_path / "qkvg.npz", tensors)
    found = json.loads(heed_ok("study", "gradients", "--input", tmp_path / "qkvg.npz", "--json"))["gradients"]
    assert_backward(found["tables"]["tensors_backward"], *tensors.values())
    assert found["d_output_from"] == str(tmp_path / "qkvg.npz")
    done = heed("study", "scaling", "--input", tmp_path / "qkvg.npz", "--json")
    assert "tensor d_output of" in done.stderr and "is not used" in done.stderr
    together = heed("study", "scaling", "gradients", "strategies", "--input", tmp_path / "qkvg.npz", "--json")
    assert together.stderr == "" and json.loads(together.stdout)["gradients"] == found
    for bad, said in ((tensors["d_output"][..., :5], "d_output has shape [2, 4, 5, 5]; expected [2, 4, 5, 6]"),
                      (tensors["d_output"][0, 0, 0], "d_output has shape [6]; expected [2, 4, 5, 6], that of the output\n"),
                      (tensors["d_output"][0], "d_output has shape [4, 5, 6]; expected [2, 4, 5, 6], that of the output\n"),
                      (tensors["d_output"][0, 0, 0, 0], "d_output has rank 0; expected 2 [T, D], 3 [B, T, D]")):
        save(tmp_path / "bad.npz", tensors | {"d_output": bad})
        done = heed("study", "gradients", "--input", tmp_path / "bad.npz")
        assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize("change", ["d_output", "v"])
def test_heads_without_a_counted_row_are_left_out_of_means(change, tmp_path):
    """Where dO is 0 or values are the same, nothing is passed on, whatever the weights."""
    rng = np.random.default_rng(4)
    tensors = {"q": rng.standard_normal((1, 2, 5, 16)), "k": rng.standard_normal((1, 2, 7, 16)),
               "v": rng.standard_normal((1, 2, 7, 6)), "d_output": rng.standard_normal((1, 2, 5, 6))}
    tensors[change][:, 0] = 0

    def told_of(given):
        save(tmp_path / "in.npz", given)
        return json.loads(heed_ok("study", "gradients", "--input", "in.npz", "--json", folder=tmp_path))["gradients"]

    def backward_of(given):
        return told_of(given)["tables"]["tensors_backward"][0]

    both, alone = backward_of(tensors), backward_of({name: values[:, 1:] for name, values in tensors.items()})
    assert {name: value for name, value in both.items() if name.startswith(("passed", "vanishing"))} == {
        name: value for name, value in alone.items() if name.startswith(("passed", "vanishing"))}
    silent = tensors | {change: np.zeros_like(tensors[change])}
    said = told_of(silent)["findings"][-1]
    assert re.search(r"with it \d+ %\.$", said), said
    said = told_of({name: np.concatenate([tensors[name], silent[name]]) for name in tensors})["findings"][-1]
    assert re.search(r"; in in\.npz (\d+ % \(not known in 1 of 2\)( and |\.)){2}$", said), said
    none = backward_of(silent)
    assert none["passed_on_scaled"] is none["vanishing_scaled"] is None
    assert none["dq_norm_scaled"] == none["dk_norm_unscaled"] == 0   # which are known all the same


@pytest.mark.parametrize("studies, name, unused", [
    (["scaling"], "d_output", np.ones((2, 4, 5, 6), np.float32)),
    (["scaling", "strategies"], "d_output", np.ones(3, np.int64)),
    (["scaling", "gradients"], "scale", np.int64(2)),
    (["gradients"], "keep", np.ones((1, 1, 1, 1, 1), bool)),
])
def test_what_a_study_does_not_use_may_be_anything(studies, name, unused, tmp_path):
    rng = np.random.default_rng(3)
    tensors = {"q": rng.standard_normal((2, 4, 5, 16)), "k": rng.standard_normal((2, 2, 7, 16)),
               "v": rng.standard_normal((2, 2, 7, 6))}
    save(tmp_path / "in.npz", tensors)
    without = heed_ok("study", *studies, "--input", "in.npz", "--json", folder=tmp_path)
    save(tmp_path / "in.npz", tensors | {name: unused})
    done = heed("study", *studies, "--input", "in.npz", "--json", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, f"heed study: tensor {name} of in.npz is not used\n")
    assert done.stdout == without


def test_findings_tell_what_is_not_known_and_no_digits_that_are_none(tmp_path):
    """Of scores in the hundreds the ratio of two Jacobians has forty digits; of one key it is 0 / 0."""
    rng = np.random.default_rng(9)

    def told_of(name, given):
        save(tmp_path / name, {"q": given, "k": given[:, :, ::-1], "v": given})
        return heed_ok("study", "gradients", "--input", name, folder=tmp_path, env={"COLUMNS": "1000", "LC_ALL": "C"})

    q = rng.standard_normal((2, 2, 6, 8))
    text = told_of("large.npz", 12 * q)
    row = json.loads(heed_ok("study", "gradients", "--input", "large.npz", "--json", folder=tmp_path))["gradients"]["tables"]["tensors"]
    ratios = sorted(one["norm_ratio"] for one in row)
    assert ratios[0] > 1e4
    assert " ".join(text.split()).count(f"the norm of the Jacobian is {ratios[0]:.3g} to {ratios[1]:.3g} times as large") == 1
    assert "Norm of the Jacobian in the given heads" in text and "real heads" not in text
    q[1, 0, 2, 3] = np.nan
    text = " ".join(told_of("nan.npz", q).split())
    assert re.search(r"the norm of the Jacobian is [\d.]+ times \(NaN in 1 of 2\) as large", text), text
    assert re.search(r"and \d+ % \(NaN in 1 of 2\) of the queries instead of", text), text
    assert "null" not in text
    text = told_of("one.npz", q[:, :, :1])
    assert "the norm of the Jacobian is ? times as large" in " ".join(text.split()) and "null" not in text
