"""Sequences end to end and parts of the keys, against the calls one by one."""

import numpy as np
import pytest
from support import close, draw

import heed

# Of four sequences the second has no rows, the third no keys; a row and a key in front and at the end belong to none.
ROWS, KEYS = [1, 4, 4, 6, 11], [1, 6, 9, 9, 13]
Q, K, V = draw(1, 1, 4, 12, 8), draw(2, 1, 2, 14, 8), draw(3, 1, 2, 14, 6)
D_OUTPUT = draw(4, 1, 4, 12, 6)
OPTIONS = {"causal": True, "query_start": [0, 3, 0, 1], "key_lengths": np.array([5, 3, 0, 4]), "softcap": 3.0,
           "alibi": np.array([0.5, 0.25, 0.1, 0.2])}
PIECES = [(s, slice(ROWS[s], ROWS[s + 1]), slice(KEYS[s], KEYS[s + 1])) for s in range(4)]
OF_NONE = [0, 11]


def alone(s) -> dict:
    """The options of one sequence."""
    return {**OPTIONS, "query_start": OPTIONS["query_start"][s], "key_lengths": int(OPTIONS["key_lengths"][s])}


@pytest.mark.parametrize("kind", [list, tuple, lambda x: np.array(x, np.int32), lambda x: np.array([x, x])[0]])
def test_sequences_have_the_bits_of_calls_on_them(kind):
    packing = kind(ROWS), kind(KEYS)
    seen = heed.attention(Q, K, V, packing=packing, return_lse=True, statistics=True, **OPTIONS)
    for s, rows, keys in PIECES:
        one = heed.attention(Q[:, :, rows], K[:, :, keys], V[:, :, keys], return_lse=True, statistics=True, **alone(s))
        for packed, expected in ((seen.output, one.output), (seen.lse, one.lse), *zip(seen.statistics, one.statistics, strict=True)):
            assert np.array_equal(packed[:, :, rows], expected), s
    assert np.array_equal(seen.output, heed.attention(Q, K, V, packing=packing, **OPTIONS))


def test_rows_of_no_sequence_are_rows_that_see_no_key():
    none = heed.attention(Q, K, V, key_lengths=0, return_lse=True, statistics=True)
    for _ in range(3):  # memory that was used before is not shown
        np.full((64, 64), 7.0)
        seen = heed.attention(Q, K, V, packing=(ROWS, KEYS), return_lse=True, statistics=True, **OPTIONS)
        for packed, expected in ((seen.output, none.output), (seen.lse, none.lse), *zip(seen.statistics, none.statistics, strict=True)):
            assert np.array_equal(packed[:, :, OF_NONE], expected[:, :, OF_NONE])
        assert not heed.attention(Q, K, V, packing=(ROWS, KEYS), **OPTIONS)[:, :, OF_NONE].any()
    out = np.full((1, 4, 12, 6), 5, np.float32)
    assert heed.attention(Q, K, V, packing=(ROWS, KEYS), out=out, **OPTIONS) is out
    assert (out[:, :, OF_NONE] == 5).all() and np.array_equal(out[:, :, 1:11], seen.output[:, :, 1:11])


def test_gradients_and_tangents_of_sequences():
    packing = ROWS, KEYS
    forward = heed.attention(Q, K, V, packing=packing, return_lse=True, **OPTIONS)
    names = ("dq", "dk", "dv", "dalibi", "ds_norms")
    tangents = {"tangent_q": draw(5, *Q.shape), "tangent_k": draw(6, *K.shape), "tangent_v": draw(7, *V.shape)}
    back = heed.attention_backward(Q, K, V, forward.output, forward.lse, D_OUTPUT, gradients=names, packing=packing, **OPTIONS)
    moved = heed.attention_jvp(Q, K, V, forward.output, forward.lse, packing=packing, **tangents, **OPTIONS)
    dalibi = 0
    for s, rows, keys in PIECES:
        q, k, v = Q[:, :, rows], K[:, :, keys], V[:, :, keys]
        given = q, k, v, *heed.attention(q, k, v, return_lse=True, **alone(s))[0:3:2]
        one = heed.attention_backward(*given, D_OUTPUT[:, :, rows], gradients=names, **alone(s))
        assert np.array_equal(back.dq[:, :, rows], one.dq) and np.array_equal(back.ds_norms[:, :, rows], one.ds_norms), s
        assert np.array_equal(back.dk[:, :, keys], one.dk) and np.array_equal(back.dv[:, :, keys], one.dv), s
        dalibi = dalibi + one.dalibi
        straight = heed.attention_jvp(*given, tangent_q=tangents["tangent_q"][:, :, rows],
                                      tangent_k=tangents["tangent_k"][:, :, keys],
                                      tangent_v=tangents["tangent_v"][:, :, keys], **alone(s))
        assert np.array_equal(moved.output[:, :, rows], straight.output), s
        assert np.array_equal(moved.lse[:, :, rows], straight.lse), s
    close(back.dalibi, dalibi)
    for array in (back.dq, back.ds_norms, moved.output, moved.lse):
        assert not array[:, :, OF_NONE].any()
    assert not back.dk[:, :, [0, 13]].any() and not back.dv[:, :, [0, 13]].any()


def test_norms_are_those_of_the_score_gradients():
    q, k, v, d_output = (x.astype(np.float64) for x in (Q, K, V, D_OUTPUT))
    forward = heed.attention(q, k, v, return_lse=True, return_weights=True, causal=True)
    seen = heed.attention_backward(q, k, v, forward.output, forward.lse, d_output, gradients=["ds_norms"], causal=True)
    assert [name for name, x in seen._asdict().items() if x is not None] == ["ds_norms"]
    p, spread = forward.weights, np.repeat(v, 2, 1)
    ds = p * (d_output @ spread.swapaxes(2, 3) - (d_output * forward.output).sum(-1, keepdims=True))
    assert seen.ds_norms.shape == (1, 4, 12)
    close(seen.ds_norms, np.sqrt((ds**2).sum(-1)), 1e-12)


def test_explain_counts_the_tiles_of_sequences():
    shape = (1, 1, 400, 64)
    whole = heed.explain(shape, shape, shape)
    packed = heed.explain(shape, shape, shape, packing=([0, 200, 400], [0, 200, 400]))
    assert packed.tiles_computed < whole.tiles_computed


@pytest.mark.parametrize("given, kind, words", [
    ({"packing": 5}, TypeError, r"^packing is not a pair, but of type int; expected \(query_offsets, key_offsets\)"),
    ({"packing": np.array(5)}, TypeError, r"^packing is not a pair, but of type numpy\.ndarray; expected"),
    ({"packing": [ROWS]}, ValueError, "^packing is not a pair, but has 1 element; expected"),
    ({"packing": (ROWS, KEYS, KEYS)}, ValueError, "^packing is not a pair, but has 3 elements; expected"),
    ({"window": {3}}, TypeError, r"^window is not a pair, but of type set; expected \(left, right\), None for a side"),
    ({"packing": (ROWS, None)}, ValueError, "packing.key_offsets is absent; expected both offsets"),
    ({"packing": (ROWS, KEYS[:-1])}, ValueError, r"packing.key_offsets has shape \[4\], packing.query_offsets \[5\]"),
    ({"packing": ([0, 3.5], [0, 4])}, TypeError, r"packing.query_offsets\[1\] is of type float; expected an integer"),
    ({"packing": ([0, 13], [0, 4])}, ValueError, "packing.query_offsets"),
    ({"packing": (ROWS, KEYS), "return_weights": True}, ValueError, "^attention: return_weights is given together with packing")])
def test_packing_that_does_not_fit(given, kind, words):
    with pytest.raises(kind, match=words):
        heed.attention(Q, K, V, **given)


def test_inspection_refuses_packing():
    lse = heed.attention(Q, K, V, packing=(ROWS, KEYS), return_lse=True).lse
    with pytest.raises(ValueError, match="inspect_weights: packing is given; expected calls on each sequence's rows alone"):
        heed.inspect_weights(Q, K, lse, column_sums=True, packing=(ROWS, KEYS))
    with pytest.raises(TypeError, match="^inspect: got an unexpected keyword argument 'packing'; expected options among scale, "):
        heed.inspect(Q, K, packing=(ROWS, KEYS))


def parts_of(q, k, v, cuts, **options):
    """Outputs and lses of the keys between the cuts."""
    found = [heed.attention(q, k[:, :, a:b], v[:, :, a:b], return_lse=True, **options) for a, b in zip(cuts, cuts[1:])]
    return [part.output for part in found], [part.lse for part in found]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-14)])
def test_merged_parts_are_one_call(dtype, tolerance):
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    whole = heed.attention(q, k, v, return_lse=True)
    seen = heed.merge(*parts_of(q, k, v, [0, 5, 6, 14]), threads=2)
    assert seen.output.dtype == dtype and seen.lse.dtype == dtype
    close(seen.output, whole.output, tolerance)
    close(seen.lse, whole.lse, tolerance)
    again = heed.merge(*(iter(x) for x in parts_of(q, k, v, [0, 5, 6, 14])))
    assert np.array_equal(again.output, seen.output) and np.array_equal(again.lse, seen.lse)


def test_parts_of_float16_have_an_lse_of_float32():
    q, k, v = (x.astype(np.float16) for x in (Q, K, V))
    seen = heed.merge(*parts_of(q, k, v, [0, 5, 14]))
    assert seen.output.dtype == np.float16 and seen.lse.dtype == np.float32
    close(seen.output, heed.attention(q, k, v), 2e-3)


def test_one_part_and_empty_ones_keep_their_bits():
    outputs, lses = parts_of(Q, K, V, [0, 14, 14])
    assert np.isneginf(lses[1]).all()
    outputs[1][:] = np.nan
    for n in (1, 2):
        seen = heed.merge(outputs[:n], lses[:n])
        assert np.array_equal(seen.output, outputs[0]) and np.array_equal(seen.lse, lses[0])
    flat = heed.merge([outputs[0][0, 1]], [lses[0][0, 1]])
    assert np.array_equal(flat.output, outputs[0][0, 1])


def test_parts_that_do_not_fit():
    outputs, lses = parts_of(Q, K, V, [0, 7, 14])
    for given, kind, words in (
            (([], []), ValueError, "merge: outputs has 0 parts; expected 1 or more"),
            ((outputs[0], lses[0]), TypeError, "merge: outputs is one array, of type ndarray; expected a list of arrays, one for"),
            ((outputs, np.stack(lses)), TypeError, "merge: lses is one array, of type ndarray; expected a list of arrays"),
            ((memoryview(outputs[0]), lses), TypeError, "merge: outputs is one array, of type memoryview; expected a list"),
            ((None, None), TypeError, "merge: outputs is of type NoneType; expected a list of arrays, one for each part"),
            ((outputs, "ab"), TypeError, "merge: lses is of type str; expected a list of arrays"),
            ((outputs, lses[:1]), ValueError, "merge: lses has 1 parts, outputs 2; they must be equal"),
            ((outputs, [lses[0], lses[1][:, :, :3]]), ValueError,
             r"merge: lses\[1\] has shape \[1, 4, 3\]; expected \[1, 4, 12\]"),
            (([outputs[0], outputs[1].astype(np.float64)], lses), TypeError,
             r"merge: outputs\[1\] is float64; expected float32, the type of outputs\[0\]"),
            (([x.astype(np.int32) for x in outputs], lses), TypeError, r"merge: outputs\[0\] is int32"),
            ((outputs, [lses[0], "x"]), TypeError, r"lses\[1\] is of type str")):
        with pytest.raises(kind, match=words):
            heed.merge(*given)
    with pytest.raises(TypeError, match="merge: threads is of type float; expected an integer"):
        heed.merge(outputs, lses, threads=1.5)
