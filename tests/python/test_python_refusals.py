"""What heed says of a wrong call: the name of the argument, what was expected, what came; and nothing is lost silently."""

import ctypes

import numpy as np
import pytest
from support import inputs

import heed
from heed import _core, _inspection, _options

Q, K, V = inputs()
O, LSE = heed.attention(Q, K, V, return_lse=True)[::2]


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
    with pytest.raises(ValueError, match=r"k is a negated view, whose sign is not in memory; pass k\.resolve_neg\(\)"):
        heed.attention(Q, Negated(K), V)


@pytest.mark.parametrize("call,error,text", [
    (lambda: heed.attention([[1.0]], K, V), TypeError, "^q is of type list; expected an array with __dlpack__"),
    (lambda: heed.attention(Q, K, [[1.0]]), TypeError, "^v is of type list; expected an array with __dlpack__"),
    (lambda: heed.attention(Q, K, V, threads=1.5), TypeError, "^threads is of type float; expected an integer"),
    (lambda: heed.attention(Q, K, V, threads=-1), ValueError, "^threads is -1; expected 0 .. 4096"),
    (lambda: heed.attention(Q, K, V, threads=4097), ValueError, "^threads is 4097; expected 0 .. 4096"),
    (lambda: heed.attention(Q, K, V, threads=2**40), ValueError, "^threads is 1099511627776; expected 0 .. 4096"),
    (lambda: heed.attention(Q, K, V, threads=10**5000), ValueError, "^threads is an integer of more than 60 digits; expected 0"),
    (lambda: heed.attention(Q, K, V, query_start=10**5000), ValueError,
     "^query_start is an integer of more than 60 digits; expected one that fits 64 bits"),
    (lambda: heed.attention(Q, K, V, dropout_p=0.5, seed=-10**5000), ValueError,
     r"^seed is an integer of more than 60 digits; expected 0 .. 2\^64 - 1"),
    (lambda: heed.attention(Q.astype(np.longdouble), K, V), TypeError,
     "^q is an array of float128; expected real numbers of up to 64 bits, or booleans"),
    (lambda: heed.attention(Q, K, V, scale=10**400), ValueError, "^scale is an integer beyond the largest float64; expected"),
    (lambda: heed.attention(Q, K, V, softcap=10**400), ValueError, "^softcap is an integer beyond the largest float64"),
    (lambda: heed.explain((2**63, 8), K, V), ValueError, r"^explain: q\[0\] is 9223372036854775808; expected one that fits 64 bits"),
    (lambda: heed.explain(*[(1, 1, 2**62, 64)] * 3), ValueError,
     r"^explain: q has shape \[1, 1, 4611686018427387904, 64\] .*; its extent must fit 63 bits of bytes"),
    (lambda: heed.explain((1, 1, 5, 8), (1, 1, 2**62, 64), V), ValueError, "^explain: k has shape .*; its extent must fit 63 bits"),
    (lambda: heed.explain((2, -2**62, 2**62, 8), K, V), ValueError, "^explain: q has shape .*; sizes must not be negative"),
    (lambda: heed.explain((), K, V), ValueError, r"^explain: q has rank 0; expected 2 \[T, D\], 3 \[B, T, D\] or 4 \[B, H, T, D\]"),
    (lambda: heed.explain(Q, (), V), ValueError, r"^explain: k has rank 0; expected 2"),
    (lambda: heed.explain((2,) * 100, K, V), ValueError, "^explain: q has rank 100; expected at most 4"),
    (lambda: heed.inspect_weights(Q, K, Q, threads=1.5), TypeError, "^threads is of type float; expected an integer"),
    (lambda: heed.explain(Q, K, V, threads="2"), TypeError, "^threads is of type str; expected an integer"),
    (lambda: heed.explain(Q, K, V, colour=1), TypeError, "^explain: got an unexpected keyword argument 'colour'; expected options among scale, normalize_qk,"),
    (lambda: heed.inspect_weights(Q, K, V, colour=1), TypeError, "got an unexpected keyword argument 'colour'"),
    (lambda: heed.attention_jvp(Q, K, V, Q, Q, colour=1), TypeError, "got an unexpected keyword argument 'colour'"),
    (lambda: heed.attention_backward(Q, K, V, Q, Q, Q, colour=1), TypeError, "got an unexpected keyword argument 'colour'"),
    (lambda: heed.attention_backward(Q, K, V, Q, Q, Q, gradients="dq"), TypeError,
     r"^attention_backward: gradients is the string 'dq'; expected a list of names, such as \['dq'\]"),
    *((lambda x=x: heed.attention_backward(Q, K, V, O, LSE, O, gradients=x), TypeError,
       f"^attention_backward: gradients is of type {kind}; expected a list of names")
      for x, kind in ((None, "NoneType"), (False, "bool"), (True, "bool"))),
    (lambda: heed.attention(Q, K, V, statistics=["entropie"]), ValueError, "statistics names 'entropie'; expected names"),
    (lambda: heed.attention(Q, K, V, window=(0.5, None)), TypeError, "^window.left is of type float"),
    (lambda: heed.attention(Q, K, V, window=True), TypeError, r"^window is not a pair, but of type bool; expected \(left, right\)"),
    (lambda: heed.explain(Q, K, V, window=1.0), TypeError, r"^window is not a pair, but of type float; expected \(left, right\)"),
    (lambda: heed.inspect(Q, K, window=1.0), TypeError, "^inspect: window is not a pair, but of type float; expected"),
    (lambda: heed.attention(Q, K, V, packing=True), TypeError, r"^packing is not a pair, but of type bool; expected \(query_off"),
    (lambda: heed.attention_backward(Q, K, V, O, LSE, O, gradients=["dq", 1]), TypeError,
     r"^attention_backward: gradients\[1\] is of type int; expected a name among dq, dk, "),
    (lambda: heed.attention(Q, None, V), TypeError, "^k is of type NoneType; expected an array"),
    (lambda: heed.attention(Q, K, None), TypeError, "^v is of type NoneType; expected an array"),
    (lambda: heed.explain(Q, None, V), TypeError, "^k is of type NoneType; expected an array"),
    (lambda: heed.explain((1, "2", 3, 4), K, V), TypeError, r"^explain: q\[1\] is of type str; expected an integer"),
    (lambda: heed.attention_backward(Q, K, V, Q, LSE, None), TypeError, "^d_output is of type NoneType; expected an array"),
    (lambda: heed.attention_jvp(Q, K, V, Q, None), TypeError, "^lse is of type NoneType; expected an array"),
    (lambda: heed.inspect_weights(Q, K, None), TypeError, "^lse is of type NoneType; expected an array"),
    (lambda: heed.summarize(None), TypeError, "^numbers is of type NoneType; expected an array"),
    (lambda: heed.saturation(LSE, threshold=None), TypeError, "^threshold is of type NoneType; expected a number"),
    (lambda: heed.attention(Q, K, V, bias=((0, 0), (0, 0))), TypeError, "^bias is of type tuple; expected an array"),
    (lambda: heed.attention(Q, K, V, scale="a"), TypeError,
     "^scale is of type str; expected a number, or an array of one for each head"),
    (lambda: heed.attention(Q, K, V, key_lengths="a"), TypeError,
     "^key_lengths is of type str; expected an integer, or an array of one for each batch entry"),
    (lambda: heed.attention(Q, K, V, mask=np.zeros((5, 8))), ValueError, r"^attention: mask has shape \[5, 8\]; expected"),
    (lambda: heed.attention(Q, K, V, mask=heed.add(np.zeros((5, 8)))), ValueError, r"^attention: mask has shape \[5, 8\]"),
    (lambda: heed.attention(Q, K, V, bias=np.zeros((5, 8))), ValueError, r"^attention: bias has shape \[5, 8\]; expected"),
    (lambda: heed.attention_backward(Q, K, V, O, LSE, O, gradients=["dbias"], mask=np.zeros((5, 8))), ValueError,
     r"^attention_backward: mask has shape \[5, 8\]"),
    (lambda: heed.attention_backward(Q, K, V, O, LSE, O, gradients=["dq", "dbias"]), ValueError,
     "^attention_backward: dbias is wanted, but bias is None; expected both$"),
    (lambda: heed.attention_jvp(Q, K, V, O, LSE, tangent_bias=np.zeros((5, 8)), mask=np.zeros((5, 7))), ValueError,
     r"^attention_jvp: tangent_bias has shape \[5, 8\]"),
    (lambda: heed.attention(Q, K, V, mask=(1, np.ones((5, 7), bool))), TypeError, "^mask is of type tuple; expected an array"),
    (lambda: heed.keep(None), TypeError, "^keep: mask is None; expected an array"),
    (lambda: heed.drop(heed.keep(np.ones((5, 7), bool))), TypeError, "^drop: mask is made by heed.keep, heed.drop or heed.add"),
    (lambda: heed.attention(Q, K, V, alibi=1), TypeError, "^alibi is of type int; expected an array or a list of numbers, one"),
    (lambda: heed.attention(Q, K, V, sinks=1.5), TypeError, "^sinks is of type float; expected an array or a list of numbers"),
    (lambda: heed.attention(Q, K, V, packing=([0, 5], 7)), TypeError,
     "^packing.key_offsets is of type int; expected an array or a list of integers"),
    (lambda: heed.attention(Q, K, V, seed=3), ValueError, "^seed is given, but dropout_p is not; expected both"),
    (lambda: heed.explain(Q, K, V, seed=3), ValueError, "^seed is given, but dropout_p is not; expected both"),
    (lambda: heed.attention(Q, K, V, return_weights="no"), TypeError, "^return_weights is of type str; expected True or False"),
    (lambda: heed.attention(Q, K, V, return_lse=1), TypeError, "^return_lse is of type int; expected True or False"),
    (lambda: heed.inspect_weights(Q, K, LSE, column_sums="no"), TypeError, "^column_sums is of type str; expected True or"),
    (lambda: heed.inspect_weights(Q, K, LSE, rows=[0], row_weights=1), TypeError, "^row_weights is of type int; expected"),
])
def test_a_refusal_names_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("options,name", [
    ({"scale": True}, "scale"), ({"scale": np.True_}, "scale"), ({"scale": np.array(True)}, "scale"), ({"softcap": True}, "softcap"),
    ({"scale": [True] * 4}, r"scale\[0\]"), ({"alibi": [1, 2, 3, False]}, r"alibi\[3\]"), ({"sinks": [np.True_] * 4}, r"sinks\[0\]"),
    ({"query_start": False}, "query_start"), ({"window": (True, 1)}, "window.left"), ({"window": (1, np.False_)}, "window.right"),
    ({"key_lengths": True}, "key_lengths"), ({"key_lengths": [True, 2]}, r"key_lengths\[0\]"), ({"query_lengths": True}, "query_lengths"),
    ({"dropout_p": True}, "dropout_p"), ({"dropout_p": 0.5, "seed": True}, "seed"), ({"threads": True}, "threads"),
    ({"threads": np.True_}, "threads")])
def test_booleans_are_no_numbers(options, name):
    with pytest.raises(TypeError, match=f"^{name} is of type bool; expected (a number|an integer)$"):
        heed.attention(Q, K, V, **options)


@pytest.mark.parametrize("call,text", [
    (lambda: heed.explain((True, 8), (7, 8), (7, 8)), r"^explain: q\[0\] is of type bool; expected an integer"),
    (lambda: heed.KvCache(True, 8, 4), "^KvCache: kv_heads is of type bool; expected an integer"),
    (lambda: heed.inspect(Q, K, top=True), "^inspect: top is of type bool; expected an integer"),
    (lambda: heed.inspect(Q, K, rows=[0, True]), r"^inspect: rows\[1\] is of type bool; expected an integer"),
    (lambda: heed.inspect_weights(Q, K, LSE, mean_map=(True, 2)), r"^inspect_weights: mean_map\[0\] is of type bool; expected"),
    (lambda: heed.merge([O], [LSE], threads=True), "^merge: threads is of type bool; expected an integer"),
    (lambda: heed.saturation(LSE, threshold=True), "^threshold is of type bool; expected a number")])
def test_booleans_are_no_numbers_elsewhere(call, text):
    with pytest.raises(TypeError, match=text):
        call()


class Raises:
    """A number that cannot be read."""

    def __init__(self, error):
        self.error = error

    def __float__(self):
        raise self.error

    __index__ = __float__


@pytest.mark.parametrize("name", ["scale", "softcap", "dropout_p", "query_start", "key_lengths", "seed", "threads"])
def test_what_is_about_no_number_is_no_wrong_number(name):
    for error in (KeyboardInterrupt, MemoryError, SystemExit):
        with pytest.raises(error):
            heed.attention(Q, K, V, **{"dropout_p": 0.5, "seed": 1} | {name: Raises(error)})


RAGGED = [[1.0], [1.0, 2.0]]


@pytest.mark.parametrize("call,error,text", [
    (lambda: heed.entropy_share(RAGGED, 3), ValueError, r"^entropy_share: entropy is of type list, of which NumPy makes no array \("),
    (lambda: heed.effective_keys(RAGGED), ValueError, "^effective_keys: entropy is of type list, of which NumPy makes no array"),
    (lambda: heed.mean_diagonal(0.5, RAGGED), ValueError, "^mean_diagonal: visible_keys is of type list, of which NumPy makes no"),
    (lambda: heed.study.scaling((RAGGED,) * 3), ValueError, "^q is of type list, of which NumPy makes no array"),
    (lambda: heed.study.scaling((Q.astype(int),) * 3), TypeError, "^q is of type int64; expected a floating type$"),
    (lambda: heed.entropy_share(1.0, 10**30), TypeError, "^entropy_share: visible_keys is of type int; expected numbers of NumPy's types"),
    (lambda: heed.attention(Q, K, V, scale=type("Odd", (), {"ndim": "x"})()), TypeError, "^scale is of type .*Odd; expected a number, or")])
def test_what_makes_no_array_is_named(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_rows_are_checked_as_they_are_used():
    """Another thread may change an array between the two."""
    rows = np.array([0, 1])
    assert not np.shares_memory(_inspection.integers("rows", rows), rows)


def test_as_many_threads_as_the_library_takes_may_be_asked_for():
    assert np.array_equal(heed.attention(Q, K, V, threads=4096), heed.attention(Q, K, V))


LISTS = [
    ({"scale": [1, "2", 3, 4]}, TypeError, r"^scale\[1\] is of type str; expected a number"),
    ({"alibi": [[1, 2, 3, 4]]}, TypeError, r"^alibi\[0\] is of type list; expected a number"),
    ({"sinks": [1, 2, 3]}, ValueError, r"^attention: sinks has shape \[3\]; expected \[4\]"),
    ({"key_lengths": [5, 1.5]}, TypeError, r"^key_lengths\[1\] is of type float; expected an integer"),
    ({"key_lengths": [2**70, 1]}, ValueError, r"^key_lengths\[0\] is 1180591620717411303424; expected one that fits 64 bits"),
    ({"query_start": []}, ValueError, r"^attention: query_start has shape \[0\]; expected \[2\]"),
    ({"packing": ([], [])}, ValueError, "^attention: packing is given, and the batch size is 2"),
]


@pytest.mark.parametrize("options,error,text", LISTS, ids=[text for _, _, text in LISTS])
def test_an_entry_of_a_list_is_named(options, error, text):
    with pytest.raises(error, match=text):
        heed.attention(Q, K, V, **options)


@pytest.mark.parametrize("name", ["scale", "alibi", "sinks"])
def test_whole_numbers_in_a_list_are_numbers(name):
    expected = heed.attention(Q, K, V, **{name: np.arange(1.0, 5.0)})
    for numbers in ([1, 2, 3, 4], (1, 2.0, 3, np.int8(4)), [1.0, np.float32(2), 3, 4]):
        assert np.array_equal(heed.attention(Q, K, V, **{name: numbers}), expected)


def test_dropout_of_nothing_may_have_a_seed():
    assert np.array_equal(heed.attention(Q, K, V, dropout_p=0, seed=3), heed.attention(Q, K, V))


def test_a_masked_array_is_refused_wherever_it_stands():
    hidden = np.ma.masked_array(np.ones((5, 7), bool), np.eye(5, 7) > 0)
    for call, name in ((lambda: heed.attention(np.ma.masked_array(Q), K, V), "q"),
                       (lambda: heed.attention(Q, K, V, mask=hidden), "mask"),
                       (lambda: heed.attention(Q, K, V, mask=heed.keep(hidden)), "mask"),
                       (lambda: heed.attention(Q, K, V, out=np.ma.zeros(O.shape, np.float32)), "out"),
                       (lambda: heed.entropy_share(np.ma.masked_array([1.0]), [2]), "entropy_share: entropy"),
                       (lambda: heed.saturation(np.ones((1, 1, 2)), np.ma.ones((1, 1, 2), np.int32)), "visible_keys"),
                       (lambda: heed.inspect_weights(Q, K, LSE, rows=np.ma.ones(2, int), row_weights=True), "rows"),
                       (lambda: heed.inspect(np.ma.masked_array(Q), K), "q"),
                       (lambda: heed.inspect(Q, K, mask=hidden), "mask"),
                       (lambda: heed.attention(Q, K, V, scale=np.ma.array(0.5)), "scale"),
                       (lambda: heed.attention(Q, K, V, softcap=np.ma.array(9.0, mask=True)), "softcap"),
                       (lambda: heed.attention(Q, K, V, key_lengths=np.ma.array(1, mask=True)), "key_lengths"),
                       (lambda: heed.attention(Q, K, V, query_start=np.ma.array(5)), "query_start"),
                       (lambda: heed.attention(Q, K, V, dropout_p=0.5, seed=np.ma.array(3)), "seed"),
                       (lambda: heed.attention(Q, K, V, window=(np.ma.array(3), None)), "window.left"),
                       (lambda: heed.attention(Q, K, V, key_lengths=[np.ma.array(2)]), r"key_lengths\[0\]"),
                       (lambda: heed.attention(Q, K, V, sinks=[np.ma.masked, 0]), r"sinks\[0\]"),
                       (lambda: heed.attention(Q, K, V, key_lengths=np.ma.array(True)), "key_lengths"),
                       (lambda: heed.attention(Q, K, V, window=np.ma.array([3, 2])), "window"),
                       (lambda: heed.inspect([list(Q[0, 0, :4]), [np.ma.array(Q[0, 0, 0])] * 4], K), r"q\[1\]\[0\]"),
                       (lambda: heed.inspect(Q, K, rows=np.ma.array([0, 1])), "inspect: rows"),
                       (lambda: heed.attention_decode(Q, heed.KvCache(1, 4, 1), np.ma.array([0])), "attention_decode: sequences"),
                       (lambda: heed.saturation(LSE, threshold=np.ma.array(0.5)), "threshold"),
                       (lambda: heed.KvCache(1, 4, pages=np.ma.array(4)), "KvCache: pages")):
        plain = name.split()[-1] + (r"\.data" if name == "out" else r"\.filled\(0\)")   # a copy of out would be filled for nobody
        with pytest.raises(TypeError, match=f"^{name} is of type numpy.*Masked(Array|Constant), which hides elements.* such as {plain}$"):
            call()


def told_by(error, text, call):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("role,error,text", [
    *((role, ValueError, rf"role is {role}; expected 1 \(keep\), 2 \(drop\) or 3 \(add\)$") for role in (0, 4, 7, -1, 2**40)),
    ("keep", TypeError, "role is of type str; expected an integer$"), (None, TypeError, "role is of type NoneType; expected an"),
    (1.0, TypeError, "role is of type float; expected an integer$"), (True, TypeError, "role is of type bool; expected an int")])
def test_a_mask_of_no_role_is_refused_wherever_it_stands(role, error, text):
    """Once it was taken for none: every key was seen."""
    array = np.tri(5, 7, dtype=bool)
    cache = heed.KvCache(2, 8, 4, value_size=6)
    names = [cache.create(), cache.create()]
    cache.append(names, K, V)
    for mask in (heed.Mask(role, array), heed.keep(array)._replace(role=role), heed.Mask._make((role, array))):
        for call in (lambda: heed.attention(Q, K, V, mask=mask), lambda: heed.explain(Q, K, V, mask=mask),
                     lambda: heed.attention_backward(Q, K, V, O, LSE, O, gradients=["dbias"], mask=mask),
                     lambda: heed.attention_jvp(Q, K, V, O, LSE, tangent_q=Q, mask=mask),
                     lambda: heed.inspect_weights(Q, K, LSE, column_sums=True, mask=mask),
                     lambda: heed.attention_decode(Q, cache, names, mask=mask)):
            told_by(error, "^mask." + text, call)
        told_by(error, r"^inspect: mask\." + text, lambda: heed.inspect(Q, K, mask=mask))


def test_the_compiled_part_refuses_a_role_too():
    """The operators of heed.torch hand it what they are given."""
    array, out = np.tri(5, 7, dtype=bool), np.empty(O.shape, np.float32)
    for role, error in ((4, ValueError), (-1, ValueError), (2**40, ValueError), ("keep", TypeError)):
        options = _options.pack(mask=array, role=role)
        told_by(error, r"^mask\.role is ", lambda: _core.attention_forward(Q, K, V, out, None, None, None, options, 1))


@pytest.mark.parametrize("role", [1, 2, 3])
def test_a_mask_has_an_array_that_says_nothing_yet(role):
    for call, name in ((lambda mask: heed.attention(Q, K, V, mask=mask), "mask"),
                       (lambda mask: heed.inspect(Q, K, mask=mask), "inspect: mask")):
        told_by(TypeError, rf"^{name}\.array is None; expected an array$", lambda: call(heed.Mask(role, None)))
        told_by(TypeError, rf"^{name}\.array is made by heed.keep, heed.drop or heed.add already; expected an array$",
                lambda: call(heed.Mask(role, heed.keep(np.tri(5, 7, dtype=bool)))))


class LearnedTensor:
    """A number of PyTorch that is learned: its gradient would be lost."""

    requires_grad = True

    def __float__(self):
        return 0.5


@pytest.mark.parametrize("name", ["scale", "softcap", "dropout_p"])
def test_a_number_that_requires_a_gradient_is_refused(name):
    rest = {"seed": 1} if name == "dropout_p" else {}
    with pytest.raises(ValueError, match=f"^{name} requires a gradient.*heed.torch.attention, or pass {name}.detach"):
        heed.attention(Q, K, V, **{name: LearnedTensor()}, **rest)


@pytest.mark.parametrize("statistics, error, text", [
    (0, TypeError, "is of type int; expected a list of names"), (5, TypeError, "is of type int; expected a list of names"),
    ("", TypeError, "is the string ''; expected a list of names"),
    ("entropy", TypeError, r"is the string 'entropy'; expected a list of names, such as \['entropy'\]"),
    (b"entropy", TypeError, "is of type bytes; expected a list of names"),
    (np.array(0), TypeError, "is of type ndarray; expected a list of names"),
    (["entropie"], ValueError, "names 'entropie'; expected names among max_score, "),
    (["entropy", 1], TypeError, r"\[1\] is of type int; expected a name among max_score, "),
    (np.zeros(2), TypeError, r"\[0\] is of type float64; expected a name among max_score, "),
    (np.array([["entropy", "max_weight"]]), TypeError, r"\[0\] is of type ndarray; expected a name among max_score, ")])
def test_statistics_that_name_nothing_are_refused(statistics, error, text):
    cache = heed.KvCache(2, 8, 1, value_size=6)
    name = cache.create()
    cache.append(name, K[:1], V[:1])
    told_by(error, "^attention: statistics ?" + text, lambda: heed.attention(Q, K, V, statistics=statistics))
    told_by(error, "^attention_decode: statistics ?" + text,
            lambda: heed.attention_decode(Q[:1], cache, name, statistics=statistics))


def test_an_array_of_names_asks_for_these_statistics():
    seen = heed.attention(Q, K, V, statistics=np.array(["entropy", "max_weight"])).statistics
    assert [name for name, x in seen._asdict().items() if x is not None] == ["max_weight", "entropy"]
    for nothing in (np.array([]), [], (), None, False):
        assert np.array_equal(heed.attention(Q, K, V, statistics=nothing), O)


def test_numpys_true_asks_for_all_statistics():
    seen = heed.attention(Q, K, V, statistics=np.True_).statistics
    assert all(x is not None for x in seen)
    assert isinstance(heed.attention(Q, K, V, statistics=np.False_), np.ndarray)


@pytest.mark.parametrize("arguments,options,error,text", [
    ((Q, K[..., :3], V), {}, ValueError, "head size of key is 3, of query 8"),
    ((Q, K, V, np.ones((2, 3), bool)), {}, ValueError, r"attn_mask has shape"),
    ((Q, K, V, np.ones((5, 7), int)), {}, TypeError, "attn_mask is int64; expected bool"),
    ((Q, K, [1.0]), {}, TypeError, "value is of type list"),
    ((Q, K, V), {"enable_gqa": False}, ValueError, "query has 4 heads, key 2; expected equal numbers, or enable_gqa=True"),
    ((Q, K[0], V[0]), {"enable_gqa": False}, ValueError, "rank of key is 3, of query 4; they must be equal"),
    ((Q, K, V), {"is_causal": "yes"}, TypeError, "is_causal is of type str"),
    ((Q, K, V), {"dropout_p": float("nan")}, ValueError, "dropout_p is nan; expected 0"),
    ((Q, K, V), {"enable_gqa": "yes"}, TypeError, "enable_gqa is of type str; expected True or False"),
    ((Q, K, V), {"enable_gqa": np.zeros(2)}, TypeError, "enable_gqa is of type ndarray; expected True or False"),
    ((Q, K, V), {"dropout_p": 0.5}, ValueError, "dropout_p needs a seed, which this signature lacks"),
    ((Q, K, V), {"dropout_p": "x"}, TypeError, "dropout_p is of type str; expected a number"),
    ((Q, K, V), {"dropout_p": True}, TypeError, "dropout_p is of type bool; expected a number"),
    ((Q, K, V), {"dropout_p": np.zeros(2)}, TypeError, "dropout_p is of type ndarray; expected a number"),
])
def test_refusals_of_pytorchs_signature_use_its_names(arguments, options, error, text):
    with pytest.raises(error, match="^scaled_dot_product_attention: " + text):
        heed.scaled_dot_product_attention(*arguments, **({"enable_gqa": True} | options))
