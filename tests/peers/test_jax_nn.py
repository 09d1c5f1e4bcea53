"""heed.jax.dot_product_attention beside jax.nn's, option by option: outputs, residuals and gradients.

Of float64 jax.nn computes scores and softmax in float32, so that is how closely the two can agree: 1e-5 of the largest
element, where another mask or scale changes a tenth of it. Closer looks: test_jax.py has the gradients of the formula in
float64, and here outputs in float32 keep the bound T1. Rows that may look nowhere are left out: jax.nn gives them the mean
of the values, heed 0.

    ./dev peers
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heed
import heed.jax
from bounds import exact, share

B, T, S = 2, 24, 31
HEADS = {"equal": (4, 4), "grouped": (4, 2), "one": (4, 1)}
KINDS = {"none": {}, "scale": {"scale": 0.3}, "causal": {"is_causal": True}, "window": {"local_window_size": 5},
         "sides": {"local_window_size": (7, 2)}, "causal window": {"is_causal": True, "local_window_size": (4, 9)},
         "lengths": {"key_value_seq_lengths": np.array([31, 12], np.int32)},
         "both lengths": {"key_value_seq_lengths": np.array([20, 31], np.int32),
                          "query_seq_lengths": np.array([24, 10], np.int32)}}
MASKS = {"open": (), "bias": ("bias",), "mask": ("mask",), "both": ("bias", "mask"), "row": ("row",)}


def drawn(heads, kv_heads, dtype, size=16, rows=T, keys=S):
    random = np.random.default_rng(heads * 10 + kv_heads)
    shapes = (B, rows, heads, size), (B, keys, kv_heads, size), (B, keys, kv_heads, size)
    return [jnp.asarray(random.standard_normal(shape), dtype) for shape in shapes]


def more(names, heads, dtype):
    random = np.random.default_rng(len(names))
    made = {"bias": jnp.asarray(random.standard_normal((1, heads, T, S)), dtype),
            "mask": jnp.asarray(random.random((B, 1, T, S)) < 0.8), "row": jnp.asarray(random.random((1, 1, 1, S)) < 0.8)}
    return {"mask" if name == "row" else name: made[name] for name in names}


def rows_that_look(given, heads):
    """[B, T, N]: which rows see a key."""
    i, j = np.arange(T)[:, None], np.arange(S)
    seen = np.broadcast_to(np.asarray(given.get("mask", True)), (B, heads, T, S)).copy()
    if given.get("is_causal"):
        seen &= j <= i
    if window := given.get("local_window_size"):
        left, right = (window, window) if isinstance(window, int) else window
        seen &= (j >= i - left) & (j <= i + right)
    for name, at in (("query_seq_lengths", i), ("key_value_seq_lengths", j)):
        if name in given:
            seen &= at < np.asarray(given[name])[:, None, None, None]
    return seen.any(-1).swapaxes(1, 2)


# Each kind with each mask; heads take turns, since each case costs JAX a compilation or two.
CASES = [(kind, mask, list(HEADS)[(i + j) % 3]) for i, kind in enumerate(KINDS) for j, mask in enumerate(MASKS)]


@pytest.mark.parametrize("kind,mask,heads", CASES)
def test_same_as_jax_nn(kind, mask, heads):
    count, kv_count = HEADS[heads]
    with jax.enable_x64(True):
        qkv = drawn(count, kv_count, jnp.float64)
        given = KINDS[kind] | more(MASKS[mask], count, jnp.float64)
        seen = rows_that_look(given, count)
        bias = given.pop("bias", None)
        weight = jnp.asarray(np.random.default_rng(9).standard_normal(qkv[0].shape)) * seen[..., None]

        def run(attention, *arrays):
            output, lse = attention(*arrays, return_residual=True, **given)
            return jnp.vdot(output, weight), (output, lse)

        arrays = [*qkv, *([] if bias is None else [bias])]
        made = [jax.value_and_grad(lambda *arrays, f=f: run(f, *arrays), range(len(arrays)), has_aux=True)(*arrays)
                for f in (heed.jax.dot_product_attention, jax.nn.dot_product_attention)]
        ((_, (output, lse)), gradients), ((_, (wanted, wanted_lse)), wanted_gradients) = made
        assert seen.any() and np.all(np.asarray(output)[~seen] == 0)
        pairs = [(output[seen], wanted[seen]), (lse[seen], wanted_lse[seen]), *zip(gradients, wanted_gradients)]
        for a, b in pairs:
            assert a.shape == b.shape and np.abs(a - b).max() <= 1e-5 * max(1, np.abs(b).max())


def test_one_batch_entry_and_reduced_types():
    q, k, v = (x[0] for x in drawn(4, 2, jnp.bfloat16))
    seen = heed.jax.dot_product_attention(q, k, v, is_causal=True)
    assert seen.shape == (T, 4, 16) and seen.dtype == jnp.bfloat16
    wide = heed.attention(*(np.asarray(x, np.float32).swapaxes(0, 1)[None] for x in (q, k, v)), causal=True)
    assert np.array_equal(seen, jnp.asarray(wide[0].swapaxes(0, 1), jnp.bfloat16))
    _, lse = heed.jax.dot_product_attention(q, k, v, return_residual=True)
    assert lse.shape == (T, 4)
    full = heed.attention(*(np.asarray(x, np.float32).swapaxes(0, 1)[None] for x in (q, k, v)), return_lse=True)
    assert lse.dtype == jnp.float32 and np.array_equal(lse, full.lse[0].swapaxes(0, 1))
    gradient = jax.grad(lambda q: heed.jax.dot_product_attention(q, k, v, return_residual=True)[1].sum())(q)
    assert gradient.dtype == jnp.bfloat16 and gradient.any()
    for window, side in (((-1, 2), "left is -1"), (-3, "left is -3"), ((2, -1), "right is -1")):
        with pytest.raises(ValueError, match=rf"^dot_product_attention: local_window_size\.{side}; expected 0 or more"):
            heed.jax.dot_product_attention(q, k, v, local_window_size=window)


def test_value_heads_may_have_a_size_of_their_own():
    q, k, v = drawn(4, 2, jnp.float32)
    seen = heed.jax.dot_product_attention(q, k, v[..., :5])
    assert np.array_equal(seen, heed.jax.dot_product_attention(q, k, v)[..., :5])


def test_bits_do_not_depend_on_the_layout():
    q, k, v = drawn(4, 2, jnp.float32)
    seen = heed.jax.dot_product_attention(q, k, v, is_causal=True)
    same = heed.jax.attention(*(x.swapaxes(1, 2) for x in (q, k, v)), causal=True)
    assert np.array_equal(seen, same.swapaxes(1, 2))


def test_float32_keeps_the_bound(capsys):
    """T1, and how jax.nn does."""
    shares = []
    for size, (rows, keys), causal in itertools.product((8, 64), ((1, 520), (33, 129), (256, 256)), (False, True)):
        q, k, v = drawn(4, 2, jnp.float32, size, rows, keys)
        truth = exact(*(np.asarray(x).swapaxes(1, 2) for x in (q, k, v)),
                      allowed=np.tri(rows, keys, dtype=bool) if causal else True)
        shares.append([share(f(q, k, v, is_causal=causal).swapaxes(1, 2), truth["output"])
                       for f in (heed.jax.dot_product_attention, jax.nn.dot_product_attention)])
    ours, theirs = np.array(shares).T
    with capsys.disabled():
        print(f"\nT1, largest error as a share of the bound: heed.jax {ours.max():.2f}, jax.nn {theirs.max():.2f}; "
              f"{len(shares)} cases")
    assert ours.max() <= 1
