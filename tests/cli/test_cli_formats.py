"""heed run reads and writes every kind of file and type, alone and mixed."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest

from cli_support import (attention, heed, heed_ok, load, load_raw_safetensors, operands, save,
                         save_bf16)

INPUT = operands()
EXPECTED = attention(**INPUT)
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


def check(path, expected=EXPECTED[0], dtype=np.float32, **tolerance):
    found = load(path)["output"]
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), expected, **(tolerance or TOLERANCE))


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize("result", ["npy", "npz", "safetensors"])
def test_one_file(ending, result, tmp_path):
    save(tmp_path / f"in.{ending}", INPUT)
    heed_ok("run", f"in.{ending}", "-o", f"out.{result}", folder=tmp_path)
    check(tmp_path / f"out.{result}")


def test_three_files_of_any_kind_with_one_tensor_or_the_right_name(tmp_path):
    np.save(tmp_path / "a.npy", np.asfortranarray(INPUT["q"]))
    save(tmp_path / "b.npz", {"anything": INPUT["k"]})
    save(tmp_path / "c.safetensors", INPUT)
    heed_ok("run", "a.npy", "b.npz", "c.safetensors", "-o", "out.npy", folder=tmp_path)
    check(tmp_path / "out.npy")


def test_option_file_with_several_tensors_is_searched_by_name(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    save(tmp_path / "more.npz", {"sinks": np.array([0, 1, -1, 2.0]), "bias": np.zeros((5, 7), np.float32)})
    heed_ok("run", "in.npz", "-o", "out.npy", "--sinks", "more.npz", "--bias", "more.npz", folder=tmp_path)
    check(tmp_path / "out.npy", attention(**INPUT, sinks=[0, 1, -1, 2])[0])


def test_float16_is_widened_and_gives_float32(tmp_path):
    tensors = {name: values.astype(np.float16) for name, values in INPUT.items()}
    save(tmp_path / "in.npz", tensors)
    heed_ok("run", "in.npz", "-o", "out.npz", folder=tmp_path)
    check(tmp_path / "out.npz", attention(**tensors)[0])


def test_bfloat16_is_widened_and_gives_float32(tmp_path):
    tensors = {name: values.astype(ml_dtypes.bfloat16) for name, values in INPUT.items()}
    save_bf16(tmp_path / "in.safetensors", tensors)
    heed_ok("run", "in.safetensors", "-o", "out.npz", folder=tmp_path)
    check(tmp_path / "out.npz", attention(**tensors)[0])


def test_float64_stays_float64(tmp_path):
    tensors = {name: values.astype(np.float64) for name, values in INPUT.items()}
    save(tmp_path / "in.npz", tensors)
    heed_ok("run", "in.npz", "-o", "out.npz", "--lse", folder=tmp_path)
    check(tmp_path / "out.npz", dtype=np.float64, rtol=1e-13, atol=1e-14)
    assert load(tmp_path / "out.npz")["lse"].dtype == np.float64


@pytest.mark.parametrize("word,dtype,other,error", [
    ("float16", np.float16, np.float32, 1e-3), ("f32", np.float32, np.float32, 2e-5),
    ("float64", np.float64, np.float64, 1e-13)])
def test_dtype_of_the_results(word, dtype, other, error, tmp_path):
    save(tmp_path / "in.npz", INPUT)
    heed_ok("run", "in.npz", "-o", "out.npz", "--dtype", word, "--lse", "--weights", folder=tmp_path)
    check(tmp_path / "out.npz", dtype=dtype, rtol=error, atol=error / 10)
    found = load(tmp_path / "out.npz")
    assert found["lse"].dtype == found["weights"].dtype == other


@pytest.mark.parametrize("word,kind", [("float32", "F32"), ("float16", "F16"), ("bfloat16", "BF16")])
def test_all_but_a_narrower_output_is_stored_as_it_is_computed(word, kind, tmp_path):
    tensors = {name: values.astype(np.float64) for name, values in INPUT.items()}
    save(tmp_path / "in.npz", {**tensors, "d_output": np.ones(EXPECTED[0].shape)})
    call = ["run", "in.npz", "--lse", "--weights", "--gradients", "-o"]
    heed_ok(*call, "wide.safetensors", folder=tmp_path)
    heed_ok(*call, "out.safetensors", "--dtype", word, folder=tmp_path)
    (header, data), (wide, expected) = (load_raw_safetensors(tmp_path / name) for name in ("out.safetensors", "wide.safetensors"))
    assert header.pop("output")["dtype"] == kind and wide.pop("output")["dtype"] == "F64"
    for name in {"lse", "weights", "dq", "dk", "dv", "dscale"}:
        assert header[name]["dtype"] == wide[name]["dtype"] == "F64", name
        (begin, end), (first, last) = header[name]["data_offsets"], wide[name]["data_offsets"]
        assert data[begin:end] == expected[first:last], name


@pytest.mark.parametrize("dtype,unit", [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_16_bit_output_of_such_inputs_is_computed_in_the_type(tmp_path, dtype, unit):
    held = {name: values.astype(dtype if dtype == "float16" else ml_dtypes.bfloat16)
            for name, values in INPUT.items()}
    if dtype == "float16":
        save(tmp_path / "in.npz", held)
    else:
        save_bf16(tmp_path / "in.safetensors", held)
    name = "in.npz" if dtype == "float16" else "in.safetensors"
    told = json.loads(heed_ok("run", name, "-o", "out.safetensors", "--dtype", dtype, "--lse",
                              "--json", folder=tmp_path))
    assert dtype in told["path"] and told["outputs"]["lse"]["dtype"] == "float32"
    again = json.loads(heed_ok("run", name, "-o", "again.safetensors", "--dtype", dtype, "--lse",
                               "--reproducible", "--json", folder=tmp_path))
    assert "widened to float32" in again["path"]
    heed_ok("run", name, "-o", "wide.npz", folder=tmp_path)
    wide = load(tmp_path / "wide.npz")["output"]
    rounded = wide.astype(dtype if dtype == "float16" else ml_dtypes.bfloat16)
    header, data = load_raw_safetensors(tmp_path / "again.safetensors")
    begin, end = header["output"]["data_offsets"]
    assert data[begin:end] == rounded.tobytes()
    header, data = load_raw_safetensors(tmp_path / "out.safetensors")
    begin, end = header["output"]["data_offsets"]
    found = np.frombuffer(data[begin:end], rounded.dtype).astype(np.float32).reshape(wide.shape)
    assert np.abs(found - wide).max() <= 2 * unit * np.abs(INPUT["v"]).max()


def test_dtype_bfloat16_is_the_rounded_float32_output(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    heed_ok("run", "in.npz", "--output", "wide.npy", folder=tmp_path)
    heed_ok("run", "in.npz", "-o", "out.safetensors", "--dtype", "bfloat16", folder=tmp_path)
    header, data = load_raw_safetensors(tmp_path / "out.safetensors")
    assert header["output"]["dtype"] == "BF16"
    wide = np.load(tmp_path / "wide.npy")
    assert data == wide.astype(ml_dtypes.bfloat16).tobytes()


def test_trailing_bytes_are_refused_or_told(tmp_path):
    np.save(tmp_path / "q.npy", INPUT["q"])
    np.save(tmp_path / "k.npy", INPUT["k"])
    np.save(tmp_path / "v.npy", INPUT["v"])
    with open(tmp_path / "k.npy", "ab") as file:
        file.write(b"extra")
    files = ["q.npy", "k.npy", "v.npy"]
    done = heed("run", *files, "-o", "out.npy", folder=tmp_path)
    assert done.returncode == 3 and done.stderr.startswith("heed run: k.npy: ")
    done = heed("run", *files, "-o", "out.npy", "--allow-trailing", folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        0, "heed run: k.npy: 5 surplus bytes at the end are ignored\n")
    (tmp_path / "k.npy").write_bytes((tmp_path / "k.npy").read_bytes()[:-4])
    done = heed("run", *files, "-o", "out.npy", "--allow-trailing", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "heed run: k.npy: 1 surplus byte at the end is ignored\n")
    check(tmp_path / "out.npy")


def test_empty_tensors_give_empty_results(tmp_path):
    save(tmp_path / "in.npz", operands(queries=0))
    heed_ok("run", "in.npz", "-o", "out.npz", "--lse", "--weights", folder=tmp_path)
    found = load(tmp_path / "out.npz")
    assert (found["output"].shape, found["weights"].shape) == ((2, 4, 0, 6), (2, 4, 0, 7))
    save(tmp_path / "in.npz", operands(keys=0))
    heed_ok("run", "in.npz", "-o", "out.npz", "--lse", folder=tmp_path)
    found = load(tmp_path / "out.npz")
    assert not found["output"].any() and np.isneginf(found["lse"]).all()


def test_names_with_spaces_and_other_letters(tmp_path):
    save(tmp_path / "ein gabe ä.npz", INPUT)
    heed_ok("run", "ein gabe ä.npz", "-o", "aus gabe ü.npz", folder=tmp_path)
    check(tmp_path / "aus gabe ü.npz")


@pytest.mark.parametrize("name", ["[qkv]", "[q.npy,k.npy,v.npy]", "[]", "++", "[[qkv]]"])
def test_a_name_is_what_the_word_says(name, tmp_path):
    save(tmp_path / "in.npz", INPUT)
    save(tmp_path / "other.npz", operands(seed=7))
    for other in ("qkv", "q", "q.npy", "k.npy", "v.npy"):
        shutil.copy(tmp_path / "other.npz", tmp_path / other)
    shutil.copy(tmp_path / "in.npz", tmp_path / name)
    heed_ok("run", "in.npz", "-o", "expected.npy", folder=tmp_path)
    for words in ([name, "-o", "found.npy"], ["-o", "found.npy", name], ["-o", "found.npy", "--", name]):
        heed_ok("run", *words, folder=tmp_path)
        assert (tmp_path / "found.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes(), words
    before = (tmp_path / name).read_bytes()
    done = heed("inspect", name, "--html", name, folder=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"heed inspect: --html: {name} is the input {name}\n")
    assert (tmp_path / name).read_bytes() == before
