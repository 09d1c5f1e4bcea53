"""heed run computes what its flags say: every option against the definition in NumPy.

Each option must also change the output, so that none is read and forgotten.
"""

import json
import re

import numpy as np
import pytest

from cli_support import ROOT, attention, draw, heed, heed_ok, load, no_new_threads, operands, save

INPUT = operands()
KEEP = np.random.default_rng(5).random((2, 1, 5, 7)) < 0.7
BIAS = draw(6, 4, 5, 7)
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}

# flags, tensors that flags read from files, and the same for the definition
CASES = {
    "scale": (["--scale", "0.7"], {}, {"scale": 0.7}),
    "negative_scale": (["--scale", "-0.7"], {}, {"scale": -0.7}),
    "scale_per_head": (["--scale", "0.1,0.2,0.4,0.8"], {}, {"scale": [0.1, 0.2, 0.4, 0.8]}),
    "scale_file": (["--scale", "scale.npy"], {"scale": np.array([0.1, 0.2, 0.4, 0.8])},
                   {"scale": [0.1, 0.2, 0.4, 0.8]}),
    "normalize_qk": (["--normalize-qk"], {}, {"normalize_qk": True}),
    "normalize_qk_scale": (["--normalize-qk", "--scale", "5"], {}, {"normalize_qk": True, "scale": 5.0}),
    "softcap": (["--softcap", "0.5"], {}, {"softcap": 0.5}),
    "alibi_list": (["--alibi", "1,0.5,0.25,0.125"], {}, {"alibi": [1, 0.5, 0.25, 0.125]}),
    "alibi_file_of_float16": (["--alibi", "alibi.npy"],
                              {"alibi": np.array([1, 0.5, 0.25, 0.125], np.float16)},
                              {"alibi": [1, 0.5, 0.25, 0.125]}),
    "bias": (["--bias", "bias.npy"], {"bias": BIAS}, {"bias": BIAS}),
    "causal": (["--causal"], {}, {"causal": True}),
    "query_start": (["--causal", "--query-start", "2"], {}, {"causal": True, "query_start": 2}),
    "query_start_below_zero": (["--causal", "--query-start", "-2"], {},
                               {"causal": True, "query_start": -2}),
    "query_start_per_batch": (["--causal", "--query-start", "1,2"], {},
                              {"causal": True, "query_start": [1, 2]}),
    "window": (["--window", "2,1"], {}, {"window": (2, 1)}),
    "window_left": (["--window", "2,inf"], {}, {"window": (2, None)}),
    "window_right": (["--window", "inf,1"], {}, {"window": (None, 1)}),
    "key_lengths_one": (["--key-lengths", "4"], {}, {"key_lengths": 4}),
    "key_lengths_each": (["--key-lengths", "4,0"], {}, {"key_lengths": [4, 0]}),
    "key_lengths_file": (["--key-lengths", "lengths.npy"], {"lengths": np.array([4, 6], np.int32)},
                         {"key_lengths": [4, 6]}),
    "query_lengths": (["--query-lengths", "3,5"], {}, {"query_lengths": [3, 5]}),
    "keep": (["--keep", "keep.npy"], {"keep": KEEP}, {"keep": KEEP}),
    "drop": (["--drop", "drop.npy"], {"drop": KEEP.astype(np.uint8)}, {"drop": KEEP}),
    "sinks": (["--sinks", "0,1,-1,2"], {}, {"sinks": [0, 1, -1, 2]}),
    "together": (["--scale", "0.9", "--softcap", "3", "--alibi", "1,0.5,0.25,0.125", "--bias", "bias.npy",
                  "--causal", "--query-start", "2", "--window", "4,inf", "--key-lengths", "6,7",
                  "--query-lengths", "5,4", "--keep", "keep.npy", "--sinks", "0,1,-1,2"],
                 {"bias": BIAS, "keep": KEEP},
                 {"scale": 0.9, "softcap": 3.0, "alibi": [1, 0.5, 0.25, 0.125], "bias": BIAS,
                  "causal": True, "query_start": 2, "window": (4, None), "key_lengths": [6, 7],
                  "query_lengths": [5, 4], "keep": KEEP, "sinks": [0, 1, -1, 2]}),
}


def compare(found, expected):
    for name, values in zip(("output", "lse", "weights"), expected, strict=True):
        np.testing.assert_allclose(found[name], values, **TOLERANCE, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_option_follows_the_definition_and_changes_the_output(case, tmp_path):
    flags, files, options = CASES[case]
    save(tmp_path / "in.npz", INPUT)
    for name, values in files.items():
        np.save(tmp_path / f"{name}.npy", values)
    heed_ok("run", "in.npz", "-o", "out.npz", "--lse", "--weights", *flags, folder=tmp_path)
    found = load(tmp_path / "out.npz")
    compare(found, attention(**INPUT, **options))
    assert not np.allclose(found["output"], attention(**INPUT)[0], **TOLERANCE)


def test_options_are_found_by_name_beside_q_k_and_v(tmp_path):
    options = {"scale": 0.9, "alibi": np.array([1, 0.5, 0.25, 0.125], np.float32), "bias": BIAS,
               "query_start": np.array([2, 1]), "key_lengths": np.array([6, 7], np.int32),
               "query_lengths": np.array([5, 4]), "keep": KEEP, "drop": KEEP[:1, :, :, ::-1].copy(),
               "sinks": np.array([0, 1, -1, 2.0])}
    tensors = {name: np.ascontiguousarray(values) for name, values in {**INPUT, **options}.items()}
    tensors["scale"] = np.array(0.9)
    save(tmp_path / "in.safetensors", tensors)
    heed_ok("run", "in.safetensors", "-o", "out.npz", "--lse", "--weights", "--causal", folder=tmp_path)
    compare(load(tmp_path / "out.npz"), attention(**INPUT, **options, causal=True))


PACKED = ("; packed sequences are read from no file: make each an entry of the batch, with query_lengths and "
          "key_lengths")


@pytest.mark.parametrize("name, why", [
    *((flag.replace("-", "_"), f", which only the flag --{flag} sets; leave the tensor out")
      for flag in ("softcap", "normalize-qk", "causal", "window")),
    *((flag, f", which only the flag --{flag} of heed run sets; leave the tensor out") for flag in ("dropout", "seed")),
    *((name, "; call it keep, drop or bias, whichever it is") for name in ("mask", "attn_mask", "attention_mask")),
    *((name, PACKED) for name in ("packing", "query_offsets", "key_offsets"))])
def test_a_tensor_named_like_an_option_is_refused_not_ignored(name, why, tmp_path):
    save(tmp_path / "in.npz", {**INPUT, name: np.array(30.0)})
    np.save(tmp_path / "k.npy", INPUT["k"])
    np.save(tmp_path / "v.npy", INPUT["v"])
    for command in (["run", "in.npz"], ["run", "in.npz", "k.npy", "v.npy"], ["run", *["in.npz"] * 3],
                    ["inspect", "in.npz"], ["inspect", "in.npz", "k.npy"], ["inspect", "in.npz", "in.npz"]):
        output = ["-o", "out.npz"] if command[0] == "run" else []
        done = heed(*command, *output, "-q", folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), command
        assert done.stderr == f"heed {command[0]}: in.npz holds a tensor named {name}{why}\n"
        assert not (tmp_path / "out.npz").exists()


OPTIONS = {"scale": np.array(9.0), "alibi": np.ones(4), "bias": BIAS, "query_start": np.array(2),
           "key_lengths": np.array([2, 3]), "query_lengths": np.array([2, 3]), "keep": KEEP, "drop": KEEP,
           "sinks": np.zeros(4), "d_output": draw(7, 2, 4, 5, 6)}


@pytest.mark.parametrize("command, names, flags", [("run", "qkv", ["-o", "out.npz", "--gradients"]),
                                                   ("inspect", "qk", ["--json"])])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_in_one_of_several_files_is_refused_not_ignored(option, command, names, flags, tmp_path):
    save(tmp_path / "all.npz", {**INPUT, option: OPTIONS[option]})
    np.save(tmp_path / "d.npy", OPTIONS["d_output"])
    if option != "d_output" and command == "run":
        flags = [*flags, "--d-output", "d.npy"]
    for name in names:
        np.save(tmp_path / f"{name}.npy", INPUT[name])
    flag = "--" + option.replace("_", "-")
    for place in (*range(len(names)), None):   # one of the files, or each
        files = ["all.npz" if place in (i, None) else f"{name}.npy" for i, name in enumerate(names)]
        done = heed(command, *files, *flags, "-q", folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), files
        assert done.stderr == (
            f"heed {command}: all.npz holds a tensor named {option}, which is taken only from one file with "
            f"{'q, k and v' if command == 'run' else 'q and k'}; give {flag} all.npz, or leave the tensor out\n")
    assert not (tmp_path / "out.npz").exists()


def test_flags_take_options_from_the_files_of_q_k_and_v(tmp_path):
    for name, options in (("q", {"scale": 9.0}), ("k", {"key_lengths": [2, 3]}), ("v", {"bias": BIAS, "keep": KEEP})):
        save(tmp_path / f"{name}.npz", {**INPUT, **options})
    flags = ["--scale", "q.npz", "--key-lengths", "./k.npz", "--bias", "v.npz", "--keep", tmp_path / "v.npz"]
    heed_ok("run", "q.npz", "k.npz", "v.npz", "-o", "out.npz", "-q", "--lse", "--weights", *flags, folder=tmp_path)
    compare(load(tmp_path / "out.npz"), attention(**INPUT, scale=9.0, key_lengths=[2, 3], bias=BIAS, keep=KEEP))
    assert heed("run", "q.npz", "k.npz", "v.npz", "-o", "out.npz", *flags, folder=tmp_path).stderr == ""
    done = heed("run", "q.npz", "k.npz", "v.npz", "-o", "out.npz", *flags[2:], "--scale", "3", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "heed run: --scale replaces the tensor scale of the input\n")


def test_tensors_beside_the_one_taken_are_told_once(tmp_path):
    save(tmp_path / "in.npz", {**INPUT, "note": np.zeros(1), "d_output": OPTIONS["d_output"]})
    save(tmp_path / "mask.npz", {"keep": KEEP, "drop": KEEP, "causal": np.ones(1), "q": INPUT["q"]})
    done = heed("run", *["in.npz"] * 3, "-o", "out.npz", "--keep", "mask.npz", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "heed run: tensors d_output, note of in.npz are not used\n"
                                                 "heed run: tensors causal, drop, q of mask.npz are not used\n")
    done = heed("run", "in.npz", "-o", "out.npz", "--gradients", "--keep", "mask.npz", "--drop", "mask.npz",
                folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "heed run: tensor note of in.npz is not used\n"
                                                 "heed run: tensors causal, q of mask.npz are not used\n")
    done = heed("inspect", "in.npz", "in.npz", "--d-output", "in.npz", folder=tmp_path)
    assert done.returncode == 2 and "--d-output is given, but no v" in done.stderr
    done = heed("inspect", *["in.npz"] * 3, "--d-output", "in.npz", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "heed inspect: tensor note of in.npz is not used\n")


def test_flag_beats_the_tensor_of_its_name_and_says_so(tmp_path):
    save(tmp_path / "in.npz", {**INPUT, "sinks": np.zeros(4), "note": np.zeros(1)})
    arguments = ["run", "in.npz", "-o", "out.npz", "--sinks", "0,1,-1,2"]
    done = heed(*arguments, folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ("heed run: tensor note of in.npz is not used\n"
                           "heed run: --sinks replaces the tensor sinks of the input\n")
    np.testing.assert_allclose(load(tmp_path / "out.npz")["output"],
                               attention(**INPUT, sinks=[0, 1, -1, 2])[0], **TOLERANCE)
    done = heed(*arguments, "--quiet", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_threads_and_layout_change_no_bit(tmp_path):
    tensors = operands(heads=4, queries=130, keys=150, d=16, d_v=16)
    save(tmp_path / "in.npz", tensors)
    save(tmp_path / "bthd.npz", {name: np.ascontiguousarray(values.swapaxes(1, 2))
                                 for name, values in tensors.items()})
    heed_ok("run", "in.npz", "-o", "one.npz", "--threads", "1", "--lse", "--weights", folder=tmp_path)
    heed_ok("run", "in.npz", "-o", "three.npz", "--threads", "3", "--lse", "--weights", folder=tmp_path)
    heed_ok("run", "bthd.npz", "-o", "bthd_out.npz", "--layout", "bthd", "--lse", "--weights",
            folder=tmp_path)
    one, three, bthd = (load(tmp_path / name) for name in ("one.npz", "three.npz", "bthd_out.npz"))
    compare(one, attention(**tensors))
    for name in one:
        assert np.array_equal(one[name], three[name])
        values = bthd[name].swapaxes(1, 2) if name == "output" else bthd[name]
        assert np.array_equal(one[name], values)


def test_threads_that_the_system_refuses_are_told_in_one_line_and_change_no_bit(tmp_path):
    save(tmp_path / "in.npz", operands(heads=8, kv_heads=8, queries=130, keys=150, d=16, d_v=16))
    arguments = ["run", "in.npz", "--threads", "4"]
    heed_ok(*arguments, "-o", "four.npz", folder=tmp_path)
    done = heed(*arguments, "-o", "one.npz", folder=tmp_path, preexec_fn=no_new_threads)
    assert (done.returncode, done.stderr) == (
        0, "heed run: the system refused to start a thread; fewer did the work\n")
    assert np.array_equal(load(tmp_path / "one.npz")["output"], load(tmp_path / "four.npz")["output"])
    done = heed(*arguments, "-o", "quiet.npz", "--quiet", folder=tmp_path, preexec_fn=no_new_threads)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("rank", [2, 3])
def test_results_keep_the_rank_of_q(rank, tmp_path):
    tensors = operands(batch=3, heads=1, kv_heads=1)
    small = {name: values[0, 0] if rank == 2 else values[:, 0] for name, values in tensors.items()}
    save(tmp_path / "in.npz", small)
    heed_ok("run", "in.npz", "-o", "out.npz", "--lse", "--weights", folder=tmp_path)
    found = load(tmp_path / "out.npz")
    for name, values in zip(("output", "lse", "weights"), attention(**tensors), strict=True):
        expected = values[0, 0] if rank == 2 else values[:, 0]
        assert found[name].shape == expected.shape
        np.testing.assert_allclose(found[name], expected, **TOLERANCE)


def test_json_tells_what_ran_and_nothing_else_is_printed(tmp_path):
    save(tmp_path / "in.npz", INPUT | {"alibi": np.ones(4, np.float16), "sinks": np.ones(4)})
    told = json.loads(heed_ok("run", "in.npz", "-o", "out.npz", "--lse", "--causal", "--scale", "0.5",
                              "--window", "3,inf", "--key-lengths", "4,5", "--threads", "2", "--json",
                              "--max-bytes", "1G", folder=tmp_path))
    assert told["options"] == {"files": ["in.npz"], "scale": 0.5, "causal": True, "window": [3, None],
                               "key-lengths": [4, 5], "output": "out.npz", "lse": True,
                               "max-bytes": 2**30, "threads": 2, "json": True}
    assert told["inputs"]["k"] == {"dtype": "float32", "shape": [2, 2, 7, 8]}
    assert told["inputs"]["alibi"] == {"dtype": "float16", "shape": [4]} and told["inputs"]["sinks"]["dtype"] == "float64"
    assert told["outputs"] == {"lse": {"dtype": "float32", "shape": [2, 4, 5]},
                               "output": {"dtype": "float32", "shape": [2, 4, 5, 6]}}
    assert told["file"] == "out.npz" and told["seconds"] >= 0 and told["memory_bytes"] > 0
    assert told["tiles_computed"] > 0 and told["instruction_set"] and told["path"] and told["version"]
    table = (ROOT / "docs/run.md").read_text().split("| field | meaning |")[1]
    assert set(told) == {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"\w+", row)}


def test_json_has_words_for_numbers_that_are_not_finite(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    told = json.loads(heed_ok("run", "in.npz", "-o", "out.npz", "--sinks", "inf,-inf,nan,1", "--softcap", "0.5", "--json", folder=tmp_path))
    assert (told["options"]["sinks"], told["options"]["softcap"]) == (["inf", "-inf", "nan", 1.0], 0.5)


def test_summary_names_tensors_and_file(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    text = heed_ok("run", "in.npz", "-o", "out.npz", folder=tmp_path)
    assert "output         float32   [2, 4, 5, 6]\n" in text
    assert text.endswith("written to out.npz\n")


def test_output_is_computed_without_being_asked_for_lse_or_weights(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    heed_ok("run", "in.npz", "-o", "out.npz", folder=tmp_path)
    assert list(load(tmp_path / "out.npz")) == ["output"]


@pytest.mark.parametrize("flags, shape, least", [([], (1000, 1000), 4_000_000), (["--gradients", "--threads", 2], (1, 1, 101, 13), 0)],
                         ids=["much that is not used", "a part of a thread's work"])
def test_memory_is_at_least_what_is_read(flags, shape, least, tmp_path):
    """The told number is a limit that the same call keeps."""
    save(tmp_path / "in.npz", operands(1, 1, 1, 101, 103, 13, 13) | {"d_output": np.zeros(shape, np.float32)})
    call = ["run", "in.npz", "-o", "out.npz", "-q", *flags]
    told = json.loads(heed_ok(*call, "--json", folder=tmp_path))["memory_bytes"]
    assert told >= least
    heed_ok(*call, "--max-bytes", told, folder=tmp_path)
