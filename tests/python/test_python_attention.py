"""heed.attention against the definition in NumPy, option by option; statistics, weights, lse, dropout."""

import numpy as np
import pytest
from support import close, definition, draw, inputs

import heed

B, H, TQ, TK = 2, 4, 5, 7
KEEP = np.random.default_rng(9).random((B, H, TQ, TK)) < 0.7

# For each option: how heed is told, and how the definition is.
OPTIONS = {
    "none": ({}, {}),
    "scale": ({"scale": 0.3}, {"scale": 0.3}),
    "scale of each head": ({"scale": np.array([0.1, 0.2, 0.3, 0.4])}, {"scale": [0.1, 0.2, 0.3, 0.4]}),
    "scale of NumPy": ({"scale": np.float32(0.25)}, {"scale": 0.25}),
    "normalize_qk": ({"normalize_qk": True}, {"normalize_qk": True}),
    "softcap": ({"softcap": 0.5}, {"softcap": 0.5}),
    "alibi": ({"alibi": np.array([0.5, 0.25, 0.1, 0.0], np.float32)}, {"alibi": np.float32([0.5, 0.25, 0.1, 0])}),
    "alibi as a list": ({"alibi": [0.5, 0.25, 0.1, 0.0]}, {"alibi": [0.5, 0.25, 0.1, 0]}),
    "bias": ({"bias": draw(5, B, 1, TQ, TK)}, {"bias": draw(5, B, 1, TQ, TK)}),
    "bias of float16": ({"bias": draw(5, TQ, TK).astype(np.float16)}, {"bias": draw(5, TQ, TK).astype(np.float16)}),
    "mask of booleans keeps": ({"mask": KEEP}, {"keep": KEEP}),
    "mask of floats adds": ({"mask": draw(6, TQ, TK)}, {"bias": draw(6, TQ, TK)}),
    "keep": ({"mask": heed.keep(KEEP.astype(np.int32))}, {"keep": KEEP}),
    "drop": ({"mask": heed.drop(KEEP)}, {"drop": KEEP}),
    "add": ({"mask": heed.add(draw(6, 1, H, 1, TK))}, {"bias": draw(6, 1, H, 1, TK)}),
    "mask and bias": ({"mask": KEEP[0, 0], "bias": draw(7, TK)}, {"keep": KEEP[0, 0], "bias": draw(7, TK)}),
    "causal": ({"causal": True}, {"causal": True}),
    "query_start": ({"causal": True, "query_start": 2}, {"causal": True, "query_start": 2}),
    "query_start of each": ({"causal": True, "query_start": np.array([1, -3])}, {"causal": True, "query_start": [1, -3]}),
    "window": ({"window": (1, 2)}, {"window": (1, 2)}),
    "window, one side": ({"window": (None, 0)}, {"window": (None, 0)}),
    "key_lengths": ({"key_lengths": [3, 0]}, {"key_lengths": [3, 0]}),
    "key_lengths of int32": ({"key_lengths": np.array([3, 7], np.int32)}, {"key_lengths": [3, 7]}),
    "query_lengths": ({"query_lengths": np.int64(2)}, {"query_lengths": 2}),
    "sinks": ({"sinks": [0.1, -1.0, 2.0, 0.0]}, {"sinks": [0.1, -1, 2, 0]}),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_option_does_what_the_definition_says(name, dtype):
    q, k, v = (x.astype(dtype) for x in inputs())
    given, meant = OPTIONS[name]
    tolerance = 2e-6 if dtype == np.float32 else 1e-12
    output, lse, weights = definition(q, k, v, **meant)
    seen = heed.attention(q, k, v, return_weights=True, return_lse=True, **given)
    assert seen.output.dtype == seen.lse.dtype == seen.weights.dtype == dtype
    close(seen.output, output, tolerance)
    close(seen.lse, lse, tolerance)
    close(seen.weights, weights, tolerance)
    assert np.array_equal(heed.attention(q, k, v, **given), seen.output)
    if name != "none":
        assert not np.allclose(seen.output, heed.attention(q, k, v), atol=1e-4)


@pytest.mark.parametrize("rank", [2, 3])
def test_fewer_axes_are_one_head(rank):
    q, k, v = (x[(0,) * (4 - rank)] if rank == 2 else x[:, 0] for x in inputs(kv_heads=4))
    mask = KEEP[0, 0] if rank == 2 else KEEP[:, 0]
    seen = heed.attention(q, k, v, mask=mask, return_lse=True)
    four = [x.reshape((-1, 1) + x.shape[-2:]) for x in (q, k, v)]
    output, lse, _ = definition(*four, keep=mask.reshape(-1, 1, TQ, TK))
    close(seen.output, output.reshape(seen.output.shape))
    close(seen.lse, lse.reshape(seen.lse.shape))


def test_only_what_is_asked_for_is_there():
    q, k, v = inputs()
    assert isinstance(heed.attention(q, k, v), np.ndarray)
    seen = heed.attention(q, k, v, return_lse=True)
    assert (seen.weights, seen.statistics) == (None, None)
    seen = heed.attention(q, k, v, statistics=("entropy", "visible_keys"))
    assert seen.lse is None
    given = {name for name, value in seen.statistics._asdict().items() if value is not None}
    assert given == {"entropy", "visible_keys"}
    with pytest.raises(ValueError, match="statistics names 'entropi'; expected names among max_score"):
        heed.attention(q, k, v, statistics=["entropi"])
    # A side of 2^63 - 1 is without end, as None is, where the next smaller one is not.
    last, beyond, none = (heed.attention(q, k, v, window=(None, side), query_start=-2**63 + 5, statistics=["visible_keys"])
                          .statistics.visible_keys for side in (2**63 - 2, 2**63 - 1, None))
    assert (beyond == none).all() and (none == TK).all() and last.min() == 4


def test_statistics_are_those_of_the_weights():
    q, k, v = (x.astype(np.float64) for x in inputs())
    _, lse, p = definition(q, k, v, causal=True)
    s = np.einsum("bhid,bhjd->bhij", q, np.repeat(k, 2, 1)) / np.sqrt(8)
    seen_by = np.tril(np.ones((TQ, TK), bool))
    seen = heed.attention(q, k, v, causal=True, statistics=True).statistics
    count = np.arange(1, TQ + 1)
    mean = np.where(seen_by, s, 0).sum(-1) / count
    close(seen.max_score, np.where(seen_by, s, -np.inf).max(-1), 1e-12)
    close(seen.max_weight, p.max(-1), 1e-12)
    assert np.array_equal(seen.max_weight_key, p.argmax(-1))
    close(seen.entropy, -(p * np.log(np.where(p > 0, p, 1))).sum(-1), 1e-12)
    assert np.array_equal(seen.visible_keys, np.broadcast_to(count, (B, H, TQ)))
    close(seen.score_mean, mean, 1e-12)
    close(seen.score_variance, np.where(seen_by, (s - mean[..., None]) ** 2, 0).sum(-1) / count, 1e-12)
    close(seen.sum_squared_weights, (p ** 2).sum(-1), 1e-12)
    close(seen.sum_cubed_weights, (p ** 3).sum(-1), 1e-12)
    jacobian = np.einsum("bhij,jk->bhijk", p, np.eye(TK)) - p[..., None] * p[..., None, :]
    close(seen.jacobian_norm, np.sqrt((jacobian ** 2).sum((-1, -2))), 1e-7)
    assert seen.entropy.dtype == np.float64 and seen.max_weight_key.dtype == np.int64


def test_dropout_follows_the_seed_alone():
    q, k, v = inputs(queries=32, keys=64)
    first = heed.attention(q, k, v, dropout_p=0.25, seed=7, return_weights=True)
    again = heed.attention(q, k, v, dropout_p=0.25, seed=np.int64(7), threads=1)
    assert np.array_equal(first.output, again)
    other = heed.attention(q, k, v, dropout_p=0.25, seed=2**64 - 1)
    assert not np.array_equal(first.output, other)
    dropped = first.weights == 0
    assert 0.2 < dropped.mean() < 0.3
    plain = definition(q, k, v)[2]
    close(first.weights, np.where(dropped, 0, plain / 0.75))
    close(first.output, first.weights @ np.repeat(v, 2, 1))


def test_any_number_of_threads_gives_the_same_bits():
    q, k, v = inputs(batch=1, heads=4, queries=300, keys=300, d=64, d_v=64)
    expected = heed.attention(q, k, v, causal=True, threads=1)
    for threads in (2, 3, 8):
        assert np.array_equal(heed.attention(q, k, v, causal=True, threads=threads), expected)


def test_pytorchs_signature():
    q, k, v = inputs(kv_heads=4)
    close(heed.scaled_dot_product_attention(q, k, v, KEEP, 0.0, True, 0.2),
          definition(q, k, v, keep=KEEP, causal=True, scale=0.2)[0])
    q, k, v = inputs()
    close(heed.scaled_dot_product_attention(q, k, v, enable_gqa=True), definition(q, k, v)[0])
    one = heed.scaled_dot_product_attention(q[0], k[0], v[0], enable_gqa=True)   # the first of three axes is that of heads
    close(one, definition(q[:1], k[:1], v[:1])[0][0])
    assert np.array_equal(heed.scaled_dot_product_attention(*(memoryview(x[0]) for x in (q, k, v)), enable_gqa=True), one)
    with pytest.raises(ValueError, match="enable_gqa=True"):
        heed.scaled_dot_product_attention(q, k, v)
    with pytest.raises(ValueError, match="seed"):
        heed.scaled_dot_product_attention(q, k, v, dropout_p=0.1, enable_gqa=True)
