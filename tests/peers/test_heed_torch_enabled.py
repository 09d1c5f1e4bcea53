"""heed.torch.enabled: what it replaces, what it leaves to PyTorch and says, and that it always puts back."""

import threading
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import heed.torch

PYTORCHS = F.scaled_dot_product_attention
Q, K, V = (torch.randn(2, 4, 9, 8, generator=torch.Generator().manual_seed(i)) for i in range(3))


@pytest.fixture(autouse=True)
def put_back():
    yield
    assert F.scaled_dot_product_attention is PYTORCHS


def calls_of(monkeypatch):
    """How often heed was asked."""
    calls = []
    real = heed.torch.scaled_dot_product_attention
    monkeypatch.setattr(heed.torch, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or real(*a, **k))
    return calls


def test_a_model_runs_on_heed(monkeypatch):
    calls = calls_of(monkeypatch)
    model = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 9, 16)
    expected, _ = model(x, x, x, need_weights=False)
    with warnings.catch_warnings(), heed.torch.enabled():
        warnings.simplefilter("error")
        seen, _ = model(x, x, x, need_weights=False)
    assert calls == [1]
    torch.testing.assert_close(seen, expected, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(y.sum(), model.in_proj_weight)[0] for y in (seen, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_the_rest_goes_to_pytorch_and_is_told_once(monkeypatch):
    calls = calls_of(monkeypatch)
    broadcast = K[:1]
    with heed.torch.enabled():
        with pytest.warns(UserWarning, match="PyTorch computes this call: .*key has shape") as told:
            for _ in range(3):
                with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                    seen = F.scaled_dot_product_attention(Q, broadcast, V[:1])
        assert len(told) == 1 and not calls
        torch.testing.assert_close(seen, F.scaled_dot_product_attention(Q, K[:1].expand(2, -1, -1, -1),
                                                                        V[:1].expand(2, -1, -1, -1)))
        assert calls == [1]
        meta = torch.empty(2, 4, 9, 8, device="meta")
        with pytest.warns(UserWarning, match="query is on device meta"):
            assert F.scaled_dot_product_attention(meta, meta, meta).device.type == "meta"
        with pytest.warns(UserWarning, match="head size 0"):
            assert F.scaled_dot_product_attention(Q[..., :0], K[..., :0], V).shape == V.shape
        with pytest.warns(UserWarning, match="both given"), pytest.raises(RuntimeError):
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                F.scaled_dot_product_attention(Q, K, V, torch.zeros(9, 9), is_causal=True)


@pytest.mark.parametrize("options,kind", [
    ({"scale": float("inf")}, "scale is inf"), ({"scale": float("nan")}, "scale is nan"), ({"scale": 1e39}, r"scale is 1e\+39"),
    ({"scale": 2.5e38}, r"scale is 2.5e\+38"), ({"scale": True}, "scale is of type bool"),
    ({"dropout_p": 0.999995}, "dropout_p is 0.999995"), ({"dropout_p": 1.0}, "dropout_p is 1.0")])
def test_numbers_that_pytorch_alone_takes_go_there(monkeypatch, options, kind):
    calls = calls_of(monkeypatch)
    torch.manual_seed(0)
    expected = PYTORCHS(Q, K, V, **options)
    compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options), fullgraph=True,
                             backend="eager", dynamic=False)
    with heed.torch.enabled():
        for call, words in ((F.scaled_dot_product_attention, kind),
                            (lambda q, k, v, **_: compiled(q, k, v), r"an option that heed does not serve \(uncompiled, this")):
            with pytest.warns(UserWarning, match=f"PyTorch computes this call: .*{words}") as told:
                for _ in range(2):
                    torch.manual_seed(0)
                    torch.testing.assert_close(call(Q, K, V, **options), expected, rtol=0, atol=0, equal_nan=True)
            assert len(told) == 1
    assert not calls


@pytest.mark.parametrize("options,error", [
    ({"dropout_p": 1.5}, RuntimeError), ({"is_causal": 1}, TypeError), ({"enable_gqa": "x"}, TypeError),
    ({"dropout_p": np.zeros(2)}, TypeError), ({"scale": "x"}, TypeError)])
def test_what_neither_takes_is_refused_in_pytorchs_words(options, error):
    with heed.torch.enabled(), pytest.warns(UserWarning, match="PyTorch computes this call"), pytest.raises(error) as seen:
        F.scaled_dot_product_attention(Q, K, V, **options)
    assert "expected" not in str(seen.value)  # heed's word


@pytest.mark.parametrize("arguments,named", [
    ((Q, K, V), {"foo": 1}), ((Q,), {}), ((Q, K, V), {"query": Q}), ((Q, K, V, None, 0.0, False, None, False, 1), {})])
def test_arguments_that_neither_has_are_refused_in_pytorchs_words(arguments, named):
    with pytest.raises(TypeError) as expected:
        PYTORCHS(*arguments, **named)
    with heed.torch.enabled(), pytest.warns(UserWarning, match="PyTorch computes this call: arguments that heed does not have"):
        with pytest.raises(TypeError) as seen:
            F.scaled_dot_product_attention(*arguments, **named)
    assert str(seen.value) == str(expected.value)


def test_sizes_of_numbers_are_no_reasons_of_their_own():
    with heed.torch.enabled(), pytest.warns(UserWarning) as told:
        for scale in (1e39, 2.5e41, 3e300):
            F.scaled_dot_product_attention(Q, K, V, scale=scale)
    assert len(told) == 1


def test_an_exception_leaves_nothing_behind():
    with pytest.raises(KeyError):
        with heed.torch.enabled():
            assert F.scaled_dot_product_attention is not PYTORCHS
            raise KeyError
    assert F.scaled_dot_product_attention is PYTORCHS


def test_blocks_nest(monkeypatch):
    calls = calls_of(monkeypatch)
    with heed.torch.enabled():
        with heed.torch.enabled():
            F.scaled_dot_product_attention(Q, K, V)
        F.scaled_dot_product_attention(Q, K, V)
    F.scaled_dot_product_attention(Q, K, V)
    assert len(calls) == 2


def test_blocks_overlap_in_threads():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with heed.torch.enabled():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with heed.torch.enabled():
        thread.start()
        assert inside.wait(60)
    assert F.scaled_dot_product_attention is not PYTORCHS  # the other block goes on
    leave.set()
    thread.join()
    assert F.scaled_dot_product_attention is PYTORCHS


def test_what_somebody_put_on_top_stays(monkeypatch):
    calls = calls_of(monkeypatch)
    with heed.torch.enabled():
        below = F.scaled_dot_product_attention
        wrapper = F.scaled_dot_product_attention = lambda *a, **k: below(*a, **k)
    try:
        assert F.scaled_dot_product_attention is wrapper
        F.scaled_dot_product_attention(Q, K, V)
        assert not calls
        with heed.torch.enabled():
            F.scaled_dot_product_attention(Q, K, V)
        assert len(calls) == 1 and F.scaled_dot_product_attention is wrapper
    finally:
        F.scaled_dot_product_attention = PYTORCHS


def test_enabled_under_compile():
    with heed.torch.enabled():
        compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), fullgraph=True, backend="eager")
        seen = compiled(Q, K, V)
    assert torch.equal(seen, heed.torch.scaled_dot_product_attention(Q, K, V)) and not torch.equal(seen, PYTORCHS(Q, K, V))
    torch.testing.assert_close(seen, PYTORCHS(Q, K, V), rtol=1e-5, atol=1e-5)


def test_a_compiled_call_has_any_scale():
    """Compiled once for all of them, where it is a symbol."""
    compiled = torch.compile(lambda q, k, v, scale: F.scaled_dot_product_attention(q, k, v, scale=scale), fullgraph=True,
                             backend="eager", dynamic=True)
    with warnings.catch_warnings(), heed.torch.enabled():
        warnings.simplefilter("error", UserWarning)
        for scale in (0.1, 0.2, -0.3):
            assert torch.equal(compiled(Q, K, V, scale), heed.torch.scaled_dot_product_attention(Q, K, V, scale=scale))


def test_a_compiled_call_that_goes_to_pytorch_is_told_when_it_is_compiled():
    called = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), fullgraph=True, backend="eager")
    with heed.torch.enabled(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        with pytest.warns(UserWarning, match="PyTorch computes this call: a shape, device or layout") as told:
            seen = called(Q, K[:1], V[:1])
            called(Q, K[:1], V[:1])
            called(Q[:, :, :5], K[:1], V[:1])  # compiled again, for any number of queries
        assert len(told) == 1
        torch.testing.assert_close(seen, PYTORCHS(Q, K[:1], V[:1]))


def test_shapes_are_no_reasons_of_their_own():
    with heed.torch.enabled(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        with pytest.warns(UserWarning) as told:
            for queries in range(1, 6):
                F.scaled_dot_product_attention(Q[:, :, :queries], K[:1], V[:1])
                F.scaled_dot_product_attention(Q[:, :, :queries], K[:1, :1], V[:1, :1])
        assert len(told) == 1
        with pytest.warns(UserWarning, match="expected one type"):  # another kind
            with pytest.raises(RuntimeError):
                F.scaled_dot_product_attention(Q, K.double(), V)
        assert len(heed.torch.patches[-1].told) == 2
