"""Outputs appear complete or not at all, signals stop a run at once, a terminal sees progress."""

import os
import pathlib
import pty
import random
import re
import resource
import select
import signal
import subprocess
import time

import numpy as np
import pytest

from cli_support import HEED, SANITIZED, attention, draw, halted_at_work, heed_ok, load, operands, save, snapshot

INPUT = operands()


def test_in_place_replaces_the_input(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    heed_ok("run", "in.npz", "-o", "in.npz", "--in-place", folder=tmp_path)
    found = load(tmp_path / "in.npz")
    assert list(found) == ["output"]
    np.testing.assert_allclose(found["output"], attention(**INPUT)[0], rtol=2e-5, atol=2e-6)
    assert os.listdir(tmp_path) == ["in.npz"]


def test_old_output_is_replaced(tmp_path):
    save(tmp_path / "in.npz", INPUT)
    (tmp_path / "out.npz").write_bytes(b"old")
    heed_ok("run", "in.npz", "-o", "out.npz", folder=tmp_path)
    assert list(load(tmp_path / "out.npz")) == ["output"]
    assert sorted(os.listdir(tmp_path)) == ["in.npz", "out.npz"]


@pytest.fixture
def long_run(tmp_path):
    """A folder and a command that computes for seconds: 920 GFLOP in float64 on two threads."""
    save(tmp_path / "in.npz", {name: draw(3, 1, 1, 60000, 64) for name in "qkv"})
    (tmp_path / "out.npz").write_bytes(b"the old output")
    return tmp_path, [HEED, "run", "in.npz", "-o", "out.npz", "--dtype", "float64", "--threads", "2"]


def hear_interrupts():
    """In the child: a parent in the background hands on an ignored SIGINT, which heed would respect."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def cpu_seconds(process):
    """What all its threads have used. A wall clock would count what other processes of the machine do."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("number,code", [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)])
def test_signal_stops_the_run_at_once(number, code, long_run):
    folder, command = long_run
    before = snapshot(folder)
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          preexec_fn=hear_interrupts) as run:
        while cpu_seconds(run) < 0.5:
            assert run.poll() is None, "the run was to take longer than this"
            time.sleep(0.01)
        run.send_signal(signal.SIGSTOP)  # what it uses from here on, it uses after the signal
        os.waitpid(run.pid, os.WUNTRACED)
        used, begin = cpu_seconds(run), time.monotonic()
        run.send_signal(number)
        run.send_signal(signal.SIGCONT)
        _, status, usage = os.wait4(run.pid, 0)
        waited = time.monotonic() - begin
        run.returncode = os.waitstatus_to_exitcode(status)
        output, error = run.stdout.read(), run.stderr.read()
    assert (run.returncode, output, error) == (code, b"", b"")
    assert snapshot(folder) == before
    assert usage.ru_utime + usage.ru_stime - used < 2 * 0.2  # 0.2 s are promised; it has two threads
    assert waited < 10  # nor does it sleep; by the wall clock, so with room for all else that the machine does


def hears(process, number):
    """Whether it has a handler of the signal: before it does, the system's own ends it, without an exit code."""
    caught = re.search(r"^SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text(), re.M)
    return int(caught[1], 16) >> (number - 1) & 1


def stopped(number, ready, command, folder):
    """The exit code of a command that is sent a signal when it is ready, and what it told."""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          preexec_fn=hear_interrupts) as run:
        while run.poll() is None and not hears(run, number):
            time.sleep(0.0005)
        while run.poll() is None and not ready():
            time.sleep(0.0002)
        run.send_signal(number)
        error = run.communicate(timeout=600)[1]
    return run.returncode, error


@pytest.mark.parametrize("number,code", [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, -signal.SIGTERM)])
@pytest.mark.parametrize("command", [["inspect", "in.npz", "-q", "--html", "new/r.html", "--pictures", "new/all"],
                                     ["study", "masks", "-o", "new"]])
def test_commands_of_many_files_stopped_at_random_points_leave_whole_ones(command, number, code, tmp_path):
    save(tmp_path / "in.npz", {name: draw(3, 1, 2, 24, 8) for name in "qk"})
    (tmp_path / "new").mkdir()
    begin = time.monotonic()
    heed_ok(*command, folder=tmp_path)
    seconds, whole = time.monotonic() - begin, snapshot(tmp_path)
    old = {path: path.name.encode() for path, content in whole.items() if content and path.parts[0] == "new"}
    draws = random.Random(number)

    def files():
        return [(found.st_ino, found.st_mtime_ns) for found in (os.stat(tmp_path / path) for path in old)]

    stops = 0
    for tries in range(50):
        for path, content in old.items():
            (tmp_path / path).write_bytes(content)
        before, end = files(), time.monotonic() + draws.random() * seconds
        # Every other time when the first file is written: that takes a small part of the time.
        found, error = stopped(number, lambda: files() != before if tries % 2 else time.monotonic() > end,
                               [HEED, *command], tmp_path)
        assert found in (code, 0) and error == b""
        after = snapshot(tmp_path)
        assert after.keys() == whole.keys(), "a file is new, or gone"
        assert found == code or after == whole
        assert [path for path, content in after.items() if content not in (whole[path], old.get(path))] == []
        stops += found == code
        if stops == 6:
            return
    assert stops, "it ended before each signal"


def test_killed_run_leaves_the_old_output(long_run):
    folder, command = long_run
    before = snapshot(folder)
    with subprocess.Popen(command, cwd=folder) as run:
        time.sleep(0.5)
        run.kill()
    assert run.returncode == -signal.SIGKILL and snapshot(folder) == before


def test_ignored_interrupt_stays_ignored(tmp_path):
    rows = 4000 if SANITIZED else 8000
    save(tmp_path / "in.npz", {name: draw(3, 1, 1, rows, 64) for name in "qkv"})
    with subprocess.Popen([HEED, "run", "in.npz", "-o", "out.npz", "--dtype", "float64", "--threads", "2", "-q"],
                          cwd=tmp_path,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) as run:
        with halted_at_work(run):
            run.send_signal(signal.SIGINT)
        assert run.wait(timeout=600) == 0
    assert load(tmp_path / "out.npz")["output"].shape == (1, 1, rows, 64)


def test_reader_that_goes_away_ends_the_command_as_sigpipe_does():
    read, write = os.pipe()
    os.close(read)
    for ignored in (False, True):   # by the parent, as Python has it
        done = subprocess.run([HEED, "info"], stdout=write, stderr=subprocess.PIPE, text=True, restore_signals=not ignored)
        assert (done.returncode, done.stderr) == (141 if ignored else -signal.SIGPIPE, "")
    os.close(write)


def read_terminal(command, folder, seconds, until=None, kind="xterm"):
    """What a command writes to stderr when that is a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    run = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=theirs, env=os.environ | {"TERM": kind},
                           preexec_fn=hear_interrupts)
    os.close(theirs)
    text, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.05)[0]:
            try:
                text += os.read(ours, 4096)
            except OSError:  # the other side is closed: the command has ended
                break
        if until and re.search(until, text):
            break
    return run, text.decode(), ours


def test_progress_is_shown_on_a_terminal_and_wiped(long_run):
    folder, command = long_run
    run, text, ours = read_terminal(command, folder, 20, until=rb"computing +\d+ %")
    assert re.search(r"\rheed run: computing +\d+ %  \d+ s\x1b\[K", text), text
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=20) == -signal.SIGINT
    time.sleep(0.05)
    assert os.read(ours, 4096).decode().endswith("\r\x1b[K")
    os.close(ours)
    run.stdout.close()


def interrupts_blocked(process):
    """Whether each of its threads leaves SIGINT to others; none of a process that is ending."""
    try:
        masks = [re.search(r"^SigBlk:\s*(\w+)", status.read_text(), re.M)[1]
                 for status in pathlib.Path(f"/proc/{process.pid}/task").glob("*/status")]
    except (OSError, TypeError):
        return []
    return [bool(int(mask, 16) >> signal.SIGINT - 1 & 1) for mask in masks]


def test_results_on_the_terminal_of_the_progress_have_lines_of_their_own(tmp_path):
    """Both streams on one terminal: each line as a terminal shows it, what stands behind the last return and is not wiped."""
    for rows in (4000, 8000, 16000, 32000):  # until the run is long enough to show something, and to be looked at
        save(tmp_path / "in.npz", {name: draw(3, 1, 1, rows, 64) for name in "qkv"})
        ours, theirs = pty.openpty()
        with subprocess.Popen([HEED, "run", "in.npz", "-o", "out.npz", "--dtype", "float64", "--threads", "1"], cwd=tmp_path, stdout=theirs,
                              stderr=theirs, env=os.environ | {"TERM": "xterm"}) as run:
            os.close(theirs)
            blocked, text = [], b""
            while run.poll() is None or select.select([ours], [], [], 0)[0]:
                if select.select([ours], [], [], 0.05)[0]:
                    try:
                        text += os.read(ours, 4096)
                    except OSError:
                        break
                if len(blocked) < 2 and b"computing" in text:
                    blocked = interrupts_blocked(run)
        os.close(ours)
        assert run.returncode == 0
        if len(blocked) == 2:
            break
    shown = [line.rpartition("\r")[2].replace("\x1b[K", "") for line in text.decode().replace("\r\n", "\n").split("\n")]
    assert shown[0].startswith("q ") and not any("computing" in line for line in shown), shown
    # The thread that draws takes no signal: who works holds them while a file gets its name.
    assert sorted(blocked) == [False, True]


def test_a_shells_loop_ends_with_the_command_that_is_interrupted(long_run):
    folder, command = long_run
    loop = ["bash", "-c", 'for i in 1 2 3; do echo "begin $i"; "$@"; done', "bash", *map(str, command)]
    with subprocess.Popen(loop, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                          preexec_fn=hear_interrupts) as run:
        assert run.stdout.readline() == "begin 1\n"
        time.sleep(0.5)
        os.killpg(run.pid, signal.SIGINT)   # as a terminal does
        output, error = run.communicate(timeout=60)
    assert (run.returncode, output) == (-signal.SIGINT, "") and "begin" not in error


def test_output_beyond_the_limit_of_file_sizes_is_told(tmp_path):
    for command in (["info"], ["--help"], ["study", "variance"]):
        with (tmp_path / "out.txt").open("w") as out:
            done = subprocess.run([HEED, *command], stdout=out, stderr=subprocess.PIPE, text=True,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        assert done.returncode == 4 and done.stderr.endswith("cannot write to standard output: File too large\n")


def test_no_progress_without_a_terminal_nor_when_quiet(tmp_path):
    command = ["run", "in.npz", "-o", "out.npz", "--dtype", "float64", "--threads", "1"]
    for rows in (round(1000 * 2 ** (n / 2)) for n in range(13)):  # until the run is long enough to show something
        save(tmp_path / "in.npz", {name: draw(3, 1, 1, rows, 64) for name in "qkv"})
        begin = time.monotonic()
        heed_ok(*command, folder=tmp_path)
        if time.monotonic() - begin > 2:
            break
    for more, kind in ((["--quiet"], "xterm"), ([], "dumb")):  # where no line can be drawn again
        run, text, ours = read_terminal([HEED, *command, *more], tmp_path, 60, kind=kind)
        assert (run.wait(), text, run.stdout.read() == b"") == (0, "", more != [])
        os.close(ours)
        run.stdout.close()
