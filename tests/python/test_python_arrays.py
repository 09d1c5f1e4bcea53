"""Which arrays heed takes and gives: kinds, strides, element types, `out`; DLPack's odd corners never abort."""

import array
import ctypes
import re

import ml_dtypes
import numpy as np
import pytest
from handmade import Handmade, OnlyDlpack
from support import close, definition, inputs

import heed
from heed import _core, _options
from heed._command import as_numpy

Q, K, V = inputs()
EXPECTED = definition(Q, K, V)[0]


def places(x):
    """The same numbers, elsewhere in memory."""
    padded = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
    padded[1::2, 1::2, ::2, ::2] = x
    shifted = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    shifted[:] = x
    fixed = x.copy()
    fixed.flags.writeable = False
    return {
        "every second": padded[1::2, 1::2, ::2, ::2],
        "backwards": x[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1],
        "bthd": x.swapaxes(1, 2).copy().swapaxes(1, 2),
        "columns first": np.asfortranarray(x),
        "odd address": shifted,
        "read-only": fixed,
        "memoryview": memoryview(x),
        "only DLPack": OnlyDlpack(x),
    }


@pytest.mark.parametrize("place", list(places(Q)))
def test_any_place_in_memory_gives_the_same_bits(place):
    plain = heed.attention(Q, K, V)
    close(plain, EXPECTED)
    q, k, v = places(Q)[place], places(K)[place], places(V)[place]
    assert np.array_equal(heed.attention(q, k, v), plain)


def test_memmap(tmp_path):
    np.save(tmp_path / "q.npy", Q)
    q = np.load(tmp_path / "q.npy", mmap_mode="r")
    seen = heed.attention(q, K, V)
    assert np.array_equal(seen, heed.attention(Q, K, V))
    assert type(seen) is np.ndarray


def test_results_keep_the_order_of_axes():
    q = Q.swapaxes(1, 2).copy().swapaxes(1, 2)
    seen = heed.attention(q, K, V)
    assert seen.swapaxes(1, 2).flags.c_contiguous and np.array_equal(seen, heed.attention(Q, K, V))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_types_have_the_bits_of_float32_rounded_once_where_that_is_asked_for(dtype):
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    wide = heed.attention(*(x.astype(np.float32) for x in (q, k, v)), return_lse=True)
    seen = heed.attention(q, k, v, return_lse=True, reproducible=True)
    assert seen.output.dtype == dtype and seen.lse.dtype == np.float32
    assert np.array_equal(seen.output, wide.output.astype(dtype))
    assert np.array_equal(seen.lse, wide.lse)
    out = np.zeros(seen.output.shape[:-1] + (12,), dtype)
    heed.attention(q[..., ::-1], k[..., ::-1], v, out=out[..., ::2])
    assert np.allclose(out[..., ::2].astype(float), seen.output.astype(float), atol=0.02)
    assert not out[..., 1::2].any()


def test_bfloat16_has_its_own_dot_products_where_the_cpu_has_them():
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (Q, K, V))
    native = heed.instruction_set() in ("avx512_bf16", "neon_bf16")
    assert ("dot products of bfloat16" in heed.explain(q, k, v).path) == native
    assert "widened to float32" in heed.explain(q, k, v, reproducible=True).path
    wide = heed.attention(q, k, v, reproducible=True).astype(float)
    # P and the output are rounded to 8 bits: each output is off by at most 2^-8 of the largest |v| for P, 2^-9 of
    # itself for its own rounding, in either of the two.
    bound = (2.0**-8 + 2 * 2.0**-9) * np.abs(v.astype(float)).max()
    assert np.abs(heed.attention(q, k, v).astype(float) - wide).max() <= bound


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_16_bit_number_survives(dtype):
    """One query, one key: the output is v. All 2^16 patterns widen and round to themselves."""
    bits = np.arange(2**16, dtype=np.uint16)
    v = bits.view(dtype).reshape(-1, 1, 64)
    one = np.zeros((v.shape[0], 1, 8), dtype)
    seen = heed.attention(one, one, v, reproducible=True)  # dot products of bfloat16 lose subnormal numbers
    with np.errstate(invalid="ignore"):
        nan = np.isnan(v)
        assert np.isnan(seen[nan]).all()
        assert np.array_equal(seen[~nan], v[~nan])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_results_of_16_bits_are_rounded_to_nearest_even(dtype):
    """Means of pairs of neighbours and of random numbers lie between two numbers of the type."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**16, 40000, dtype=np.uint16)
    low, high = bits.view(dtype), rng.permutation(bits).view(dtype)
    high[::2] = (bits[::2] + 1).view(dtype)
    with np.errstate(invalid="ignore"):
        fit = np.isfinite(low) & np.isfinite(high)
    v = np.stack([low[fit], high[fit]], -1)[:, :, None]
    one = np.zeros((v.shape[0], 1, 8), dtype)
    keys = np.zeros((v.shape[0], 2, 8), dtype)
    wide = heed.attention(*(x.astype(np.float32) for x in (one, keys, v)))
    with np.errstate(over="ignore"):
        expected = wide.astype(dtype)
    assert np.array_equal(heed.attention(one, keys, v, reproducible=True), expected)


def test_out_is_written_and_returned():
    out = np.full((2, 4, 5, 12), 9, np.float32)
    assert heed.attention(Q, K, V, out=out[..., ::2]).base is out
    assert np.array_equal(out[..., ::2], heed.attention(Q, K, V)) and (out[..., 1::2] == 9).all()
    seen = heed.attention(Q, K, V, out=out[..., ::2], return_lse=True)
    assert seen.output.base is out
    fixed = np.zeros((2, 4, 5, 6), np.float32)
    fixed.flags.writeable = False
    for wrong, error, text in ((fixed, ValueError, "out is read-only"),
                               (np.zeros((2, 4, 5, 6)), TypeError, "attention: out is float64"),
                               (np.zeros((2, 4, 5, 7), np.float32), ValueError, r"attention: out has shape \[2, 4, 5, 7\]"),
                               (Q, ValueError, r"attention: out has shape \[2, 4, 5, 8\]"), ([0.0], TypeError, "out is of type list")):
        with pytest.raises(error, match=text):
            heed.attention(Q, K, V, out=wrong)
    q = Q.copy()
    with pytest.raises(ValueError, match="attention: out overlaps q in memory"):
        heed.attention(q, K, K, out=q)
    assert np.array_equal(q, Q)


def test_pointers_are_arrays_inside_the_package():
    out = np.empty((2, 4, 5, 6), np.float32)

    def pointer(x):
        return x.ctypes.data, x.dtype.name, x.shape, tuple(n // x.itemsize for n in x.strides), _core._POINTER

    _core.attention_forward(*map(pointer, (Q, K, V, out)), None, None, None, _options.pack(), 0)
    assert np.array_equal(out, heed.attention(Q, K, V))
    kinds = r"expected \(address, dtype, shape, strides\): an integer, a name and two tuples"
    for wrong, error, text in ((("x", "float32", (1,), (1,)), TypeError, kinds),
                               ((0, "float31", (1,), (1,)), ValueError, "^no element type is called float31$"),
                               ((0, "float32", [1], [1]), TypeError, kinds),
                               ((0, "float32", (2, 2), (1,)), ValueError, "shape and strides have different lengths"),
                               ((0, "float32", (2, "x"), (1, 1)), TypeError, "as an integer")):
        with pytest.raises(error, match=text):
            _core.attention_forward((*wrong, _core._POINTER), K, V, out, None, None, None, _options.pack(), 0)


def test_dlpack_without_strides_and_with_an_offset():
    flat = np.concatenate([np.full(3, 9, np.float32), K.ravel()])
    seen = heed.attention(Q, Handmade(flat, K.shape, byte_offset=12), V)
    assert np.array_equal(seen, heed.attention(Q, K, V))
    last = K[..., ::-1].copy()
    strides = [n // 4 for n in last.strides[:-1]] + [-1]
    seen = heed.attention(Q, Handmade(last, K.shape, strides, byte_offset=4 * 7), V)
    assert np.array_equal(seen, heed.attention(Q, K, V))


def test_dlpack_of_nothing():
    for offset in (0, 64):
        seen = heed.attention(Q, Handmade(None, (2, 2, 0, 8), byte_offset=offset),
                              Handmade(None, (2, 2, 0, 6), strides=(0, 0, 6, 1)))
        assert seen.shape == (2, 4, 5, 6) and not seen.any()
    assert heed.attention(Q[:, :, :0], K, V).shape == (2, 4, 0, 6)


@pytest.mark.parametrize("tensor,error,text", [
    (Handmade(None, (2, 2, 7, 8)), ValueError, "k has elements, but no memory"),
    (Handmade(None, (2, 2, 7, 8), byte_offset=64), ValueError, "k has elements, but no memory"),
    (Handmade(K.copy(), K.shape, byte_offset=2**63), ValueError, "k has a byte offset of 9223372036854775808; expected one within"),
    (Handmade(K.copy(), K.shape, byte_offset=2**64 - 4), ValueError, "k has a byte offset of 18446744073709551612; expected"),
    (Handmade(None, ()), ValueError, "k has elements, but no memory"),
    (Handmade(K.copy(), ()), ValueError, "rank of k is 0, of q 4"),
    (Handmade(K.copy(), (1, 1, 2, 2, 7, 8)), ValueError, "k has rank 6; expected at most 4"),
    (Handmade(K.copy(), (2, 2, -7, 8)), ValueError, "has a negative size"),
    (Handmade(K.copy(), (2, 2, 7, 8), device=2), ValueError, "k is on device type 2; expected cpu"),
    (Handmade(K.copy(), (2, 2, 7, 4), dtype=(2, 32, 2)), TypeError, "expected real numbers"),
    (Handmade(K.copy(), (2, 2, 7, 4), dtype=(5, 64, 1)), TypeError, "expected real numbers"),
    (Handmade(K.copy(), (2, 2, 7, 8), dtype=(77, 32, 1)), TypeError, "expected real numbers"),
    (Handmade(K.copy(), (2, 2, 7, 8), dtype=(2, 31, 1)), TypeError, "expected real numbers"),
    (Handmade(K.copy(), (2, 2, 7, 8), ndim=-1), (ValueError, TypeError), "k"),
    (Handmade(K.copy(), (2, 2, 2**62, 8)), ValueError, "k"),
    (Handmade(K.copy(), K.shape, sizes=False), ValueError, "k has rank 4, but its DLPack tensor has no shape"),
    (Handmade(K.copy(), K.shape, sizes=False, version=(1, 0)), ValueError, "k has rank 4, but its DLPack tensor has no shape"),
    (Handmade(K.copy(), K.shape, version=(2, 0)), ValueError,
     r"k is described by version 2\.0 of DLPack; expected 1\.0 or one like it"),
    (Handmade(K.copy(), K.shape, (112, 56, 8, 2**62)), ValueError,
     "k has stride 4611686018427387904 along axis 3; expected one that fits 63 bits of bytes"),
])
def test_dlpack_as_none_should_write_it(tensor, error, text):
    with pytest.raises(error, match=text):
        heed.attention(Q, tensor, V)


def test_dlpack_of_version_one_is_read():
    assert np.array_equal(heed.attention(Q, Handmade(K, K.shape, version=(1, 3)), V), heed.attention(Q, K, V))


@pytest.mark.parametrize("tensor", [
    Handmade(Q, Q.shape, sizes=False),   # killed the process
    Handmade(Q, Q.shape, (160, 40, 8, 2**62)),   # 2^64 bytes, which NumPy took for 0
])
def test_what_numpy_would_follow_unseen_is_refused_before_it_looks(tensor):
    """The output is made like q, merge's like its first part, with NumPy where no framework is known; so are files."""
    del tensor.shape
    for call in (lambda: heed.attention(tensor, K, V), lambda: heed.attention(Q, K, tensor),
                 lambda: heed.merge([tensor], [Q[..., 0]]), lambda: heed.study.scaling((tensor, K, V))):
        with pytest.raises(ValueError, match="no shape|63 bits"):
            call()


def test_q_too_large_for_numpy_is_told_by_its_name():
    for shape, text in (((1,) * 65, "^q has rank 65; expected at most 4"),
                        ((1, 2**62, 2, 4), r"^q has shape \(1, 46.*, 2, 4\); expected one that NumPy can hold \(")):
        with pytest.raises(ValueError, match=text):
            heed.attention(Handmade(Q, shape), K, V)


def test_dlpack_with_a_version_and_without_are_two_answers():
    """heed asks without, NumPy with, and nobody looked at what came: it killed the process."""
    class Two:
        def __dlpack__(self, max_version=None, **_):
            good, bad = Handmade(Q, Q.shape), Handmade(Q, Q.shape, sizes=False, version=(1, 0))
            made.append((good, bad))   # what a capsule points to must outlive it
            return (bad if max_version else good).__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    made = []
    assert np.array_equal(heed.attention(Two(), K, V), heed.attention(Q, K, V))
    assert np.array_equal(as_numpy("q", Two()), Q)


def test_of_a_buffer_and_dlpack_the_buffer_is_read():
    """By all: the core looked at the buffer alone, then NumPy followed DLPack and killed the process."""
    def both(x):
        of = ctypes.c_float * x.shape[1] * x.shape[0]
        bad = Handmade(x, x.shape, sizes=False)
        return type("Both", (of,), {"__dlpack__": lambda _, **__: bad.__dlpack__(),
                                    "__dlpack_device__": lambda _: (1, 0)}).from_buffer_copy(x)

    q, k, v = (x[0, 0] for x in (Q, K, V))
    expected = heed.attention(q, k, v, return_lse=True)
    assert np.array_equal(heed.attention(both(q), both(k), both(v)), expected.output)
    assert np.array_equal(heed.merge([both(expected.output)], [expected.lse]).output, expected.output)
    assert np.array_equal(as_numpy("q", both(q)), q)


class Gives:
    """What `__dlpack__` gives, one after the other."""

    def __init__(self, *given):
        self.given = list(given)

    def __dlpack__(self, **_):
        return self.given.pop(0)

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("given,text", [(K, r"numpy\.ndarray"), (None, "NoneType"), (1, "int")])
def test_what_is_called_dlpack_must_give_a_capsule(given, text):
    """It is not asked again: nobody would check what comes then."""
    bad = Handmade(Q, Q.shape, sizes=False)
    for name, call in (("q", lambda x: heed.attention(x, K, V)), ("k", lambda x: heed.attention(Q, x, V)),
                       ("v", lambda x: heed.attention(Q, K, x)), ("out", lambda x: heed.attention(Q, K, V, out=x)),
                       ("outputs[0]", lambda x: heed.merge([x], [Q[..., 0]]))):
        expected = f"^{re.escape(name)}" + rf"\.__dlpack__\(\) gave an object of type {text}; expected a capsule"
        with pytest.raises(TypeError, match=expected):
            call(Gives(given, bad.__dlpack__(), bad.__dlpack__()))


def test_bfloat16_that_shows_other_bits_is_refused():
    """Its elements would be looked for where their number and this type's size put them."""
    class Odd:
        shape, dtype = K.shape, np.dtype(ml_dtypes.bfloat16)

        def view(self, _):
            return np.zeros(K.shape, np.uint8)

    q, v = (x.astype(ml_dtypes.bfloat16) for x in (Q, V))
    with pytest.raises(TypeError, match="k is an array of bfloat16; expected an array with __dlpack__"):
        heed.attention(q, Odd(), v)


class Raises:
    shape = K.shape

    def __init__(self, error):
        self.error = error

    def __dlpack__(self, **_):
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), MemoryError("full"), RuntimeError("not today"),
                                   KeyError("k")])
def test_what_goes_wrong_inside_an_array_is_no_error_of_type(error):
    """Ctrl-C above all: the program would go on."""
    for call in (lambda x: heed.attention(x, K, V), lambda x: heed.attention(Q, x, V), lambda x: heed.attention(Q, K, V, mask=x),
                 lambda x: heed.attention(Q, K, V, out=x), lambda x: heed.attention(Q, K, V, alibi=x)):
        with pytest.raises(type(error)) as seen:
            call(Raises(error))
        assert seen.value is error


@pytest.mark.parametrize("error", [TypeError("t"), AttributeError("a"), BufferError("b")])
def test_an_array_that_refuses_dlpack_is_told_by_its_name_and_its_reason(error):
    for name, call in (("q", lambda x: heed.attention(x, K, V)), ("k", lambda x: heed.attention(Q, x, V))):
        with pytest.raises(TypeError, match=f"^{name} is of type .*Raises; expected an array") as seen:
            call(Raises(error))
        assert seen.value.__cause__ is error


def test_q_that_heed_can_read_but_not_numpy():
    """What is like it comes from NumPy."""
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in (Q, K, V))
    with pytest.raises(TypeError, match="^q is of type Handmade, whose elements NumPy does not know; expected"):
        heed.attention(Handmade(q, q.shape, dtype=(4, 16, 1)), k, v)
    assert np.array_equal(heed.attention(q, Handmade(k, k.shape, dtype=(4, 16, 1)), v), heed.attention(q, k, v))


@pytest.mark.parametrize("wrong,error,text", [
    ([[1.0]], TypeError, "k is of type list; expected an array"),
    (None, TypeError, "^k is of type NoneType; expected an array"),
    ((16, "float32", (2, 2, 7, 8), (112, 56, 8, 1)), TypeError, "^k is of type tuple; expected an array"),
    ((16, "float32", (2, 2, 7, 8), (112, 56, 8, 1), object()), TypeError, "^k is of type tuple; expected an array"),
    (np.ma.masked_array(K, K > 0), TypeError, r"^k is of type numpy\.ma.*MaskedArray, which hides elements"),
    ("k", TypeError, "k is of type str"),
    (1.0, TypeError, "k is of type float"),
    (K.astype(">f4"), TypeError, "k is an array of >f4; .* native byte order"),
    (K.astype(np.complex64), TypeError, "k is an array of complex64; expected real numbers"),
    (K.astype(object), TypeError, "k is an array of object"),
    (K.astype(np.float64), TypeError, "k is float64, q is float32; they must be equal"),
    (K.astype(np.float16), TypeError, "k is float16, q is float32; they must be equal"),
    (K.astype(ml_dtypes.bfloat16), TypeError, "k is bfloat16, q is float32"),
    (K.astype(ml_dtypes.float8_e5m2), TypeError, "k is an array of float8_e5m2"),
    (array.array("f", [1.0]), ValueError, "rank of k is 1, of q 4"),
    (np.zeros(K.shape, [("x", "f4"), ("y", "u1")])["x"], ValueError, "k has a stride of 5 bytes along axis 3; expected a multiple of 4, the size of its elements"),
])
def test_what_is_no_fitting_array_is_refused(wrong, error, text):
    with pytest.raises(error, match=text):
        heed.attention(Q, wrong, V)


class Standards:
    """Of a library that follows the array API standard, whose element types are its own."""

    def __init__(self, array, dtype=None):
        self.array, self.shape, self.dtype = array, array.shape, dtype

    def __array_namespace__(self):
        return type("namespace", (), {"from_dlpack": staticmethod(Standards)})

    def __dlpack__(self, **more):
        return self.array.__dlpack__(**more)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype, called", [(np.float32, object()), (np.float64, object()), (np.float32, Standards), (np.float64, np.float64)])
def test_results_are_of_the_library_of_q_whatever_it_calls_its_types(dtype, called):
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    expected = heed.attention(q, k, v, return_lse=True)
    seen = heed.attention(*(Standards(x, called) for x in (q, k, v)), return_lse=True)
    for one, other in ((seen.output, expected.output), (seen.lse, expected.lse)):
        assert isinstance(one, Standards) and one.array.dtype == dtype and np.array_equal(one.array, other)


def test_q_of_a_wrong_kind():
    for wrong, text in (([[1.0]], "list"), (Q.astype(np.int32), "q is int32; expected float32, float64, float16 or bf"),
                        (3.0, "float"), (Q.astype(complex), "complex128")):
        with pytest.raises(TypeError, match=text):
            heed.attention(wrong, K, V)


def test_tensors_that_require_a_gradient_are_refused():
    class Parameter(OnlyDlpack):
        requires_grad = True

    with pytest.raises(ValueError, match="v requires a gradient.*heed.torch"):
        heed.attention(Q, K, Parameter(V))


@pytest.mark.parametrize("name", ["dtype", "requires_grad", "device"])
def test_ctrl_c_in_an_attribute_is_no_missing_attribute(name):
    class Stopped:
        def __getattr__(self, asked):
            if asked == name:
                raise KeyboardInterrupt
            raise AttributeError(asked)
    with pytest.raises(KeyboardInterrupt):
        heed.attention(Q, Stopped(), V)


def test_a_name_that_is_no_text_is_told():
    class Strange:
        pass
    Strange.__module__ = "half\ud800"
    with pytest.raises(TypeError, match=r"^k is of type half\\ud800\..*Strange; expected an array"):
        heed.attention(Q, Strange(), V)
