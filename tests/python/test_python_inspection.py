"""Weights on demand, summaries and explanations against the matrix of weights."""

import collections
import json
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from handmade import OnlyDlpack
from support import close, definition, inputs, no_new_threads

import heed
from heed import _command

Q, K, V = (x.astype(np.float64) for x in inputs(queries=6, keys=8))
OUTPUT, LSE, P = definition(Q, K, V, causal=True, query_start=2)
GIVEN = {"causal": True, "query_start": 2}


def test_views_are_those_of_the_matrix():
    seen = heed.inspect_weights(Q, K, LSE, rows=[4, 0], row_weights=True, row_scores=True, top=3, column_sums=True,
                                mean_map=(3, 4), lift_map=(3, 4), distance_mass=5, score_histogram=4, score_low=-1.0,
                                score_high=1.0, **GIVEN)
    close(seen.row_weights, P[:, :, [4, 0]], 1e-12)
    close(np.exp(seen.row_scores - LSE[:, :, [4, 0], None]), P[:, :, [4, 0]], 1e-12)
    order = np.argsort(-P, -1, kind="stable")[..., :3]
    assert np.array_equal(seen.top_keys, order)
    close(seen.top_weights, np.take_along_axis(P, order, -1), 1e-12)
    close(seen.top_mass, seen.top_weights.sum(-1), 1e-12)
    close(seen.column_sums, P.sum(2), 1e-12)
    close(seen.mean_map, P.reshape(2, 4, 3, 2, 4, 2).mean((3, 5)), 1e-12)
    visible = np.arange(3, 9)[:, None]
    hidden = np.arange(8)[None] > np.arange(2, 8)[:, None]
    cells = [np.where(hidden, 0, x).reshape(-1, 4, 3, 2, 4, 2).sum((3, 5)) for x in (visible * P, np.ones(P.shape))]
    with np.errstate(divide="ignore", invalid="ignore"):
        close(seen.lift_map, np.log2(cells[0] / cells[1]), 1e-6)
    distance = np.clip(np.arange(8)[None] - np.arange(2, 8)[:, None], -2, 2) + 2
    close(seen.distance_mass, np.stack([(P * (distance == d)).sum((2, 3)) for d in range(5)], -1), 1e-12)
    with np.errstate(divide="ignore"):
        scores = np.where(hidden, np.nan, np.log(P) + LSE[..., None])
    bins = [(scores < -1).sum((2, 3))] + [((scores >= low) & (scores < low + 0.5)).sum((2, 3))
                                          for low in (-1, -0.5, 0, 0.5)] + [(scores >= 1).sum((2, 3))]
    assert np.array_equal(seen.score_histogram, np.stack(bins, -1))


def test_nothing_else_is_computed():
    seen = heed.inspect_weights(Q, K, LSE, column_sums=True, **GIVEN)
    assert [name for name, value in seen._asdict().items() if value is not None] == ["column_sums"]
    with pytest.raises(ValueError, match="rows, which is None"):
        heed.inspect_weights(Q, K, LSE, row_weights=True)


@pytest.mark.parametrize("given, kind, words", [
    ({"rows": [1.9], "row_weights": True}, TypeError, r"rows\[0\] is of type float; expected an integer"),
    ({"rows": [0, True], "row_weights": True}, TypeError, r"rows\[1\] is of type bool; expected an integer"),
    ({"rows": (3, None), "row_weights": True}, TypeError, r"rows\[1\] is of type NoneType; expected an integer"),
    ({"rows": [[0], [1, 2]], "row_weights": True}, TypeError, r"rows\[0\] is of type list; expected an integer"),
    ({"rows": [0, 2**70], "row_weights": True}, ValueError, r"rows\[1\] is 1180591620717411303424; expected one that fits 64 bits"),
    ({"rows": range(2**63, 2**63 + 1), "row_weights": True}, ValueError, r"rows\[0\] is 9223372036854775808; expected one that fits"),
    ({"rows": [-10**5000], "row_weights": True}, ValueError, r"rows\[0\] is an integer of more than 60 digits; expected one that"),
    ({"rows": 10**5000, "row_weights": True}, TypeError, "rows is of type int; expected integers, in a list or an array"),
    ({"rows": np.array([1.9]), "row_weights": True}, TypeError, "rows is an array of float64; expected integers, in a list or"),
    ({"rows": np.array([True, False]), "row_weights": True}, TypeError, "rows is an array of bool; expected integers"),
    ({"rows": 2.5, "row_weights": True}, TypeError, "rows is of type float; expected integers"),
    ({"rows": np.array([2**63 + 1], np.uint64), "row_weights": True}, ValueError, "rows has 9223372036854775809; expected rows of q"),
    ({"rows": [99]}, ValueError, "rows is given, but neither row_weights nor row_scores is wanted"),
    ({"top": -1}, ValueError, "top is -1; expected 0 or more"),
    ({"top": 1.5}, TypeError, "top is of type float; expected an integer"),
    ({"distance_mass": 2**70}, ValueError, r"distance_mass is 1180591620717411303424; expected at most 2\^63 - 1"),
    ({"score_histogram": -3}, ValueError, "score_histogram is -3; expected 0 or more"),
    ({"mean_map": 5}, TypeError, r"mean_map is not a pair, but of type int; expected \(R, C\), numbers of cells"),
    ({"mean_map": {5, 4}}, TypeError, "mean_map is not a pair, but of type set; expected"),
    ({"mean_map": (5, 5, 5)}, ValueError, r"mean_map is not a pair, but has 3 elements; expected \(R, C\)"),
    ({"mean_map": (2**40, 2**40)}, ValueError,
     r"mean_map is \(1099511627776, 1099511627776\); expected at most 6 rows \(Tq\) and 8 columns \(Tk\) of cells"),
    ({"lift_map": (8, 9)}, ValueError, r"lift_map is \(8, 9\); expected at most 6 rows \(Tq\) and 8 columns"),
    ({"mean_map": (-1, 1)}, ValueError, r"mean_map\[0\] is -1; expected 0 or more"),
    ({"lift_map": (2, -1)}, ValueError, r"lift_map\[1\] is -1; expected 0 or more"),
    ({"lift_map": (2, 2.0)}, TypeError, r"lift_map\[1\] is of type float; expected an integer"),
    ({"colour": 1}, TypeError, "got an unexpected keyword argument 'colour'; expected options among scale, ")])
def test_refusals_name_what_was_given(given, kind, words):
    with pytest.raises(kind, match="^inspect_weights: " + words):
        heed.inspect_weights(Q, K, LSE, **given)


@pytest.mark.parametrize("name, given, shape", [
    ("top", 2**50, [2, 4, 6, 2**50]), ("top", 2**62, [2, 4, 6, 2**62]), ("distance_mass", 2**50 + 1, [2, 4, 2**50 + 1]),
    ("distance_mass", 2**62 + 1, [2, 4, 2**62 + 1]), ("score_histogram", 2**50, [2, 4, 2**50 + 2]),
    ("score_histogram", 2**62, [2, 4, 2**62 + 2]), ("score_histogram", 2**63 - 1, [2, 4, 2**63 + 1])])
def test_an_argument_that_asks_for_more_memory_than_there_is_is_named(name, given, shape):
    """NumPy's MemoryError, or its ValueError beyond 63 bits, does not name it."""
    told = f"inspect_weights: {name}: {8 * math.prod(shape)} bytes could not be allocated, for shape {shape}"
    with pytest.raises(MemoryError, match=f"^{re.escape(told)}$"):
        heed.inspect_weights(Q, K, LSE, **{name: given})
    small, lse = Q.astype(np.float32), LSE.astype(np.float32)
    with pytest.raises(MemoryError, match=f"^inspect_weights: {name}: "):
        heed.inspect_weights(small, K.astype(np.float32), lse, **{name: given})


@pytest.mark.parametrize("shape", [(4, 0), (0, 4), (0, 0)])
def test_a_map_without_cells_is_empty_and_leaves_the_rest_alone(shape):
    expected = heed.inspect_weights(Q, K, LSE, top=3, column_sums=True)
    seen = heed.inspect_weights(Q, K, LSE, top=3, column_sums=True, mean_map=shape, lift_map=shape)
    assert seen.mean_map.shape == seen.lift_map.shape == Q.shape[:-2] + shape
    for name in ("top_keys", "top_weights", "column_sums"):
        assert np.array_equal(getattr(seen, name), getattr(expected, name))


def test_summaries_take_the_counts_of_jax():
    seen = heed.attention(Q, K, V, statistics=["entropy", "max_weight", "visible_keys"], causal=True).statistics
    narrow = seen.visible_keys.astype(np.int32)   # as JAX has them without x64
    assert heed.summarize(seen.entropy, narrow) == heed.summarize(seen.entropy, seen.visible_keys)
    assert heed.saturation(seen.max_weight, narrow) == heed.saturation(seen.max_weight, seen.visible_keys)


def test_rows_of_any_integers():
    expected = heed.inspect_weights(Q, K, LSE, rows=[2, 0], row_weights=True).row_weights
    for rows in ((2, 0), np.array([2, 0], np.uint8), range(2, -1, -2), OnlyDlpack(np.array([2, 0]))):
        assert np.array_equal(heed.inspect_weights(Q, K, LSE, rows=rows, row_weights=True).row_weights, expected)
    for none in ([], collections.deque()):
        assert heed.inspect_weights(Q, K, LSE, rows=none, row_weights=True).row_weights.shape == (2, 4, 0, 8)


def test_summaries():
    counted = heed.attention(Q, K, V, statistics=True, **GIVEN).statistics
    summaries = heed.summarize(counted.entropy, counted.visible_keys)
    assert len(summaries) == 8
    first = counted.entropy[0, 0]
    assert summaries[0].count == 6
    close(summaries[0].mean, first.mean(), 1e-12)
    close(summaries[0].quantiles, np.quantile(first, [0, 0.25, 0.5, 0.75, 1]), 1e-12)
    close(heed.saturation(counted.max_weight, threshold=0.4), (counted.max_weight > 0.4).mean(-1).ravel(), 1e-12)
    close(heed.entropy_share(counted.entropy, counted.visible_keys), counted.entropy / np.log(np.arange(3, 9)), 1e-12)
    close(heed.effective_keys(counted.entropy), np.exp(counted.entropy), 1e-12)
    close(heed.mean_diagonal(counted.sum_squared_weights, counted.visible_keys),
          (P * (1 - P)).sum(-1) / np.arange(3, 9), 1e-12)
    assert heed.entropy_share(0.0, 1) == heed.mean_diagonal(0.0, 0) == 0
    assert heed.entropy_share(np.log(200.0), np.uint8(200)) == 1   # in no narrow type
    close(heed.effective_keys(np.array([12.0], np.float16)), np.exp([12.0]), 1e-6)


def test_explain_needs_shapes_only():
    told = heed.explain((2, 4, 300, 64), (2, 2, 300, 64), (2, 2, 300, 32), causal=True, threads=2)
    assert told.tiles_computed > 0 and told.tiles_skipped > 0 and told.threads <= 2
    assert told.isa == heed.instruction_set().removesuffix("_bf16") and told.isa in told.reason and told.tasks > 0
    alone = heed.explain((300, 64), (300, 64), (300, 64), causal=True)
    rows, keys = alone.tile_queries, alone.tile_keys
    assert alone.path == f"tiles of {rows} queries x {keys} keys, float32"
    computed = [math.ceil(min(300, first + rows) / keys) for first in range(0, 300, rows)]
    assert alone.tiles_computed == sum(computed)
    assert alone.tiles_computed + alone.tiles_skipped == len(computed) * math.ceil(300 / keys)
    assert heed.explain(Q, K, V).path.endswith("float64")
    with pytest.raises(TypeError, match="^explain: got an unexpected keyword argument 'colour'"):
        heed.explain(Q, K, V, colour=1)
    with pytest.raises(ValueError, match="explain: head size of k is 3, of q 4"):
        heed.explain((5, 4), (5, 3), (5, 4))


def test_runtime():
    told = json.loads(subprocess.run([_command.PROGRAM, "info", "--json"], capture_output=True, check=True).stdout)
    assert [entry._asdict() for entry in heed.instruction_sets()] == [
        {("isa" if name == "name" else name): x for name, x in entry.items()} for entry in told["instruction_sets"]]
    assert heed.instruction_set() == told["instruction_set"]
    assert heed.__version__ == heed.version() == "0.1.0"
    for name in ("sse2", "\ud800", "scalar\0"):
        with pytest.raises(ValueError, match=re.escape(f"highest is {name!r}; expected one of scalar, ")):
            heed.cap_instruction_set(name)
    with pytest.raises(TypeError, match="highest is of type NoneType; expected one of scalar, "):
        heed.cap_instruction_set(None)


CHILD = """
import heed, numpy as np
print(heed.refused_thread_starts(), heed.default_threads())
q = np.ones((4, 300, 64), np.float32)
heed.attention(q, q, q, threads=2)
print(heed.refused_thread_starts() > 0)
heed.cap_instruction_set("scalar")
print(heed.instruction_set(), heed.explain(q, q, q).isa)
"""


def test_what_a_process_is_told_counts():
    """HEED_NUM_THREADS, a cap, and a system that starts no thread."""
    done = subprocess.run([sys.executable, "-c", CHILD], env=os.environ | {"HEED_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True,
                          preexec_fn=no_new_threads)
    assert done.stdout.split() == ["0", "3", "True", "scalar", "scalar"], done.stderr


@pytest.mark.parametrize("call, kind, words", [
    (lambda: heed.entropy_share(None, None), TypeError, "^entropy_share: entropy is of type NoneType; expected numbers"),
    (lambda: heed.entropy_share(np.zeros(3), np.ones(2)), ValueError,
     r"^entropy_share: entropy has shape \[3\], visible_keys has shape \[2\]; they must be equal"),
    (lambda: heed.effective_keys("a"), TypeError, "^effective_keys: entropy is of type str; expected numbers"),
    (lambda: heed.effective_keys([1, None]), TypeError, "^effective_keys: entropy is an array of object; expected numbers"),
    (lambda: heed.mean_diagonal(np.zeros(3), None), TypeError, "^mean_diagonal: visible_keys is of type NoneType; expected"),
    (lambda: heed.mean_diagonal(True, 3), TypeError, "^mean_diagonal: sum_squared_weights is of type bool; expected numbers"),
    (lambda: heed.saturation(LSE, threshold=float("nan")), ValueError, "^saturation: threshold is nan; expected 0 .. 1"),
    (lambda: heed.saturation(LSE, threshold=2), ValueError, "^saturation: threshold is 2; expected 0 .. 1"),
    (lambda: heed.saturation(LSE, threshold=-0.1), ValueError, "^saturation: threshold is -0.1; expected 0 .. 1")])
def test_refusals_of_summaries_name_what_was_given(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_a_threshold_may_be_at_either_end():
    weights = np.array([[[0.0, 0.5, 1.0, 1.0]]])
    assert heed.saturation(weights, threshold=0) == [0.75] and heed.saturation(weights, threshold=1) == [0.0]
