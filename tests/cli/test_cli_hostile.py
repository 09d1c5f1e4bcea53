"""Files and words that mean harm: what they can make the command say, read and take."""

import json
import os
import subprocess

import numpy as np
import pytest

from cli_support import HEED, heed, operands, save, save_file

REVERSED = "\u202e"  # the text behind it is shown from right to left


def empties(path, names, data=b"", more=None):
    """A .safetensors file of empty tensors, beside those of `more`."""
    header = {name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in names} | (more or {})
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def one_line(done):
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n"), done.stderr[:1000]
    return done.stderr[:-1]


def test_eight_names_stand_for_a_hundred_thousand(tmp_path):
    empties(tmp_path / "in.safetensors", [f"{i:06}" for i in range(100_000)])
    done = heed("run", "in.safetensors", "-o", "out.npz", folder=tmp_path)
    assert (done.returncode, one_line(done)) == (3, (
        "heed run: in.safetensors: no tensor named q; found 000000, 000001, 000002, 000003, 000004, 000005, "
        "000006, 000007 and 99992 more"))


def test_tensors_that_are_not_used_are_told_in_one_line(tmp_path):
    more = {name: {"dtype": "F32", "shape": [1, 1], "data_offsets": [4 * i, 4 * i + 4]}
            for i, name in enumerate("qkv")}
    empties(tmp_path / "in.safetensors", [f"x{i:05}" for i in range(20_000)], bytes(12), more)
    for command in (["run", "in.safetensors", "-o", "out.npz"], ["inspect", "in.safetensors"],
                    ["study", "scaling", "--input", "in.safetensors"]):
        done = heed(*command, folder=tmp_path)
        assert done.returncode == 0
        assert one_line(done) == (
            f"heed {command[0]}: tensors x00000, x00001, x00002, x00003, x00004, x00005, x00006, x00007 "
            "and 19992 more of in.safetensors are not used")


def test_names_of_tensors_are_escaped_and_cut(tmp_path):
    empties(tmp_path / "in.safetensors", [f"a{REVERSED}\n{'b' * 1000}"])
    line = one_line(heed("run", "in.safetensors", "-o", "out.npz", folder=tmp_path))
    assert line == f"heed run: in.safetensors: no tensor named q; found a\\u202e\\n{'b' * 75}..."


@pytest.mark.parametrize("call", [[f"a{REVERSED}b"], ["run", f"--x{REVERSED}"], ["info", f"a{REVERSED}\u200bb"],
                                  ["study", f"a\u2066b"], ["run", f"{REVERSED}.npz", "-o", "out.npz"]])
def test_nothing_turns_the_direction_of_a_message(call, tmp_path):
    line = one_line(heed(*call, folder=tmp_path))
    assert "\\u20" in line and line.isprintable(), line


def test_nothing_turns_the_direction_of_a_summary(tmp_path):
    out = f"o{REVERSED}.npz"
    save(tmp_path / "in.npz", operands())
    done = heed("run", "in.npz", "-o", out, folder=tmp_path)
    assert done.stdout.endswith("written to o\\u202e.npz\n")
    os.rename(tmp_path / "in.npz", tmp_path / f"i{REVERSED}.npz")
    tokens = [f"t{REVERSED}{'x' * 10_000}{i}" for i in range(7)]
    (tmp_path / "tokens").write_text("\n".join(tokens))
    q = np.ones((1, 1, 7, 4), np.float32)
    save_file({"q": q, "k": q * np.arange(1, 8, dtype=np.float32)[:, None]},
              tmp_path / f"i{REVERSED}.safetensors")
    done = heed("inspect", f"i{REVERSED}.safetensors", "--tokens", "tokens", "--rows", "6", folder=tmp_path)
    assert done.returncode == 0 and "i\\u202e.safetensors" in done.stdout and "t\\u202ex" in done.stdout
    assert REVERSED not in done.stdout and len(done.stdout) < 5000


@pytest.mark.parametrize("command", [["info"], ["inspect"], ["inspect", "--json"]])
def test_full_standard_output_tells_the_system_s_reason(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([HEED, *command], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        4, f"heed {command[0]}: cannot write to standard output: No space left on device\n")


def test_reader_that_leaves_before_the_end_of_much_output_ends_the_command_with_141():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([HEED, "inspect", "--json"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
