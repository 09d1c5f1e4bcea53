"""Examples that take arguments: help is told, and what is no argument is refused before anything runs."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEED = pathlib.Path(os.environ.get("HEED_BIN", ROOT / "build/release/cli/heed"))
EXAMPLES = HEED.resolve().parents[1] / "examples"


def run(example, *arguments):
    return subprocess.run([EXAMPLES / f"example_{example}", *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("example", ["train_copy", "generate", "it"])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_tells_what_the_example_takes(example, flag):
    done = run(example, flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"example_{example} [") and done.stdout.count("\n") == 1


@pytest.mark.parametrize("word", ["bogus", "--steps", "-1", "1.5", "", "9999999999"])
def test_steps_of_no_number_are_refused(word):
    done = run("train_copy", word)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("train_copy: STEPS: expected a number, 0 or more and of at most 9 digits; "
                           f"found '{word}'\n")


@pytest.mark.parametrize("example, first", [("train_copy", "1"), ("generate", "a.safetensors"), ("it", "a.safetensors")])
def test_a_second_argument_is_refused(example, first):
    done = run(example, first, "more")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{example}: unexpected argument 'more'\n")


@pytest.mark.parametrize("arguments, told", [
    (["a.safetensors", "u.safetensors"], "unexpected argument 'u.safetensors'"), (["--text"], "--text takes a file"),
    (["--steps", "1000000000"], "--steps takes a number, 0 or more and of at most 9 digits; found '1000000000'")])
def test_what_train_text_does_not_take_is_refused(arguments, told):
    done = run("train_text", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"train_text: {told}\n")


WORDS = ["it", *"abcdefghijklmno"]


@pytest.mark.parametrize("words, lacks, told", [
    (WORDS, None, ""), (WORDS, "q", "no tensor q"), (WORDS, "tokens", "no metadata tokens"), (WORDS, "sentence", "no metadata sentence"),
    (WORDS[1:] + ["x"], None, 'tokens: expected 16 words, "it" among them'),
    (WORDS + ["x"], None, 'tokens: expected 16 words, "it" among them'), (["it", '"'], None, "tokens: a word has an escape")])
def test_it_takes_sixteen_words_with_it_among_them(words, lacks, told, tmp_path):
    tensors = {name: np.zeros((6, 12, 16, 32), np.float16) for name in "qkv" if name != lacks}
    metadata = {"sentence": "Some.", "tokens": json.dumps(words)}
    save_file(tensors, tmp_path / "in.safetensors", {name: text for name, text in metadata.items() if name != lacks})
    done = run("it", tmp_path / "in.safetensors")
    assert (done.returncode, done.stderr) == ((1, f"it: {told}\n") if told else (0, ""))
    assert (done.stdout.count("0.062") == 16) == (not told)
