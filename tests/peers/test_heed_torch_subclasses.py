"""heed.torch given what is a tensor by name: masks that hold no numbers, modes, wrappers, arrays that hide or wrap numbers."""

import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils._pytree import tree_map

import heed
import heed.torch


def drawn(queries=3, keys=5):
    torch.manual_seed(1)
    return torch.randn(1, 2, queries, 8), torch.randn(1, 2, keys, 8), torch.randn(1, 2, keys, 8)


@pytest.mark.parametrize("make", [causal_lower_right, causal_upper_left])
@pytest.mark.parametrize("compiled", [False, True])
def test_pytorchs_causal_masks_mean_what_they_say(make, compiled):
    """Their memory holds nothing: what they mean is in what they do to the function."""
    q, k, v = drawn()
    want = functional.scaled_dot_product_attention(q, k, v, make(3, 5))

    def call(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, make(3, 5))
    with heed.torch.enabled():
        seen = torch.compile(call, backend="aot_eager")(q, k, v) if compiled else call(q, k, v)
    assert torch.allclose(seen, want, atol=1e-6)


@pytest.mark.parametrize("call", [
    lambda q, k, v, mask: heed.torch.attention(q, k, v, mask=mask),
    lambda q, k, v, mask: heed.torch.attention(q, k, v, mask=heed.keep(mask)), lambda q, k, v, mask: heed.attention(q, k, v, mask=mask)])
def test_elsewhere_they_are_refused(call):
    with pytest.raises(TypeError, match=r"mask is of type CausalBias, which holds no numbers; expected causal=True \(is_causal\)"):
        call(*drawn(), causal_lower_right(3, 5))


def test_after_the_block_and_beneath_another_function_they_mean_the_same():
    q, k, v = drawn()
    want = functional.scaled_dot_product_attention(q, k, v, causal_lower_right(3, 5))
    with heed.torch.enabled():
        held = functional.scaled_dot_product_attention
        functional.scaled_dot_product_attention = lambda *given, **named: held(*given, **named)
        seen = functional.scaled_dot_product_attention(q, k, v, causal_lower_right(3, 5))
        functional.scaled_dot_product_attention = held
        with pytest.raises(ValueError, match="attn_mask is a CausalBias and is_causal is True; expected one of them"):
            functional.scaled_dot_product_attention(q, k, v, causal_lower_right(3, 5), is_causal=True)
    for one in seen, held(q, k, v, causal_lower_right(3, 5)), heed.torch.scaled_dot_product_attention(q, k, v, causal_lower_right(3, 5)):
        assert torch.allclose(one, want, atol=1e-6)


class Plain(torch.Tensor):
    pass


def test_subclasses_and_graphs_are_served_as_before():
    q, k, v = drawn()
    want = heed.torch.scaled_dot_product_attention(q, k, v)
    jagged = torch.nested.nested_tensor([torch.randn(n, 16) for n in (3, 5)], layout=torch.jagged).unflatten(-1, [2, 8]).transpose(1, 2)
    nested = functional.scaled_dot_product_attention(jagged, jagged, jagged)

    class Graph(torch.nn.Module):
        def forward(self, q, k, v):
            return functional.scaled_dot_product_attention(q, k, v)
    with heed.torch.enabled(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = functional.scaled_dot_product_attention(jagged, jagged, jagged)
        assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(seen.unbind(), nested.unbind(), strict=True))
        graph = torch.fx.symbolic_trace(Graph())
        assert not any("heed" in str(node.target) for node in graph.graph.nodes)
        compiled = torch.compile(lambda *qkv: functional.scaled_dot_product_attention(*qkv), backend="eager", fullgraph=True)
        assert torch.allclose(compiled(*(x.as_subclass(Plain) for x in (q, k, v))).as_subclass(torch.Tensor), want, atol=1e-6)


class Wrapper(torch.Tensor):
    """Knows PyTorch's operators alone."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, *_):
        return Wrapper(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        if function.namespace != "aten":
            return NotImplemented
        bare = tree_map(lambda x: x.inner if isinstance(x, cls) else x, (arguments, named or {}))
        return tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, function(*bare[0], **bare[1]))


def test_tensors_that_stand_for_others_go_to_pytorch():
    q, k, v = drawn()
    want = functional.scaled_dot_product_attention(q, k, v)
    with heed.torch.enabled(), pytest.warns(UserWarning, match="a subclass of torch.Tensor that stands for other tensors"):
        seen = functional.scaled_dot_product_attention(*map(Wrapper, (q, k, v)))
    assert type(seen) is Wrapper and torch.equal(seen.inner, want)


def test_zeros_without_memory_are_zeros():
    q, k, v = drawn()
    with heed.torch.enabled():
        seen = functional.scaled_dot_product_attention(torch._efficientzerotensor(q.shape), k, v)
    assert torch.allclose(seen, v.mean(-2, keepdim=True).expand_as(seen), atol=1e-6)


def test_compiled_code_may_have_a_scale_of_numpy():
    q, k, v = drawn()
    want = functional.scaled_dot_product_attention(q, k, v, scale=8**-0.5)
    seen = torch.compile(lambda q, k, v: heed.torch.scaled_dot_product_attention(q, k, v, scale=1 / np.sqrt(q.shape[-1])),
                         backend="aot_eager")(q, k, v)
    assert torch.allclose(seen, want, atol=1e-6)


@pytest.mark.parametrize("given, words", [
    ({"alibi": np.ma.masked_array([0.5, 0.4], [0, 1])}, "attention: alibi is of type numpy.ma.MaskedArray"),
    ({"key_lengths": np.ma.masked_array([5], [0])}, "attention: key_lengths is of type numpy.ma.MaskedArray"),
    ({"query_start": np.array([2**64 - 3], np.uint64)}, "attention: query_start is an array of torch.uint64; expected int64, or a type that it holds")])
def test_what_hides_or_wraps_numbers_is_refused(given, words):
    with pytest.raises(TypeError, match=words):
        heed.torch.attention(*drawn(), **given)


def test_numpys_arrays_may_lie_as_they_like():
    slopes = np.array([0.5, 0.25])
    want = heed.torch.attention(*drawn(), alibi=[0.5, 0.25])
    frozen = slopes.copy()
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (slopes, slopes[::-1].copy()[::-1], slopes.astype(">f8"), frozen):
            assert torch.equal(heed.torch.attention(*drawn(), alibi=given), want)


def test_no_dropout_is_a_number():
    with pytest.raises(TypeError, match="dropout_p is of type NoneType; expected a number"):
        heed.torch.scaled_dot_product_attention(*drawn(), dropout_p=None)
