"""Bad calls and bad input: the exit code, one line on stderr, nothing on stdout, nothing written."""

import os
import resource
import subprocess

import numpy as np
import pytest

from cli_support import HEED, SANITIZED, draw, heed, operands, save, save_bf16, save_file, snapshot

INPUT = operands()
RUN = ["run", "in.npz", "-o", "out.npz"]

# name: arguments, exit code, the line on stderr
CALLS = {
    "no_command": ([], 2, "heed: no command given; heed --help lists them, heed demo shows what it is about"),
    "unknown_command": (["rnu"], 2, "heed: unknown command 'rnu'; did you mean run?"),
    "strange_command": (["attention"], 2, "heed: unknown command 'attention'; expected run, inspect, study, bench, "
                        "info or demo"),
    "command_behind_another_word": (["quickly", *RUN], 2, "heed run: unknown command 'quickly'; expected run, inspect, "
                                    "study, bench, info or demo"),
    "short_flag": (["-v"], 2, "heed: unknown flag -v; heed --help lists them"),
    "unknown_global_flag": (["--verson"], 2, "heed: unknown flag --verson; did you mean --version?"),
    "no_input": (["run", "-o", "out.npz"], 2,
                 "heed run: no input; give one .npz or .safetensors file, or Q.npy K.npy V.npy"),
    "no_output": (["run", "in.npz"], 2, "heed run: no output; give -o FILE"),
    "no_output_before_the_mark": (["run", "--", "in.npz", "-o", "out.npz"], 2,
                                  "heed run: no output; behind -- every word is a file: give -o FILE before it"),
    **{f"{word} behind the mark": ([*RUN, "--", word], 2,
                                   f"heed run: unexpected {word} behind --, where every word is a file; flags stand "
                                   "before it, and all files on one side of it") for word in ("--causal", "k.npy")},
    **{f"{word} before the command": ([word, "info"], 2, f"heed info: {word.split('=')[0]} stands before the command; "
                                      f"give heed info {word}") for word in ("--json", "--json=no")},
    "too_large": ([*RUN, "--max-bytes", "1K"], 5, "heed run: in.npz: expected tensors of at most 1024 bytes together, "
                  "found one of 1280 after 0; --max-bytes 1K leaves no more"),
    "two_files": (["run", "q.npy", "k.npy", "-o", "out.npz"], 2,
                  "heed run: expected one file, or three for q, k and v; got 2"),
    "misspelt_flag": ([*RUN, "--sofcap", "3"], 2, "heed run: unknown flag --sofcap; did you mean --softcap?"),
    "far_flag": (["inspect", "in.npz", "--seed", "3"], 2,
                 "heed inspect: unknown flag --seed; heed inspect --help lists them"),
    "strange_flag": ([*RUN, "--volume=11"], 2, "heed run: unknown flag --volume; heed run --help lists them"),
    "no_value": ([*RUN, "--softcap"], 2, "heed run: --softcap: expected X, got nothing"),
    "no_output_name": (["run", "in.npz", "-o"], 2, "heed run: --output: expected FILE, got nothing"),
    "flag_twice": ([*RUN, "--softcap", "1", "--softcap", "2"], 2,
                   "heed run: --softcap: expected once, got 2 times"),
    **{f"switch {word}": ([*RUN, f"--causal={word}"], 2, f"heed run: --causal: expected no value, got '{word}'")
       for word in ("perhaps", "no", "0", "3", "")},
    **{f"nothing behind {flag}=": ([*RUN, f"--{flag}=", word], 2, f"heed run: --{flag}: expected {expected}, got ''")
       for flag, expected, word in (("softcap", "a number of float64", "3"), ("threads", "an integer", "--help"),
                                    ("d-output", "a name", "d.npy"))},
    "help with a value": (["run", "--help=no"], 2, "heed run: --help: expected no value, got 'no'"),
    "version with a value": (["--version="], 2, "heed: --version: expected no value, got ''"),
    "short help with a value": (["run", "-h=no"], 2, "heed run: -h: expected no value, got 'no'"),
    "short switch with a value": ([*RUN, "-q=1"], 2, "heed run: -q: expected no value, got '1'"),
    **{f"number glued to {' '.join(words)} {word[:-1]}": ([*words, word], 2, f"heed run: -{word[-2]}: expected no value, got '1'")
       for words, word in ((["run"], "-q1"), (RUN, "-q1"), (["run"], "-qh1"))},
    "short flags and a value": (["run", "in.npz", "-qo=out.npz"], 2, "heed run: -o: expected its value as a word of its own, got '=out.npz'"),
    "short flag with a value": (["run", "in.npz", "-o=out.npz"], 2, "heed run: -o: expected its value as a word of its own, got '=out.npz'"),
    "version before a command": (["--version=x", "info"], 2, "heed info: --version: expected no value, got 'x'"),
    "softcap_word": ([*RUN, "--softcap", "high"], 2,
                     "heed run: --softcap: expected a number of float64, got 'high'"),
    "softcap_small": ([*RUN, "--softcap", "1e-400"], 2, "heed run: --softcap: expected a number of float64, got '1e-400'"),
    "softcap_comma": ([*RUN, "--softcap", "0,5"], 2, "heed run: --softcap: expected a number of float64, got '0,5'"),
    "window_one_side": ([*RUN, "--window", "3"], 2,
                        "heed run: --window: expected LEFT,RIGHT, each a count of keys from 0 up, or inf, "
                        "got '3'"),
    "window_below_zero": ([*RUN, "--window", "-1,2"], 2,
                          "heed run: --window: expected LEFT,RIGHT, each a count of keys from 0 up, or inf, "
                          "got '-1,2'"),
    **{f"window {word}": ([*RUN, "--window", word], 2,
                          "heed run: --window: expected LEFT,RIGHT, each a count of keys from 0 up, or inf, "
                          f"got '{word}'") for word in (",", "1,", ",1", "", "none,0")},
    "threads_word": ([*RUN, "--threads", "two"], 2, "heed run: --threads: expected an integer, got 'two'"),
    "threads_beyond_ascii": ([*RUN, "--threads", "3\udcee"], 2,
                             r"heed run: --threads: expected an integer, got '3\xee'"),
    "threads_below_zero": ([*RUN, "--threads", "-1"], 2, "heed run: --threads: expected 0 to 4096, got -1"),
    "dtype": ([*RUN, "--dtype", "int8"], 2,
              "heed run: --dtype: expected float16 (f16), bfloat16 (bf16), float32 (f32) or float64 (f64), got 'int8'"),
    "layout": ([*RUN, "--layout", "thbd"], 2, "heed run: --layout: expected bhtd or bthd, got 'thbd'"),
    **{f"max_bytes {n}": ([*RUN, "--max-bytes", n], 2, "heed run: --max-bytes: expected a number of bytes from 1 to below "
                          f"2^63, such as 3000000, 512M or 4G, got '{n}'")
       for n in ("4GB", "0", "99999999999999999999", "8388608T")},
    "npy_with_lse": (["run", "in.npz", "-o", "out.npy", "--lse"], 2,
                     "heed run: --lse: a .npy file holds one tensor; give -o a name that ends in .npz or "
                     ".safetensors"),
    "npy_with_weights": (["run", "in.npz", "-o", "out.npy", "--weights"], 2,
                         "heed run: --weights: a .npy file holds one tensor; give -o a name that ends in "
                         ".npz or .safetensors"),
    "bfloat16_in_npz": ([*RUN, "--dtype", "bfloat16"], 2,
                        "heed run: --dtype bfloat16: NumPy's files have no such type; give -o a name that "
                        "ends in .safetensors"),
    "unknown_ending": (["run", "in.npz", "-o", "out.txt"], 2,
                       "heed run: out.txt: the name must end in .npy, .npz or .safetensors"),
    "missing_input": (["run", "no.npz", "-o", "out.npz"], 4,
                      "heed run: no.npz: cannot open: No such file or directory"),
    "input_is_a_folder": (["run", "folder", "-o", "out.npz"], 4,
                          "heed run: folder: expected a regular file, found a directory"),
    "missing_folder": (["run", "in.npz", "-o", "nowhere/out.npz"], 4,
                       'heed run: nowhere/out.npz: cannot open the directory "nowhere": '
                       "No such file or directory"),
    "output_is_a_folder": (["run", "in.npz", "-o", "folder.npz"], 4,
                           "heed run: folder.npz: cannot write: it exists and is no regular file"),
    "output_is_the_input": (["run", "in.npz", "-o", "in.npz"], 2,
                            "heed run: the output in.npz is the input in.npz; --in-place allows it"),
    "output_is_a_link_to_the_input": (["run", "in.npz", "-o", "link.npz"], 2,
                                      "heed run: the output link.npz is the input in.npz; --in-place allows it"),
    "output_is_a_hard_link": (["run", "in.npz", "-o", "hard.npz"], 2,
                              "heed run: the output hard.npz is the input in.npz; --in-place allows it"),
    "output_is_an_option_s_file": ([*RUN[:3], "bias.npy", "--bias", "bias.npy"], 2,
                                   "heed run: the output bias.npy is the input bias.npy; --in-place allows it"),
    "one_npy": (["run", "q.npy", "-o", "out.npz"], 2,
                "heed run: q.npy holds one tensor; give three files, Q.npy K.npy V.npy"),
    "one_npy_inspected": (["inspect", "q.npy"], 2, "heed inspect: q.npy holds one tensor; give two files, Q.npy K.npy"),
    "four_files_inspected": (["inspect", "q.npy", "k.npy", "v.npy", "bias.npy"], 2,
                             "heed inspect: expected one file, two for q and k, or three with v; got 4"),
    "one_npy_against": (["inspect", "qk.npz", "--against", "q.npy", "--pictures", "p"], 2,
                        "heed inspect: --against: q.npy holds one tensor; give one .npz or .safetensors file with "
                        "q and k"),
    "one_npy_studied": (["study", "scaling", "--input", "q.npy"], 2,
                        "heed study: --input: q.npy holds one tensor; give one .npz or .safetensors file with q, k and v"),
    "no_tensor_v": (["run", "qk.npz", "-o", "out.npz"], 3,
                    "heed run: qk.npz: no tensor named v; found k, q"),
    "several_tensors": ([*RUN, "--bias", "qk.npz"], 3,
                        "heed run: qk.npz: expected one tensor, or one named bias; found k, q"),
    "no_tensor_at_all": ([*RUN, "--bias", "empty.npz"], 3,
                         "heed run: empty.npz: expected one tensor, or one named bias; found no tensors"),
    "a_lone_tensor_of_another_option": ([*RUN, "--keep", "drop.npz"], 3, "heed run: drop.npz: expected a tensor named keep; "
                                        "found drop, which is another one to heed"),
    "five_axes": (["run", "five.npz", "-o", "out.npz"], 2,
                  "heed run: k has 5 axes, [1, 2, 4, 5, 8]; expected at most 4"),
    "integers": (["run", "integers.npz", "-o", "out.npz"], 2,
                 "heed run: dtype of q is int64; expected float16, bfloat16, float32 or float64"),
    "mixed_types": (["run", "mixed.npz", "-o", "out.npz"], 2,
                    "heed run: dtype of k is float64, of q float32; they must be equal"),
    "rank_0": (["run", "scalar.npy", "k.npy", "v.npy", "-o", "out.npz"], 2,
               "heed run: q has rank 0; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]"),
    "rank_0_inspected": (["inspect", "q.npy", "scalar.npy"], 2,
                         "heed inspect: k has rank 0; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]"),
    "seed_without_dropout": ([*RUN, "--seed", "3"], 2, "heed run: --seed is for --dropout alone; expected --dropout P beside it"),
    "seed_below_zero": ([*RUN, "--dropout", "0.5", "--seed", "-1"], 2,
                        "heed run: --seed: expected 0 to 18446744073709551615, got -1"),
    "seed_of_20_digits": ([*RUN, "--dropout", "0.5", "--seed", "18446744073709551616"], 2,
                          "heed run: --seed: expected 0 to 18446744073709551615, got 18446744073709551616"),
    "threads_of_20_digits": ([*RUN, "--threads", "99999999999999999999"], 2,
                             "heed run: --threads: expected 0 to 4096, got 99999999999999999999"),
    "two_signs": ([*RUN, "--threads", "+-1"], 2, "heed run: --threads: expected an integer, got '+-1'"),
    "shapes_before_memory": (["inspect", "q.npy", "bias.npy", "--max-bytes", "2K"], 2,
                             "heed inspect: rank of k is 3, of q 4; they must be equal"),
    "rows_of_20_digits": (["inspect", "q.npy", "k.npy", "--rows", "99999999999999999999"], 2,
                          "heed inspect: --rows: expected an integer from 0 up and below 2^63, "
                          "got '99999999999999999999'"),
    "rows_with_a_gap": (["inspect", "q.npy", "k.npy", "--rows", "1,,2"], 2,
                        "heed inspect: --rows: expected an integer from 0 up and below 2^63, got '' in '1,,2'"),
    "heads_of_no_word": (["inspect", "q.npy", "k.npy", "--pictures", "p", "--heads", ""], 2,
                         "heed inspect: --heads: expected LAYER.HEAD or a list of them, as 3.1,5.11, got ''"),
    "tile": (["inspect", "q.npy", "k.npy", "--html", "page.html", "--tile", "99,98"], 2,
             "heed inspect: --tile: expected a row below 5, a comma and a key below 7, got 99,98"),
    "missing_file_of_lengths": ([*RUN, "--key-lengths", "no.npy"], 4,
                                "heed run: no.npy: cannot open: No such file or directory"),
    "layout_of_three_axes": (["run", "three.npz", "-o", "out.npz", "--layout", "bthd"], 2,
                             "heed run: --layout bthd: q has shape [2, 5, 8]; expected four axes"),
    "bench_heads": (["bench", "--heads", "3/2"], 2,
                    "heed bench: --heads: the number of query heads must be a multiple of that of key heads, got 3/2"),
    "bench_n": (["bench", "--n", "0"], 2,
                "heed bench: --n: expected one size or two with x between, each at least 1 and below 2^63, got '0'"),
    "bench_dtype": (["bench", "--dtype", "int8"], 2,
                    "heed bench: --dtype: expected float16 (f16), bfloat16 (bf16), float32 (f32) or float64 (f64), "
                    "got 'int8'"),
    **{f"bench_seconds {s}": (["bench", "--seconds", s], 2,
                              f"heed bench: --seconds: expected a number above 0, at most 3600, got {s}")
       for s in ("0", "3600.0000001")},
    "bench_batch": (["bench", "--batch", "0"], 2, "heed bench: --batch: expected 1 to 9223372036854775807, got 0"),
    "bench_threads": (["bench", "--threads", "-3"], 2,
                      "heed bench: --threads: expected 0 to 4096, got -3"),
    **{f"info_argument {word}": (["info", word], 2, f"heed info: unexpected argument '{word}'")
       for word in ("cpu", "[cpu]", "[a,b]", "++")},
    **{f"unknown command {word}": ([word], 2, f"heed: unknown command '{word}'; expected run, inspect, study, bench, info or "
                                   "demo") for word in ("[quickly]", "++")},
    **{f"{word} behind the mark": ([*RUN, "--", word], 2,
                                   f"heed run: unexpected {word} behind --, where every word is a file; flags stand "
                                   "before it, and all files on one side of it") for word in ("[k.npy]", "++", "--scale=")},
    "page_of_no_name": (["inspect", "q.npy", "k.npy", "--html", "-"], 2,
                        "heed inspect: --html: expected a file, got '-'; for a file of that name give ./-"),
    "page_of_a_name_in_brackets": (["inspect", "[in]", "--html", "./[in]"], 2, "heed inspect: --html: ./[in] is the input [in]"),
    "demo_flag": (["demo", "--fast"], 2, "heed demo: unknown flag --fast; heed demo --help lists them"),
    "no_name": (["inspect", ""], 2, "heed inspect: input: expected the name of a file, got ''"),
    "length_of_a_flag": ([*RUN, "--key-lengths", "13"], 2, "heed run: --key-lengths is 13; expected 0 .. 7"),
    "lengths_of_a_flag": ([*RUN, "--query-lengths", "3,6"], 2,
                          "heed run: --query-lengths[1] is 6; expected 0 .. 5"),
    "dropout": ([*RUN, "--dropout", "2", "--seed", "1"], 2,
                "heed run: --dropout is 2; expected 0 <= p < 1, and 1 - p above 2^-17"),
    **{f"scale_of_integers {shape}": (["run", f"scale{shape}.npz", "-o", "out.npz"], 2, "heed run: scale is int32; "
                                      "expected float16, bfloat16, float32 or float64") for shape in ((), (4,))},
    **{f"digits of --dropout {p}": ([*RUN, "--dropout", p, "--seed", "1"], 2, f"heed run: --dropout is {p}; expected "
                                   "0 <= p < 1, and 1 - p above 2^-17") for p in ("0.9999999", "-1.23456789e-7")},
    "length_of_a_file": ([*RUN, "--key-lengths", "scalar.npy"], 2, "heed run: --key-lengths is float32; expected int32 or int64"),
    "scale_of_a_file": ([*RUN, "--scale", "bool.npy"], 2,
                        "heed run: --scale is bool; expected float16, bfloat16, float32 or float64"),
    "gradient_of_a_file": ([*RUN, "--gradients", "--d-output", "wide.npy"], 2,
                           "heed run: dtype of --d-output is float64, of q float32; they must be equal"),
    "rows_of_none": (["inspect", "none.npy", "k.npy", "--rows", "0"], 2, "heed inspect: --rows: q has no rows, got 0"),
    "tile_of_none": (["inspect", "none.npy", "k.npy", "--tile", "0,0", "--html", "page.html"], 2,
                     "heed inspect: --tile: there are no scores to show: q has 0 rows, k 7"),
    "heads_of_none": (["inspect", "no_batch.npy", "no_batch.npy", "--heads", "0.0", "--pictures", "p"], 2,
                      "heed inspect: --heads: the input has no heads, got 0.0"),
    "length_of_a_tensor": (["run", "lengths.npz", "-o", "out.npz"], 2, "heed run: key_lengths[1] is 8; expected 0 .. 7"),
    "help_of_two": (["help", "run", "info"], 2, "heed run: unexpected 'info'; heed help takes one command"),
    "help_of_nothing": (["help", "me"], 2, "heed: unknown command 'me'; expected run, inspect, study, bench, info or demo"),
}


# What is no number, in a flag that may name a file.
INTEGER = "expected an integer of int64, a list of them, as 1,2,3, or a file that exists"
NUMBER = "expected a number of float64, a list of them, as 1,2,3, or a file that exists"
CALLS |= {f"{flag} {word}": ([*RUN, flag, word], 2, f"heed run: {flag}: {expected}, got '{word}'")
          for flag, word, expected in (
              ("--key-lengths", "3.5", INTEGER), ("--query-lengths", "3;4", INTEGER), ("--query-start", "1.5", INTEGER),
              ("--scale", "1e400", NUMBER), ("--scale", "abc", NUMBER), ("--alibi", "0.5,,1", NUMBER),
              ("--sinks", "", NUMBER), ("--key-lengths", "9223372036854775808", INTEGER))}


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    os.link(tmp_path / "in.npz", tmp_path / "hard.npz")
    os.symlink("in.npz", tmp_path / "link.npz")
    os.link(tmp_path / "in.npz", tmp_path / "[in]")
    os.link(tmp_path / "in.npz", tmp_path / "in")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.npz").mkdir()
    np.save(tmp_path / "bias.npy", draw(6, 4, 5, 7))
    for name, values in INPUT.items():
        np.save(tmp_path / f"{name}.npy", values)
    save(tmp_path / "qk.npz", {name: INPUT[name] for name in "qk"})
    save(tmp_path / "empty.npz", {})
    save(tmp_path / "drop.npz", {"drop": np.zeros((5, 7), bool)})
    save(tmp_path / "lengths.npz", {**INPUT, "key_lengths": np.array([7, 8])})
    for shape in (), (4,):
        save(tmp_path / f"scale{shape}.npz", {**INPUT, "scale": np.ones(shape, np.int32)})
    save(tmp_path / "five.npz", {name: values[None] for name, values in operands(1, 4, 4, 5, 5).items()}
         | {"k": draw(1, 1, 2, 4, 5, 8)})
    save(tmp_path / "integers.npz", {name: values.astype(np.int64) for name, values in INPUT.items()})
    save(tmp_path / "mixed.npz", {**INPUT, "k": INPUT["k"].astype(np.float64)})
    save(tmp_path / "three.npz", {name: values[:, 0] for name, values in INPUT.items()})
    np.save(tmp_path / "scalar.npy", np.float32(1))
    np.save(tmp_path / "bool.npy", np.ones(4, bool))
    np.save(tmp_path / "wide.npy", draw(7, 2, 4, 5, 6).astype(np.float64))
    np.save(tmp_path / "none.npy", INPUT["q"][:, :, :0])
    np.save(tmp_path / "no_batch.npy", INPUT["q"][:0])
    (tmp_path / "out.npz").write_bytes(b"the old output")
    return tmp_path


def refused(folder, arguments, code, **more):
    """Runs heed, which must refuse; returns the one line that it says."""
    before = snapshot(folder)
    done = heed(*arguments, folder=folder, **more)
    assert (done.returncode, done.stdout) == (code, ""), done
    assert done.stderr.endswith("\n") and done.stderr.count("\n") == 1, done.stderr
    assert snapshot(folder) == before
    return done.stderr[:-1]


@pytest.mark.parametrize("call", CALLS)
def test_bad_call_is_refused_in_one_line(call, folder):
    arguments, code, message = CALLS[call]
    assert refused(folder, arguments, code) == message


# What the library itself refuses; who is at fault must be named.
LIBRARY = {
    "head_size": ({"k": draw(2, 2, 2, 7, 9)}, [], ["k", "9", "8"]),
    "keys": ({"v": draw(2, 2, 2, 8, 6)}, [], ["v", "8", "7"]),
    "batch": ({"k": draw(2, 3, 2, 7, 8)}, [], ["k", "3", "2"]),
    "heads": ({"k": draw(2, 2, 3, 7, 8), "v": draw(2, 2, 3, 7, 6)}, [], ["3", "4"]),
    "rank": ({"v": draw(2, 2, 7, 6)}, [], ["v"]),
    "scale_nan": ({}, ["--scale", "nan"], ["scale"]),
    "scale_count": ({}, ["--scale", "1,2,3"], ["scale", "3", "4"]),
    "softcap_zero": ({}, ["--softcap", "0"], ["softcap"]),
    "alibi_count": ({}, ["--alibi", "1,2,3"], ["alibi", "3", "4"]),
    "sinks_count": ({}, ["--sinks", "1,2,3,4,5"], ["sinks", "5", "4"]),
    "key_lengths_count": ({}, ["--key-lengths", "1,2,3"], ["--key-lengths", "3", "2"]),
    "key_length_above_keys": ({}, ["--key-lengths", "8"], ["--key-lengths", "8", "7"]),
    "query_length_below_zero": ({}, ["--query-lengths", "-1"], ["--query-lengths", "-1"]),
    "bias_shape": ({"bias": draw(3, 5, 8)}, [], ["bias", "8", "7"]),
    "bias_of_integers": ({"bias": np.zeros((5, 7), np.int64)}, [], ["bias", "int64"]),
    "keep_of_floats": ({"keep": np.ones((5, 7), np.float32)}, [], ["keep", "float32"]),
    "drop_shape": ({"drop": np.ones((2, 2, 5, 7), bool)}, [], ["drop"]),
    "key_lengths_of_floats": ({"key_lengths": np.array(4.0)}, [], ["key_lengths", "float64"]),
    "alibi_of_integers": ({"alibi": np.arange(4)}, [], ["alibi", "int64"]),
}


@pytest.mark.parametrize("case", LIBRARY)
def test_the_library_s_refusal_is_one_line_that_names_the_argument(case, folder):
    tensors, flags, words = LIBRARY[case]
    save(folder / "in.npz", {**INPUT, **tensors})
    line = refused(folder, [*RUN, *flags], 2)
    assert line.startswith("heed run: ") and "attention_forward" not in line and "explain" not in line
    assert all(word in line for word in words), line


HOSTILE = {
    "empty": b"", "text": b"hello, I am no tensor\n", "cut_npy": b"\x93NUMPY\x01\x00",
    "cut_zip": b"PK\x03\x04", "huge_header": b"\xff" * 8 + b"{}", "no_json": b"\x02" + b"\0" * 7 + b"xx",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_file_is_a_bad_input(kind, folder):
    (folder / "hostile.npz").write_bytes(HOSTILE[kind])
    assert refused(folder, ["run", "hostile.npz", "-o", "out.npz"], 3).startswith("heed run: hostile.npz: ")


def test_message_stays_on_one_line_whatever_the_name(folder):
    line = refused(folder, ["run", "a\nb\x1b[31m.npz", "-o", "out.npz"], 4)
    assert "\x1b" not in line and "cannot open" in line


def test_environment_is_checked(folder):
    for name, value in (("HEED_NUM_THREADS", "many"), ("HEED_MAX_ISA", "mmx")):
        for command in RUN, ["info"]:
            line = refused(folder, command, 2, env={name: value})
            assert line.startswith(f"heed {command[0]}: {name} is ") and value in line


def test_what_does_not_fit_is_refused_with_the_estimate(folder):
    line = refused(folder, [*RUN, "--max-bytes", "3K"], 5)
    assert line.startswith("heed run: ")
    heads, rows = (16, 250000) if SANITIZED else (1, 1000000)   # blocks are counted one by one, once for all heads
    save(folder / "in.npz", operands(1, heads, heads, rows, rows, 1, 1))
    line = refused(folder, [*RUN, "--weights"], 5)
    assert line.startswith("heed run: the run takes about 3.6 TiB (input ") and "--max-bytes" not in line
    line = refused(folder, [*RUN, "--weights", "--max-bytes", "64M"], 5)
    assert line.endswith("more than the 64.0 MiB of --max-bytes")


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer needs its own address space")
def test_allocation_that_fails_is_told_with_the_estimate(folder):
    save(folder / "in.npz", operands(1, 1, 1, 9000, 9000, 4, 4))
    gigabyte = 2**30
    line = refused(folder, [*RUN, "--weights", "--dtype", "f64", "--threads", "1"], 5, preexec_fn=lambda:
                   resource.setrlimit(resource.RLIMIT_AS, (gigabyte // 4, gigabyte // 4)))
    assert line.startswith("heed run: cannot allocate 648000000 bytes for a tensor; the run takes about ")


def test_check_finite_names_the_first_index_and_writes_nothing(folder):
    huge = {name: values.copy() for name, values in INPUT.items()}
    huge["q"][1, 2, 3] = huge["k"][1, 1] = 3e38
    gradient = np.ones((*INPUT["q"].shape[:3], INPUT["v"].shape[3]), np.float32)
    save(folder / "in.npz", huge)
    line = refused(folder, [*RUN, "--check-finite"], 6)
    assert line == ("heed run: output[1, 2, 3, 0] is not finite; q, k and v are finite; "
                    "nothing was written")
    save(folder / "in.npz", INPUT | {"v": np.full_like(INPUT["v"], 1e37), "d_output": np.full_like(gradient, 3e38)})
    line = refused(folder, [*RUN, "--check-finite", "--gradients"], 6)
    assert line == "heed run: dq[0, 0, 0, 0] is not finite; q, k, v and d_output are finite; nothing was written"
    huge = {name: values.copy() for name, values in INPUT.items()}
    huge["v"][0, 1, 2, 3] = np.nan
    save(folder / "in.npz", huge)
    line = refused(folder, [*RUN, "--check-finite"], 6)
    assert line == ("heed run: output[0, 2, 0, 3] is not finite; so is v[0, 1, 2, 3]; "
                    "nothing was written")
    line = heed(*RUN, "--check-finite", "--key-lengths", "2", folder=folder)
    assert (line.returncode, line.stderr) == (0, "")
    gradient[1, 2, 3, 0] = np.nan
    save(folder / "in.npz", INPUT | {"d_output": gradient})
    line = refused(folder, [*RUN, "--check-finite", "--gradients"], 6)
    assert line == "heed run: dq[1, 2, 3, 0] is not finite; so is d_output[1, 2, 3, 0]; nothing was written"
    save(folder / "in.npz", INPUT | {"v": np.full_like(INPUT["v"], 1e5), "d_output": gradient})
    line = refused(folder, [*RUN, "--check-finite", "--dtype", "f16", "--gradients"], 6)
    assert line == ("heed run: output[0, 0, 0, 0] is not finite; q, k and v are finite, and float16 ends at 65504 (--dtype); "
                    "nothing was written")


@pytest.mark.parametrize("kind, largest", [("f16", 65504), ("bf16", 3e37)])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, None])
def test_check_finite_of_16_bits(kind, largest, bad, folder):
    inputs = {name: values.copy() for name, values in INPUT.items()}
    inputs["v"][...] = largest   # finite, as each weighted mean of it
    if bad is not None:
        inputs["v"][1, 0, 2, 1] = bad
    if kind == "f16":
        save_file({name: values.astype(np.float16) for name, values in inputs.items()}, folder / "in.safetensors")
    else:
        save_bf16(folder / "in.safetensors", inputs)
    done = heed("run", "in.safetensors", "-o", "out.safetensors", "--dtype", kind, "--check-finite", folder=folder)
    assert (done.returncode, "output[1, 0, 0, 1] is not finite; so is v[1, 0, 2, 1]" in done.stderr) == ((0, False) if bad is None else (6, True))


def test_full_standard_output_is_an_error(folder):
    with open("/dev/full", "w") as full:
        done = subprocess.run([HEED, "info"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        4, "heed info: cannot write to standard output: No space left on device\n")
