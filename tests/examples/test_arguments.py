"""Examples that take arguments: help is told, and what is no argument is refused before anything runs."""

import os
import pathlib
import subprocess

import pytest

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
