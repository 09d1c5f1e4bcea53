"""What a call does to its process: the GIL, Ctrl-C, threads, forks, variables, memory."""

import gc
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from support import inputs

import heed


def heard():
    """In the child: a parent in the background hands on an ignored SIGINT, which Python would leave ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def python(code, *, env=None, **more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HEED_", "OMP_"))}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**clean, **(env or {})}, preexec_fn=heard, **more)


def cpu_seconds(process):
    """What all its threads have used. A wall clock would count what other processes of the machine do."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_the_gil_is_released():
    for rows in (1 << power for power in range(10, 15)):  # until a call is long enough for as many turns
        q = np.ones((1, 2, rows, 64), np.float32)
        done = threading.Event()
        worker = threading.Thread(target=lambda q=q, done=done: (heed.attention(q, q, q, threads=1), done.set()))
        worker.start()
        turns = 0
        while not done.is_set():
            turns += 1
            time.sleep(0.001)
        worker.join()
        if turns > 20:
            break
    assert turns > 20


# A task of the forward pass is some query rows against all keys, one of the backward pass a KV head: of 4,096 rows
# it takes longer than 0.2 s on a busy CPU without AVX-512.
@pytest.mark.parametrize("heads,rows,call", [(16, 1 << 14, "heed.attention(q, q, q)"),
                                             (256, 1 << 11, "heed.attention_backward(q, q, q, q, q[..., 0], q)"),
                                             (16, 1 << 14, "heed.attention_jvp(q, q, q, q, q[..., 0], tangent_q=q)"),
                                             (16, 1 << 14, "heed.inspect_weights(q, q, q[..., 0], column_sums=True)"),
                                             (16, 1 << 14, "heed.inspect(q, q, q)")])
def test_ctrl_c_ends_a_long_call(heads, rows, call):
    process = python(f"""
import time, numpy as np, heed
q = np.ones((1, {heads}, {rows}, 64), np.float32)
def call(q):
    {call}
begin = time.process_time()
call(q[:, :{heads} // 16])
part = time.process_time() - begin
print("ready", flush=True)
try:
    call(q)
except KeyboardInterrupt:
    print(time.process_time(), part)
    print(heed.attention(q[:, :, :4], q[:, :, :4], q[:, :, :4]).mean())
else:
    print("ended by itself after", time.process_time())
""", env={"HEED_NUM_THREADS": "2"})
    assert process.stdout.readline() == "ready\n"
    enough = cpu_seconds(process) + 0.5
    while cpu_seconds(process) < enough:
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)  # what it uses from here on, it uses after the signal
    os.waitpid(process.pid, os.WUNTRACED)
    used = cpu_seconds(process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    output, errors = process.communicate(timeout=60)  # nor does it sleep
    assert (process.returncode, errors) == (0, ""), output
    times, mean = output.split("\n")[:2]
    at_the_end, part = map(float, times.split())
    # 0.2 s are promised, and there are two threads; where all takes longer, a half of the sixteenth: each thread ends a task, and
    # of the backward pass sixteen are a sixteenth.
    assert at_the_end - used < max(2 * 0.2, part / 2) and mean == "1.0"


def test_ctrl_c_ends_the_command_behind_a_study(tmp_path):
    """A study of minutes: neither the program nor its files are left."""
    process = python("""
import os, heed
print("ready", flush=True)
try:
    heed.study.training()
except KeyboardInterrupt:
    print("interrupted")
try:
    print(os.waitpid(-1, 0)[1])    # ended, and perhaps nobody has asked how
except ChildProcessError:
    print(9)
""", env={"TMPDIR": str(tmp_path)})
    assert process.stdout.readline() == "ready\n"
    while not (left := list(tmp_path.glob("heed-*"))):
        time.sleep(0.01)
    time.sleep(0.3)
    assert process.poll() is None and left
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "interrupted\n9\n", "")
    assert not list(tmp_path.iterdir())


def test_a_signal_handler_that_returns_lets_the_call_end():
    process = python("""
import signal, time, numpy as np, heed
seen = []
signal.signal(signal.SIGALRM, lambda *_: seen.append(time.monotonic()))
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
for rows in (1 << power for power in range(9, 16)):   # until a call is long enough for a handler to run in its midst
    q = np.ones((1, 2, rows, 64), np.float32)
    began = time.monotonic()
    assert heed.attention(q, q, q, threads=2).mean() == 1
    middle = (began + time.monotonic()) / 2
    if any(began < at < middle for at in seen):
        break
else:
    raise AssertionError(seen)
signal.setitimer(signal.ITIMER_REAL, 0)
""")
    _, errors = process.communicate(timeout=600)
    assert (process.returncode, errors) == (0, "")


def test_many_threads_get_their_own_results():
    tensors = [inputs(seed=10 * i, queries=40, keys=150, d=64, d_v=64) for i in range(8)]
    expected = [heed.attention(*x) for x in tensors]
    wrong, done = [], []

    def work(i):
        for _ in range(20):
            if not np.array_equal(heed.attention(*tensors[i], threads=2), expected[i]):
                wrong.append(i)
        done.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and sorted(done) == list(range(8))


def test_eight_threads_read_the_same_arrays():
    q, k, v = inputs(queries=40, keys=150, d=64, d_v=64)
    expected = heed.attention(q, k, v, causal=True)
    results = []
    start = threading.Barrier(8)

    def work():
        start.wait()
        results.extend(heed.attention(q, k, v, causal=True, threads=2) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 160
    assert all(result.tobytes() == expected.tobytes() for result in results)


class Lender:
    """Lends an array by DLPack, and may have it no more while it is read."""

    def __init__(self, array):
        self.array = array
        self.lent = threading.Event()

    def __dlpack__(self, **more):
        self.lent.set()
        return self.array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("given", [np.asarray, memoryview, Lender])
def test_arrays_that_the_caller_drops_are_held_to_the_end_of_the_call(given):
    for rows in (1 << power for power in range(9, 18)):  # until the call is seen to be going on
        arrays = inputs(batch=1, heads=2, kv_heads=2, queries=rows, keys=rows, d=64, d_v=64)
        expected = heed.attention(arrays[0][:, :, -4:], *arrays[1:])
        references = [weakref.ref(x) for x in arrays]
        box, results, ended = [[given(x) for x in arrays]], [], threading.Event()
        lenders = box[0] if given is Lender else []

        def work():
            results.append(heed.attention(*box.pop(), threads=1))
            ended.set()

        del arrays
        worker = threading.Thread(target=work)
        worker.start()
        while worker.is_alive() and (box or not all(lender.lent.is_set() for lender in lenders)):
            time.sleep(0.001)
        time.sleep(0.02)
        for lender in lenders:
            lender.array = None
        held = [reference() is not None for reference in references]
        seen = not ended.is_set()
        worker.join()
        np.testing.assert_allclose(results[0][:, :, -4:], expected, rtol=1e-5, atol=1e-6)
        assert [reference() for reference in references] == [None] * 3
        if seen:
            break
    assert seen and all(held)


def test_a_forked_child_computes():
    """In 2 s, of the child's own: the machine may be busy. Without its workers it would wait for ever."""
    q, k, v = inputs(batch=1, queries=400, keys=400, d=64, d_v=64)
    expected = heed.attention(q, k, v, threads=2)   # of one thread there would be no workers to miss
    assert heed.explain(q, k, v, threads=2).threads == 2
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if np.array_equal(heed.attention(q, k, v, threads=2), expected) else 1)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    assert usage.ru_utime + usage.ru_stime < 2
    assert np.array_equal(heed.attention(q, k, v, threads=2), expected)


@pytest.mark.parametrize("work", [
    "heed.attention(long, long, long, threads=1)", "heed.attention(long, long, long, threads=2)",
    "cache.append(name, short, short); cache.truncate(name, 0); heed.attention(short, short, short, threads=2)"])
def test_python_may_end_while_threads_are_in_a_call(work):
    """Python 3.11 unwinds the stack of a thread that asks for the GIL then, which C++ answers with std::terminate."""
    code = f"""
import threading, time, numpy as np, heed
long, short = (np.ones((1, 1, rows, 16), np.float32) for rows in (12000, 40))
cache = heed.KvCache(kv_heads=1, head_size=16, pages=4)
name = cache.create()
inside = []
def forever():
    heed.attention(short, short, short)
    inside.append(1)
    while True:
        {work}
for _ in range(3):
    threading.Thread(target=forever, daemon=True).start()
while len(inside) < 3:
    time.sleep(0.001)
time.sleep(0.05)
"""
    for process in [python(code) for _ in range(3)]:
        output, errors = process.communicate(timeout=600)
        assert (process.returncode, output, errors) == (0, "", "")


def test_a_handler_of_atexit_may_wait_for_a_thread_that_computes():
    """Handlers run from the last one on, so heed's, which came later, has been called by then."""
    process = python("""
import atexit, threading, time
stop, stopped = threading.Event(), []
def work():
    while not stop.is_set():
        heed.attention(x, x, x, threads=1)
    stopped.append(1)
def wait():
    time.sleep(0.2)   # the thread has come back from a call meanwhile
    stop.set()
    thread.join()
    print(stopped)
atexit.register(wait)
import numpy as np, heed
x = np.ones((1, 1, 300, 16), np.float32)
thread = threading.Thread(target=work, daemon=True)
thread.start()
""")
    assert process.communicate(timeout=60) == ("[1]\n", "") and process.returncode == 0


def test_nothing_is_said_of_what_lives_at_the_end():
    process = python("""
import threading, time, heed
cache = heed.KvCache(kv_heads=1, head_size=8, pages=1)
threading.Thread(target=lambda: time.sleep(600) or cache, daemon=True).start()
""")
    assert process.communicate(timeout=600) == ("", "") and process.returncode == 0


@pytest.mark.parametrize("threads,told", [(1, "as it was"), (2, "attention: a handler of a signal forked during the call, and its "
                                                             "child lacks the threads that shared the work; expected a fork "
                                                             "between calls, or threads=1")])
def test_a_handler_that_forks_leaves_its_child_no_wrong_result(threads, told):
    process = python(f"""
import os, signal, time, numpy as np, heed
parent, children, in_call = os.getpid(), [], False
def fork(*_):
    if in_call:
        children.append(os.fork())
signal.signal(signal.SIGALRM, fork)
rows = 250
while not children:
    rows *= 2
    x = np.random.default_rng(0).standard_normal((1, 4, rows, 32), np.float32)
    began = time.monotonic()
    expected = heed.attention(x, x, x)
    if time.monotonic() - began < 0.5:
        continue   # a call is to be long enough for the signal to come, and be looked at, in its midst
    in_call = True
    signal.setitimer(signal.ITIMER_REAL, 0.06)   # once
    try:
        seen = heed.attention(x, x, x, threads={threads})
        told = "as it was" if np.array_equal(seen, expected) else "something else"
    except RuntimeError as error:
        told = str(error)
    in_call = False
    signal.setitimer(signal.ITIMER_REAL, 0)
if os.getpid() != parent:
    print(told, flush=True)
    os._exit(0)
os.waitpid(children[0], 0)
print(told)
""")
    output, errors = process.communicate(timeout=600)
    assert (output, errors) == (f"{told}\nas it was\n", "")


def test_wrong_variables_are_one_clear_error():
    for name, wrong, text in (("HEED_NUM_THREADS", "many", "HEED_NUM_THREADS"), ("HEED_MAX_ISA", "sse2", "HEED_MAX_ISA")):
        process = python("import numpy as np, heed\nq = np.ones((4, 8), np.float32)\nheed.attention(q, q, q)",
                         env={name: wrong})
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 1 and text in errors.splitlines()[-1]
        assert errors.splitlines()[-1].startswith("ValueError: attention: ")


@pytest.mark.parametrize("views", ["dense", "[x.swapaxes(1, 2) for x in bthd]",
                                   "[x[:, ::-1].swapaxes(1, 2)[..., ::-1] for x in bthd]",
                                   "[memoryview(x) for x in dense]", "[x.swapaxes(1, 2) for x in half]"])
def test_arrays_are_read_and_written_where_they_lie(views):
    """A copy of one of them would be 32 MB or more; scratch is a few rows and keys.

    An eighth of the heads first, for both workers: under AddressSanitizer one that begins takes 18 MB for its frames."""
    process = python(f"""
import resource, numpy as np, heed
dense = [np.ones((1, 1 << 17, 2, 32), np.float32) for _ in range(4)]
bthd = [x.reshape(1, 2, 1 << 17, 32) for x in dense]
half = [x.astype(np.float16) for x in bthd]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
q, k, v, out = {views}
heed.attention(*(np.asarray(x)[:, : 1 << 14] for x in (q, k, v)), out=np.asarray(out)[:, : 1 << 14])
before = peak()
heed.attention(q, k, v, out=out)
print(peak() - before < 12, np.asarray(out)[0, -1].min())
""")
    assert process.communicate(timeout=600) == ("True 1.0\n", "")


@pytest.mark.parametrize("call,told", [
    ("ones(1, 8), ones(1, 8), ones(1, 1 << 30)", r"Unable to allocate 4\.00 GiB for an array with shape .*"),
    ("ones(1 << 16, 8), ones(1 << 16, 8), ones(1 << 16, 8), return_weights=True",
     r"Unable to allocate 16\.0 GiB for an array with shape .*"),
    ("ones(1, 8), ones(1, 8), ones(1, 1 << 24), out=out", r"attention: scratch memory: \d{10,} bytes could not be "
                                                          "allocated")])
def test_what_does_not_fit_is_a_memory_error_with_the_bytes_asked(call, told):
    """Results are NumPy's arrays, and so is the message; scratch for so wide a head is heed's."""
    process = python(f"""
import resource, numpy as np, heed
def ones(*shape):
    return np.broadcast_to(np.float32(1), shape)
out = np.full((1, 1 << 24), 7, np.float32)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 30),) * 2)
try:
    heed.attention({call}, threads=1)
except MemoryError as error:
    print(error)
print(out.min(), out.max(), heed.attention(ones(4, 8), ones(4, 8), ones(4, 8)).mean())
""")
    output, errors = process.communicate(timeout=600)
    assert (process.returncode, errors) == (0, "")
    message, after = output.splitlines()
    assert re.fullmatch(told, message) and after == "7.0 7.0 1.0", output


def test_a_call_has_as_many_threads_as_it_is_told():
    """The pool starts those that it lacks: each call asks for one more than all before it."""
    process = python("""
import os, numpy as np, heed
def count():
    return len(os.listdir("/proc/self/task"))
q = np.random.default_rng(0).standard_normal((1, 16, 300, 32)).astype(np.float32)
seen = heed.attention(q, q, q, return_lse=True, threads=1)
long, lse = np.zeros((1, 16, 4000, 32), np.float32), np.zeros((1, 16, 4000), np.float32)
cache = heed.KvCache(16, 32, 20)
name = cache.create()
cache.append(name, q, q)
for n, call in enumerate((lambda n: heed.attention(q, q, q, threads=n),
                          lambda n: heed.attention_backward(q, q, q, seen.output, seen.lse, q, threads=n),
                          lambda n: heed.attention_jvp(q, q, q, seen.output, seen.lse, tangent_q=q, threads=n),
                          lambda n: heed.inspect_weights(q, q, seen.lse, column_sums=True, threads=n),
                          lambda n: heed.attention_decode(q[:, :, :200], cache, name, threads=n),
                          lambda n: heed.inspect(q, q, q, threads=n).lse,
                          lambda n: heed.merge([long] * 2, [lse] * 2, threads=n)), 2):
    for asked, more in ((1, 0), (n, 1)):
        before = count()
        call(asked)
        assert count() - before == more, (n, asked)
""", env={"HEED_NUM_THREADS": "1"})
    assert process.communicate(timeout=600) == ("", "") and process.returncode == 0


def test_no_reference_is_lost():
    q, k, v = inputs()

    def counts():
        gc.collect()  # what other tests have left would go in between
        return [sys.getrefcount(x) for x in (q, k, v, None)]

    before = counts()
    for _ in range(2000):
        heed.attention(q, k, v, causal=True, statistics=True)
        with pytest.raises(ValueError):
            heed.attention(q, k[..., :3], v)
    after = counts()
    assert max(abs(x - y) for x, y in zip(before, after)) < 100


def test_a_small_call_is_few_steps_in_python():
    """Some 20 calls, in 2 or 3 us; a copy through Python or an import on the way is hundreds. What C++ takes is
    no step here: `./dev compare --check` measures it."""
    q = np.ones((1, 1, 1, 8), np.float32)
    heed.attention(q, q, q)
    steps = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, function: steps.append(
        function.__name__ if event == "c_call" else frame.f_code.co_name) if event in ("call", "c_call") else None)
    try:
        heed.attention(q, q, q)
    finally:
        sys.setprofile(before)
    assert steps[0] == "attention" and len(steps) <= 24, steps


def test_importing_is_quiet_and_loads_little():
    process = python("import sys, numpy\nbefore = set(sys.modules)\nimport heed\nloaded = set(sys.modules) - before\n"
                     "print([m for m in ('torch', 'jax', 'onnx', 'matplotlib', 'subprocess', 'heed.torch') if m in sys.modules], "
                     "len(loaded) < 60 or loaded)")
    output, errors = process.communicate(timeout=600)
    assert (output, errors) == ("[] True\n", "")
