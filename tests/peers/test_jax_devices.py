"""heed.jax on several devices: its parts inside shard_map, and arrays that are sharded over explicit axes.

Truth is the same call on one device. The number of devices is XLA's flag when it starts, so each has a process of its own.

    ./dev peers
"""

import os
import subprocess
import sys


def test_shard_map_calls_it_for_each_part():
    code = """
import jax, numpy as np, heed.jax
from jax.sharding import Mesh, PartitionSpec
q, k, v = np.random.default_rng(0).standard_normal((3, 4, 2, 30, 8)).astype(np.float32)
one = lambda q, k, v: heed.jax.attention(q, k, v, causal=True)
part = PartitionSpec("batch")
run = jax.shard_map(one, mesh=Mesh(np.array(jax.devices()), ("batch",)), in_specs=part, out_specs=part)
assert len(jax.devices()) == 4
assert np.array_equal(jax.jit(run)(q, k, v), heed.attention(q, k, v, causal=True))

# Gradients too, also of what is the same on all devices: they are summed over the devices.
bias, scale = np.random.default_rng(1).standard_normal((2, 1, 30)), np.ones(2)
one = lambda q, k, v, bias, scale: heed.jax.attention(q, k, v, bias=bias, scale=scale, return_lse=True)
loss = lambda made: (made.output**2).sum() + made.lse.sum()
for check in (True, False):
    shared = jax.shard_map(one, mesh=Mesh(np.array(jax.devices()), ("batch",)), check_vma=check,
                           in_specs=(part, part, part, PartitionSpec(), PartitionSpec()), out_specs=part)
    seen, truth = (jax.grad(lambda *all: loss(f(*all)), (0, 1, 2, 3, 4))(*map(np.float32, (q, k, v, bias, scale)))
                   for f in (shared, one))
    for a, b in zip(seen, truth):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_arrays_sharded_over_explicit_axes_have_their_gradients():
    """Sharding is part of their types, those of jax.make_mesh, and what has a gradient of lse gets one more column."""
    code = """
import jax, numpy as np, heed.jax
from jax.sharding import AxisType
given = dict(zip("qkv", np.random.default_rng(0).standard_normal((3, 4, 2, 30, 8)).astype(np.float32)))
given |= {"bias": np.random.default_rng(1).standard_normal((4, 1, 1, 30)).astype(np.float32), "sinks": np.ones(2, np.float32)}
both = jax.grad(lambda all: (lambda made: (made.output**2).sum() + made.lse.sum())(heed.jax.attention(**all, return_lse=True)))
whole = both(given)
with jax.set_mesh(jax.make_mesh((2, 2), ("batch", "head"), axis_types=(AxisType.Explicit,) * 2)):
    place = lambda name, x: jax.device_put(x, jax.P("head") if name == "sinks" else jax.P("batch") if name == "bias" else
                                           jax.P("batch", "head"))
    parts = {name: place(name, x) for name, x in given.items()}
    for run in (both, jax.jit(both)):
        seen = run(parts)
        for name, x in whole.items():
            assert jax.typeof(seen[name]) == jax.typeof(parts[name]), name
            np.testing.assert_allclose(seen[name], x, rtol=1e-4, atol=1e-5)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
