"""The lines of the documents that call heed do what stands there, in the order of their page.

Method: a page's lines run in a folder with small files of the names that they read. A line that takes long is stopped
after a second: by then a wrong flag, file or shape would have been refused.
"""

import os
import re
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
from cli_support import HEED, ROOT, SANITIZED, draw, operands
from safetensors.numpy import load_file, save_file

CALL = re.compile(r"(\w+=\S+ )*heed [a-z]+( |$)|python3 -c ")   # the latter make files for the former
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")]
FOR_A_MINUTE = "measures for several seconds or minutes"
TRAINS = "trains for half a minute; test_cli_study.py runs it whole"
# Lines that are stopped, and why. What heed bench --check finds depends on the machine, too.
STOPPED = {
    "heed bench --n 512,2048 --mask none,causal --layout bhtd,bthd": FOR_A_MINUTE,
    "heed bench --n 512,2048 --d 64,128 --mask none,causal --layout bhtd,bthd": FOR_A_MINUTE,
    "heed bench --heads 32/8 --n 1024 --d 128 --threads 1,2 --format csv > rows.csv": FOR_A_MINUTE,
    "heed bench --check 'percent_of_peak_best>=80' --check 'max_error<=1e-5'": FOR_A_MINUTE,
    "heed study all -o studies": TRAINS,
}
if SANITIZED:
    STOPPED["heed inspect very.npz -q --html very.html && du -h very.html"] = "takes ten seconds without AddressSanitizer"


def lines_of(page):
    """The calls in a page's blocks, indented or fenced, each in one line and without the comment behind it."""
    found, fence = [], None
    for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
        elif fence is None and line.startswith("    ") or fence in ("", "sh", "bash", "console"):
            call = re.sub(r"\s+# .*", "", line.strip())
            found += [call] if CALL.match(call) else []
    return found


CALLS = {page.relative_to(ROOT).as_posix(): lines for page in sorted(PAGES) if (lines := lines_of(page))}


def written_by(line):
    """Names of files and folders that a line says it writes."""
    words = shlex.split(line)
    return [words[at + 1] for at, word in enumerate(words) if word in ("-o", "--html", "--pictures", ">")]


@pytest.fixture
def shell(tmp_path):
    """shell(line) runs it in a folder with all files that a page names and does not make."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/heed").symlink_to(os.path.abspath(HEED))
    (tmp_path / "bin/python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin/python3").chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    qkv = operands(d_v=8)
    qkvg = {**qkv, "d_output": draw(5, *qkv["q"].shape)}
    for name in ("q", "k", "v"):
        np.save(tmp_path / f"{name}.npy", qkv[name])
    np.save(tmp_path / "g.npy", qkvg["d_output"])
    np.save(tmp_path / "mask.npy", np.tri(5, 7, dtype=bool))
    np.savez(tmp_path / "qkv.npz", **qkv)
    np.savez(tmp_path / "qkvg.npz", **qkvg)
    np.savez(tmp_path / "before.npz", q=qkv["q"], k=qkv["k"])
    np.savez(tmp_path / "after.npz", q=-qkv["q"], k=qkv["k"])
    save_file(qkv, tmp_path / "qkv.safetensors")
    save_file({"q": qkv["q"], "k": qkv["k"]}, tmp_path / "qk.safetensors")
    other = load_file(ROOT / "examples/data/it.safetensors")
    save_file({name: other[name][:, :, ::-1].copy() for name in ("q", "k")}, tmp_path / "wide.safetensors")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HEED_", "OMP_"))}
    environment |= {"PATH": f"{tmp_path / 'bin'}:{environment['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(line, seconds):
        with subprocess.Popen(["bash", "-c", line], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                return process.wait(seconds), process.stderr.read()
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGTERM)
                return None, ""
    return run


@pytest.mark.parametrize("page", CALLS)
def test_the_lines_of_a_page_run(page, shell, tmp_path):
    for line in CALLS[page]:
        if line in STOPPED:
            code, said = shell(line, 1)
            assert code in (None, 0, 1 if "--check" in line else 0), (line, said)
        else:
            code, said = shell(line, 300)
            assert code == 0, (line, said)
            assert [name for name in written_by(line) if not (tmp_path / name).exists()] == [], line


def test_only_lines_that_are_there_are_stopped():
    assert {"README.md", "docs/bench.md", "docs/inspect.md", "docs/reading-attention.md", "docs/studies.md"} <= set(CALLS)
    assert set(STOPPED) <= {line for lines in CALLS.values() for line in lines}
