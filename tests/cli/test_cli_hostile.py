"""Files and words that mean harm: what they can make the command say, read and take."""

import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from cli_support import HEED, SANITIZED, heed, operands, peak_bytes, save, save_file

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


LONG = "n" * 4096


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_names_of_4096_bytes_are_cut_in_messages(ending, tmp_path):
    name, cut = f"in.{ending}", "n" * 80 + "..."
    save(tmp_path / name, {LONG: np.ones((2, 2), np.float32)})
    done = heed("run", name, "-o", "out.npz", folder=tmp_path)
    assert (done.returncode, one_line(done)) == (3, f"heed run: {name}: no tensor named q; found {cut}")
    save(tmp_path / name, {LONG: np.ones((2, 2), np.float32), **operands()})
    done = heed("run", name, "-o", "out.npz", folder=tmp_path)
    assert (done.returncode, one_line(done)) == (0, f"heed run: tensor {cut} of {name} is not used")
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole.replace(b"\x93NUMPY", b"\x93NUMPX").replace(b'"F32"', b'"F99"', 1))
    done = heed("run", name, "-o", "out.npz", folder=tmp_path)
    assert done.returncode == 3 and len(one_line(done)) < 300, done


PATH = "/".join(["d" * 200] * 20 + ["e" * 71 + ".npz"])  # as long as the system takes one, 4095 bytes
SHOWN = "d" * 126 + "..." + "d" * 50 + "/" + "e" * 71 + ".npz"


@pytest.mark.parametrize("call, message", [
    (["run", PATH, "-o", "out.npz"], f"run: {SHOWN}: cannot open: No such file or directory"),
    (["run", "in.npz", "-o", PATH], f'run: {SHOWN}: cannot open the directory "{"d" * 80}...": '
                                    "No such file or directory"),
    (["run", "in.npz", "-o", "out.npz", "--bias", PATH], f"run: {SHOWN}: cannot open: No such file or directory"),
    (["inspect", "in.npz", "--tokens", PATH], f"inspect: {SHOWN}: cannot open: No such file or directory")])
def test_of_a_path_of_4095_bytes_a_message_keeps_both_ends(call, message, tmp_path):
    assert len(PATH) == 4095
    save(tmp_path / "in.npz", operands())
    done = heed(*call, folder=tmp_path)
    assert (done.returncode, one_line(done)) == (4, f"heed {message}")


def test_a_page_that_cannot_be_written_is_told_by_its_own_name(tmp_path):
    save(tmp_path / "in.npz", operands())
    for path, shown in ((f"{REVERSED}/page", "\\u202e/page"), (PATH, PATH[:496] + "...")):
        done = heed("inspect", "in.npz", "--html", path, folder=tmp_path)
        line = one_line(done)
        assert done.returncode == 4 and line.startswith(f"heed inspect: {shown}") and ".npy" not in line
        assert line.endswith(": No such file or directory") and ": cannot open the directory " in line
        assert len(line) <= 1024


@pytest.mark.parametrize("call, end", [
    ([LONG], "nnn'; expected run, inspect, study, bench, info or demo"),
    (["info", LONG], "nnn'"), (["run", f"--{LONG}"], "nnn; heed run --help lists them"),
    (["run", "in.npz", "-o", LONG], "nnn: the name must end in .npy, .npz or .safetensors"),
    (["run", "in.npz", "-o", "out.npz", "--softcap", LONG], "nnn'"),
    (["run", "in.npz", "-o", "out.npz", "--window", "é" * 2048], "ééé'"),
    (["bench", "--n", LONG], "nnn'"), (["study", LONG], "nnn'; expected variance, ")])
def test_words_of_4096_bytes_make_no_long_message(call, end, tmp_path):
    save(tmp_path / "in.npz", operands())
    done = heed(*call, folder=tmp_path)
    line = one_line(done)
    assert done.returncode == 2 and line.startswith("heed") and "..." in line and end in line
    assert len(line.encode()) <= 1024 and line.isprintable()


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


@pytest.mark.parametrize("call, field, shown", [(["run", "-o", "o\udcff.npz", "--json"], "file", "o\ufffd.npz"),
                                                (["inspect", "--json"], "source", "i\ufffd.npz"),
                                                (["inspect", "-q", "--html", "page.html"], None, "i\ufffd.npz")])
def test_json_and_pages_are_utf_8_whatever_a_name_is(call, field, shown, tmp_path):
    """A mark stands in the place of a byte that is none."""
    save(tmp_path / "i\udcff.npz", operands())
    done = heed(*call, "i\udcff.npz", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert json.loads(done.stdout)[field] == shown if field else shown in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [["info"], ["inspect"], ["inspect", "--json"]])
def test_full_standard_output_tells_the_system_s_reason(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([HEED, *command], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        4, f"heed {command[0]}: cannot write to standard output: No space left on device\n")


def test_reader_that_leaves_before_the_end_of_much_output_ends_the_command_as_sigpipe_does():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([HEED, "inspect", "--json"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")


QUERIES = np.ones((3, 4), np.float32)


@pytest.mark.parametrize("place, found", [("pipe", "expected a regular file, found a pipe"),
                                          ("/dev/zero", "expected a regular file, found a device"),
                                          (".", "expected a regular file, found a directory"),
                                          ("none", "cannot open: No such file or directory")])
def test_tokens_are_opened_as_tensors_are(place, found, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    np.save(tmp_path / "q.npy", QUERIES)
    done = heed("inspect", "q.npy", "q.npy", "--tokens", place, folder=tmp_path, limit=20)
    assert (done.returncode, done.stdout, done.stderr) == (4, "", f"heed inspect: {place}: {found}\n")


def test_tokens_are_read_within_max_bytes(tmp_path):
    np.save(tmp_path / "q.npy", QUERIES)
    with open(tmp_path / "tokens", "wb") as file:
        file.truncate(2**34)
    done = heed("inspect", "q.npy", "q.npy", "--tokens", "tokens", "--max-bytes", "16M", folder=tmp_path)
    refused = r"heed inspect: tokens: expected a text of at most (\d+) bytes, found {}; --max-bytes 16M leaves no more\n"
    most = int(re.fullmatch(refused.format(2**34), done.stderr)[1])
    assert done.returncode == 5 and most < 2**24 / 4  # of a byte of text the table takes four, beside the inspection
    for size in (most, most + 1):
        os.truncate(tmp_path / "tokens", size)
        done = heed("inspect", "q.npy", "q.npy", "--tokens", "tokens", "--max-bytes", "16M", folder=tmp_path)
        assert bool(re.fullmatch(refused.format(size), done.stderr)) == (done.returncode == 5) == (size > most), done.stderr
    (tmp_path / "tokens").write_bytes(b"a\r\n\nc")
    found = json.loads(heed("inspect", "q.npy", "q.npy", "--tokens", "tokens", "--json", folder=tmp_path).stdout)
    assert found["tokens"] == ["a", "", "c"]


def header_of(kind):
    if kind == "names":
        entries = (f'"{i:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for i in range(150_000))
        return "{" + ",".join(entries) + "}"
    if kind == "metadata":
        return '{"__metadata__":{' + ",".join(f'"{i:05x}":""' for i in range(700_000)) + "}}"
    return '{"a":{"dtype":"U8","shape":[0' + ",1" * 4_000_000 + '],"data_offsets":[0,0]}}'


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer's own memory is many times the program's")
@pytest.mark.parametrize("kind", ["names", "metadata", "axes"])
def test_what_a_header_may_take_is_bounded_by_max_bytes(kind, tmp_path):
    text = header_of(kind).encode()
    (tmp_path / "in.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    call = ["run", "in.safetensors", "-o", "out.npz", "--max-bytes"]
    counted = 16 * (len(text) - 65536)
    small = peak_bytes(*call, "1M", folder=tmp_path, code=5)
    large = peak_bytes(*call, counted, folder=tmp_path, code=3)   # read, and without q
    assert 2**22 < large - small < counted
    done = heed(*call, str(counted - 1), folder=tmp_path)
    assert (done.returncode, one_line(done)) == (5, (
        f"heed run: in.safetensors: expected a header whose names take at most {counted - 1} bytes, found one of "
        f"{len(text)} bytes, which may take {counted}; --max-bytes {counted - 1} leaves no more"))
