"""What `import heed` does to its process: nothing that anybody else could notice."""

import pathlib
import platform
import re
import subprocess
import sys

import pytest

from heed import _core

# Looks at the process, imports heed, looks again, computes, and looks a third time.
LOOK = """
import ctypes, os, re
import numpy as np

libc = ctypes.CDLL(None)
libm = ctypes.CDLL("libm.so.6")

def floating_point():
    state = (ctypes.c_uint32 * 64)()
    assert libm.fegetenv(state) == 0
    # glibc's fenv_t: on x86-64 the last word is MXCSR, whose low 6 bits say what has happened, not how to compute;
    # on AArch64 the first is FPCR.
    return state[7] & ~0x3F if os.uname().machine == "x86_64" else state[0]

def variables():
    every, i, found = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ"), 0, []
    while every[i] is not None:
        found.append(every[i])
        i += 1
    return sorted(found)

def look():
    status = open("/proc/self/status").read()
    return {"floating point": floating_point(), "variables": variables(),
            "handlers": re.findall(r"Sig(?:Cgt|Ign|Blk):.*", status), "threads": len(os.listdir("/proc/self/task")),
            "folder": os.getcwd(), "files": sorted(os.listdir("/proc/self/fd"))[3:-1]}

before = look()
import heed
after = look()
assert after == before, (before, after)
x = np.full((64, 16), 1e-40, np.float32)
heed.attention(x, x, x, threads=2)
computed = look()
del before["threads"], computed["threads"]  # the pool's own, from the first call that needs it
assert computed == before, (before, computed)
assert np.float64(1e-323) != 0 and np.float32(1e-45) != 0 and (x * np.float32(1)).any()
"""


def test_importing_changes_nothing_and_says_nothing():
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_program_that_flushes_subnormals_keeps_doing_so():
    """Somebody else's setting is theirs: heed computes as always, and leaves it."""
    if platform.machine() != "x86_64":
        pytest.skip("sets MXCSR")
    code = LOOK.replace("before = look()", """
state = (ctypes.c_uint32 * 64)()
libm.fegetenv(state)
state[7] |= 0x8040
libm.fesetenv(state)
before = look()""").replace("assert np.float64(1e-323) != 0", "assert floating_point() & 0x8040 == 0x8040 #")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_module_needs_little_static_tls_and_no_openmp():
    """dlopen has some hundred bytes of static TLS for all libraries together."""
    module = pathlib.Path(_core.__file__)
    segments = subprocess.run(["readelf", "-lW", module], capture_output=True, text=True, check=True).stdout
    sizes = [int(line.split()[5], 16) for line in segments.splitlines() if line.split()[:1] == ["TLS"]]
    assert sum(sizes) <= 64
    dynamic = subprocess.run(["readelf", "-dW", module], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"NEEDED.*\[lib(g|i|)omp", dynamic)
