"""heed beside PyTorch and JAX in one process, imported in any order."""

import itertools
import subprocess
import sys

import pytest

CODE = """
import {0}
import {1}
import {2}
import numpy as np

x = [np.random.default_rng(i).standard_normal((1, 2, 40, 16), np.float32) for i in range(3)]
want = heed.attention(*x, causal=True)
of_torch = heed.attention(*map(torch.from_numpy, x), causal=True)
of_jax = heed.attention(*map(jax.numpy.asarray, x), causal=True)
assert type(of_torch) is torch.Tensor and isinstance(of_jax, jax.Array)
assert np.array_equal(of_torch.numpy(), want) and np.array_equal(np.asarray(of_jax), want)
assert abs(torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, x), is_causal=True).numpy() - want).max() < 1e-5
assert abs(np.asarray(jax.numpy.asarray(x[0]) @ jax.numpy.asarray(x[1]).swapaxes(-1, -2)) - x[0] @ x[1].swapaxes(-1, -2)).max() < 1e-4
assert np.float64(1e-323) != 0 and torch.tensor(1e-45).item() != 0
print("as they should be")
"""


@pytest.mark.parametrize("order", list(itertools.permutations(["heed", "torch", "jax"])), ids="_".join)
def test_any_order_of_imports_works(order):
    code = CODE.format(*(f"{name}, jax.numpy" if name == "jax" else name for name in order))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "as they should be\n"), done.stderr
