"""The program while memory, threads, disk space or its directory go away, or it is stopped at a random
point: the exit code says which, stderr says why in one line, and an old output is whole, or the new one is.

tests/faults/injector.cc is preloaded for memory and threads.
"""

import contextlib
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from cli_support import HEED, SANITIZED, draw, halt, halted_at_work, heed, load, operands, save, snapshot  # noqa: E402

INJECTOR = pathlib.Path(HEED).resolve().parents[1] / "tests/faults/libheed_faults.so"
RUN = ["run", "in.npz", "-o", "out.npz", "--lse"]
SEED = 20261122

preloads = pytest.mark.skipif(SANITIZED, reason="AddressSanitizer has an allocator of its own")


def injected(folder, *arguments, **faults):
    env = {"LD_PRELOAD": str(INJECTOR), **{f"FAULT_{name}": str(value) for name, value in faults.items()}}
    return heed(*arguments, folder=folder, env=env, errors="replace")   # what is printed may end within a letter


@pytest.fixture
def folder(tmp_path):
    """A small problem, and an old output that must not be lost."""
    save(tmp_path / "in.npz", operands())
    (tmp_path / "out.npz").write_bytes(b"an old result")
    return tmp_path


@pytest.fixture
def good(folder):
    """What a run that nothing happens to leaves in out.npz."""
    assert heed(*RUN, folder=folder).returncode == 0
    data = (folder / "out.npz").read_bytes()
    (folder / "out.npz").write_bytes(b"an old result")
    return data


def in_units(size):
    return f"{size} bytes" if size < 1024 else f"{size / 1024:.1f} KiB"


def tensors_of(path):
    return [x.nbytes for x in load(path).values()]


def said_without_memory(arguments, folder, read, made):
    """A pattern of all that the command may say, sizes as groups; and sizes that allocations of its own ask for."""
    command, inputs = arguments[0], [size for name in read for size in tensors_of(folder / name)]
    # What the other file of a comparison causes begins with its flag and its name.
    told_of = {name: f"{'--against: ' * (arguments[arguments.index(name) - 1] == '--against')}{re.escape(name)}: " for name in read}
    other = "|".join(told for told in told_of.values() if told.startswith("--against"))
    source = "|".join(rf"{told_of[name]}(?:cannot allocate memory to read the archive|cannot allocate "
                      rf"({'|'.join(map(str, sorted(set(tensors_of(folder / name)))))}) bytes for a tensor|"
                      rf"not enough memory for a file of {(folder / name).stat().st_size} bytes)" for name in read)
    # Scratch of 0 bytes is a page, too.
    own = r"cannot allocate (\d+) bytes for a tensor|scratch memory: (\d+) bytes could not be allocated"
    if command == "run":
        (output,) = made
        told = json.loads(heed(*arguments, "--json", folder=folder).stdout)
        results = tensors_of(folder / output)
        sizes = {*results, told["scratch_bytes"]}
        # Of the backward pass it is an upper estimate, which tests/cli holds against what is taken.
        scratch = told["memory_bytes"] - sum(inputs) - sum(results) if "--gradients" in arguments else told["scratch_bytes"]
        parts = sum(inputs), sum(results), scratch
        needed = "{} (input {}, results {}, scratch {})".format(*map(in_units, (sum(parts), *parts)))
        unknown = "0 bytes (input 0 bytes, results 0 bytes, scratch 0 bytes)"   # while the inputs are looked at
        more = (rf"(?:{own}); the run takes about {re.escape(needed)}|"
                rf"out of memory; the run takes about (?:{re.escape(needed)}|{re.escape(unknown)})|"
                rf"{output}: (?:not enough memory for a file of {sum(results)} bytes|cannot write the archive: Malloc failure)")
    else:
        rows, keys = 2 * 4 * 5, 7
        # float32 and int64 of each row, weights and what is told of each, sums over columns, by distance, histograms
        sizes = {4 * rows, 8 * rows, 4 * rows * keys, 8 * rows * keys, 4 * 8 * keys, 4 * 8 * (2 * keys + 1), 8 * 8 * 258}
        written = "|".join(rf"{name}: not enough memory for a file of {len(data)} bytes" for name, data in made.items())
        more = "|".join(filter(None, (own, r"summarize: no memory for the numbers of \d+ rows, 8 bytes each, and of \d+ heads", written)))
    whole = "|".join(filter(None, ("out of memory", source, f"(?:{other})?(?:{more})")))
    return rf"heed: out of memory\n|heed {command}: (?:{whole})\n", {*inputs, *sizes}


# Of so many allocations behind those that read the command line each fails, behind these each step-th; inspect asks for its results
# up to the 536th (2026-11-30). With HEED_EXHAUSTIVE each one fails alone; that all from one on fail is tried with each last-named-th,
# since pictures make 29,000 (2026-11-26). The longest is first and a short one second, which pytest-xdist leaves to the same
# process; the other process takes over the rest.
CALLS = {"pictures": (["inspect", "small.npz", "--against", "before.npz", "--pictures", "out", "-q"], 0, 1499, 17),
         "info": (["info"], 0, 61, 1),
         "inspect": (["inspect", "in.npz", "--html", "out.npz"], 600, 61, 1), "run": (RUN, 1000, 1, 1),
         "gradients": (["run", "in.npz", "--d-output", "g.npy", "-o", "out.npz", "--gradients", "--lse"], 0, 13, 1),
         "npy": (["run", "q.npy", "k.npy", "v.npy", "-o", "out.npy", "-q"], 0, 13, 1),
         "safetensors": (["run", "in.safetensors", "-o", "out.safetensors", "--lse"], 0, 13, 1),
         "study": (["study", "scaling", "--input", "in.npz", "-o", "out"], 0, 61, 1)}


def without_numbers(done):
    """What was printed, but times, which may have another unit, bars, which are # where there is no memory for a locale, and what
    bounds the threads of `heed info`: a quota that there is no memory to read counts as none."""
    return re.sub(r"[\d.]+( [mu]?s\b)?|(?<=, )from .*| *[█▉▊▋▌▍▎▏#]+", "0", done.stdout)


@preloads
@pytest.mark.parametrize("call", CALLS)
def test_each_allocation_may_fail(call, folder):
    """What is said names the bytes asked for, where anything of a known size is. Each file is the old one or the new one, which,
    like what is printed, lacks nothing."""
    arguments, dense, step, every = CALLS[call]
    tensors = {**operands(), "g": draw(9, 2, 4, 5, 6)}
    save(folder / "in.safetensors", operands())
    for seed, name in enumerate(("small.npz", "before.npz")):
        save(folder / name, operands(1, 1, 1, 2, 3, seed=10 * seed))
    for name in "qkvg":
        np.save(folder / f"{name}.npy", tensors[name])
    there = snapshot(folder)
    read = [name for name in arguments if pathlib.Path(name) in there and name != "out.npz"]
    printed = without_numbers(heed(*arguments, folder=folder))
    good = snapshot(folder)
    made = {name: data for name, data in good.items() if data is not None and data != there.get(name)}
    old = {**good, **dict.fromkeys(made, b"an old result")}
    count = folder.parent / "count"

    def allocations_of(*arguments):
        done = injected(folder, *arguments, COUNT=count)
        return done.returncode, int(count.read_text())

    code, allocations = allocations_of(*arguments)
    assert code == 0
    before = 1000   # of a command that reads no file, about
    if read:
        code, before = allocations_of(*("nowhere.npz" if x == read[0] else x for x in arguments))
        assert code == 4
    assert 300 < before < allocations - 100
    pattern, sizes = said_without_memory(arguments, folder, read, made)
    draws = random.Random(SEED)
    some = 50 if dense else 10
    # Places of results are looked at in the 300 before those that read.
    chosen = {*range(1, 15), *range(before - 300, min(before + dense, allocations)), *range(before, allocations + 1, step),
              *range(allocations - 50, allocations + 1, min(every, 3)),   # the output is written there
              *(draws.randrange(1, allocations) for _ in range(some)), 2 * allocations}
    exhaustive = os.environ.get("HEED_EXHAUSTIVE")
    told, reached = set(), True
    for n in itertools.count(1) if exhaustive else sorted(chosen):
        reached = False
        for fault in ("MALLOC", "FROM") if n % every == 1 % every or not exhaustive else ("MALLOC",):
            for name in made:
                (folder / name).write_bytes(old[name])
            count.unlink(missing_ok=True)
            done = injected(folder, *arguments, COUNT=count, **{fault: n})
            now = snapshot(folder)
            where = f"{fault} {n} of {allocations}, seed {SEED}: {done}"
            assert done.returncode in (0, 5), where
            assert set(now) == set(good) and all(data in (old[name], good[name]) for name, data in now.items()), where
            if done.returncode == 0:
                assert (without_numbers(done), done.stderr) == (printed, ""), where
                assert now == good, where
                reached |= int(count.read_text()) >= n   # else it asked for less, and nothing failed
            else:
                # Where all fails from there on, none is left to put another message together.
                said = re.fullmatch(pattern if fault == "MALLOC" else "heed: out of memory\n", done.stderr)
                assert said, where
                told |= {int(size) for size in said.groups() if size}
                reached = True
        if not reached:
            break
    assert not reached
    assert told >= sizes or not (dense or exhaustive and arguments[0] == "run"), sizes - told


@preloads
def test_with_any_number_of_threads_refused_the_bits_are_the_same(tmp_path):
    save(tmp_path / "in.npz", operands(2, 4, 4, 300, 300, 32, 32))
    outputs = []
    for threads in (0, 1, 2, 3):
        done = injected(tmp_path, *RUN, "--threads", "4", "-q", THREADS=threads)
        assert (done.returncode, done.stdout) == (0, ""), done
        outputs.append((tmp_path / "out.npz").read_bytes())
    assert len(set(outputs)) == 1
    done = injected(tmp_path, *RUN, "--threads", "4", THREADS=1)
    assert done.stderr == "heed run: the system refused to start a thread; fewer did the work\n"


def limit_files(size):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("name", ["out.npz", "out.safetensors", "out.npy"])
def test_a_file_size_limit_leaves_the_old_output(name, folder):
    (folder / name).write_bytes(b"an old result")
    before = snapshot(folder)
    done = heed("run", "in.npz", "-o", name, folder=folder, preexec_fn=limit_files(100))
    assert (done.returncode, done.stdout) == (4, "")
    assert re.fullmatch(rf"heed run: {name}: cannot write at offset \d+: File too large\n", done.stderr), done
    assert snapshot(folder) == before


@pytest.fixture
def disk(folder):
    """A small disk, with an old output on it."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "heed-test", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("this process may not mount a tmpfs")
    (disk / "out.npz").write_bytes(b"an old result")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_leaves_the_old_output(folder, disk):
    save(folder / "in.npz", operands(1, 4, 4, 300, 300, 32, 32))
    for command in (["run", "in.npz", "-o", "disk/out.npz"],
                    ["inspect", "in.npz", "--html", "disk/out.npz"]):
        done = heed(*command, folder=folder)
        assert (done.returncode, done.stdout) == (4, ""), done
        assert re.fullmatch(r"heed \w+: disk/out.npz: cannot write at offset \d+: No space left on device\n",
                            done.stderr), done
        assert snapshot(disk) == {pathlib.Path("out.npz"): b"an old result"}


@pytest.mark.parametrize("command", [["inspect", "in.npz", "--pictures"], ["study", "strategies", "-o"]], ids=["pictures", "study"])
def test_a_full_disk_leaves_no_part_of_a_file(command, folder, disk):
    """Of several files those stay that were written in full, with what they have on a disk that is not full."""
    save(folder / "in.npz", operands(1, 2, 2, 40, 40))
    assert heed(*command, "good", folder=folder).returncode == 0
    pages = sum(-(-path.stat().st_size // 4096) for path in (folder / "good").iterdir())
    (disk / "much").write_bytes(bytes(4096 * max(0, 16 - pages)))   # beside the old output there is one too few
    done = heed(*command, "disk/some", folder=folder)
    assert (done.returncode, done.stdout) == (4, ""), done
    assert re.fullmatch(rf"heed {command[0]}: disk/some/\S+: cannot write at offset \d+: No space left on device\n", done.stderr), done
    left = {path.name: path.read_bytes() for path in (disk / "some").iterdir()}
    assert left and all(data == (folder / "good" / name).read_bytes() for name, data in left.items())


def test_a_place_that_cannot_be_written_is_told_before_anything_is_read(folder, disk):
    """And so before anything is computed: the input is no file of tensors, which exit code 3 would tell."""
    (folder / "in.npz").write_bytes(b"no tensors")
    assert subprocess.run(["mount", "-o", "remount,ro", disk]).returncode == 0
    before = snapshot(folder)
    for command, place in ((["run", "in.npz", "-o"], "disk/out.npz"), (["inspect", "in.npz", "--html"], "disk/out.html"),
                           *((command, place) for place in ("disk", "disk/new/folder")
                             for command in (["inspect", "in.npz", "--pictures"], ["study", "scaling", "--input", "in.npz", "-o"]))):
        assert heed(*command, "there.npz", folder=folder).returncode == 3
        done = heed(*command, place, folder=folder)
        assert (done.returncode, done.stdout) == (4, ""), done
        assert re.fullmatch(rf"heed \w+: {place}: cannot .*: Read-only file system\n", done.stderr), done
        assert snapshot(folder) == before


def test_a_directory_that_vanishes_meanwhile_is_told(tmp_path):
    rows = 4000 if SANITIZED else 8000
    save(tmp_path / "in.npz", {name: np.zeros((1, 1, rows, 64), np.float32) for name in "qkv"})
    (tmp_path / "to").mkdir()
    with subprocess.Popen([HEED, "run", "in.npz", "-o", "to/out.npz", "--dtype", "float64", "--threads", "2", "-q"], cwd=tmp_path,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        with halted_at_work(run):
            shutil.rmtree(tmp_path / "to")
        output, error = run.communicate(timeout=600)
    assert (run.returncode, output) == (4, "")
    assert error.startswith("heed run: to/out.npz: cannot ") and error.count("\n") == 1, error
    assert error.endswith(": No such file or directory\n")
    assert set(snapshot(tmp_path)) == {pathlib.Path("in.npz")}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL],
                         ids=["SIGINT", "SIGTERM", "SIGKILL"])
def test_stopped_at_random_points_the_output_is_old_or_new(number, folder):
    """A run is halted at a point drawn over the length of one, what it is at is read, and it gets the signal; until
    many stood in the work and one had ended. A SIGKILL between the two system calls that give the new file its
    name may leave a complete copy of it beside the old one: .heed-N.tmp."""
    call = [*RUN, "--threads", "2", "-q"]
    save(folder / "in.npz", operands(1, 4, 4, *(2 * [400 if SANITIZED else 1200]), 64, 64))
    begin = time.monotonic()
    assert heed(*call, folder=folder).returncode == 0
    length = time.monotonic() - begin
    good = (folder / "out.npz").read_bytes()
    draw = random.Random(SEED + number)
    points = stopped_at_work = ended = 0
    while points < (20 if SANITIZED else 50) or stopped_at_work < 10 or ended == 0:
        points += 1
        assert points <= 1000, f"{stopped_at_work} runs were stopped at work, {ended} ended"
        (folder / "out.npz").write_bytes(b"an old result")
        with subprocess.Popen([HEED, *call], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as run:
            time.sleep(draw.uniform(0, length))
            halted, at_work, handled = halt(run.pid, number)
            os.kill(run.pid, number)
            os.kill(run.pid, signal.SIGCONT)
            output, error = run.communicate(timeout=600)
        where = f"point {points}, seed {SEED}: {halted, at_work, handled} {run.returncode} {error}"
        assert (output, error) == (b"", b""), where
        now = snapshot(folder)
        if number == signal.SIGKILL:
            for name in [name for name in now if re.fullmatch(r"\.heed-\d+\.tmp", name.name)]:
                assert now.pop(name) == good, where
                (folder / name).unlink()
        assert set(now) == {pathlib.Path("in.npz"), pathlib.Path("out.npz")}, where
        result = now[pathlib.Path("out.npz")]
        assert result in (good, b"an old result"), where
        if run.returncode == 0:
            # A worker may have got the signal, and the main thread have ended before that one did its part.
            assert not halted or handled, where
            assert result == good, where
        else:
            assert halted and run.returncode == -number, where
            stopped_at_work += at_work and result != good
        # The machine may have become faster or slower: sooner or later next time.
        ended += not halted
        length *= 1.1 if halted and not at_work else 1 if halted else 0.9


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_closed_standard_streams_cannot_spoil_the_output(closed, folder, good):
    """The next file that the program opens gets the number of a stream that is closed."""
    def close():
        for number in closed:
            os.close(number)
    done = subprocess.run([HEED, *RUN], cwd=folder, preexec_fn=close)
    assert done.returncode == (4 if 1 in closed else 0)  # the summary could not be written, and that is told
    assert (folder / "out.npz").read_bytes() == good
    assert set(snapshot(folder)) == {pathlib.Path("in.npz"), pathlib.Path("out.npz")}


@pytest.mark.parametrize("value", ["-1", "0", "4 4", "1e3", "0x4", "4096000000000000000000", "4097", "\x1b[2J",
                                   "four\nlines", "9" * 100_000, "\u0663", "%s%n"], ids=lambda value: value[:8])
@pytest.mark.parametrize("name", ["HEED_NUM_THREADS", "HEED_MAX_ISA"])
def test_hostile_variables_are_one_clear_error(name, value, folder):
    before = snapshot(folder)
    done = heed(*RUN, folder=folder, env={name: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert name in done.stderr and done.stderr.count("\n") == 1 and len(done.stderr) < 400, done
    assert all(32 <= ord(c) != 127 for c in done.stderr.rstrip("\n")), done
    assert snapshot(folder) == before


def test_the_language_of_the_environment_changes_no_output(folder, good):
    """A locale made of four lines, in which one half is 0,5."""
    (folder.parent / "source").write_text('LC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3;3\n'
                                          "END LC_NUMERIC\n")
    subprocess.run(["localedef", "--no-archive", "-c", "-i", "./source", "-f", "ANSI_X3.4-1968", "./comma"],
                   cwd=folder.parent, capture_output=True)
    comma = {"LOCPATH": str(folder.parent), "LC_ALL": "comma"}
    spoken = subprocess.run(["printf", "%g", "0,5"], env={**os.environ, **comma}, capture_output=True, text=True)
    assert spoken.stdout == "0,5", "the locale is not there"
    outputs = []
    for env in ({}, comma):
        done = heed(*RUN, "--scale", "0.5", "--softcap", "2.5", folder=folder, env=env)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert re.search(r"\d\.\d", done.stdout) and not re.search(r"\d,\d", done.stdout), done  # 0.1 ms
        outputs.append(load(folder / "out.npz")["output"].tobytes())
    assert outputs[0] == outputs[1]
    assert heed(*RUN, "--scale", "0,5,x", folder=folder, env=comma).stderr == \
        heed(*RUN, "--scale", "0,5,x", folder=folder).stderr


@contextlib.contextmanager
def control_group(controller, version1, version2):
    """A new group with the settings of its version, file: text. Gives a preexec_fn that enters it."""
    unified = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
    mount = pathlib.Path("/sys/fs/cgroup") / ("" if unified else controller)
    group = mount / f"heed-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        for file, text in (version2 if unified else version1).items():
            (group / file).write_text(text)
        yield lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        group.rmdir()


def test_without_proc_and_sys_the_result_is_the_same(folder, good):
    """As in some sandboxes: nothing tells of quotas, of free memory and of the CPU. AddressSanitizer itself needs /proc."""
    hide = " && ".join(f"mount -t tmpfs heed-test {place}" for place in ("/sys", "/proc")[:1 if SANITIZED else 2])
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HEED_", "OMP_"))}

    def without(command, *arguments):   # mounts of a namespace end with it
        return subprocess.run(["unshare", "--mount", "sh", "-c", f'{hide} && exec "$0" "$@"', command, *arguments], cwd=folder,
                              env=env, capture_output=True, text=True)
    if without("true").returncode:
        pytest.skip("this process may not mount a tmpfs")
    done = without(HEED, *RUN, "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
    assert (folder / "out.npz").read_bytes() == good
    done = without(HEED, "info")
    assert (done.returncode, done.stderr) == (0, "") and re.search(r"^threads +[1-9]\d*, from ", done.stdout, re.M), done
    if not SANITIZED:
        assert without("ls", "/proc").stdout == "" and f"threads   {len(os.sched_getaffinity(0))}, from affinity\n" in done.stdout, done


@pytest.mark.parametrize("percent,threads", [(50, 1), (150, 1), (199, 1), (250, 2)])
def test_a_quota_of_cpu_time_is_rounded_down_to_threads(percent, threads):
    with control_group("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": f"{percent * 1000}"},
                       {"cpu.max": f"{percent * 1000} 100000"}) as enter:
        done = heed("info", preexec_fn=enter)
        assert done.returncode == 0, done
        expected = min(threads, len(os.sched_getaffinity(0)))
        assert re.search(rf"^threads +{expected}\b", done.stdout, re.M), done.stdout


@preloads
@pytest.mark.parametrize("name,rows,flags,told", [
    # 9000 * 9000 weights, 309.0 MiB of float32, beside inputs, output and scratch.
    ("weights.npz", 9000, ["--weights"],
     r"the run takes about 3[01]\d\.\d MiB \(.*\), more than the (?P<MiB>[\d.]+) MiB, 80 % of what is free"),
    ("long.npz", 300_000, [],
     r"long\.npz: expected tensors of at most (?P<bytes>\d+) bytes together, found one of 76800000 after 153600000; "
     r"80 % of the free memory is no more"),
], ids=["results", "inputs"])
def test_a_memory_group_that_is_too_small_is_told_before_it_ends_the_program(name, rows, flags, told, tmp_path):
    limit = 200 * 2**20
    save(tmp_path / name, {tensor: np.zeros((1, 1, rows, 64), np.float32) for tensor in "qkv"})
    before = set(snapshot(tmp_path))
    with control_group("memory", {"memory.limit_in_bytes": f"{limit}"}, {"memory.max": f"{limit}"}) as enter:
        done = heed("run", name, "-o", "out.npz", *flags, "--threads", "1", folder=tmp_path, preexec_fn=enter)
    assert (done.returncode, done.stdout) == (5, ""), done
    numbers = re.fullmatch(rf"heed run: {told}\n", done.stderr)
    assert numbers, done
    (unit, most), = numbers.groupdict().items()
    # 80 % of the limit, less the little that the program itself takes.
    assert 0.7 * limit < float(most) * {"MiB": 2**20, "bytes": 1}[unit] <= 0.8 * limit + 2**20, done
    assert set(snapshot(tmp_path)) == before


@preloads
def test_files_just_read_count_as_free_in_a_memory_group(tmp_path):
    """Their cache fills the group; the kernel drops it before it ends a process."""
    limit = 200 * 2**20
    save(tmp_path / "in.npz", {name: np.zeros((1, 1, 9000, 64), np.float32) for name in "qkv"})
    with open(tmp_path / "other", "wb") as file:
        file.write(bytes(limit))
        file.flush()
        os.fsync(file.fileno())   # only what is on the disk can be dropped from the cache, and be read anew
    with control_group("memory", {"memory.limit_in_bytes": f"{limit}"}, {"memory.max": f"{limit}"}) as enter:
        def fill():
            enter()
            with open(tmp_path / "other", "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while file.read(2**20):
                    pass
        done = heed("run", "in.npz", "-o", "out.npz", "--threads", "1", folder=tmp_path, preexec_fn=fill)
    assert (done.returncode, done.stderr) == (0, ""), done
