"""Truths of heed.attention that need no second implementation, on what hypothesis draws.

Bits: what does not see each other does not change each other, whatever the layout. Values: what mathematics leaves
unchanged moves within the bound T1 (bounds.py), and outputs lie in the hull of their values. Draws are the same in every
run (derandomize); a failure prints the shapes and the seed that it needs.

    ./dev peers
"""

import dataclasses

import numpy as np
from bounds import exact, share
from hypothesis import given, settings
from hypothesis import strategies as st

import heed

settings.register_profile("peers", derandomize=True, deadline=None, max_examples=60, database=None, print_blob=True)
settings.load_profile("peers")


@dataclasses.dataclass(frozen=True)
class Case:
    batch: int
    kv_heads: int
    group: int
    rows: int
    keys: int
    size: int
    value_size: int
    sharpness: int   # q times 2^sharpness
    density: float   # of what a row may see
    seed: int

    def tensors(self):
        """q, k, v and a mask that keeps"""
        random = np.random.default_rng(self.seed)
        heads = self.kv_heads * self.group
        q = random.standard_normal((self.batch, heads, self.rows, self.size), np.float32) * np.float32(2.0**self.sharpness)
        k = random.standard_normal((self.batch, self.kv_heads, self.keys, self.size), np.float32)
        v = random.standard_normal((self.batch, self.kv_heads, self.keys, self.value_size), np.float32)
        return q, k, v, random.random((self.batch, heads, self.rows, self.keys)) < self.density

    def random(self):
        """For what a test draws beside the tensors."""
        return np.random.default_rng([self.seed, 1])


# 96 keys make a block, 768 a split: lengths on both sides of both.
LENGTHS = st.one_of(st.integers(1, 40), st.sampled_from([95, 96, 97, 191, 193, 767, 768, 769, 900]))
CASES = st.builds(Case, batch=st.integers(1, 3), kv_heads=st.integers(1, 2), group=st.integers(1, 3), rows=st.integers(1, 40),
                  keys=LENGTHS, size=st.integers(1, 70), value_size=st.integers(1, 70), sharpness=st.integers(-2, 3),
                  density=st.sampled_from([0.05, 0.5, 0.95, 1.0]), seed=st.integers(0, 2**32 - 1))


def same(a, b):
    assert np.array_equal(a, b)


@given(CASES)
def test_outputs_and_gradients_keep_the_bound(case):
    q, k, v, keep = case.tensors()
    d_output = case.random().standard_normal((*q.shape[:3], case.value_size)).astype(np.float32)
    truth = exact(q, k, v, allowed=keep, d_output=d_output)
    seen = heed.attention(q, k, v, mask=keep, return_lse=True)
    back = heed.attention_backward(q, k, v, seen.output, seen.lse, d_output, mask=keep)
    for name, result in (("output", seen.output), ("dq", back.dq), ("dk", back.dk), ("dv", back.dv)):
        assert share(result, truth[name]) <= 1, name


@given(CASES)
def test_permuted_keys_with_their_mask_move_it_within_the_bound(case):
    q, k, v, keep = case.tensors()
    order = case.random().permutation(case.keys)
    truth = exact(q, k, v, allowed=keep)["output"]
    assert share(heed.attention(q, k[:, :, order], v[:, :, order], mask=keep[..., order]), truth) <= 1


@given(CASES, st.floats(-50, 50, width=32))
def test_a_number_added_to_all_scores_of_a_row_moves_it_within_the_bound(case, number):
    q, k, v, keep = case.tensors()
    bias = (number * case.random().random((1, 1, case.rows, 1))).astype(np.float32)
    truth, bound = exact(q, k, v, bias=bias, allowed=keep)["output"]
    assert share(heed.attention(q, k, v, bias=bias, mask=keep), (truth, bound)) <= 1
    assert share(heed.attention(q, k, v, mask=keep), (truth, bound)) <= 1


@given(CASES)
def test_outputs_lie_in_the_hull_of_the_values_that_a_row_sees(case):
    """A weighted mean is between the smallest and the largest, but for its rounding."""
    q, k, v, keep = case.tensors()
    output = heed.attention(q, k, v, mask=keep)
    bound = exact(q, k, v, allowed=keep)["output"][1]
    values = np.repeat(v, case.group, 1)[:, :, None]
    low = np.where(keep[..., None], values, np.inf).min(3)
    high = np.where(keep[..., None], values, -np.inf).max(3)
    looks = keep.any(-1)
    assert (output[looks] >= (low - bound)[looks]).all() and (output[looks] <= (high + bound)[looks]).all()
    assert (output[~looks] == 0).all()


@given(CASES, st.sampled_from([np.nan, np.inf, -np.inf, 3e38, 1e-45]))
def test_garbage_behind_the_mask_changes_no_bit(case, garbage):
    """In the keys and values that no row of a KV head sees, in the bias wherever a row does not look, and in gradients."""
    q, k, v, keep = case.tensors()
    keep[..., case.random().random(case.keys) < 0.3] = False
    bias = case.random().standard_normal(keep.shape).astype(np.float32)
    hidden = ~keep.reshape(case.batch, case.kv_heads, -1, case.keys).any(2)
    results = []
    for _ in range(2):
        seen = heed.attention(q, k, v, bias=bias, mask=keep, return_lse=True, statistics=["entropy", "score_mean"])
        back = heed.attention_backward(q, k, v, seen.output, seen.lse, np.ones_like(seen.output), bias=bias, mask=keep,
                                       gradients=["dq", "dk", "dv", "dbias"])
        results.append((seen.output, seen.lse, seen.statistics.entropy, seen.statistics.score_mean, *back[:3], back.dbias))
        k[hidden], v[hidden], bias[~keep] = garbage, garbage, garbage
    for a, b in zip(*results):
        same(a, b)


@given(CASES)
def test_garbage_that_only_some_rows_see_stays_in_those_rows(case):
    q, k, v, keep = case.tensors()
    clean = heed.attention(q, k, v, mask=keep)
    key = int(case.random().integers(case.keys))
    k[:, :, key] = np.nan
    v[:, :, key] = np.inf
    spoilt = heed.attention(q, k, v, mask=keep)
    blind = ~keep[..., key]
    same(clean[blind], spoilt[blind])
    assert np.isnan(spoilt[~blind]).all()


@given(CASES)
def test_rows_heads_and_batch_entries_do_not_know_each_other(case):
    q, k, v, keep = case.tensors()
    whole = heed.attention(q, k, v, mask=keep)
    random = case.random()
    entry, kv_head = int(random.integers(case.batch)), int(random.integers(case.kv_heads))
    first = int(random.integers(case.rows))
    last = int(random.integers(first, case.rows)) + 1
    heads = slice(kv_head * case.group, (kv_head + 1) * case.group)
    part = heed.attention(q[entry:entry + 1, heads, first:last], k[entry:entry + 1, kv_head:kv_head + 1],
                          v[entry:entry + 1, kv_head:kv_head + 1], mask=keep[entry:entry + 1, heads, first:last])
    same(part, whole[entry:entry + 1, heads, first:last])


@given(CASES)
def test_columns_of_values_do_not_know_each_other(case):
    q, k, v, keep = case.tensors()
    column = int(case.random().integers(case.value_size))
    same(heed.attention(q, k, v[..., column:column + 1], mask=keep), heed.attention(q, k, v, mask=keep)[..., column:column + 1])


@given(CASES)
def test_heads_that_share_keys_are_heads_with_copies_of_them(case):
    q, k, v, keep = case.tensors()
    same(heed.attention(q, k, v, mask=keep),
         heed.attention(q, np.repeat(k, case.group, 1), np.repeat(v, case.group, 1), mask=keep))


@given(CASES, st.integers(-20, 20))
def test_values_times_a_power_of_two_are_the_output_times_it(case, exponent):
    """Exactly, while nothing becomes subnormal; and -v gives -o."""
    q, k, v, keep = case.tensors()
    factor = np.float32(2.0**exponent)
    output = heed.attention(q, k, v, mask=keep)
    for sign in (1, -1):
        seen = heed.attention(q, k, v * (sign * factor), mask=keep)
        normal = np.abs(output * (sign * factor)) > 2.0**-80
        same(seen[normal], (output * (sign * factor))[normal])


def rearranged(x, random):
    """The same numbers, with axes in another order in memory, gaps between elements, and some axes backwards."""
    order = random.permutation(x.ndim)
    gaps = random.integers(1, 3, x.ndim)
    memory = np.full([x.shape[axis] * gaps[axis] + 1 for axis in order], np.nan if x.dtype != bool else True, x.dtype)
    view = memory[tuple(slice(1 if random.random() < 0.5 else 0, None, gaps[axis]) for axis in order)]
    view = view[tuple(slice(0, x.shape[axis]) for axis in order)].transpose(np.argsort(order))
    flips = tuple(slice(None, None, -1 if random.random() < 0.3 else 1) for _ in range(x.ndim))
    view = view[flips]
    view[...] = x
    return view


@given(CASES)
def test_strides_change_no_bit(case):
    q, k, v, keep = case.tensors()
    random = case.random()
    expected = heed.attention(q, k, v, mask=keep, return_lse=True)
    moved = [rearranged(x, random) for x in (q, k, v, keep)]
    out = rearranged(np.zeros_like(expected.output), random)
    seen = heed.attention(*moved[:3], mask=moved[3], return_lse=True, out=out)
    same(seen.output, expected.output)
    same(seen.lse, expected.lse)
    back = [heed.attention_backward(*tensors, seen.output, seen.lse, np.ones_like(out), mask=mask)[:3]
            for tensors, mask in (((q, k, v), keep), (moved[:3], moved[3]))]
    for a, b in zip(*back):
        same(a, b)


@given(CASES, st.integers(-5, 50), st.integers(0, 60), st.integers(0, 60))
def test_a_mask_has_the_bits_of_what_it_says(case, start, left, right):
    """Causal, window and lengths against the dense mask, and that against -inf added."""
    q, k, v, keep = case.tensors()
    length = int(case.random().integers(case.keys + 1))
    position = start + np.arange(case.rows)[:, None]
    key = np.arange(case.keys)
    for options, allowed in (({"causal": True}, key <= position),
                             ({"window": (left, right)}, (key >= position - left) & (key <= position + right)),
                             ({"key_lengths": length}, np.broadcast_to(key < length, (case.rows, case.keys)))):
        seen = heed.attention(q, k, v, mask=keep, **options, **({} if "key_lengths" in options else {"query_start": start}))
        same(seen, heed.attention(q, k, v, mask=keep & allowed))
        same(seen, heed.attention(q, k, v, bias=np.where(keep & allowed, 0, -np.inf).astype(np.float32)))


@given(CASES, st.integers(2, 9))
def test_threads_change_no_bit(case, threads):
    q, k, v, keep = case.tensors()
    same(heed.attention(q, k, v, mask=keep, threads=1), heed.attention(q, k, v, mask=keep, threads=threads))


@given(CASES, st.sampled_from([np.float16, np.float64]))
def test_other_types_agree_within_their_rounding(case, dtype):
    """float64 on the same numbers keeps float32's bound from the exact result with room; float16 is float32's, rounded."""
    q, k, v, keep = case.tensors()
    if dtype == np.float16:
        half = [x.astype(np.float16) for x in (q, k, v)]
        wide = heed.attention(*(x.astype(np.float32) for x in half), mask=keep)
        same(heed.attention(*half, mask=keep), wide.astype(np.float16))
    else:
        truth, bound = exact(q, k, v, allowed=keep)["output"]
        seen = heed.attention(*(x.astype(np.float64) for x in (q, k, v)), mask=keep)
        assert share(seen, (truth, bound * 1e-6 + 1e-300)) <= 1
