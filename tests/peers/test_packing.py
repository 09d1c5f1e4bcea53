"""Sequences end to end in PyTorch and JAX: outputs and gradients are those of the frameworks' own attention on each.

    ./dev peers
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import heed
import heed.jax
import heed.torch

# Of four sequences the second has no rows, the third no keys; a row and a key in front and at the end belong to none.
ROWS, KEYS = [1, 4, 4, 9, 17], [1, 4, 9, 9, 17]
FULL = [0, 3]                      # those with rows and keys
OF_NONE = [0, 4, 5, 6, 7, 8, 17]   # rows of no sequence, and of the one without keys
Q, K, V, D_OUTPUT = (np.random.default_rng(seed).standard_normal((1, heads, 18, size))
                     for seed, (heads, size) in enumerate(((4, 8), (2, 8), (2, 6), (4, 6))))


def spans(offsets):
    return [slice(offsets[s], offsets[s + 1]) for s in FULL]


def pieces(x, offsets):
    return [x[:, :, span] for span in spans(offsets)]


def by_torch():
    """Output and gradients of q, k and v: one call of PyTorch's function for each sequence, float64."""
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (Q, K, V))
    output = torch.zeros(1, 4, 18, 6, dtype=torch.float64)
    for rows, *qkv in zip(spans(ROWS), pieces(q, ROWS), pieces(k, KEYS), pieces(v, KEYS)):
        output[:, :, rows] = torch.nn.functional.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True)
    return output.detach().numpy(), [x.numpy() for x in torch.autograd.grad(output, (q, k, v), torch.tensor(D_OUTPUT))]


OUTPUT, GRADIENTS = by_torch()


def close(seen, expected):
    """float64, sums of some ten numbers of the size of 1."""
    assert seen.shape == expected.shape and np.abs(np.asarray(seen) - expected).max() < 1e-13


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda x: torch.tensor(x, dtype=torch.int32)])
@pytest.mark.parametrize("way", ["plain", "recorded", "compiled", "grad"])
def test_torch_has_output_and_gradients_of_each_sequence(kind, way):
    packing = kind(ROWS), kind(KEYS)
    given = [torch.tensor(x, requires_grad=way in ("recorded", "compiled")) for x in (Q, K, V)]

    def call(q, k, v):
        return heed.torch.attention(q, k, v, causal=True, packing=packing)

    for _ in range(3):  # memory that was used before is not shown
        torch.full((64, 64), 7.0)
        if way == "grad":
            made = torch.func.grad(lambda *qkv: (call(*qkv) * torch.tensor(D_OUTPUT)).sum(), (0, 1, 2))(*given)
        else:
            run = torch.compile(call, fullgraph=True, backend="aot_eager") if way == "compiled" else call
            output = run(*given)
            close(output.detach(), OUTPUT)
            assert not output[:, :, OF_NONE].any()
            made = torch.autograd.grad(output, given, torch.tensor(D_OUTPUT)) if way != "plain" else []
        for seen, expected in zip(made, GRADIENTS):
            close(seen, expected)
            assert not seen[:, :, [0, 17]].any()


def test_torch_has_statistics_and_gradients_of_lse():
    given = [torch.tensor(x, requires_grad=True) for x in (Q, K, V)]
    seen = heed.torch.attention(*given, causal=True, packing=(ROWS, KEYS), return_lse=True, statistics=True)
    expected = heed.attention(Q, K, V, causal=True, packing=(ROWS, KEYS), return_lse=True, statistics=True)
    assert np.array_equal(seen.lse.detach(), expected.lse)
    assert all(np.array_equal(a, b) for a, b in zip(seen.statistics, expected.statistics))
    weight = torch.tensor(D_OUTPUT)[..., 0]
    sum((seen.lse[:, :, rows] * weight[:, :, rows]).sum() for rows in spans(ROWS)).backward()
    plain = [torch.tensor(x, requires_grad=True) for x in (Q, K)]
    for q, k, w in zip(pieces(plain[0], ROWS), pieces(plain[1], KEYS), pieces(weight, ROWS)):
        scores = q @ k.repeat_interleave(2, 1).mT / 8**0.5
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        (scores.masked_fill(hidden, -torch.inf).logsumexp(-1) * w).sum().backward()
    for a, b in zip(given, plain):
        close(a.grad, b.grad.numpy())


def test_torch_operators_take_offsets():
    given = [torch.tensor(x, requires_grad=True) for x in (Q, K, V)]
    tensors = (*given, *[None] * 9, torch.tensor(ROWS), torch.tensor(KEYS))
    torch.library.opcheck(torch.ops.heed.attention_forward, tensors, {"causal": True})
    stacked = torch.vmap(lambda q, rows: heed.torch.attention(q, *given[1:], packing=(rows, KEYS)), (0, 0))(
        torch.stack([given[0], 2 * given[0]]), torch.tensor([ROWS, [0, 1, 2, 3, 4]]))
    for seen, q, rows in zip(stacked, (Q, 2 * Q), (ROWS, [0, 1, 2, 3, 4])):
        assert np.array_equal(seen.detach(), heed.attention(q, K, V, packing=(rows, KEYS)))


def loss(q, k, v, **options):
    return jnp.vdot(heed.jax.attention(q, k, v, causal=True, **options), D_OUTPUT)


@pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_jax_has_output_and_gradients_of_each_sequence(way):
    with jax.enable_x64(True):
        given = [jnp.asarray(x) for x in (Q, K, V)]
        offsets = jnp.asarray(ROWS), jnp.asarray(KEYS, jnp.int32)   # arrays of the jitted function
        for _ in range(3):
            np.full((64, 64), 7.0)
            output = way(lambda *qkv, p: heed.jax.attention(*qkv, causal=True, packing=p))(*given, p=offsets)
            close(output, OUTPUT)
            assert not output[:, :, np.array(OF_NONE)].any()
            made = way(jax.grad(lambda *qkv, p: loss(*qkv, packing=p), (0, 1, 2)))(*given, p=offsets)
            for seen, expected in zip(made, GRADIENTS):
                close(seen, expected)
                assert not seen[:, :, np.array([0, 17])].any()


def test_jax_has_statistics_and_options_of_each_sequence():
    q, k, v = (x.astype(np.float32) for x in (Q, K, V))
    options = {"packing": (ROWS, KEYS), "query_start": 2, "key_lengths": np.array([3, 2, 0, 4], np.int32), "causal": True,
               "alibi": np.array([0.5, 0.25, 0.1, 0.2], np.float32), "return_lse": True, "statistics": True}
    seen, expected = (one(q, k, v, **options) for one in (heed.jax.attention, heed.attention))
    for a, b in zip((seen.output, seen.lse, *seen.statistics), (expected.output, expected.lse, *expected.statistics)):
        assert np.array_equal(a, b)


def test_jax_maps_over_offsets():
    q, k, v = (x.astype(np.float32) for x in (Q, K, V))
    rows = np.array([ROWS, [0, 1, 2, 3, 4], [2, 2, 2, 2, 18]], np.int32)
    seen = jax.jit(jax.vmap(lambda rows: heed.jax.attention(q, k, v, packing=(rows, KEYS))))(rows)
    gradient = jax.vmap(lambda rows: jax.grad(lambda v: heed.jax.attention(q, k, v, packing=(rows, KEYS)).sum())(v))(rows)
    for i, one in enumerate(rows):
        forward = heed.attention(q, k, v, packing=(one, KEYS), return_lse=True)
        assert np.array_equal(seen[i], forward.output)
        back = heed.attention_backward(q, k, v, forward.output, forward.lse, np.ones_like(forward.output), packing=(one, KEYS))
        assert np.array_equal(gradient[i], back.dv)


WRONG = [({"packing": 5}, TypeError, r"attention: packing is not a pair, but of type int; expected \(query_offsets"),
         ({"packing": (ROWS, KEYS, KEYS)}, ValueError, "attention: packing is not a pair, but has 3 elements"),
         ({"packing": (ROWS, None)}, ValueError, "attention: packing.key_offsets is absent; expected both offsets"),
         ({"packing": (None, KEYS)}, ValueError, "attention: packing.query_offsets is absent; expected both offsets"),
         ({"packing": (ROWS, KEYS[:-1])}, ValueError, r"attention: packing.key_offsets has shape \[4\], packing.query_offsets \[5\]"),
         ({"packing": (np.array([0, 3.5], np.float32), [0, 4])}, TypeError, "attention: .*query_offsets is .*float32; expected"),
         ({"packing": (ROWS, KEYS), "return_weights": True}, ValueError, "attention: return_weights is given together with packing"),
         ({"packing": (ROWS, KEYS), "key_lengths": np.ones(3, np.int32)}, ValueError, "attention: key_lengths")]


@pytest.mark.parametrize("options, error, words", WRONG, ids=[words for *_, words in WRONG])
def test_what_does_not_fit_is_refused(options, error, words):
    given = [x.astype(np.float32) for x in (Q, K, V)]
    with pytest.raises(error, match=words):
        heed.torch.attention(*map(torch.tensor, given), **options)
    with pytest.raises(error, match=words):
        jax.eval_shape(lambda: heed.jax.attention(*given, **options))


def test_offsets_beyond_the_rows_are_refused():
    given = [x.astype(np.float32) for x in (Q, K, V)]
    for rows in ([0, 19], [3, 2], [-1, 2]):
        with pytest.raises(ValueError, match="attention: packing.query_offsets"):
            heed.torch.attention(*map(torch.tensor, given), packing=(rows, [0, 2]))
        with pytest.raises(ValueError, match="attention: packing.query_offsets"):
            heed.jax.attention(*given, packing=(rows, [0, 2]))
        with pytest.raises(jax.errors.JaxRuntimeError, match="attention: packing.query_offsets"):
            jax.jit(lambda *x: heed.jax.attention(*x, packing=(rows, [0, 2])))(*given)
