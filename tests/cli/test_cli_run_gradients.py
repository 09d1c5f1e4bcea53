"""heed run --gradients and --dropout: gradients against central differences of heed's own output."""

import json

import numpy as np
import pytest

from cli_support import SANITIZED, draw, heed, heed_ok, load, operands, peak_bytes, save

INPUT = {name: array.astype(np.float64) for name, array in operands().items()}
D_OUTPUT = draw(9, 2, 4, 5, 6).astype(np.float64)
BIAS = draw(6, 4, 5, 7).astype(np.float64)


def output_of(folder, tensors, *flags):
    save(folder / "moved.npz", tensors)
    heed_ok("run", "moved.npz", "-o", "moved.out.npz", *flags, folder=folder)
    return load(folder / "moved.out.npz")["output"]


def expect_central_differences(folder, tensors, flags, names):
    """<dO, O(x + h u) - O(x - h u)> / 2h = <dx, u> for a random u of each tensor."""
    save(folder / "in.npz", {**tensors, "d_output": D_OUTPUT})
    heed_ok("run", "in.npz", "-o", "out.npz", "--gradients", *flags, folder=folder)
    got = load(folder / "out.npz")
    assert set(got) == {"output", "dscale", *(f"d{name}" for name in names)}
    for seed, name in enumerate(names):
        along = np.random.default_rng(seed).standard_normal(tensors[name].shape)
        step = 1e-6
        plus, minus = (output_of(folder, {**tensors, name: tensors[name] + sign * step * along}, *flags)
                       for sign in (1, -1))
        assert got[f"d{name}"].shape == tensors[name].shape
        slope = (D_OUTPUT * (plus - minus)).sum() / (2 * step)
        # h^2 of the third derivative and 1e-16 / h of rounding
        assert np.isclose((got[f"d{name}"] * along).sum(), slope, rtol=1e-7, atol=1e-7), name


def test_gradients_are_those_of_the_output(tmp_path):
    expect_central_differences(tmp_path, INPUT, ["--causal", "--query-start", "2"], ["q", "k", "v"])


def test_gradients_of_options_that_are_tensors(tmp_path):
    options = {"bias": BIAS, "alibi": np.array([1, 0.5, 0.25, 0.125]), "sinks": np.array([0, 1, -1, 2.0]),
               "scale": np.array([0.3, 0.2, 0.4, 0.25])}
    expect_central_differences(tmp_path, {**INPUT, **options}, ["--softcap", "3"],
                               ["q", "k", "v", *options])


def test_gradients_under_dropout_are_those_of_the_weights_that_were_kept(tmp_path):
    expect_central_differences(tmp_path, INPUT, ["--dropout", "0.4", "--seed", "5"], ["q", "k", "v"])


def test_gradients_have_the_layout_of_their_tensors(tmp_path):
    save(tmp_path / "bhtd.npz", {**INPUT, "d_output": D_OUTPUT})
    save(tmp_path / "bthd.npz", {name: values.swapaxes(1, 2)
                                 for name, values in {**INPUT, "d_output": D_OUTPUT}.items()})
    heed_ok("run", "bhtd.npz", "-o", "a.npz", "--gradients", "--lse", folder=tmp_path)
    heed_ok("run", "bthd.npz", "-o", "b.npz", "--gradients", "--layout", "bthd", folder=tmp_path)
    a, b = load(tmp_path / "a.npz"), load(tmp_path / "b.npz")
    assert set(a) - set(b) == {"lse"}
    for name in ("output", "dq", "dk", "dv"):
        np.testing.assert_array_equal(a[name], b[name].swapaxes(1, 2), err_msg=name)
    np.testing.assert_array_equal(a["dscale"], b["dscale"])


def test_the_gradient_of_the_output_may_be_a_file_of_its_own(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    np.save(tmp_path / "g.npy", D_OUTPUT)
    save(tmp_path / "both.npz", {**INPUT, "d_output": D_OUTPUT})
    heed_ok("run", "in.npz", "-o", "a.npz", "--gradients", "--d-output", "g.npy", folder=tmp_path)
    heed_ok("run", "both.npz", "-o", "b.npz", "--gradients", folder=tmp_path)
    a, b = load(tmp_path / "a.npz"), load(tmp_path / "b.npz")
    assert set(a) == set(b) == {"output", "dq", "dk", "dv", "dscale"}
    for name, values in a.items():
        np.testing.assert_array_equal(values, b[name], err_msg=name)


def test_dropout_follows_its_seed(tmp_path):
    save(tmp_path / "in.npz", INPUT)

    def weights(*flags):
        heed_ok("run", "in.npz", "-o", "out.npz", "--weights", *flags, folder=tmp_path)
        return load(tmp_path / "out.npz")["weights"]
    whole = weights()
    first = weights("--dropout", "0.5", "--seed", "1")
    np.testing.assert_array_equal(first, weights("--dropout", "0.5", "--seed", "1"))
    assert ((first == 0) != (weights("--dropout", "0.5", "--seed", "2") == 0)).any()
    kept = first != 0
    assert 0.3 < kept.mean() < 0.7   # 280 weights: 5 standard deviations are 0.15
    np.testing.assert_allclose(first[kept], 2 * whole[kept], rtol=1e-14)


ERRORS = {
    "no d_output": (INPUT, ["--gradients"], "--gradients takes d_output, a tensor of the input or --d-output FILE"),
    "d_output alone": (INPUT, ["--d-output", "in.npz"], "--d-output is for --gradients alone; expected --gradients beside it"),
    "no seed": (INPUT, ["--dropout", "0.1"], "--dropout takes --seed N: which weights are dropped"),
    "rate": (INPUT, ["--dropout", "1.5", "--seed", "1"], "--dropout is 1.5; expected 0 <= p < 1"),
    "shape": ({**INPUT, "d_output": D_OUTPUT[:, :, :4]}, ["--gradients"],
              "d_output has shape [2, 4, 4, 6]; expected [2, 4, 5, 6]"),
    "shape in the order of the file": ({name: x.swapaxes(1, 2) for name, x in {**INPUT, "d_output": D_OUTPUT[..., :5]}.items()},
                                       ["--gradients", "--layout", "bthd"],
                                       "d_output has shape [2, 5, 4, 5]; expected [2, 5, 4, 6], that of the output"),
    "type": ({**INPUT, "d_output": D_OUTPUT.astype(np.float32)}, ["--gradients"],
             "dtype of d_output is float32, of q float64; they must be equal"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_does_not_fit_is_said_and_nothing_written(case, tmp_path):
    tensors, flags, message = ERRORS[case]
    save(tmp_path / "in.npz", tensors)
    done = heed("run", "in.npz", "-o", "out.npz", *flags, folder=tmp_path)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not (tmp_path / "out.npz").exists()


def test_one_npy_file_cannot_hold_gradients(tmp_path):
    save(tmp_path / "in.npz", {**INPUT, "d_output": D_OUTPUT})
    done = heed("run", "in.npz", "-o", "out.npy", "--gradients", folder=tmp_path)
    assert done.returncode == 2 and "--gradients: a .npy file holds one tensor" in done.stderr


def test_a_gradient_that_nobody_asked_for_is_named(tmp_path):
    save(tmp_path / "in.npz", {**INPUT, "d_output": D_OUTPUT})
    done = heed("run", "in.npz", "-o", "out.npz", folder=tmp_path)
    assert done.returncode == 0
    assert "tensor d_output is not used without --gradients" in done.stderr


@pytest.mark.parametrize("unused", [D_OUTPUT.astype(np.float32), np.ones((1, 1, 1, 1, 1)), np.int64(1)])
def test_a_gradient_that_nobody_asked_for_may_be_anything(unused, tmp_path):
    save(tmp_path / "in.npz", {**INPUT, "d_output": unused})
    done = heed("run", "in.npz", "-o", "out.npz", "-q", folder=tmp_path)
    told = heed("run", "in.npz", "-o", "out.npz", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (told.returncode, told.stderr) == (0, "heed run: tensor d_output is not used without --gradients\n")


# Of each: slots of dQ for sixteen threads, many heads, and a bias of two heads, whose gradient is added up in float64.
LARGE = {"slots": ((1, 1, 100_000, 12_288, 16), "16", None), "heads": ((1, 16, 3000, 1600, 64), "2", None),
         "bias": ((1, 2, 3000, 3000, 8), "1", (3000, 3000))}


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
@pytest.mark.parametrize("case", LARGE)
def test_max_bytes_bounds_the_backward_pass_too(case, tmp_path):
    (batches, heads, queries, keys, size), threads, bias = LARGE[case]
    rows, columns = (batches, heads, queries, size), (batches, heads, keys, size)
    tensors = {"q": draw(1, *rows), "k": draw(2, *columns), "v": draw(3, *columns), "d_output": draw(4, *rows)}
    save(tmp_path / "in.npz", tensors | ({} if bias is None else {"bias": draw(5, *bias)}))
    call = ["run", "in.npz", "-o", "out.npz", "--gradients", "--window", "9,9", "--threads", threads]
    told = json.loads(heed_ok(*call, "--json", folder=tmp_path))["memory_bytes"]
    assert told / 2 < peak_bytes(*call, folder=tmp_path) - peak_bytes("info") < told
    done = heed(*call, "--max-bytes", int(0.99 * told), folder=tmp_path)
    assert done.returncode == 5 and done.stderr.startswith("heed run: the run takes about ")
