"""heed demo, from any folder: one line per head, the known heads say what they are known for."""

import fcntl
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import termios

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from cli_support import HEED, ROOT, attention, heed_ok

LINE = re.compile(r"  layer (\d) head +(\d+)  (\S+) +(\d\.\d\d)(?: [#█▏▎▍▌▋▊▉]*)?")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def text(cache):
    return heed_ok("demo", folder="/", env={"XDG_CACHE_HOME": str(cache)})


@pytest.fixture(scope="module")
def expected():
    with safe_open(ROOT / "examples/data/it.safetensors", "numpy") as file:
        tokens = json.loads(file.metadata()["tokens"])
        weights = attention(*(file.get_tensor(name) for name in "qkv"))[2]
    return tokens, weights[:, :, tokens.index("it")]


def test_one_line_per_head_says_what_the_definition_says(text, expected):
    tokens, weights = expected
    lines = [LINE.fullmatch(line) for line in text.splitlines() if line.startswith("  layer ")]
    assert len(lines) == 72 and all(lines)
    for line in lines:
        row = weights[int(line[1]), int(line[2])]
        assert line[3] == tokens[int(row.argmax())]
        assert abs(float(line[4]) - row.max()) < 0.0051


def test_layer_3_head_1_looks_at_the_animal(text):
    assert re.search(r"^  layer 3 head  1  animal +0\.68 ", text, re.M)


def test_it_claims_no_more_than_its_numbers_show(text, expected):
    tokens, weights = expected
    words = " ".join(text.split())
    count = int((weights.argmax(-1) == tokens.index("[CLS]")).sum())
    assert f'In {count} heads "it" looks at [CLS] most' in words
    assert "This head looks at the animal, not the street." in words
    assert "found out" not in words


def test_charts_show_every_word_of_two_heads(text, expected):
    tokens, weights = expected
    for layer, head in ((3, 1), (0, 2)):
        chart = text.split(f'Layer {layer} head {head}, "it" looks at\n')[1].split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in chart] == tokens
        np.testing.assert_allclose([float(line.split()[1]) for line in chart], weights[layer, head],
                                   atol=0.0051)
        bars = [len(line.split()[2]) if len(line.split()) > 2 else 0 for line in chart]
        assert np.argmax(bars) == weights[layer, head].argmax()


def test_it_fits_80_columns_holds_no_escapes_and_ends_with_a_pointer(text):
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text and all(line == line.rstrip() for line in text.splitlines())
    assert "heed run --help" in text.splitlines()[-2]


def in_terminal(width, **environment):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with subprocess.Popen([HEED, "demo"], stdout=theirs, stderr=subprocess.PIPE,
                          env={**os.environ, "TERM": "xterm", **environment}) as run:
        os.close(theirs)
        read = b""
        while True:
            try:
                read += os.read(ours, 4096)
            except OSError:
                break
        assert run.wait() == 0
    os.close(ours)
    return read.decode().replace("\r\n", "\n")


def test_colour_and_width_follow_the_terminal():
    text = in_terminal(50, NO_COLOR="")
    assert "\x1b[36m" in text
    assert max(len(line) for line in re.sub(r"\x1b\[\d+m", "", text).splitlines()) <= 50
    assert "\x1b" not in in_terminal(50, NO_COLOR="1")
    assert "\x1b" not in in_terminal(50, NO_COLOR="", TERM="dumb")


def test_bars_are_blocks_where_the_locale_is_utf8_and_hashes_elsewhere():
    assert "█" in heed_ok("demo", env={"LC_ALL": "C.UTF-8"})
    plain = heed_ok("demo", env={"LC_ALL": "C"})
    assert "█" not in plain and "###" in plain and plain.isascii()


def test_it_ends_with_poster_arcs_health_and_the_page_it_wrote(text, cache):
    tail = text.split("All heads at once.")[1]
    assert re.search(r"^ +h0 +0\.90 +h1 +0\.89", tail, re.M)         # the poster's entropy shares
    assert "animal" in tail.split("The head that finds the animal")[1].split("Are the heads well?")[0]
    assert len(re.findall(r"^ +\d +\d+ +-?\d", tail, re.M)) == 72     # the health table
    assert "hardly learn (layer 0 head 2)" in tail
    page = tail.split("in a browser:\n  ")[1].split("\n")[0]
    assert page == str(cache / "heed" / "demo.html")
    assert "because it was too tired" in open(page, encoding="utf-8").read()


def test_help_says_that_a_page_is_written_and_where():
    told = " ".join(heed_ok("demo", "--help").split())
    assert "writes a page" in told
    places = ["demo.html", "$XDG_CACHE_HOME/heed", "~/.cache/heed", "$TMPDIR or /tmp"]
    assert all(place in told for place in places)


@pytest.mark.parametrize("metadata, code, told", [
    (None, 4, "the sample is not at its place, "),
    ({"sentence": "it"}, 3, " is not the sample that belongs to this program"),
    ({"sentence": "it", "tokens": "it"}, 3, ": the list of tokens is not JSON"),
    ({"sentence": "it", "tokens": '["it"]'}, 3, "the sample's tokens do not fit its tensors")])
def test_a_sample_that_is_not_whole_is_refused(tmp_path, metadata, code, told):
    """Beside a copy of the program."""
    program, sample = tmp_path / "bin" / "heed", tmp_path / "share" / "heed" / "it.safetensors"
    for path in (program, sample):
        path.parent.mkdir(parents=True)
    shutil.copy(HEED, program)
    if metadata is not None:
        save_file({name: np.ones((1, 1, 2, 4), np.float32) for name in "qkv"}, sample, metadata)
    done = subprocess.run([program, "demo"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "") and told in done.stderr, done


def test_without_a_home_the_page_goes_to_a_folder_of_its_own(tmp_path):
    told = heed_ok("demo", env={"XDG_CACHE_HOME": "", "HOME": "/proc", "TMPDIR": str(tmp_path)})
    page = told.split("in a browser:\n  ")[1].split("\n")[0]
    assert page.startswith(str(tmp_path)) and os.path.exists(page)


@pytest.mark.parametrize("make", [pathlib.Path.mkdir, os.mkfifo])
def test_what_is_no_file_in_the_pages_place_is_passed_by(make, tmp_path):
    (tmp_path / "cache" / "heed").mkdir(parents=True)
    make(tmp_path / "cache" / "heed" / "demo.html")
    told = heed_ok("demo", env={"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)})
    assert told.split("in a browser:\n  ")[1].split("\n")[0] == str(tmp_path / ".cache" / "heed" / "demo.html")


def test_without_any_folder_there_is_no_page_and_all_else():
    told = heed_ok("demo", env={"XDG_CACHE_HOME": "", "HOME": "/proc", "TMPDIR": "/dev/null"})
    assert "in a browser" not in told and "Are the heads well?" in told
    assert "There is no page of all this: no folder for it can be written to" in told
