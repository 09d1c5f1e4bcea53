"""What heed says of a wrong call: the name of the argument, what was expected, what came; and nothing is lost silently."""

import ctypes

import numpy as np
import pytest
from support import inputs

import heed

Q, K, V = inputs()


class Only:
    """A type of array that has __dlpack__ and no shape."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class Negated(Only):
    """As PyTorch's tensors whose negative bit DLPack does not carry."""

    shape = K.shape

    def is_neg(self):
        return True


def test_arrays_without_a_shape_are_read_whichever_they_are():
    expected = heed.attention(Q, K, V, return_weights=True)
    for q, k, v in ((Q, K, Only(V)), (Q, Only(K), V), (Only(Q), K, V)):
        seen = heed.attention(q, k, v, return_weights=True)
        assert np.array_equal(seen.output, expected.output) and np.array_equal(seen.weights, expected.weights)
    lse = heed.attention(Q, K, V, return_lse=True).lse
    plain = heed.attention_backward(Q, K, V, expected.output, lse, expected.output)
    seen = heed.attention_backward(Q, Only(K), Only(V), expected.output, lse, expected.output)
    assert all(np.array_equal(a, b) for a, b in zip(seen[:3], plain[:3]))


def test_arrays_of_ctypes_are_dense():
    """Their buffers come without strides."""
    made = [(ctypes.c_float * x.shape[1] * x.shape[0]).from_buffer_copy(x) for x in (Q[0, 0], K[0, 0], V[0, 0])]
    assert np.array_equal(heed.attention(*made), heed.attention(Q[0, 0], K[0, 0], V[0, 0]))
    out = (ctypes.c_float * 6 * 5)()
    assert heed.attention(*made, out=out) is out
    assert np.array_equal(np.ctypeslib.as_array(out), heed.attention(Q[0, 0], K[0, 0], V[0, 0]))


def test_a_negated_view_is_refused():
    with pytest.raises(ValueError, match=r"k is a negated view.*k\.resolve_neg\(\)"):
        heed.attention(Q, Negated(K), V)


@pytest.mark.parametrize("call,error,text", [
    (lambda: heed.attention([[1.0]], K, V), TypeError, "^q is of type list; expected an array with __dlpack__"),
    (lambda: heed.attention(Q, K, [[1.0]]), TypeError, "^v is of type list; expected an array with __dlpack__"),
    (lambda: heed.attention(Q, K, V, threads=1.5), TypeError, "^threads is of type float; expected an integer"),
    (lambda: heed.attention(Q, K, V, threads=-1), ValueError, "threads is -1"),
    (lambda: heed.attention(Q, K, V, threads=2**40), ValueError, "threads is 1099511627776"),
    (lambda: heed.inspect_weights(Q, K, Q, threads=1.5), TypeError, "^threads is of type float; expected an integer"),
    (lambda: heed.explain(Q, K, V, threads="2"), TypeError, "^threads is of type str; expected an integer"),
    (lambda: heed.explain(Q, K, V, colour=1), TypeError, "^explain: got an unexpected keyword argument 'colour'; expected options among scale, normalize_qk,"),
    (lambda: heed.inspect_weights(Q, K, V, colour=1), TypeError, "got an unexpected keyword argument 'colour'"),
    (lambda: heed.attention_jvp(Q, K, V, Q, Q, colour=1), TypeError, "got an unexpected keyword argument 'colour'"),
    (lambda: heed.attention_backward(Q, K, V, Q, Q, Q, colour=1), TypeError, "got an unexpected keyword argument 'colour'"),
    (lambda: heed.attention_backward(Q, K, V, Q, Q, Q, gradients="dq"), TypeError,
     r"^attention_backward: gradients is the string 'dq'; expected a list of names, such as \['dq'\]"),
    (lambda: heed.attention(Q, K, V, statistics="entropy"), TypeError,
     r"^attention: statistics is the string 'entropy'; expected a list of names, such as \['entropy'\]"),
    (lambda: heed.attention(Q, K, V, statistics=5), TypeError, "^attention: statistics is of type int; expected"),
    (lambda: heed.attention(Q, K, V, statistics=["entropie"]), ValueError, "statistics names 'entropie'; expected names"),
    (lambda: heed.attention(Q, K, V, window=(0.5, None)), TypeError, "^window.left is of type float"),
])
def test_a_refusal_names_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_numpys_true_asks_for_all_statistics():
    seen = heed.attention(Q, K, V, statistics=np.True_).statistics
    assert all(x is not None for x in seen)
    assert isinstance(heed.attention(Q, K, V, statistics=np.False_), np.ndarray)


@pytest.mark.parametrize("arguments,options,error,text", [
    ((Q, K[..., :3], V), {}, ValueError, "head size of key is 3, of query 8"),
    ((Q, K, V, np.ones((2, 3), bool)), {}, ValueError, r"attn_mask has shape"),
    ((Q, K, V, np.ones((5, 7), int)), {}, TypeError, "attn_mask is int64; expected bool"),
    ((Q, K, [1.0]), {}, TypeError, "value is of type list"),
    ((Q, K, V), {"enable_gqa": False}, ValueError, "query has 4 heads, key 2; expected equal numbers"),
    ((Q, K, V), {"is_causal": "yes"}, TypeError, "is_causal is of type str"),
])
def test_refusals_of_pytorchs_signature_use_its_names(arguments, options, error, text):
    with pytest.raises(error, match="^scaled_dot_product_attention: " + text):
        heed.scaled_dot_product_attention(*arguments, **({"enable_gqa": True} | options))
