"""Memory that cannot be had in the middle of a call is a MemoryError, and the process goes on.

tests/faults/injector.cc is preloaded into a child. It counts in a variable of its own and compares with another; the
child finds both by their addresses, since Python asks for memory thousands of times before heed is called.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from support import ROOT

HEED = pathlib.Path(os.environ.get("HEED_BIN", ROOT / "build/release/cli/heed")).resolve()
INJECTOR = HEED.parents[1] / "tests/faults/libheed_faults.so"

CHILD = """
import ctypes, gc, itertools, json, os, sys, threading, time
import numpy as np, heed

library, name, *places = sys.argv[1:]
of_known, of_count, of_failing = (int(place, 16) for place in places)
base = ctypes.cast(ctypes.CDLL(library).aligned_alloc, ctypes.c_void_p).value - of_known
count, failing = (ctypes.c_long.from_address(base + place) for place in (of_count, of_failing))

q, k, v, d_output = arrays = np.random.default_rng(1).standard_normal((4, 1, 2, 200, 64)).astype(np.float32)
out = np.empty_like(v)
known = heed.attention(q, k, v, return_lse=True)
other = heed.attention(q, v, k, return_lse=True)
small = np.ones((1, 1, 1, 8), np.float32)
cache = heed.KvCache(kv_heads=2, head_size=64, pages=9, page_keys=32)
prompt = cache.create()
cache.append(prompt, k[:, :, :100], v[:, :, :100])

def attention():
    result = heed.attention(q, k, v, out=out, return_lse=True)
    return [result.output, result.lse]

def attention_backward():
    result = heed.attention_backward(q, k, v, known.output, known.lse, d_output)
    return [result.dq, result.dk, result.dv]

def attention_jvp():
    result = heed.attention_jvp(q, k, v, known.output, known.lse, tangent_q=d_output, tangent_v=q)
    return [result.output, result.lse]

def attention_decode():
    fork = cache.fork(prompt)
    try:
        cache.append(fork, k[:, :, 100:], v[:, :, 100:])
        result = heed.attention_decode(q[:, :, 190:], cache, fork, out=out[:, :, 190:], return_lse=True)
    finally:
        cache.release(fork)
    return [result.output, result.lse, np.array([cache.sequences, cache.free_pages, cache.length(prompt)])]

def merge():
    result = heed.merge([known.output, other.output], [known.lse, other.lse])
    return [result.output, result.lse]

def inspect_weights():
    return heed.inspect_weights(q, k, known.lse, rows=[3, 150], row_weights=True, row_scores=True, top=3, column_sums=True,
                                mean_map=(8, 8), lift_map=(8, 8), distance_mass=5, score_histogram=32)

def inspect():
    seen = heed.inspect(q, k, v)
    return [seen.output, seen.lse, seen.statistics.entropy, seen.column_sums, seen.score_histogram]

def bits(results):
    return [x.tobytes() for x in results]

def with_failure(n):
    # glibc ends the process where it has no memory for the variables of a thread, so they are made before. The scratch
    # that the thread keeps of this is too small for the call.
    heed.attention(small, small, small)
    out[:] = 7
    error, right = None, True
    count.value, failing.value = 0, n
    try:
        results = call()
    except MemoryError as caught:
        failing.value = 0
        error, right = str(caught), bool((out == 7).all())
    else:
        failing.value = 0
        right = bits(results) == expected
    told.append([error, count.value, right and bits(call()) == expected])

def asleep(thread):
    with open(f"/proc/self/task/{thread}/stat") as fields:
        return fields.read().rpartition(")")[2].split()[0] == "S"

call, told = globals()[name], []
expected = bits(call())
# A thread of the pool makes its variables when it first runs, which may be long after it was started.
while not all(asleep(thread) for thread in os.listdir("/proc/self/task") if int(thread) != threading.get_native_id()):
    time.sleep(0.001)
gc.disable()
for n in itertools.count(1):
    thread = threading.Thread(target=with_failure, args=(n,))   # a thread keeps the scratch of its calls
    thread.start()
    thread.join()
    if told[-1][0] is None and told[-1][1] < n:
        break
print(json.dumps([told, heed.explain(q, k, v).scratch_bytes]))
"""


@pytest.mark.parametrize("name, arrays, functions", [
    ("attention", {"1.56 KiB"}, {"attention"}), ("attention_backward", {"100. KiB"}, {"attention_backward"}),
    ("attention_jvp", {"100. KiB", "1.56 KiB"}, {"attention_jvp"}), ("attention_decode", set(), {"attention_decode"}),
    ("merge", {"100. KiB", "1.56 KiB"}, set()),
    ("inspect_weights", {"row_weights: 3200", "row_scores: 3200", "top: 9600", "top: 4800", "top: 1600", "column_sums: 1600"},
     {"inspect_weights"}),
    ("inspect", {"100. KiB", "1.56 KiB", "column_sums: 1600", "mean_map: 73728", "lift_map: 73728", "score_histogram: 4128"},
     {"attention", "inspect_weights"})])
def test_each_allocation_may_fail(name, arrays, functions):
    """Each n-th, until none does. Arrays are NumPy's, and so is the message, but for inspect_weights, which names the argument
    that asks for one; scratch is heed's: all tell the bytes.
    Small lists are C++'s, small objects Python's, and they tell none. What was to be written is as it was, and the same
    call, made again, gives the right bits."""
    symbols = subprocess.run(["nm", INJECTOR], capture_output=True, text=True, check=True).stdout
    places = [re.search(rf"^(\w+) \w {symbol}$", symbols, re.M)[1] for symbol in
              ("aligned_alloc", "_ZN12_GLOBAL__N_111allocationsE", "_ZN12_GLOBAL__N_17failingE")]
    env = {variable: x for variable, x in os.environ.items() if not variable.startswith(("HEED_", "OMP_", "FAULT_"))}
    done = subprocess.run([sys.executable, "-c", CHILD, INJECTOR, name, *places], capture_output=True, text=True,
                          env={**env, "LD_PRELOAD": str(INJECTOR), "HEED_NUM_THREADS": "2"}, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    told, scratch = json.loads(done.stdout)
    assert all(right for _, _, right in told), told
    sizes, scratches = set(), {}
    for error in {error for error, _, _ in told} - {None, "", "std::bad_alloc"}:
        if error.endswith(": no memory for lists of sequences and parts"):
            continue
        if found := re.fullmatch(r"Unable to allocate (.*) for an array with shape .*", error):
            sizes.add(found[1])
        elif found := re.fullmatch(r"inspect_weights: (\w+: \d+) bytes could not be allocated, for shape .*", error):
            sizes.add(found[1])
        else:
            found = re.fullmatch(r"(\w+): scratch memory: (\d+) bytes could not be allocated", error)
            assert found, error
            scratches[found[1]] = int(found[2])
    assert sizes >= arrays and set(scratches) == functions, told
    assert name != "attention" or scratches[name] == scratch
