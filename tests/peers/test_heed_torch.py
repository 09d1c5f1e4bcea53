"""heed.torch against PyTorch itself: values and gradients of its math kernel, its own checks of operators, its transforms.

    ./dev peers
"""

import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import heed
import heed.torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
ours = heed.torch.scaled_dot_product_attention
PYTORCHS = F.scaled_dot_product_attention


def theirs(*arguments, **options):
    with sdpa_kernel(SDPBackend.MATH):
        return PYTORCHS(*arguments, **options)


def drawn(*shape, seed=0, dtype=torch.float64, grad=False):
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(hash((seed, shape)) % 2**31), dtype=torch.float64)
    return made.to(dtype).requires_grad_(grad)


def qkv(dtype=torch.float64, grad=False, lead=(2, 4), kv_lead=None, queries=7, keys=9, size=8, value_size=None):
    kv_lead = kv_lead or lead
    return (drawn(*lead, queries, size, seed=1, dtype=dtype, grad=grad),
            drawn(*kv_lead, keys, size, seed=2, dtype=dtype, grad=grad),
            drawn(*kv_lead, keys, value_size or size, seed=3, dtype=dtype, grad=grad))


def grid(count=60):
    """Random cases of what both compute: shapes, ranks, a mask of each kind and each broadcast."""
    random = np.random.default_rng(20261122)
    for index in range(count):
        lead = [(), (3,), (2, 4), (2, 2, 4)][index % 4]
        queries, keys, size = (int(random.integers(1, 40)) for _ in range(3))
        options = {}
        kind = ("none", "causal", "keep", "add")[index // 4 % 4]
        if kind == "causal":
            options["is_causal"] = True
        if kind in ("keep", "add"):
            shape = [1 if random.random() < 0.3 else n for n in (*lead, queries, keys)][int(random.integers(len(lead) + 1)):]
            mask = drawn(*shape, seed=index)
            options["attn_mask"] = mask > -0.5 if kind == "keep" else mask
        if random.random() < 0.5:
            options["scale"] = float(random.uniform(0.1, 1))
        kv_lead = lead
        if len(lead) > 1 and random.random() < 0.5:
            kv_lead, options["enable_gqa"] = (*lead[:-1], 2), True
        yield index, qkv(lead=lead, kv_lead=kv_lead, queries=queries, keys=keys, size=size,
                         value_size=int(random.integers(1, 40))), options


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_values_are_pytorchs(dtype):
    tolerance = {torch.float64: 1e-12, torch.float32: 4e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype]
    for index, tensors, options in grid():
        tensors = [x.to(dtype) for x in tensors]
        expected = theirs(*(x.double() for x in tensors), **options)
        seen = ours(*tensors, **options)
        assert seen.dtype == dtype and seen.shape == expected.shape
        torch.testing.assert_close(seen.double(), expected, rtol=tolerance, atol=tolerance, msg=lambda m: f"{index}: {m}")


def test_gradients_are_pytorchs():
    for index, tensors, options in grid():
        inputs = [x.requires_grad_() for x in tensors]
        mask = options.get("attn_mask")
        if mask is not None and mask.is_floating_point():
            inputs.append(mask.requires_grad_())
        weight = drawn(*tensors[0].shape[:-1], tensors[2].shape[-1], seed=9)
        seen, expected = (torch.autograd.grad((f(*tensors, **options) * weight).sum(), inputs) for f in (ours, theirs))
        for ours_, theirs_ in zip(seen, expected, strict=True):
            torch.testing.assert_close(ours_, theirs_, rtol=1e-11, atol=1e-12, msg=lambda m: f"{index}: {m}")


def test_a_row_without_keys_is_zero_and_so_are_its_gradients():
    inputs = qkv(grad=True)
    keep = torch.ones(7, 9, dtype=torch.bool)
    keep[3] = False
    for mask in (keep, torch.zeros(7, 9, dtype=torch.float64).masked_fill(~keep, -torch.inf)):
        output = ours(*inputs, mask)
        assert not output[..., 3, :].any() and torch.equal(output.isnan(), torch.zeros_like(output, dtype=torch.bool))
        dq, dk, dv = torch.autograd.grad(output.sum(), inputs)
        assert not dq[..., 3, :].any() and dk.isfinite().all() and dv.isfinite().all()


def test_nothing_behind_a_mask_is_seen():
    q, k, v = qkv(grad=True)
    keep = (torch.arange(9) < 6).expand(7, 9)
    spoiled = v.detach().clone()
    spoiled[..., 6:, :] = torch.nan
    expected, seen = ours(q, k, v, keep), ours(q, k, spoiled.requires_grad_(), keep)
    assert torch.equal(seen, expected) and theirs(q, k, spoiled, keep).isnan().all()
    for clean, other in zip(*(torch.autograd.grad(o.sum(), (q, k, x)) for o, x in ((expected, v), (seen, spoiled)))):
        assert torch.equal(clean, other)


def test_gradcheck():
    q, k, v = qkv(grad=True, lead=(1, 2), kv_lead=(1, 1), queries=3, keys=4, size=2)
    parameters = {"bias": drawn(2, 1, 4, grad=True), "scale": drawn(2, grad=True), "alibi": drawn(2, seed=5, grad=True),
                  "sinks": drawn(2, seed=6, grad=True)}

    def f(q, k, v, *values):
        seen = heed.torch.attention(q, k, v, return_lse=True, causal=True, query_start=1, dropout_p=0.3, seed=5, softcap=2.0,
                                    **dict(zip(parameters, values)))
        return seen.output, seen.lse

    assert torch.autograd.gradcheck(f, (q, k, v, *parameters.values()))
    one = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: heed.torch.attention(q, k, v, scale=s), (one,))
    with pytest.raises(NotImplementedError, match="^heed.torch has no second derivatives"):
        dq, = torch.autograd.grad(ours(q, k, v, enable_gqa=True).sum(), q, create_graph=True)
        dq.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_opcheck(dtype):
    forward, back = torch.ops.heed.attention_forward.default, torch.ops.heed.attention_backward.default
    none = [None] * 10
    for grad, bias in itertools.product((False, True), (None, drawn(4, 1, 9, dtype=dtype))):
        q, k, v = qkv(dtype, grad)
        torch.library.opcheck(forward, (q, k, v, bias, *none), {"causal": True, "weights": True, "statistics": 1023})
        apart = [x.detach().mT.contiguous().mT.requires_grad_(grad) for x in (q, k, v)]
        torch.library.opcheck(forward, (*apart, None, *none), {"factor": 0.3})
    q, k, v = qkv(dtype)
    seed = torch.tensor(3)
    output, lse, *_ = forward(q, k, v, bias, *none[:-3], seed, None, None, dropout_p=0.5)
    expanded = torch.ones((), dtype=dtype).expand(output.shape)
    torch.library.opcheck(torch.ops.heed.attention_jvp.default,
                          (expanded[..., :1].expand(q.shape), None, None, None, output, lse, q, k, v, bias, *none[:-3], seed, None,
                           None), {"dropout_p": 0.5})
    torch.library.opcheck(back, (expanded, output, lse, q, k, v, bias, *none[:-3], seed, None, None),
                          {"wanted": [True, False, True, True, False, True, False], "dropout_p": 0.5})


def test_vmap_is_a_loop():
    q, k, v = (drawn(3, 2, 4, 7, 8, seed=i) for i in range(3))
    mask = drawn(7, 7)
    seen = torch.vmap(ours, in_dims=(0, None, 1, None))(q, k[0], v.movedim(0, 1), mask)
    assert torch.equal(seen, torch.stack([ours(q[i], k[0], v[i], mask) for i in range(3)]))

    def loss(q, k, v):
        return ours(q, k, v, is_causal=True).square().sum()

    seen = torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(q, k, v)
    for i in range(3):
        parts = [x[i].clone().requires_grad_() for x in (q, k, v)]
        expected = torch.autograd.grad(theirs(*parts, is_causal=True).square().sum(), parts)
        for ours_, theirs_ in zip(seen, expected):
            torch.testing.assert_close(ours_[i], theirs_, rtol=1e-11, atol=1e-11)


def test_vmap_over_nothing_is_nothing():
    q, k, v = (drawn(0, 2, 4, 7, 8) for _ in range(3))
    assert torch.vmap(ours)(q, k, v).shape == (0, 2, 4, 7, 8)
    assert torch.vmap(ours, in_dims=(1, None, None))(q.movedim(0, 1), *(drawn(2, 4, 7, 8) for _ in range(2))).shape == q.shape

    def loss(q, k, v):
        return ours(q, k, v).sum()

    assert [x.shape for x in torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(q, k, v)] == [q.shape] * 3


@pytest.mark.parametrize("transform", [
    lambda f, q: torch.autograd.grad(f(q.requires_grad_()), q, create_graph=True)[0].sum().backward(),
    lambda f, q: torch.func.jacrev(torch.func.grad(f))(q),
    lambda f, q: torch.func.hessian(f)(q),
    lambda f, q: torch.func.jvp(torch.func.grad(f), (q,), (q,)),
    lambda f, q: torch.func.grad(lambda q: torch.func.jvp(f, (q,), (q,))[1])(q),
], ids=["create_graph", "jacrev", "hessian", "forward over reverse", "reverse over forward"])
def test_second_derivatives_are_refused_with_a_sentence(transform):
    k, v = drawn(2, 5, 8, seed=1), drawn(2, 5, 8, seed=2)
    with pytest.raises(NotImplementedError, match="^heed.torch has no second derivatives"):
        transform(lambda q: ours(q, k, v).square().sum(), drawn(2, 3, 8))


def test_forward_mode_is_pytorchs():
    q, k, v = qkv()
    bias = drawn(7, 9, seed=5)
    tangents = [drawn(*x.shape, seed=6) for x in (q, k, v, bias)]
    for moving in ((0,), (1,), (2,), (3,), (0, 1, 2, 3)):
        def along(function, moving=moving):
            def moved(*some):
                given = [q, k, v, bias]
                for place, x in zip(moving, some):
                    given[place] = x
                return function(*given)
            return torch.func.jvp(moved, tuple((q, k, v, bias)[i] for i in moving), tuple(tangents[i] for i in moving))

        for seen, expected in zip(along(ours), along(theirs)):
            torch.testing.assert_close(seen, expected, rtol=1e-11, atol=1e-12)
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        seen = forward_ad.unpack_dual(ours(forward_ad.make_dual(q, tangents[0]), k, v))
    expected = torch.func.jvp(lambda q: theirs(q, k, v), (q,), (tangents[0],))
    for one, other in zip(seen, expected):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


def test_forward_mode_of_all_options_has_the_bits_of_attention_jvp():
    q, k, v = qkv(torch.float32)
    mask, tangent, moved_mask = drawn(7, 9, dtype=torch.float32), drawn(*q.shape, seed=9, dtype=torch.float32), \
        drawn(7, 9, seed=8, dtype=torch.float32)
    options = {"causal": True, "query_start": 2, "softcap": 3.0, "sinks": torch.ones(4), "alibi": [0.5, 0.1, 0.0, 1.0],
               "scale": 0.4, "dropout_p": 0.25, "seed": 7}

    def both(q, mask):
        seen = heed.torch.attention(q, k, v, mask=mask, return_lse=True, return_weights=True, statistics=True, **options)
        return seen.output, seen.lse, seen.weights

    _, (output, lse, weights) = torch.func.jvp(both, (q, mask), (tangent, moved_mask))
    plain = [x.numpy() for x in (q, k, v)]
    numpys = {name: x.numpy() if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    forward = heed.attention(*plain, mask=mask.numpy(), return_lse=True, **numpys)
    expected = heed.attention_jvp(*plain, forward.output, forward.lse, tangent_q=tangent.numpy(),
                                  tangent_bias=moved_mask.numpy(), mask=mask.numpy(), **numpys)
    assert np.array_equal(output, expected.output) and np.array_equal(lse, expected.lse)
    assert not weights.any()  # a constant
    for name in ("scale", "alibi", "sinks"):
        with pytest.raises(NotImplementedError, match=f"^heed.torch has no forward mode for {name}; expected tangents of q"):
            torch.func.jvp(lambda x, name=name: heed.torch.attention(q, k, v, **{name: x}), (torch.ones(4),), (torch.ones(4),))


def test_forward_mode_and_vmap_in_either_order():
    q, k, v = (drawn(3, 2, 5, 8, seed=i) for i in range(3))
    tangents = tuple(drawn(3, 2, 5, 8, seed=i) for i in range(3, 6))
    expected = torch.func.jvp(theirs, (q, k, v), tangents)
    over = torch.vmap(lambda *x: torch.func.jvp(ours, x[:3], x[3:]))(q, k, v, *tangents)
    under = torch.func.jvp(torch.vmap(ours), (q, k, v), tangents)
    for seen in (over, under):
        for one, other in zip(seen, expected):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
    q, k, v = (x[0, 0] for x in (q, k, v))
    torch.testing.assert_close(torch.func.jacfwd(ours)(q, k, v), torch.func.jacrev(ours)(q, k, v), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_derivatives_inside_compiled_code(backend):
    def loss(q, k, v):
        seen = heed.torch.attention(q, k, v, causal=True, softcap=2.0, return_lse=True)
        return seen.output.square().sum() + seen.lse.sin().sum()

    def dual(q, k, v, tangent):
        with torch.autograd.forward_ad.dual_level():
            moved = ours(torch.autograd.forward_ad.make_dual(q, tangent), k, v)
            return torch.autograd.forward_ad.unpack_dual(moved).tangent

    def along(q, k, v, tangent):
        return torch.func.jvp(lambda q: loss(q, k, v), (q,), (tangent,))[1]

    q, k, v, tangent = (drawn(2, 2, 5, 4, seed=i) for i in range(4))
    one = [x[0, 0] for x in (q, k, v)]
    for function, given in (
            (torch.func.grad(loss, (0, 1, 2)), (q, k, v)), (torch.vmap(torch.func.grad(loss)), (q, k, v)),
            (torch.func.grad(lambda *x: torch.vmap(loss)(*x).sum()), (q, k, v)),
            (torch.func.jacrev(ours), one), (torch.func.jacfwd(ours), one),
            (along, (q, k, v, tangent)), (dual, (q, k, v, tangent))):
        expected = function(*given)
        torch._dynamo.reset()
        seen = torch.compile(function, backend=backend, fullgraph=True)(*given)
        assert all(x.any() for x in ([seen] if isinstance(seen, torch.Tensor) else seen))
        torch.testing.assert_close(seen, expected, rtol=1e-12, atol=1e-13)

    def of_scale(x):
        return torch.func.jvp(lambda x: heed.torch.attention(q, k, v, scale=x), (x,), (x,))

    with pytest.raises(NotImplementedError, match="^heed.torch has no forward mode for scale; expected "
                                                  "tangents of q, k, v and bias alone$"):
        torch.compile(of_scale, backend=backend)(torch.ones(2))


@pytest.mark.skipif(not shutil.which("c++"), reason="torch.compile wants a C++ compiler for what stands around the operator")
def test_compile_takes_the_whole_graph():
    def layer(x, mask, bias):
        q, k, v = x.unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        seen = heed.torch.attention(q, k, v, bias=bias, return_lse=True, statistics=["entropy"])
        return ours(q, k, v, mask) * 2 + seen.output, seen.lse, seen.statistics.entropy

    for length in (7, 11):
        x, bias = drawn(2, length, 96, grad=True), drawn(length, length, grad=True)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        compiled = torch.compile(layer, fullgraph=True)
        results = [f(x, mask, bias) for f in (compiled, layer)]
        for seen, expected in zip(*results):
            torch.testing.assert_close(seen, expected, rtol=1e-12, atol=1e-12)
        gradients = [torch.autograd.grad(result[0].sin().sum() + result[1].sum(), (x, bias)) for result in results]
        for seen, expected in zip(*gradients):
            torch.testing.assert_close(seen, expected, rtol=1e-11, atol=1e-12)
    q, k, v = qkv()
    dropped = torch.compile(lambda: ours(q, k, v, dropout_p=0.5), fullgraph=True)
    assert not torch.equal(dropped(), dropped())


def test_autocast_gives_its_type():
    q, k, v = qkv(torch.float32, grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        seen, expected = ours(q, k, v), PYTORCHS(q, k, v)
        assert seen.dtype == expected.dtype == torch.bfloat16
        assert heed.torch.attention(q, k, v, return_lse=True).output.dtype == torch.bfloat16
        wide = [x.double() for x in (q, k, v)]
        assert ours(*wide).dtype == PYTORCHS(*wide).dtype == torch.float64
        mixed = q, k.half(), v.bfloat16()  # as an inner block without autocast leaves them
        assert torch.equal(ours(*mixed), ours(*(x.bfloat16() for x in mixed)))
        with pytest.raises(TypeError, match="query is torch.float64, key torch.float16, value torch.bfloat16; expected one type"):
            ours(q.double(), *mixed[1:])
        with heed.torch.enabled(), warnings.catch_warnings():
            warnings.simplefilter("error")  # PyTorch's function is not asked
            assert torch.equal(torch.nn.functional.scaled_dot_product_attention(*mixed), ours(*mixed))
    with pytest.raises(TypeError, match="expected one type"):
        ours(*mixed)
    torch.testing.assert_close(seen, expected, rtol=2**-6, atol=2**-6)
    dq, = torch.autograd.grad(seen.sum(), q)
    assert dq.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_strides_are_read_where_they_lie(dtype):
    packed = drawn(2, 9, 3, 4, 16, dtype=dtype)
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    with torch.no_grad():
        seen = ours(q, k, v)
        assert torch.equal(seen, ours(*(x.contiguous() for x in (q, k, v)))) and seen.transpose(1, 2).is_contiguous()
        assert torch.equal(ours(q, k[:, :1].expand(-1, 4, -1, -1), v[:, :1].expand(-1, 4, -1, -1)),
                           ours(q, k[:, :1], v[:, :1], enable_gqa=True))
        assert torch.equal(ours(torch._neg_view(q), k, v), ours(-q, k, v))
    assert torch.equal(ours(q.detach().requires_grad_(), k, v), seen)  # through the operator: the same bits


@pytest.mark.parametrize("shape", [(0, 2, 3, 4, 5), (1, 2, 0, 4, 5), (1, 2, 3, 0, 5), (2, 0, 3, 4, 5)])
def test_what_is_empty(shape):
    batch, heads, queries, keys, size = shape
    inputs = qkv(grad=True, lead=(batch, heads), queries=queries, keys=keys, size=size)
    output = ours(*inputs)
    assert torch.equal(output, theirs(*inputs))
    for x, gradient in zip(inputs, torch.autograd.grad(output.sum(), inputs)):
        assert torch.equal(gradient, torch.zeros_like(x))


def test_gradients_go_where_they_are_asked_for():
    q, k, v = qkv()
    for wanted in itertools.product((False, True), repeat=3):
        inputs = [x.clone().requires_grad_(want) for x, want in zip((q, k, v), wanted)]
        output = ours(*inputs)
        assert output.requires_grad == any(wanted)
        if any(wanted):
            output.sum().backward()
        assert [x.grad is not None for x in inputs] == list(wanted)
    with torch.no_grad():
        assert not ours(*inputs).requires_grad
    seen = heed.torch.attention(*inputs, return_weights=True, return_lse=True, statistics=True)
    assert seen.lse.requires_grad and not seen.weights.requires_grad and not seen.statistics.entropy.requires_grad


def test_dropout_follows_pytorchs_generator():
    q, k, v = qkv(torch.float32, queries=64, keys=64)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(ours(q, k, v, dropout_p=0.25))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])
    mean = torch.stack([ours(q, k, v, dropout_p=0.25) for _ in range(400)]).mean(0)
    torch.testing.assert_close(mean, ours(q, k, v), rtol=0, atol=0.15)
    assert abs((mean - ours(q, k, v)).mean()) < 2e-3
    leaf = v.clone().requires_grad_()  # each key's weights as they were dropped, from the backward pass
    output = ours(q, k, leaf, dropout_p=0.25)
    leaf_grad, = torch.autograd.grad(output.sum(), leaf)
    torch.testing.assert_close((leaf_grad * leaf).sum(), output.sum(), rtol=1e-4, atol=1e-3)
    for seed in (7, 2**64 - 1):
        seen = heed.torch.attention(q, k, v, dropout_p=0.5, seed=seed)
        assert np.array_equal(seen, heed.attention(q.numpy(), k.numpy(), v.numpy(), dropout_p=0.5, seed=seed))


def test_attention_has_all_of_heeds_options_and_outputs():
    q, k, v = qkv(kv_lead=(2, 2))
    options = dict(scale=[0.1, 0.2, 0.3, 0.4], softcap=3.0, alibi=[0.1, 0.2, 0.3, 0.4], bias=drawn(7, 9), causal=True,
                   mask=heed.drop(drawn(7, 9, seed=4) > 1), query_start=3, window=(4, None), key_lengths=[9, 5],
                   query_lengths=[7, 6], sinks=[0.0, 1.0, 2.0, 3.0], return_lse=True, return_weights=True)
    seen = heed.torch.attention(q, k, v, **options, statistics=True)
    expected = heed.attention(q, k, v, **options, statistics=True)
    for ours_, theirs_ in zip((*seen[:3], *seen.statistics), (*expected[:3], *expected.statistics), strict=True):
        assert torch.equal(ours_, theirs_) and ours_.dtype == theirs_.dtype
    some = heed.torch.attention(q, k, v, statistics=["visible_keys", "entropy"]).statistics
    assert some.visible_keys.dtype == torch.int64 and some.entropy.shape == (2, 4, 7) and some.max_score is None
    assert torch.equal(heed.torch.attention(q, k, v, normalize_qk=True), heed.attention(q, k, v, normalize_qk=True))
    flat = heed.torch.attention(q[0, 0], k[0, 0], v[0, 0], mask=drawn(7, 9))
    assert torch.equal(flat, heed.attention(q[0, 0], k[0, 0], v[0, 0], mask=drawn(7, 9)))


def test_what_is_not_served_is_refused():
    q, k, v = qkv(torch.float32)
    meta = torch.empty(2, 4, 9, 8, device="meta")
    for arguments, error, text in (
            ((q, meta, v), ValueError, "key is on device meta; expected cpu"),
            ((q, k.numpy(), v), TypeError, "key is of type ndarray; expected a torch.Tensor"),
            ((q, k.double(), v), TypeError, "expected one type"),
            ((q.int(), k.int(), v.int()), TypeError, "query is torch.int32; expected float32"),
            ((q, k[0], v), ValueError, "key 3, value 4; expected equal numbers, at least 2"),
            ((q, k[..., :5], v), ValueError, "key has head size 5, query 8; expected equal ones"),
            ((q, k[:, :2], v[:, :2]), ValueError, "expected the same batch and heads, or with enable_gqa=True heads"),
            ((q, k, v[..., 1:, :]), ValueError, r"value has shape \(2, 4, 8, 8\), key \(2, 4, 9, 8\); expected the same but"),
            ((q, k, v, torch.zeros(7, 8)), ValueError, r"attn_mask has shape \(7, 8\); expected one that broadcasts"),
            ((q, k, v, torch.zeros(7, 9, dtype=torch.int64)), TypeError, "attn_mask is torch.int64; expected bool or a floating type"),
            ((q.to_sparse(), k, v), ValueError, "query has layout torch.sparse_coo")):
        with pytest.raises(error, match=text):
            ours(*arguments)
    for wrong in ({"v": torch.tensor(1.0)}, {"k": k[0, 0, 0]}, {"q": torch.ones(3)}):
        with pytest.raises(ValueError, match=rf"^attention: {[*wrong][0]} has shape \(.*\); expected \[T, D\], \[B, T, D\] or"):
            heed.torch.attention(**{"q": q, "k": k, "v": v} | wrong, return_weights=True)
    with pytest.raises(ValueError, match="sinks is on device meta"):
        heed.torch.attention(q, k, v, sinks=torch.empty(4, device="meta"))
    with pytest.raises(ValueError, match="names 'entropie'"):
        heed.torch.attention(q, k, v, statistics=["entropie"])
    with pytest.raises(ValueError, match="dropout"):
        ours(q, k, v, dropout_p=1.5)


def test_threads_of_0_are_pytorchs():
    code = """
import os, numpy as np, torch, heed.torch
count = lambda: len(os.listdir("/proc/self/task"))
q = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 4, 300, 32)).astype(np.float32))
for threads, call, more in ((1, lambda: heed.torch.attention(q, q, q), 0),
                            (1, lambda: heed.torch.scaled_dot_product_attention(q, q, q), 0),
                            (3, lambda: heed.torch.scaled_dot_product_attention(q, q, q), 2),
                            (3, lambda: heed.torch.attention(q, q, q, threads=5), 2)):
    torch.set_num_threads(threads)
    before = count()
    call()
    assert count() - before == more, (threads, more)
"""
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"HEED_NUM_THREADS": "2"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", ["sdpa", "attention", "backward", "transformed"])
def test_ctrl_c_ends_a_long_call(way):
    """What the signal of a timer raises here is what Ctrl-C raises, when an eighth of the call may be done."""
    q = torch.ones(1, 128, 1 << 12, 64) if way == "backward" else torch.ones(1, 64, 1 << 13, 64)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        small = ours(*[q[..., :96, :]] * 3)
        call = {"sdpa": lambda q: ours(q, q, q), "attention": lambda q: heed.torch.attention(q, q, q, return_lse=True),
                "transformed": lambda q: torch.func.vmap(ours)(*[q[None]] * 3),
                "backward": lambda q: torch.ops.heed.attention_backward(q, q, q[..., 0], q, q, q, *[None] * 11,
                                                                        wanted=[True] * 3 + [False] * 4)}[way]
        begin = time.monotonic()
        call(q[:, :q.shape[1] // 8])
        part = time.monotonic() - begin
        begin = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, part)
        with pytest.raises(KeyboardInterrupt):
            call(q)
        assert time.monotonic() - begin < 4 * part   # all of it takes eight
        assert torch.equal(ours(*[q[..., :96, :]] * 3), small)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_page_of_examples_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/torch.md").read_text(), re.S)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, "docs/torch.md", "exec"), names)


def test_heed_alone_imports_no_torch():
    done = subprocess.run([sys.executable, "-c", "import heed, sys; assert 'torch' not in sys.modules"], capture_output=True)
    assert done.returncode == 0, done.stderr
