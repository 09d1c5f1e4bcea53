"""heed beside NumPy, PyTorch and JAX in one process, imported in any order: the same bits, and nothing of the process changed
by heed's own import."""

import itertools
import subprocess
import sys

import pytest

CODE = """
import ctypes, hashlib, os, sys

libm = ctypes.CDLL("libm.so.6")

def look():
    state = (ctypes.c_uint32 * 64)()
    assert libm.fegetenv(state) == 0
    # glibc's fenv_t: on x86-64 the last word is MXCSR, whose low 6 bits are flags; on AArch64 the first is FPCR.
    return state[7] & ~0x3F if os.uname().machine == "x86_64" else state[0], len(os.listdir("/proc/self/task"))

{imports}

import numpy
x = [(numpy.arange(i, i + 1280) * 7919 % 1009 / 250 - 2).astype(numpy.float32).reshape(1, 2, 40, 16) for i in range(3)]
want = heed.attention(*x, causal=True)
if "torch" in globals():
    of_torch = heed.attention(*map(torch.from_numpy, x), causal=True)
    assert type(of_torch) is torch.Tensor and numpy.array_equal(of_torch.numpy(), want)
    plain = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, x), is_causal=True).numpy()
    assert abs(plain - want).max() < 1e-5
    assert torch.tensor(1e-45).item() != 0
if "jax" in globals():
    of_jax = heed.attention(*map(jax.numpy.asarray, x), causal=True)
    assert isinstance(of_jax, jax.Array) and numpy.array_equal(numpy.asarray(of_jax), want)
    product = jax.numpy.asarray(x[0]) @ jax.numpy.asarray(x[1]).swapaxes(-1, -2)
    assert abs(numpy.asarray(product) - x[0] @ x[1].swapaxes(-1, -2)).max() < 1e-4
assert numpy.float64(1e-323) != 0
print(hashlib.sha256(want.tobytes()).hexdigest())
"""

# NumPy comes with heed. Where it was not there before, threads are those that OpenBLAS starts.
OF_HEED = """
before, had_numpy = look(), "numpy" in sys.modules
import heed
after = look()
assert after[0] == before[0] and (after[1] == before[1] or not had_numpy), (before, after)
"""


def hash_after(imports):
    done = subprocess.run([sys.executable, "-c", CODE.format(imports=imports)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def alone():
    return hash_after(OF_HEED)


@pytest.mark.parametrize("order", list(itertools.permutations(["heed", "numpy", "torch", "jax"])), ids="_".join)
def test_any_order_of_imports_works(order, alone):
    lines = {"heed": OF_HEED, "numpy": "import numpy", "torch": "import torch", "jax": "import jax, jax.numpy"}
    assert hash_after("\n".join(lines[name] for name in order)) == alone


# Of each front end the library that it is for.
FRONT_ENDS = {"torch": "import torch", "jax": "import jax, jax.numpy", "onnx": "import onnx.reference, onnx.reference.op_run",
              "transformers": "from transformers import AttentionInterface, AttentionMaskInterface"}


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_front_end_changes_nothing_of_the_process(name):
    look = CODE.partition("{imports}")[0]
    code = f"{look}\n{FRONT_ENDS[name]}\nbefore = look()\nimport heed.{name}\nafter = look()\nassert after == before, (before, after)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
