"""What heed.jax says of a wrong call: when it is traced, when it runs, and in whose words.

    ./dev peers
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import heed
import heed.jax

B, H, KV, T, S, D, DV = 2, 4, 2, 9, 11, 16, 8
Q, K, V = (np.random.default_rng(i).standard_normal(shape).astype(np.float32)
           for i, shape in enumerate([(B, H, T, D), (B, KV, S, D), (B, KV, S, DV)]))

WRONG = [
    ({"q": Q[..., :8]}, ValueError, "attention: head size of k is 16, of q 8"),
    ({"k": K[0]}, ValueError, "attention: rank of k is 3, of q 4; they must be equal"),
    ({"v": V[:, :, :5]}, ValueError, "attention: number of keys of v is 5, of k 11; they must be equal"),
    ({"q": Q[:, :3]}, ValueError, "attention: "),
    ({"q": Q.astype(np.int32)}, TypeError, "attention: q is int32; expected float32, float64, float16 or bfloat16"),
    ({"k": jnp.asarray(K, jnp.bfloat16)}, TypeError, "attention: k is bfloat16, q is float32; they must be equal"),
    ({"mask": np.zeros((T, S), np.int32)}, TypeError, "attention: mask is int32; expected bool, which keeps"),
    ({"mask": np.zeros((T, S), np.complex64)}, TypeError, "attention: mask is complex64; expected bool, an integer or a floating"),
    ({"mask": np.zeros((T, S + 1), bool)}, ValueError, r"attention: mask \(keep\)"),
    ({"bias": np.zeros((3, 1, 1), np.float32)}, ValueError, "attention: bias"),
    ({"bias": np.zeros((T, S), np.float32), "mask": np.zeros((T, S), np.float32)}, ValueError, "mask adds, and so does"),
    ({"scale": np.ones(3, np.float32)}, ValueError, "attention: scale"),
    ({"alibi": np.ones(3, np.float32)}, ValueError, "attention: alibi"),
    ({"sinks": np.ones((1, H), np.float32)}, ValueError, "attention: sinks"),
    ({"alibi": 1.0}, ValueError, r"^attention: alibi has shape \[\]; expected"),
    ({"sinks": 1.0}, ValueError, r"^attention: sinks has shape \[\]; expected"),
    ({"key_lengths": np.ones(3, np.int32)}, ValueError, "attention: key_lengths"),
    ({"key_lengths": np.ones(2, np.float32)}, TypeError, "attention: key_lengths is float32; expected an integer type"),
    ({"window": (-1, 0)}, ValueError, "attention: window"),
    ({"window": 5}, TypeError, r"attention: window is not a pair, but of type int; expected \(left, right\)"),
    ({"softcap": 0.0}, ValueError, "attention: softcap"),
    ({"dropout_p": 0.5}, ValueError, "attention: "),
    ({"dropout_p": 0.5, "seed": -1}, ValueError, r"attention: seed is -1; expected 0 \.\. 2\^64 - 1"),
    ({"dropout_p": 0.5, "seed": np.zeros(3, np.uint32)}, ValueError, "attention: seed has shape"),
    ({"statistics": ["entropi"]}, ValueError, "attention: statistics names 'entropi'"),
    ({"statistics": "entropy"}, TypeError, "attention: statistics is the string 'entropy'; expected a list of names"),
    ({"threads": 1.5}, TypeError, "^threads is of type float; expected an integer"),
    ({"reproducible": "yes"}, TypeError, "attention: reproducible is of type str; expected True or False"),
    ({"return_lse": "no"}, TypeError, "^attention: return_lse is of type str; expected True or False"),
    ({"return_weights": 1}, TypeError, "^attention: return_weights is of type int; expected True or False"),
    ({"k": None}, TypeError, "^attention: k is of type NoneType; expected an array of JAX or NumPy"),
    ({"mask": np.zeros((T, S + 1), np.float32)}, ValueError, r"^attention: mask has shape"),
    ({"mask": heed.add(np.zeros((T, S + 1), np.float32))}, ValueError, r"^attention: mask has shape"),
    ({"mask": (1, np.ones((T, S), bool))}, TypeError, "^attention: mask is of type tuple; expected an array"),
    ({"seed": 3}, ValueError, "^attention: seed is given, but dropout_p is not; expected both"),
    ({"softcap": "a"}, TypeError, "^attention: softcap is of type str; expected a number"),
    ({"scale": "a"}, TypeError, "^attention: scale is of type str; expected a number, or an array of JAX or NumPy"),
    ({"scale": 10**400}, ValueError, "^attention: scale is an integer beyond the largest float64; expected"),
    ({"softcap": 10**400}, ValueError, "^attention: softcap is an integer beyond the largest float64; expected"),
    ({"key_lengths": 2**70}, ValueError, "^attention: key_lengths holds an integer beyond 32 bits, all that JAX has without jax_enable_x64"),
    ({"key_lengths": np.array([2**32, 3])}, ValueError, "^attention: key_lengths holds an integer beyond 32 bits"),
    ({"query_start": [2**31, 0]}, ValueError, "^attention: query_start holds an integer beyond 32 bits"),
    ({"mask": heed.keep(np.full((T, S), 2**32, np.uint64))}, ValueError, "^attention: mask holds an integer beyond 32 bits"),
    ({"window": {3}}, TypeError, r"^attention: window is not a pair, but of type set; expected \(left, right\)"),
    ({"dropout_p": 0.5, "seed": jnp.int32(-1)}, ValueError, r"^attention: seed is -1; expected 0 \.\. 2\^64 - 1"),
    ({"dropout_p": 0.5, "seed": "x"}, TypeError, "^attention: seed is of type str; expected an integer, or uint32 of shape"),
    ({"dropout_p": 0.5, "seed": jax.random.key(1)}, TypeError, "^attention: seed is a key<fry> of jax.random; expected .*jax.random.key_data"),
    ({"packing": ([], [])}, ValueError, "^attention: packing is given, and the batch size is 2"),
    ({"threads": 4097}, ValueError, "^threads is 4097; expected 0 .. 4096"),
    ({"scale": True}, TypeError, "^attention: scale is of type bool; expected a number"),
    ({"scale": np.True_}, TypeError, "^attention: scale is of type bool; expected a number"),
    ({"alibi": np.full(4, True)}, TypeError, "^attention: alibi is bool; expected numbers"),
    ({"alibi": [True] * 4}, TypeError,
     r"^attention: alibi\[0\] is of type bool; expected a number\n"),
    ({"scale": [1, 2, jnp.bool_(True), 3]}, TypeError,
     r"^attention: scale\[2\] is of type bool; expected a number\n"),
    ({"sinks": [1, 2, 3, None]}, TypeError,
     r"^attention: sinks\[3\] is of type NoneType; expected a number\n"),
    ({"key_lengths": [True, 2]}, TypeError,
     r"^attention: key_lengths\[0\] is of type bool; expected an integer\n"),
    ({"query_start": [1, 2.0]}, TypeError,
     r"^attention: query_start\[1\] is of type float; expected an integer\n"),
    ({"packing": ([0, True], [0, 1])}, TypeError,
     r"^attention: packing\.query_offsets\[1\] is of type bool; expected an integer\n"),
    ({"softcap": True}, TypeError, "^attention: softcap is of type bool; expected a number"),
    ({"dropout_p": 0.5, "seed": True}, TypeError, "^attention: seed is of type bool; expected an integer"),
    ({"key_lengths": True}, TypeError, "^attention: key_lengths is bool; expected int32 or int64"),
    ({"scale": 1j}, TypeError, "^attention: scale is complex64; expected numbers that are real"),
    ({"sinks": jnp.ones(4, jnp.complex64)}, TypeError, "^attention: sinks is complex64; expected numbers that are real"),
    ({"causal": 1}, TypeError, "^attention: causal is of type int; expected True or False"),
    ({"normalize_qk": 1}, TypeError, "^attention: normalize_qk is of type int; expected True or False"),
    ({"mask": heed.Mask(7, np.ones((T, S), bool))}, ValueError, r"^attention: mask\.role is 7; expected 1 \(keep\), 2 \(drop\) or 3 \(add"),
    ({"mask": heed.Mask("keep", np.ones((T, S), bool))}, TypeError, r"^attention: mask\.role is of type str; expected an integer"),
    ({"mask": heed.Mask(1, None)}, TypeError, r"^attention: mask\.array is None; expected an array"),
    ({"q": np.float32(1)}, ValueError, r"^attention: q has rank 0; expected 2 \[T, D\], 3 \[B, T, D\] or 4 \[B, H, T, D\]"),
    ({"v": 1.0}, ValueError, "^attention: v has rank 0; expected 2"),
    ({"q": np.ma.masked_array(Q)}, TypeError, "^attention: q is of type numpy.ma.MaskedArray, which hides elements"),
]


@pytest.mark.parametrize("name", ["softcap", "dropout_p", "window", "causal", "normalize_qk", "return_weights", "return_lse",
                                  "statistics", "threads", "reproducible", "is_causal", "local_window_size",
                                  "return_residual"])
def test_what_must_be_known_is_refused_by_its_name_where_it_is_traced(name):
    theirs = name in ("is_causal", "local_window_size", "return_residual")
    attention = heed.jax.dot_product_attention if theirs else heed.jax.attention
    given = [x.swapaxes(1, 2) for x in (Q, K, V)] if theirs else (Q, K, V)

    def call(x):
        return jax.tree_util.tree_leaves(attention(*given, **{name: (x, 0) if "window" in name else x}))[0].sum()
    for way, x in ((jax.jit, 1), (jax.vmap, np.ones(1)), (jax.grad, 1.0)):
        with pytest.raises(TypeError, match=f"^{attention.__name__}: {name} is a traced (int|float)(32|64); expected a value that jit, "
                                            "grad and vmap do not trace: jax.jit has static_argnames\n"):
            way(call)(x)


@pytest.mark.parametrize("name", ["q", "k", "mask", "scale", "softcap", "key_lengths"])
def test_tensors_of_pytorch_are_refused(name):
    """JAX would copy them, and their gradients would be lost."""
    import torch

    values = {"q": Q, "k": K, "mask": np.ones((T, S), bool), "scale": 0.5, "softcap": 3.0, "key_lengths": np.full(2, S)}
    given = {"q": Q, "k": K, "v": V} | {name: torch.tensor(values[name])}
    with pytest.raises(TypeError, match=f"^attention: {name} is of type (torch.)?Tensor; expected"):
        heed.jax.attention(**given)
    if name == "scale":
        message = r"^attention: scale\[1\] is of type Tensor; expected a number$"
        with pytest.raises(TypeError, match=message):
            heed.jax.attention(Q, K, V, scale=[0.5, given["scale"], 1, 1])
    if name in ("q", "k"):
        given = {"query": Q, "key": K, "value": V} | {{"q": "query", "k": "key"}[name]: torch.tensor(values[name])}
        with pytest.raises(TypeError, match="^dot_product_attention: (query|key) is of type torch.Tensor; expected"):
            heed.jax.dot_product_attention(**given)


@pytest.mark.parametrize("dtype", [">f4", "U1", "O", "M8[s]", "longdouble"])
def test_arrays_that_jax_does_not_take_are_refused_by_their_type(dtype):
    array = np.zeros(Q.shape, dtype)
    with pytest.raises(TypeError, match=f"^attention: q is an array of {re.escape(str(array.dtype))}; expected an array of JAX or NumPy, of a "
                                        "type that JAX has$"):
        heed.jax.attention(array, K, V)


@pytest.mark.parametrize("given,error,message", WRONG, ids=[message for _, _, message in WRONG])
def test_a_wrong_call_is_refused_when_it_is_traced(given, error, message):
    given = {"q": Q, "k": K, "v": V} | given
    with pytest.raises(error, match=message):
        jax.eval_shape(lambda: heed.jax.attention(**given))


def test_refusals_use_the_names_of_dot_product_attention():
    q, k, v = (x.swapaxes(1, 2) for x in (Q, K, V))
    for given, message in (((q[..., :8], k, v), "dot_product_attention: head size of key is 16, of query 8"),
                           ((q[0], k, v), "value .*; expected 3 axes each, or 4 each")):
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(lambda given=given: heed.jax.dot_product_attention(*given))
    message = r"^dot_product_attention: key_value_seq_lengths\[1\] is of type bool; expected an integer$"
    with pytest.raises(TypeError, match=message):
        heed.jax.dot_product_attention(q, k, v, key_value_seq_lengths=[1, True])
    for options, message in (({"local_window_size": (1, 2, 3)}, "local_window_size is not a pair, but has 3"),
                             ({"local_window_size": ()}, "local_window_size is not a pair, but has 0 elements"),
                             ({"local_window_size": (1.5, 2)}, "local_window_size.left is of type float"),
                             ({"is_causal": "yes"}, "is_causal is of type str"),
                             ({"return_residual": "no"},
                              "return_residual is of type str; expected True or False$")):
        with pytest.raises((ValueError, TypeError), match="^dot_product_attention: " + message):
            heed.jax.dot_product_attention(q, k, v, **options)


def test_what_only_values_tell_is_refused_when_it_runs():
    run = jax.jit(lambda length: heed.jax.attention(Q, K, V, key_lengths=length))
    with pytest.raises(jax.errors.JaxRuntimeError, match="attention: key_lengths"):
        run(np.array([3, S + 1], np.int32)).block_until_ready()
    assert np.array_equal(run(np.array([3, S], np.int32)), heed.attention(Q, K, V, key_lengths=[3, S]))


@pytest.mark.parametrize("options,message", [
    ({"key_lengths": S + 1}, f"attention: key_lengths is {S + 1}; expected 0 .. {S}"),
    ({"key_lengths": [3, S + 1]}, rf"attention: key_lengths\[1\] is {S + 1}; expected 0 .. {S}"),
    ({"query_lengths": -1}, f"attention: query_lengths is -1; expected 0 .. {T}"),
    ({"query_seq_lengths": [3, 99]}, rf"dot_product_attention: query_seq_lengths\[1\] is 99; expected 0 .. {T}"),
    ({"key_value_seq_lengths": [99, 3]}, rf"dot_product_attention: key_value_seq_lengths\[0\] is 99; expected 0 .. {S}"),
    ({"key_value_seq_lengths": 99}, f"dot_product_attention: key_value_seq_lengths is 99; expected 0 .. {S}")])
def test_a_call_of_its_own_tells_of_values_in_the_callers_words(options, message):
    """The second time as the first: JAX itself raises another error once it has compiled the call."""
    name, value = next(iter(options.items()))
    theirs = message.startswith("dot_product")
    call = heed.jax.dot_product_attention if theirs else heed.jax.attention
    q, k, v = (x.swapaxes(1, 2) if theirs else x for x in (Q, K, V))

    def refused():
        with pytest.raises(ValueError, match=f"^{message}$"):
            call(q, k, v, **{name: jnp.asarray(value)})

    refused()
    call(q, k, v, **{name: jnp.ones_like(jnp.asarray(value))})
    refused()
    refused()


@pytest.mark.parametrize("call, told", [
    (lambda q: heed.jax.attention(q, q, q), r"attention: q has shape \(b, 4, 10, 8\); expected numbers, not symbols of jax.export"),
    (lambda q: heed.jax.dot_product_attention(q, q, q), r"dot_product_attention: query has shape \(b, .*; expected numbers, not symbols")])
def test_shapes_of_symbols_are_refused(call, told):
    symbols = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b,4,10,8"), np.float32)
    with pytest.raises(TypeError, match=told):
        jax.export.export(jax.jit(call))(symbols)
