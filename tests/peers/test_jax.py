"""heed.jax: the bits of heed.attention inside jit, vmap and grad.

Truth is heed.attention and heed.attention_backward on NumPy's arrays, which have tests of their own; where JAX's
transformations add something (sums over vmap's axes, the gradient of lse), it is JAX's autodiff of the formula, in float64.

    ./dev peers
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import heed
import heed.jax

ROOT = pathlib.Path(__file__).resolve().parents[2]
B, H, KV, T, S, D, DV = 2, 4, 2, 9, 11, 16, 8


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


Q, K, V = normal(B, H, T, D), normal(B, KV, S, D, seed=1), normal(B, KV, S, DV, seed=2)
SEEN = np.random.default_rng(3).random((B, 1, T, S)) < 0.7
OPTIONS = {
    "plain": {}, "scale": {"scale": 0.3}, "scales": {"scale": normal(H)}, "cosine": {"normalize_qk": True},
    "softcap": {"softcap": 2.0}, "alibi": {"alibi": np.abs(normal(H))}, "bias": {"bias": normal(B, H, T, S)},
    "shared bias": {"bias": normal(H, 1, S)}, "16-bit bias": {"bias": normal(T, S, dtype=np.float16)},
    "keep": {"mask": SEEN}, "row of keys": {"mask": SEEN[0, 0, 0]}, "drop": {"mask": heed.drop(SEEN)},
    "integers": {"mask": heed.keep(SEEN.astype(np.int32))}, "adds": {"mask": normal(T, S)},
    "causal": {"causal": True}, "start": {"causal": True, "query_start": 2},
    "starts": {"causal": True, "query_start": np.array([0, 4], np.int32)}, "window": {"window": (2, None)},
    "no key before": {"window": (0, 3)}, "no key after": {"window": (None, 0)},
    "both sides": {"window": (3, 1), "causal": False}, "lengths": {"key_lengths": np.array([11, 5], np.int32)},
    "one length": {"key_lengths": 4, "query_lengths": 6}, "query lengths": {"query_lengths": np.array([3, 9], np.int32)},
    "sinks": {"sinks": normal(H)}, "dropout": {"dropout_p": 0.25, "seed": 2**40 + 7},
    "all": {"scale": normal(H), "softcap": 3.0, "alibi": np.abs(normal(H)), "bias": normal(B, 1, T, S), "mask": SEEN,
            "causal": True, "query_start": 3, "window": (5, 2), "key_lengths": np.array([10, 6], np.int32),
            "sinks": normal(H), "dropout_p": 0.1, "seed": 5},
}


def same_bits(seen, expected):
    """Of trees with the same leaves; counts may be narrower."""
    seen, expected = jax.tree.leaves(seen), jax.tree.leaves(expected)
    assert len(seen) == len(expected)
    for a, b in zip(seen, expected):
        assert a.shape == b.shape and (a.dtype == b.dtype or b.dtype == np.int64)
        assert np.array_equal(np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64), equal_nan=True)


@pytest.mark.parametrize("name", OPTIONS)
def test_bits_are_those_of_heed_attention(name):
    more = {"return_lse": True, "return_weights": True, "statistics": True}
    expected = heed.attention(Q, K, V, **OPTIONS[name], **more)
    same_bits(heed.jax.attention(Q, K, V, **OPTIONS[name], **more), expected)
    same_bits(jax.jit(lambda q, k, v: heed.jax.attention(q, k, v, **OPTIONS[name], **more))(Q, K, V), expected)
    same_bits(heed.jax.attention(Q, K, V, **OPTIONS[name]), expected.output)


def test_arrays_of_a_jitted_function_are_options():
    """Lengths, masks, numbers for each head and the seed need not be known when the function is traced."""
    names = ("scale", "alibi", "bias", "mask", "query_start", "key_lengths", "sinks")
    given = OPTIONS["all"]

    @jax.jit
    def run(seed, *arrays):
        return heed.jax.attention(Q, K, V, **dict(zip(names, arrays)), softcap=3.0, causal=True, window=(5, 2),
                                  dropout_p=0.1, seed=seed)

    arrays = [jnp.asarray(given[name]) for name in names]
    expected = heed.attention(Q, K, V, **given)
    same_bits(run(5, *arrays), expected)
    same_bits(run(jnp.array([5, 0], jnp.uint32), *arrays), expected)
    assert not np.array_equal(run(6, *arrays), expected)


@pytest.mark.parametrize("rank", [2, 3])
def test_fewer_axes_are_those_of_heed_attention(rank):
    q, k, v = (normal(*(3, 7, 5)[3 - rank:], seed=seed) for seed in range(3))
    bias = normal(*(3, 7, 7)[3 - rank:])
    lengths = 4 if rank == 2 else np.array([7, 2, 5], np.int32)
    given = {"bias": bias, "key_lengths": lengths, "scale": 0.5, "alibi": np.ones(1, np.float32), "return_lse": True,
             "return_weights": True, "statistics": ["entropy", "visible_keys"]}
    same_bits(heed.jax.attention(q, k, v, **given), heed.attention(q, k, v, **given))


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_one_number_is_for_all_heads_and_batch_entries_of_any_rank(rank):
    q, k, v = (normal(*(2, 3, 7, 5)[4 - rank:], seed=seed) for seed in range(3))
    for given in {"key_lengths": 4}, {"query_lengths": 3}, {"query_start": 1, "causal": True}:
        same_bits(heed.jax.attention(q, k, v, **given), heed.attention(q, k, v, **given))
    same_bits(heed.jax.attention(q, k, v, scale=jnp.float32(0.5)), heed.attention(q, k, v, scale=0.5))
    gradient = jax.grad(lambda scale: heed.jax.attention(q, k, v, scale=scale).sum())(0.5)
    known = heed.attention(q, k, v, scale=0.5, return_lse=True)
    expected = heed.attention_backward(q, k, v, known.output, known.lse, np.ones_like(q), scale=0.5, gradients=["dscale"]).dscale
    np.testing.assert_allclose(gradient, expected.sum(), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_types(dtype):
    with jax.enable_x64(dtype == "float64"):
        q, k, v = (jnp.asarray(x, dtype) for x in (Q, K, V))
        seen = heed.jax.attention(q, k, v, causal=True, return_lse=True)
        expected = heed.attention(q, k, v, causal=True, return_lse=True, reproducible=True)
        same_bits(seen, expected)
        assert seen.output.dtype == dtype and seen.lse.dtype == ("float64" if dtype == "float64" else "float32")
        made = jax.grad(lambda *qkv: heed.jax.attention(*qkv, causal=True).sum(), (0, 1, 2))(q, k, v)
        wide = [np.asarray(x, np.float64 if dtype == "float64" else np.float32) for x in (q, k, v)]
        known = heed.attention(*wide, causal=True, return_lse=True)
        back = heed.attention_backward(*wide, known.output, known.lse, np.ones_like(known.output), causal=True)
        same_bits(made, [jnp.asarray(x, dtype) for x in back[:3]])


DIFFERENTIABLE = ("bias", "scale", "alibi", "sinks")


@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_are_those_of_heed_attention_backward(name):
    given = OPTIONS[name]
    moving = {option: jnp.asarray(given[option]) for option in DIFFERENTIABLE if option in given}
    if name == "adds":
        given, moving = {"bias": given["mask"]}, {"bias": jnp.asarray(given["mask"])}
    d_output = normal(B, H, T, DV, seed=4)

    def loss(qkv, moving):
        return jnp.vdot(heed.jax.attention(*qkv, **given | moving), d_output)

    made = jax.jit(jax.grad(loss, (0, 1)))(tuple(map(jnp.asarray, (Q, K, V))), moving)
    plain = given | {"scale": np.full(H, given["scale"], np.float32)} if name == "scale" else given
    seen = heed.attention(Q, K, V, **plain, return_lse=True)
    names = ["d" + option for option in moving]
    expected = heed.attention_backward(Q, K, V, seen.output, seen.lse, d_output, gradients=["dq", "dk", "dv", *names],
                                       **plain)
    same_bits(made[0], expected[:3])
    for option, gradient in made[1].items():
        wanted = getattr(expected, "d" + option)
        if name == "scale":  # one number for all heads: JAX adds up theirs
            assert abs(gradient - wanted.astype(np.float64).sum()) <= 4 * 2.0**-24 * np.abs(wanted).sum()
        else:
            assert gradient.dtype == moving[option].dtype
            same_bits(gradient, wanted.astype(moving[option].dtype))


def formula(q, k, v, bias, alibi, sinks, scale, softcap):
    """output and lse as JAX would write them, grouped heads, causal."""
    group = q.shape[-3] // k.shape[-3]
    s = jnp.einsum("...td,...sd->...ts", q, jnp.repeat(k, group, -3)) * scale[:, None, None]
    s = softcap * jnp.tanh(s / softcap)
    distance = jnp.abs(jnp.arange(s.shape[-2])[:, None] - jnp.arange(s.shape[-1]))
    s = s - alibi[:, None, None] * distance + bias
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
    extra = jnp.broadcast_to(sinks[:, None, None], (*s.shape[:-1], 1))
    lse = jax.nn.logsumexp(jnp.concatenate([s, extra], -1), -1)
    return jnp.exp(s - lse[..., None]) @ jnp.repeat(v, group, -3), lse


def by_heed(q, k, v, bias, alibi, sinks, scale, softcap):
    return heed.jax.attention(q, k, v, bias=bias, alibi=alibi, sinks=sinks, scale=scale, softcap=softcap, causal=True,
                              return_lse=True)[0::2]


def arguments(*lead):
    """Of formula, float64, with axes in front."""
    shapes = (B, H, T, D), (B, KV, S, D), (B, KV, S, DV), (1, H, 1, S), (H,), (H,), (H,)
    return [jnp.asarray(normal(*lead, *shape, seed=seed, dtype=np.float64)) for seed, shape in enumerate(shapes)]


def close(seen, expected):
    """float64: within 1e-12 of the largest element, for the rounding of some hundred terms."""
    for a, b in zip(jax.tree.leaves(seen), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape and np.abs(a - b).max() <= 1e-12 * max(1, np.abs(b).max())


@pytest.mark.parametrize("share", [(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)], ids=["output", "lse", "both"])
def test_gradients_of_output_and_lse_are_those_of_the_formula(share):
    with jax.enable_x64(True):
        weight, weight_lse = normal(B, H, T, DV, dtype=np.float64), normal(B, H, T, dtype=np.float64)

        def loss(attention, *given):
            output, lse = attention(*given, 2.0)
            # A loss without one of them hands a symbolic zero to the gradient, which has a path of its own.
            return sum(part * jnp.vdot(x, w) for part, x, w in zip(share, (output, lse), (weight, weight_lse)) if part)

        made = [jax.jit(jax.grad(lambda *given, f=f: loss(f, *given), range(7)))(*arguments()) for f in (by_heed, formula)]
        close(*made)


def differentiable(name):
    """A function of arrays, output and lse its results, and the arrays, in float64."""
    heads = H if name == "equal heads" else KV
    arrays = [normal(B, H, T, D, dtype=np.float64), normal(B, heads, S, D, seed=1, dtype=np.float64),
              normal(B, heads, S, DV, seed=2, dtype=np.float64)]
    if name == "bias":
        arrays.append(normal(H, 1, S, seed=3, dtype=np.float64))

    def run(q, k, v, *bias):
        seen = heed.jax.attention(q, k, v, bias=bias[0] if bias else None, causal=name == "causal", return_lse=True)
        return seen.output, seen.lse

    return run, tuple(map(jnp.asarray, arrays))


# JAX compares a directional derivative with central differences, eps apart, whose own errors are some eps^2 = 1e-10 of the
# third derivatives and 2^-53 / eps = 1e-11 of the results, each summed over some hundred numbers.
CHECKED = {"order": 1, "modes": ["rev"], "eps": 1e-5, "atol": 1e-7, "rtol": 1e-7}


@pytest.mark.parametrize("name", ["grouped", "equal heads", "causal", "bias"])
def test_gradients_are_what_differences_say(name):
    """Reverse mode of first order, which is what there is: test_other_derivatives_are_refused."""
    with jax.enable_x64(True):
        check_grads(*differentiable(name), **CHECKED)
        check_grads(jax.jit(differentiable(name)[0]), differentiable(name)[1], **CHECKED)


def test_differences_tell_wrong_gradients():
    """Those of attention without the mask, and those that are too large by 1e-5."""
    with jax.enable_x64(True):
        run, arrays = differentiable("causal")
        for other, factor in ((differentiable("grouped")[0], 1), (run, 1 + 1e-5)):
            wrong = jax.custom_vjp(run)
            wrong.defvjp(lambda *arrays: (run(*arrays), arrays),
                         lambda arrays, d, other=other, factor=factor: tuple(
                             factor * g for g in jax.vjp(other, *arrays)[1](d)))
            with pytest.raises(AssertionError):
                check_grads(wrong, arrays, **CHECKED)


AXES = [[0] * 7, [0, None, None, None, None, None, None], [None, 0, 0, None, None, 0, None],
        [2, 1, 0, 3, 1, None, 0], [None, None, None, 0, 0, 0, 0]]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_vmap_is_a_loop(axes):
    """Outputs bit by bit; gradients of the sum, which adds up those of what is shared."""
    with jax.enable_x64(True):
        given = [x if axis is None else jnp.moveaxis(y, 0, axis) for x, y, axis in zip(arguments(), arguments(3), axes)]
        entries = [[x if axis is None else jnp.take(x, i, axis) for x, axis in zip(given, axes)] for i in range(3)]

        def one(*given):
            return by_heed(*given, 2.0)

        output, lse = jax.jit(jax.vmap(one, axes))(*given)
        for i, entry in enumerate(entries):
            same_bits((output[i], lse[i]), one(*entry))

        def loss(attention):
            def run(*given):
                output, lse = jax.vmap(lambda *given: attention(*given, 2.0), axes)(*given)
                return (output**2).sum() + (lse * jnp.arange(3.0)[:, None, None, None]).sum()
            return jax.jit(jax.grad(run, range(7)))(*given)

        close(loss(by_heed), loss(formula))


def test_vmaps_nest_and_take_gradients_for_each_entry():
    with jax.enable_x64(True):
        q, k, v, *rest = arguments()
        qs = jnp.asarray(normal(2, 3, B, H, T, D, dtype=np.float64))
        ks = jnp.asarray(normal(3, B, KV, S, D, dtype=np.float64))

        def gradients(attention):
            one = jax.grad(lambda q, k, bias: (attention(q, k, v, bias, *rest[1:], 2.0)[0]**2).sum(), (0, 1, 2))
            return jax.jit(jax.vmap(jax.vmap(one, (0, 0, None)), (0, None, None)))(qs, ks, rest[0])

        close(gradients(by_heed), gradients(formula))


def test_vmap_of_masks_lengths_and_seeds():
    masks = np.random.default_rng(1).random((3, B, 1, T, S)) < 0.6
    lengths = np.array([[3, 4], [11, 2], [0, 7]], np.int32)
    seeds = np.arange(3, dtype=np.int32)
    seen = jax.vmap(lambda mask, length, seed: heed.jax.attention(
        Q, K, V, mask=mask, key_lengths=length, dropout_p=0.5, seed=seed))(masks, lengths, seeds)
    for i in range(3):
        same_bits(seen[i], heed.attention(Q, K, V, mask=masks[i], key_lengths=lengths[i], dropout_p=0.5, seed=i))


def test_scan_and_checkpoint():
    def layer(x, _):
        return x + heed.jax.attention(x, x, x, causal=True), None

    def loss(x, layer):
        return (jax.lax.scan(layer, x, None, 3)[0]**2).sum()

    made = [jax.jit(jax.value_and_grad(lambda x, f=f: loss(x, f)))(jnp.asarray(Q)) for f in (layer, jax.checkpoint(layer))]
    same_bits(made[0], made[1])
    x = Q
    for _ in range(3):
        x = x + heed.attention(x, x, x, causal=True)
    np.testing.assert_allclose(made[0][0], (x.astype(np.float64)**2).sum(), rtol=1e-5)


def test_calls_of_many_threads_at_once():
    """XLA runs its calls on threads of its own; each shares heed's pool with the others."""
    q, k, v = (normal(2, 4, 300, 32, seed=seed) for seed in range(3))
    run = jax.jit(lambda q, k, v: (heed.jax.attention(q, k, v, causal=True), heed.jax.attention(k, q, v)))
    expected = heed.attention(q, k, v, causal=True), heed.attention(k, q, v)
    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        for made in threads.map(lambda _: run(q, k, v), range(24)):
            same_bits(made, expected)


ASKED = ("q", "k", "v", "bias", "scale", "alibi", "sinks")


def given_and_truth(name):
    """An array of that gradient, and the gradient where all are asked for."""
    arrays = dict(zip(ASKED, (Q, K, V, normal(B, H, T, S, seed=4), normal(H), np.abs(normal(H)), normal(H, seed=5))))
    arrays = {name: jnp.asarray(x) for name, x in arrays.items()}
    return arrays, jax.grad(lambda all: attended(all).sum())(arrays)[name]


def attended(arrays):
    return heed.jax.attention(arrays["q"], arrays["k"], arrays["v"], **{name: arrays[name] for name in ASKED[3:]})


@pytest.mark.parametrize("transformed", [lambda f: f, jax.jit, jax.checkpoint, lambda f: jax.jit(jax.checkpoint(f))],
                         ids=["plain", "jit", "checkpoint", "jit of checkpoint"])
@pytest.mark.parametrize("whole", [jax.grad, lambda f, n: jax.grad(jax.jit(f), n), lambda f, n: jax.jit(jax.grad(f, n))],
                         ids=["grad", "grad of jit", "jit of grad"])
@pytest.mark.parametrize("first,then", [("q", "k"), ("v", "q"), ("bias", "q"), ("k", "sinks"), ("scale", "alibi")])
def test_each_call_has_the_gradients_that_it_is_asked_for(first, then, whole, transformed):
    """JAX traces calls of one shape once, and what is asked of one call is none of the others' business."""
    call = transformed(attended)
    arrays, of_first = given_and_truth(first)
    _, of_then = given_and_truth(then)

    def loss(a, b):
        return (call(arrays | {first: a}) + call(arrays | {then: b})).sum()

    jax.clear_caches()
    same_bits(whole(loss, (0, 1))(arrays[first], arrays[then]), (of_first, of_then))
    for name, truth in ((first, of_first), (then, of_then), (first, of_first)):
        same_bits(whole(lambda x, name=name: call(arrays | {name: x}).sum(), 0)(arrays[name]), truth)


def test_a_layer_with_a_frozen_memory_learns():
    """Self-attention, all of which is trained, and then attention to what is not."""
    def layer(attention, w):
        x = X + attention(X @ w["q"], X @ w["k"], X @ w["v"])
        return ((x + attention(x @ w["cross"], MEMORY, MEMORY))**2).sum()

    def plain(q, k, v):
        return jax.nn.softmax(q @ k.swapaxes(-1, -2) / D**0.5) @ v

    X, MEMORY = (jnp.asarray(normal(B, H, T, D, seed=seed)) for seed in (6, 7))
    w = {name: jnp.asarray(normal(D, D, seed=seed) / 4) for seed, name in enumerate(("q", "k", "v", "cross"))}
    seen, truth = (jax.grad(lambda w, f=f: layer(f, w))(w) for f in (heed.jax.attention, plain))
    for name in w:
        np.testing.assert_allclose(seen[name], truth[name], rtol=1e-3, atol=1e-4 * np.abs(truth[name]).max())


def test_no_gradient_is_made_that_nobody_asked_for():
    """A constant bias of a million places would cost dbias of as many."""
    bias = jnp.asarray(OPTIONS["bias"]["bias"])

    def loss(q, bias):
        return heed.jax.attention(q, K, V, bias=bias).sum()

    def backward_shapes(function):
        text = str(jax.make_jaxpr(function)(jnp.asarray(Q), bias))
        # The results of the call stand to the left of it.
        line = next(part for part in text.split("\n") if "= ffi_call" in part and "f32[2,4,9,16]" in part.split("=")[0]
                    and "f32[2,4,9,8]" not in part.split("=")[0])
        return re.findall(r"f32\[[\d,]+\]", line.split("= ffi_call")[0])

    assert backward_shapes(jax.grad(loss)) == ["f32[2,4,9,16]"]
    assert backward_shapes(jax.grad(loss, (0, 1))) == ["f32[2,4,9,16]", "f32[2,4,9,11]"]


@pytest.mark.parametrize("transform", [
    lambda f, q: jax.grad(lambda q: jax.grad(f)(q).sum())(q),
    lambda f, q: jax.jvp(f, (q,), (q,)),
], ids=["second", "jvp"])
def test_other_derivatives_are_refused(transform):
    with pytest.raises((TypeError, ValueError), match="differentiat|forward-mode"):
        transform(lambda q: heed.jax.attention(q, K, V).sum(), jnp.asarray(Q))


def test_a_window_may_be_a_list_or_numpys_integer():
    q, k, v = (x.swapaxes(1, 2) for x in (Q, K, V))
    expected = heed.jax.dot_product_attention(q, k, v, local_window_size=(2, 2))
    for window in ([2, 2], 2, np.int64(2), (np.int32(2), np.int32(2)), np.array([2, 2])):
        same_bits(heed.jax.dot_product_attention(q, k, v, local_window_size=window), expected)


def test_bfloat16_is_reproducible_asked_for_or_not():
    q, k, v = (jnp.asarray(normal(1, 2, 300, 64, seed=i), jnp.bfloat16) for i in range(3))
    expected = heed.attention(q, k, v, causal=True, reproducible=True)
    for reproducible in (False, True, np.True_):
        same_bits(heed.jax.attention(q, k, v, causal=True, reproducible=reproducible), expected)


@pytest.mark.parametrize("seed", [np.array(2**40 + 7), np.int64(2**40 + 7), np.array([7, 2**8], np.uint32)])
def test_a_seed_of_numpy_keeps_its_high_half(seed):
    same_bits(heed.jax.attention(Q, K, V, dropout_p=0.5, seed=seed), heed.attention(Q, K, V, dropout_p=0.5, seed=2**40 + 7))


def test_integers_that_fit_may_be_of_wider_types():
    expected = heed.attention(Q, K, V, key_lengths=[3, 5], mask=heed.drop(np.eye(T, S, dtype=np.int64)))
    mask = heed.drop(np.eye(T, S, dtype=np.uint64))
    for lengths in (np.array([3, 5]), [np.int64(3), 5], [jnp.int32(3), 5]):
        same_bits(heed.jax.attention(Q, K, V, key_lengths=lengths, mask=mask), expected)
    same_bits(jax.jit(lambda n: heed.jax.attention(Q, K, V, key_lengths=[n, 5], mask=mask))(3), expected)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64])
def test_integers_of_numpy_have_any_type_in_lists_and_alone(kind):
    two, three = kind(2), kind(3)
    for options in ({"key_lengths": [three, 5]}, {"query_lengths": (two, three)},
                    {"key_lengths": three}, {"query_start": two, "causal": True},
                    {"query_start": [two, three], "causal": True}):
        same_bits(heed.jax.attention(Q, K, V, **options), heed.attention(Q, K, V, **options))
    packing = [kind(0), three, kind(7)], [kind(0), two, kind(7)]
    one = [x[:1] for x in (Q, K, V)]
    same_bits(heed.jax.attention(*one, packing=packing), heed.attention(*one, packing=packing))
    batch = [x.swapaxes(1, 2) for x in (Q, K, V)]
    seen = heed.jax.dot_product_attention(*batch, key_value_seq_lengths=[three, 5])
    same_bits(seen.swapaxes(1, 2), heed.attention(Q, K, V, key_lengths=[3, 5]))


def test_without_the_headers_import_says_what_to_do():
    """As in a wheel that was built without jaxlib."""
    code = ("import heed._core\nif hasattr(heed._core, '_jax_targets'): del heed._core._jax_targets\n"
            "import heed\nheed.attention\nimport heed.jax")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and "ImportError: heed was built without jaxlib's headers" in done.stderr
    assert "HEED_JAX=1" in done.stderr


def test_examples_of_the_page_run():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/jax.md").read_text(), re.S):
        exec(compile(block, "docs/jax.md", "exec"), names)
    assert names["gradients"]["bias"].shape == (8, 1, 100)


def test_subnormal_numbers_are_numbers_in_threads_of_xla_which_flushes_them():
    """Forward, and backward from a gradient of such."""
    tiny, gradient = V * np.float32(1e-39), normal(B, H, T, DV, seed=4) * np.float32(1e-39)

    def call(q, k, v, g):
        seen, pull = jax.vjp(lambda v: heed.jax.attention(q, k, v, causal=True), v)
        return seen, pull(g)[0], v * np.float32(0.5)

    seen, dv, product = jax.jit(call)(Q, K, tiny, gradient)
    assert not product.any()   # by XLA's own product, else this says nothing
    expected = heed.attention(Q, K, tiny, causal=True, return_lse=True)
    same_bits(seen, expected.output)
    same_bits(dv, heed.attention_backward(Q, K, tiny, expected.output, expected.lse, gradient, causal=True).dv)
    for x in (expected.output, np.asarray(dv)):
        assert (np.abs(x)[x != 0] < np.finfo(np.float32).tiny).all() and x.any()
