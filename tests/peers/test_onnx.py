"""heed.onnx beside the package onnx: all its cases of Attention, and the reference evaluator on a random grid.

93 node cases (their expanded forms hold no Attention) run through heed.onnx.Backend with the comparison of
onnx's own runner, whose tolerance is wide, and with the bounds T1 of docs/numerics.md around the evaluator's results in float64. In the grid q, k and v are float64, where evaluator and heed differ by rounding alone: 1e-12
of the largest element. Everything that the operator has is drawn, and each draw is printed with a failure.
"""

import pathlib
import re
import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_attention import _compute_attention

import bounds
import heed
import heed.onnx
from heed import _onnx_attention

with warnings.catch_warnings():
    warnings.simplefilter("ignore")   # cases of other operators divide by zero while they are made
    from onnx.backend.test.case.node import collect_testcases
    CASES = [case for case in collect_testcases("Attention") if not case.name.endswith("_expanded")]

NAMES = ["Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"]


@pytest.fixture
def calls(monkeypatch):
    """Counts what heed computes."""
    made = []

    def counted(*arguments, **options):
        made.append(options)
        return heed.attention(*arguments, **options)

    monkeypatch.setattr(_onnx_attention, "attention", counted)
    return made


def test_there_are_93_cases():
    assert len(CASES) == 93
    assert {case.model.opset_import[0].version for case in CASES} == {23, 24, 25}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_of_onnx(case, calls):
    for inputs, expected in case.data_sets:
        outputs = heed.onnx.Backend.run_model(case.model, inputs)
        Runner.assert_similar_outputs(expected, outputs, rtol=case.rtol, atol=case.atol)
    assert len(calls) == len(case.data_sets)


U_OUT = {"float32": 0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
ETA = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_of_onnx_is_within_T1(case):
    """Where onnx's runner allows a thousandth, these allow some units in the last place."""
    node, = case.model.graph.node
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name != "softmax_precision"}
    seen = dict(zip(filter(None, node.output), heed.onnx.Backend.run_model(case.model, case.data_sets[0][0])))
    names = [NAMES[n] for n, name in enumerate(node.input) if name]
    given = {name: x if x.dtype in (bool, np.int64) else x.astype(np.float64) for name, x in zip(names, case.data_sets[0][0])}
    output, _, present, weights = by_onnx(given, attributes | {"qk_matmul_output_mode": 3})

    # A, the size of what a score adds up, is a score of absolute numbers and the bias.
    plain = {"qk_matmul_output_mode": 0} | {name: attributes[name] for name in ("scale", "q_num_heads", "kv_num_heads")
                                            if name in attributes}
    a = by_onnx({name: np.abs(x) for name, x in given.items() if name in ("Q", "K", "V") or "past" in name}, plain)[3]
    if given.get("attn_mask", np.zeros((1, 1), bool)).dtype != bool:
        mask = np.atleast_2d(given["attn_mask"])
        a[..., :mask.shape[-1]] += np.where(np.isfinite(mask), np.abs(mask), 0)
    a[weights == 0] = 0
    values = np.repeat(present, weights.shape[1] // present.shape[1], axis=1)
    size, dtype = given["K"].shape[-1] // attributes.get("kv_num_heads", 1), str(seen["Y"].dtype)

    def heads(x):
        return x if x.ndim == 4 else x.reshape(*x.shape[:2], weights.shape[1], -1).swapaxes(1, 2)

    output, y = heads(output), heads(seen["Y"]).astype(np.float64)
    bound = bounds.of_output(output, weights, a, values, size) + U_OUT[dtype] * np.abs(output) + ETA[dtype]
    assert bounds.share(y, (output, bound)) <= 1
    if attributes.get("qk_matmul_output_mode") == 3:
        c = 2 * (4 + size / 64) * (1 + (weights * a).sum(-1, keepdims=True) + a) + bounds.terms(weights.shape[-1])
        bound = (bounds.U * c + U_OUT[dtype]) * weights + ETA[dtype]
        assert bounds.share(seen["qk_matmul_output"], (weights, bound)) <= 1


def node_of(given, outputs, attributes):
    inputs = [name if name in given else "" for name in NAMES]
    while not inputs[-1]:
        inputs.pop()
    return helper.make_node("Attention", inputs, outputs, **attributes)


def draw(random):
    """Inputs by name, attributes."""
    batch, kv_heads, group = (int(random.integers(1, 4)) for _ in range(3))
    rows, keys, size, value_size = (int(random.integers(1, 9)) for _ in range(4))
    heads = kv_heads * group
    attributes = {"qk_matmul_output_mode": int(random.integers(4))}
    packed, cache = random.random() < 0.4, random.choice(["none", "past", "nonpad"])
    past = int(random.integers(0, 5)) if cache == "past" else 0

    def normal(count, length, width):
        if packed:
            return random.standard_normal((batch, length, count * width))
        return random.standard_normal((batch, count, length, width))

    given = {"Q": normal(heads, rows, size), "K": normal(kv_heads, keys, size), "V": normal(kv_heads, keys, value_size)}
    if packed:
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    if cache == "past":
        given |= {"past_key": random.standard_normal((batch, kv_heads, past, size)),
                  "past_value": random.standard_normal((batch, kv_heads, past, value_size))}
    if cache == "nonpad":
        given["nonpad_kv_seqlen"] = random.integers(0, keys + 1, batch)
    if random.random() < 0.6:
        full = [batch, heads, rows, past + keys]
        # Columns may be missing, as many as nonpad_kv_seqlen allows.
        least = int(given["nonpad_kv_seqlen"].max(initial=1)) if cache == "nonpad" else 1
        if random.random() < 0.5:
            full[3] = int(random.integers(max(least, 1), full[3] + 1))
        shape = [1 if axis < 3 and random.random() < 0.3 else length for axis, length in enumerate(full)]
        shape = shape[int(random.integers(4)):]
        kind = random.choice(["bool", "float", "-inf", "integers"])
        given["attn_mask"] = random.random(shape) < 0.6 if kind == "bool" else random.standard_normal(shape)
        if kind == "integers":
            given["attn_mask"] = random.integers(-3, 4, shape)
        if kind == "-inf":
            given["attn_mask"][random.random(shape) < 0.4] = -np.inf
    for name, value in (("is_causal", 1), ("scale", 0.7), ("softcap", 1.5), ("softmax_precision", 11),
                        ("left_window_size", int(random.integers(-1, 4))),
                        ("right_window_size", int(random.integers(-1, 4)))):
        if random.random() < 0.4:
            attributes[name] = value
    return given, attributes


def by_onnx(given, attributes):
    """What the evaluator computes, but where it is not what the specification says: with is_causal it wants a mask with
    a row for each query, it cannot pad integers, and in mode 0 (q k' scale) it gives the capped scores."""
    if "attn_mask" in given:
        mask, rows = np.atleast_2d(given["attn_mask"]), given["Q"].shape[-2]
        mask = mask.astype(np.float64) if np.issubdtype(mask.dtype, np.integer) else mask
        given = given | {"attn_mask": np.broadcast_to(mask, (*mask.shape[:-2], rows, mask.shape[-1]))}
    arrays = [given.get(name) for name in NAMES]
    expected = list(_compute_attention(*arrays, **attributes))
    if attributes["qk_matmul_output_mode"] == 0:
        expected[3] = _compute_attention(*arrays, **attributes | {"softcap": 0})[3]
    return expected


@pytest.mark.parametrize("seed", range(300))
def test_drawn_case_agrees_with_the_reference_evaluator(seed):
    given, attributes = draw(np.random.default_rng(seed))
    told = {name: x.shape for name, x in given.items()}, attributes
    # The node holds a float32, whose square root the evaluator would take in float32.
    scale = float(np.float32(attributes["scale"])) if "scale" in attributes else None
    expected = by_onnx(given, attributes | {"scale": scale})
    node = node_of(given, ["Y", "present_key", "present_value", "qk"], attributes)
    outputs = heed.onnx.Backend.run_node(node, [given[name] for name in NAMES if name in given], opset_version=25)
    for name, seen, wanted in zip(node.output, outputs, expected, strict=True):
        assert seen.shape == wanted.shape and seen.dtype == wanted.dtype, (name, told)
        finite = np.isfinite(wanted)
        assert np.array_equal(np.where(finite, 0, seen), np.where(finite, 0, wanted)), (name, told)
        bound = 1e-12 * max(1, np.abs(wanted[finite]).max(initial=0))
        assert np.abs(seen[finite] - wanted[finite]).max(initial=0) <= bound, (name, told)


@pytest.mark.parametrize("query,value", [(np.float32, np.float64), (np.float16, np.float32), (np.float64, np.float16)])
def test_value_may_have_a_type_of_its_own(query, value):
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((1, 2, 5, 4)) for _ in range(3))
    q, k, v = q.astype(query), k.astype(query), v.astype(value)
    node = node_of({"Q", "K", "V"}, ["Y", "present_key", "present_value"], {})
    y, _, present = heed.onnx.Backend.run_node(node, [q, k, v], opset_version=23)
    assert y.dtype == query and present.dtype == value
    wide = heed.attention(*(x.astype(np.float64) for x in (q, k, v)))
    assert np.abs(y - wide).max() <= 4 * max(np.finfo(query).eps, np.finfo(np.float32).eps) * np.abs(wide).max()


def test_softmax_precision_of_float64_is_float64():
    """And the result is rounded once: no more than half a place of float32 away from that of float64 inputs."""
    random = np.random.default_rng(5)
    q, k, v = (random.standard_normal((1, 1, 4, 64)).astype(np.float32) * 4 for _ in range(3))
    wide = heed.attention(*(x.astype(np.float64) for x in (q, k, v)), return_weights=True)
    node = node_of({"Q", "K", "V"}, ["Y", "", "", "qk"], {"softmax_precision": 11, "qk_matmul_output_mode": 3})
    y, weights = (x for x in heed.onnx.Backend.run_node(node, [q, k, v]) if x is not None)
    assert np.array_equal(y, wide.output.astype(np.float32))
    assert np.array_equal(weights, wide.weights.astype(np.float32))


def test_bfloat16_is_float32_rounded_once_on_every_cpu():
    q, k, v = (np.random.default_rng(i).standard_normal((1, 2, 300, 64)).astype(ml_dtypes.bfloat16) for i in range(3))
    seen = heed.onnx.Backend.run_node(helper.make_node("Attention", ["Q", "K", "V"], ["Y"], is_causal=1), [q, k, v])[0]
    wide = heed.attention(*(x.astype(np.float32) for x in (q, k, v)), causal=True)
    assert np.array_equal(seen, wide.astype(ml_dtypes.bfloat16))


def test_garbage_behind_the_mask_changes_no_bit():
    random = np.random.default_rng(2)
    q, k, v = (random.standard_normal((2, 3, 6, 8)).astype(np.float32) for _ in range(3))
    length = np.array([4, 2])
    node = node_of({"Q", "K", "V", "nonpad_kv_seqlen"}, ["Y"], {})
    clean, = heed.onnx.Backend.run_node(node, [q, k, v, length])
    for entry, end in enumerate(length):
        k[entry, :, end:], v[entry, :, end:] = np.nan, np.inf
    spoilt, = heed.onnx.Backend.run_node(node, [q, k, v, length])
    assert np.array_equal(clean, spoilt)


def test_attention_in_a_function_of_the_model_is_heeds(calls):
    shape, types = [1, 2, 5, 8], {}
    for name in ("Q", "K", "V", "Y"):
        types[name] = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    types["M"] = helper.make_tensor_value_info("M", onnx.TensorProto.FLOAT, [5, 5])
    inputs = ["Q", "K", "V", "M"]
    function = helper.make_function("mine", "F", inputs, ["Y"], [helper.make_node("Attention", inputs, ["Y"])],
                                    [helper.make_opsetid("", 24)])
    graph = helper.make_graph([helper.make_node("F", inputs, ["Y"], domain="mine")], "model", [types[name] for name in inputs],
                              [types["Y"]])
    model = helper.make_model(graph, functions=[function],
                              opset_imports=[helper.make_opsetid("", 24), helper.make_opsetid("mine", 1)])
    random = np.random.default_rng(7)
    q, k, v = (random.standard_normal(shape).astype(np.float32) for _ in range(3))
    mask = np.where(np.tri(5, dtype=bool), 0, -np.inf).astype(np.float32)
    v[:, :, 4] = np.nan   # which only row 4 sees
    y, = heed.onnx.Backend.run_model(model, [q, k, v, mask])
    assert len(calls) == 1 and np.isnan(y).all((0, 1, 3)).tolist() == [False] * 4 + [True]


def test_a_mask_of_one_column_is_every_keys_until_opset_24():
    """From then on columns that lack are hidden; before, a mask only broadcasts, as in the operator's own function body."""
    random = np.random.default_rng(8)
    q, k, v = (random.standard_normal((1, 2, rows, 8)).astype(np.float32) for rows in (5, 7, 7))
    node, rows = node_of({"Q", "K", "V", "attn_mask"}, ["Y"], {}), np.array([[True], [False], [True], [True], [False]])
    for column in (rows, np.where(rows, 0, -np.inf).astype(np.float32)):
        hidden = False if column.dtype == bool else -np.inf
        whole = {23: np.repeat(column, 7, 1), 24: np.concatenate((column, np.full((5, 6), hidden, column.dtype)), 1)}
        for opset in (23, 24, 25):
            seen, = heed.onnx.Backend.run_node(node, [q, k, v, column], opset_version=opset)
            assert np.array_equal(seen, heed.attention(q, k, v, mask=whole[min(opset, 24)], reproducible=True))


def test_other_operators_are_the_evaluators(calls):
    """A model around Attention: its inputs come from MatMul."""
    names = ["q", "k", "v"]
    nodes = [helper.make_node("MatMul", ["x", "w" + name], [name]) for name in names]
    nodes.append(helper.make_node("Attention", names, ["y"], q_num_heads=2, kv_num_heads=2, is_causal=1))
    random = np.random.default_rng(3)
    weights = {"w" + name: random.standard_normal((8, 8)).astype(np.float32) for name in names}
    graph = helper.make_graph(
        nodes, "model", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 5, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 5, 8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    x = random.standard_normal((1, 5, 8)).astype(np.float32)
    expected, = ReferenceEvaluator(model).run(None, {"x": x})
    for inputs in (x, [x], {"x": x}):
        y, = heed.onnx.Backend.prepare(model).run(inputs)
        assert np.allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert len(calls) == 3


X4, X3 = np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 3, 8), np.float32)


@pytest.mark.parametrize("given,attributes,message", [
    ({"Q": X4, "K": X4, "V": X3}, {}, r"Q, K and V have \(4, 4, 3\) axes; expected 3 each, or 4 each"),
    ({"Q": X3, "K": X3, "V": X3}, {}, r"q_num_heads is None, Q has shape \(1, 3, 8\); expected a divisor"),
    ({"Q": X3, "K": X3, "V": X3}, {"q_num_heads": 2, "kv_num_heads": 3}, "kv_num_heads is 3, K has shape"),
    ({"Q": X4, "K": X4, "V": X4}, {"q_num_heads": 2}, "expected 3 axes with them"),
    ({"Q": X4, "K": X4, "V": X4, "past_key": X4}, {}, "expected both or neither"),
    ({"Q": X4, "K": X4, "V": X4, "past_key": X4, "past_value": X4, "nonpad_kv_seqlen": np.array([3])}, {},
     "past_key and nonpad_kv_seqlen are both given"),
    ({"Q": X4, "K": X4, "V": X4}, {"left_window_size": -2}, "left_window_size is -2; expected -1 or more"),
    ({"Q": X4, "K": X4, "V": X4}, {"qk_matmul_output_mode": 4}, "qk_matmul_output_mode is 4; expected 0 to 3"),
    ({"Q": X4, "K": X4[..., :3], "V": X4}, {}, "head size of K is 3, of Q 4"),
    ({"Q": X4, "K": X4, "V": X4[:, :, :2]}, {}, "number of keys of V is 2, of K 3"),
    ({"Q": X4, "K": np.repeat(X4, 2, 1)[:, :3], "V": np.repeat(X4, 2, 1)[:, :3]}, {}, "heads of Q is 2, of K 3"),
    ({"Q": X4.astype(int), "K": X4.astype(int), "V": X4}, {}, "Q is int64; expected an array of float16"),
    ({"Q": X4, "K": X4, "V": X4.astype(int)}, {}, "V is int64; expected an array of float16"),
    ({"Q": X4.astype(np.float16), "K": X4, "V": X4}, {}, "K is float32, Q is float16; they must be equal"),
    ({"Q": X4, "K": X4, "V": X4}, {"softcap": -1.0}, "softcap is -1.0; expected 0, which is none, or more"),
    ({"Q": X4, "K": X4, "V": X4}, {"softmax_precision": 99}, r"softmax_precision is 99; expected 1 \(FLOAT\), 10"),
    ({"Q": X4, "K": X4, "V": X4}, {"is_causal": 5}, "is_causal is 5; expected 0 or 1"),
    ({"Q": X4, "K": X4, "V": X4, "attn_mask": np.zeros((3, 4))}, {}, r"attn_mask has shape \(3, 4\); expected one that broad"),
    ({"Q": X4, "K": X4, "V": X4, "attn_mask": np.zeros((2, 3), bool)}, {}, r"attn_mask has shape \(2, 3\); expected one that"),
    ({"Q": X4, "K": X4, "V": X4, "attn_mask": np.zeros(())}, {}, r"attn_mask has shape \(\); expected one that broadcasts"),
    ({"Q": X4, "K": X4, "V": X4, "attn_mask": np.zeros((1, 1, 1, 3, 3))}, {}, r"attn_mask has shape \(1, 1, 1, 3, 3\)"),
    ({"Q": X4, "K": X4, "V": X4, "attn_mask": np.zeros((3, 3), complex)}, {}, "attn_mask is complex128; expected bool or a type of numbers"),
    ({"Q": X4, "K": X4, "V": X4, "past_key": X4[..., :3], "past_value": X4}, {},
     r"past_key has shape \(1, 2, 3, 3\); expected \(1, 2, 3, 4\)"),
    ({"Q": X4, "K": X4, "V": X4, "past_key": X4, "past_value": X3}, {}, r"past_value has shape \(1, 3, 8\); expected \(1, 2, P"),
    ({"Q": X4, "K": X4, "V": X4, "past_key": X4, "past_value": X4[:, :, :2]}, {}, "past_key has 3 keys, past_value 2"),
    ({"Q": X4, "K": X4, "V": X4, "past_key": X4.astype(float), "past_value": X4}, {}, "past_key is float64, K is float32"),
    ({"Q": X4, "K": X4, "V": X4, "nonpad_kv_seqlen": np.array([7])}, {}, r"nonpad_kv_seqlen\[0\] is 7; expected 0 \.\. 3"),
    ({"Q": X4, "K": X4, "V": X4, "nonpad_kv_seqlen": np.array([-1])}, {}, r"nonpad_kv_seqlen\[0\] is -1; expected 0 \.\. 3"),
    ({"Q": X4, "K": X4, "V": X4, "nonpad_kv_seqlen": np.array([1, 2])}, {}, r"nonpad_kv_seqlen has shape \(2,\); expected \(1,"),
    ({"Q": X4, "K": X4, "V": X4, "nonpad_kv_seqlen": np.array([1.0])}, {}, "nonpad_kv_seqlen is float64; expected int64"),
])
def test_what_does_not_fit_is_refused(given, attributes, message):
    node = node_of(given, ["Y"], attributes)
    with pytest.raises((TypeError, ValueError), match="^Attention: .*" + message):
        heed.onnx.Backend.run_node(node, [given[name] for name in NAMES if name in given], opset_version=25)


def test_numbers_of_heads_beside_four_axes_must_be_theirs():
    """Opset 25 allows none."""
    given = {"Q": X4, "K": X4, "V": X4}
    for attributes, message in (({"q_num_heads": 3}, "q_num_heads is 3, Q has shape"),
                                ({"kv_num_heads": 1}, "kv_num_heads is 1, K has shape")):
        with pytest.raises(ValueError, match=f"^Attention: {message} .*; expected its second axis, or nothing"):
            heed.onnx.Backend.run_node(node_of(given, ["Y"], attributes), list(given.values()), opset_version=24)
    node = node_of(given, ["Y"], {"q_num_heads": 2, "kv_num_heads": 2})
    assert heed.onnx.Backend.run_node(node, list(given.values()), opset_version=24)[0].shape == X4.shape


@pytest.mark.parametrize("batch,rows", [(0, 5), (1, 0)])
def test_of_no_entries_or_rows_there_are_results_without_elements(batch, rows):
    def ones(*shape):
        return np.ones(shape, np.float32)

    packed = helper.make_node("Attention", ["Q", "K", "V"], ["Y"], q_num_heads=4, kv_num_heads=2)
    (y,) = heed.onnx.Backend.run_node(packed, [ones(batch, rows, 32), ones(batch, 7, 16), ones(batch, 7, 12)])
    assert y.shape == (batch, rows, 24)
    for mode in range(4):
        node = helper.make_node("Attention", ["Q", "K", "V"], ["Y", "", "", "qk"], qk_matmul_output_mode=mode)
        *_, qk = heed.onnx.Backend.run_node(node, [ones(batch, 4, rows, 8), ones(batch, 2, 7, 8), ones(batch, 2, 7, 6)])
        assert qk.shape == (batch, 4, rows, 7)


def test_scores_behind_an_added_mask_are_those_behind_a_boolean_one():
    """A NaN there, too."""
    key = np.array(X4)
    key[:, :, 1] = np.nan
    keep = np.arange(X4.shape[2]) != 1
    node = helper.make_node("Attention", ["Q", "K", "V", "mask"], ["Y", "", "", "qk"], qk_matmul_output_mode=2)
    *_, kept = heed.onnx.Backend.run_node(node, [X4, key, X4, np.broadcast_to(keep, (X4.shape[2],) * 2)])
    added = np.broadcast_to(np.where(keep, 0, -np.inf).astype(np.float32), (X4.shape[2],) * 2)
    *_, qk = heed.onnx.Backend.run_node(node, [X4, key, X4, added])
    assert np.array_equal(qk, kept) and (kept[..., 1] == -np.inf).all()


def test_inputs_are_counted_and_may_be_a_dictionary():
    given = {"Q": X4, "K": X4 + 1, "V": X4 + 2}
    node = node_of(given, ["Y"], {})
    expected, = heed.onnx.Backend.run_node(node, list(given.values()))
    seen, = heed.onnx.Backend.run_node(node, dict(reversed(given.items())))
    assert np.array_equal(seen, expected)
    for inputs, number in ((list(given.values())[:2], 2), ([X4] * 4, 4), ({"Q": X4}, 1), (X4, 1)):
        with pytest.raises(ValueError, match=f"^run_node: inputs has {number} arrays; expected 3: Q, K, V"):
            heed.onnx.Backend.run_node(node, inputs)
    model = CASES[0].model
    with pytest.raises(ValueError, match="^run_node: inputs has 'mask'; expected names among Q, K, V"):
        heed.onnx.Backend.run_node(node, {**given, "mask": X4})
    with pytest.raises(ValueError, match="^run: inputs has 'mask'; expected names among Q, K, V"):
        heed.onnx.Backend.prepare(model).run({**given, "mask": X4})
    with pytest.raises(ValueError, match="^run: inputs lacks K, V; expected arrays for Q, K, V"):
        heed.onnx.Backend.prepare(model).run([X4])


def test_other_devices_are_refused():
    supported = [device for device in ("CPU", "CPU:0", "CPU:", "CPU:x", "CUDA:0", "cpu", None, 0)
                 if heed.onnx.Backend.supports_device(device)]
    assert supported == ["CPU", "CPU:0"]
    model, inputs = CASES[0].model, list(CASES[0].data_sets[0][0])
    for call, name in ((lambda: heed.onnx.Backend.prepare(model, "CUDA"), "prepare"),
                       (lambda: heed.onnx.Backend.run_node(model.graph.node[0], inputs, "CUDA"), "run_node")):
        with pytest.raises(ValueError, match=f"^{name}: device is 'CUDA'; expected 'CPU'"):
            call()
    ready = heed.onnx.Backend.prepare(CASES[0].model)
    for call in (lambda: heed.onnx.Backend.prepare(CASES[0].model, threads=2), lambda: ready.run([], threads=2),
                 lambda: heed.onnx.Backend.run_model(CASES[0].model, [], threads=2),
                 lambda: heed.onnx.Backend.run_node(CASES[0].model.graph.node[0], [], threads=2)):
        with pytest.raises(TypeError, match="got an unexpected keyword argument 'threads'"):
            call()


def test_examples_of_the_page_run():
    page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "onnx.md"
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S):
        exec(compile(block, "docs/onnx.md", "exec"), names)
    assert names["y"].shape == (1, 50, 512)
