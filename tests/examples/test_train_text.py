"""examples/train_text.cc: it learns, goes on where it stopped with the same bits, refuses other files."""

import os
import pathlib
import re
import subprocess

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEED = pathlib.Path(os.environ.get("HEED_BIN", ROOT / "build/release/cli/heed"))
PROGRAM = HEED.resolve().parents[1] / "examples" / "example_train_text"
TEXT = ROOT / "LICENSE"


def train(checkpoint, steps, threads=2):
    return subprocess.run([PROGRAM, checkpoint, "--text", TEXT, "--steps", str(steps), "--every", "2",
                           "--sample", "20"], capture_output=True, text=True,
                          env={**os.environ, "HEED_NUM_THREADS": str(threads)}, timeout=300)


def test_training_that_was_stopped_goes_on_with_the_same_bits(tmp_path):
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    done = train(whole, 5)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 3 and losses[-1] < losses[0]
    assert "--- a sample ---" in done.stdout
    assert "from step 0" in train(parts, 2, threads=1).stdout
    assert "going on at step 2" in train(parts, 3).stdout
    assert whole.read_bytes() == parts.read_bytes()


def test_a_checkpoint_is_a_file_of_tensors_by_name(tmp_path):
    train(tmp_path / "model.safetensors", 1)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["layers.0.attention.W_q"].shape == (96, 96)
    assert "adam.first.tokens.weight" in tensors and "adam.second.logits.weight" in tensors


def test_other_files_are_refused(tmp_path):
    save_file({"x": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
    done = train(tmp_path / "other.safetensors", 1)
    refused = f"train_text: {tmp_path / 'other.safetensors'}: expected a checkpoint of this model; its metadata lacks d_model\n"
    assert (done.returncode, done.stderr) == (1, refused)
    assert set(load_file(tmp_path / "other.safetensors")) == {"x"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Tensors and metadata of a model after one step."""
    path = tmp_path_factory.mktemp("trained") / "model.safetensors"
    assert train(path, 1).returncode == 0
    with safe_open(path, "numpy") as file:
        return load_file(path), file.metadata()


COUNT = "expected a whole number from 1 to 1048576"
DAMAGED = {
    "no_batch": ({"batch": "0"}, f"batch: {COUNT}, found '0'"),
    "large_batch": ({"batch": "1048577"}, f"batch: {COUNT}, found '1048577'"),
    "negative": ({"heads": "-4"}, f"heads: {COUNT}, found '-4'"),
    "no_digits": ({"context": ""}, f"context: {COUNT}, found ''"),
    "words": ({"layers": "two"}, f"layers: {COUNT}, found 'two'"),
    "rest": ({"layers": "2x"}, f"layers: {COUNT}, found '2x'"),
    "digits": ({"d_model": "9" * 30}, f"d_model: {COUNT}, found '{'9' * 30}'"),
    "seed": ({"seed": "-1"}, "seed: expected a whole number from 0 to 18446744073709551615, found '-1'"),
    "steps": ({"steps": "-1"}, "steps: expected a whole number from 0 to 9007199254740992, found '-1'"),
    "too_many_steps": ({"steps": "9007199254740993"}, "steps: expected a whole number from 0 to 9007199254740992, found '90071"),
    "no_steps": ({"steps": "1.5"}, "steps: expected a whole number from 0 to 9007199254740992, found '1.5'"),
    "dropout": ({"dropout": "abc"}, "dropout: expected a number from 0 to below 1, found 'abc'"),
    "all_dropped": ({"dropout": "1"}, "dropout: expected a number from 0 to below 1, found '1'"),
    "rate": ({"rate": "nan"}, "rate: expected a finite number from 0 on, found 'nan'"),
    "uphill": ({"rate": "-0x1p-9"}, "rate: expected a finite number from 0 on, found '-0x1p-9'"),
    "blank": ({"rate": " 1"}, "rate: expected a finite number from 0 on, found ' 1'"),
    "escape": ({"rate": "\x1b[2J"}, "rate: expected a finite number from 0 on, found a text of 4 bytes"),
    "long": ({"rate": "x" * 99}, "rate: expected a finite number from 0 on, found a text of 99 bytes"),
    "vocabulary": ({"vocabulary": "6g"}, "vocabulary: expected two hexadecimal digits for each byte, found '6g'"),
    "half_a_byte": ({"vocabulary": "616"}, "vocabulary: expected two hexadecimal digits for each byte, found '616'"),
    "no_bytes": ({"vocabulary": ""}, "vocabulary: expected two hexadecimal digits for each byte, found ''"),
    "fewer_bytes": ({"vocabulary": "6162"}, "d_model and vocabulary: expected tokens.weight of shape [2, 96]"),
    "wide": ({"d_model": "1048576"}, "d_model and vocabulary: expected tokens.weight of shape ["),
    "far": ({"context": "1048576"}, "d_model and context: expected places.weight of shape [1048576, 96], found [96, 96]"),
    "more_layers": ({"layers": "1048576"}, "layers: expected 2, of which the file has tensors, found '1048576'"),
    "fewer_layers": ({"layers": "1"}, "layers: expected 2, of which the file has tensors, found '1'"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_checkpoint_is_refused_and_kept(case, checkpoint, tmp_path):
    tensors, metadata = checkpoint
    change, message = DAMAGED[case]
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, metadata={**metadata, **change})
    before = path.read_bytes()
    done = train(path, 1)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith(f"train_text: {path}: metadata {message}") and done.stderr.count("\n") == 1, done.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize("change,message", [
    ({"heads": "5"}, "MultiHeadAttention: heads is 5; expected"), ({"dropout": "0.999999999"}, "MultiHeadAttention: dropout is 0.999999999; expected"),
    ({}, "get_parameters: the file has no last.")])
def test_what_does_not_fit_together_is_told_with_the_checkpoints_name(change, message, checkpoint, tmp_path):
    tensors, metadata = checkpoint
    path = tmp_path / "model.safetensors"
    kept = tensors if change else {name: x for name, x in tensors.items() if not name.startswith("last.")}
    save_file(kept, path, metadata={**metadata, **change})
    before = path.read_bytes()
    done = train(path, 1)
    assert (done.returncode, done.stdout) == (1, "") and path.read_bytes() == before, done
    assert done.stderr.startswith(f"train_text: {path}: {message}") and done.stderr.count("\n") == 1, done.stderr


def test_wrong_arguments_are_told(tmp_path):
    checkpoint = tmp_path / "model.safetensors"
    short = tmp_path / "short.txt"
    short.write_text("a text of few bytes")
    empty = tmp_path / "empty.txt"
    empty.touch()
    for arguments, message in ((["--every", "0"], "--every is 1 or more"),
                               (["--text", tmp_path / "none.txt"], "none.txt: cannot open: No such file or directory"),
                               *(([tmp_path / name], f"{name}: the name must end in .safetensors\n") for name in ("nofile", "m.npz")),
                               (["--text", empty], "empty.txt is empty\n"),
                               ([tmp_path / "none" / "x.safetensors"], "No such file or directory"),
                               (["--text", short], "the context and one more"),
                               (["--setps", "3"], "--setps is none of"),
                               (["--steps", "x"], "--steps takes a number, 0 or more and of at most 9 digits; found 'x'"),
                               (["--sample", "-1"], "--sample takes a number"),
                               (["--steps"], "--steps takes a number")):
        named = [] if isinstance(arguments[0], pathlib.Path) else [checkpoint]
        done = subprocess.run([PROGRAM, *named, *arguments], capture_output=True, text=True, timeout=600)
        assert done.returncode == 1 and message in done.stderr, done
        assert {path.name for path in tmp_path.iterdir()} == {"short.txt", "empty.txt"}
        assert "step  " not in done.stdout  # nothing was trained


def test_help_tells_every_flag():
    done = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    for flag in ("--steps", "--every", "--sample", "--text"):
        assert flag in done.stdout


def test_each_line_of_training_has_a_bar_of_its_loss(tmp_path):
    lines = [line for line in train(tmp_path / "model.safetensors", 4).stdout.splitlines() if line.startswith("step")]
    assert len(lines) == 2
    for line in lines:
        loss, bar = re.fullmatch(r"step +\d+  loss ([\d.]+)  \d+ tokens/s +(#+)", line).groups()
        assert abs(len(bar) - 4 * float(loss)) <= 1.01 and len(line) < 100
