"""onnx's reference evaluator beside tests/oracle, without heed in between.

Method: tests/oracle/references.inc, which oracle_test holds the oracle to, has the 50-digit results of small cases of each
option. The evaluator computes the same cases in float64. What the operator lacks is written as it can be: slopes of
alibi, lengths of queries and the holes of a mask as numbers to add, a negative scale or one per head into q. Left are
normalize_qk, sinks, score_mod and dropout, of which it has nothing.

    ./dev peers
"""

import pathlib
import re
import sys

import numpy as np
import pytest
from onnx.reference.ops.op_attention import _compute_attention

ORACLE = pathlib.Path(__file__).resolve().parents[1] / "oracle"
sys.path.insert(0, str(ORACLE))
import make_tables as tables  # noqa: E402

LACKING = tables.NORMALIZE | tables.SINKS | tables.SCORE_MOD | tables.DROPOUT
CASES = [(flags, wide) for flags in tables.sets_of_flags() if not flags & LACKING for wide in (0, 1)]


def table():
    """{(flags, wide): {row: output}} of references.inc."""
    found = {}
    for line in (ORACLE / "references.inc").read_text().splitlines():
        flags, wide, row, _, numbers, _ = re.fullmatch(r"\{(\d+), (\d), (\d+), \{(.*?)\}, \{(.*)\}, \{(.*?)\}\},", line).groups()
        output = [sum(float.fromhex(part) for part in pair.split(", ")) for pair in re.findall(r"\{(.*?)\}", numbers)]
        found.setdefault((int(flags), int(wide)), {})[int(row)] = output
    return found


def test_there_are_cases_of_all_that_the_operator_can_do():
    rows, has = table(), 0
    for case in CASES:
        assert len(rows[case]) >= 6
        has |= case[0]
    assert len(CASES) == 28 and has == (1 << 15) - 1 - LACKING


@pytest.mark.parametrize("flags, wide", CASES)
def test_the_evaluator_has_the_results_of_fifty_digits(flags, wide):
    q, k, v, bias, keep, drop = tables.inputs(flags, wide)
    start = 1 if flags & (tables.CAUSAL | tables.WINDOW | tables.ALIBI) else 0
    scale = 1 / np.sqrt(tables.D) if wide else np.float64(np.float32(1 / np.sqrt(tables.D)))
    if flags & tables.SCALE:
        q, scale = -0.75 * q, 1.0
    if flags & tables.HEAD_SCALE:
        q, scale = np.array(tables.HEAD_SCALES)[:, None, None] * q, 1.0
    mask = np.zeros((tables.B, tables.H, tables.TQ, tables.TK))
    if bias is not None:
        mask += bias
    if flags & tables.ALIBI:
        distance = np.abs(np.arange(tables.TQ)[:, None] + start - np.arange(tables.TK))
        mask -= (np.arange(tables.H)[:, None, None] + 1) / 8 * distance
    if keep is not None:
        mask[:, :, ~keep] = -np.inf
    if drop is not None:
        mask[np.broadcast_to(drop, mask.shape)] = -np.inf
    if flags & tables.QUERY_LENGTH:
        for b, length in enumerate(tables.QUERY_LENGTHS):
            mask[b, :, length:] = -np.inf
    lengths = np.full(tables.B, tables.KEY_LENGTH) if flags & tables.LENGTH else None
    if start and lengths is not None:   # the evaluator takes lengths or a past: what is past a length is one more mask
        mask[..., tables.KEY_LENGTH:], lengths = -np.inf, None
    past = {"past_key": k[:, :, :start], "past_value": v[:, :, :start]} if start else {}
    window = {"left_window_size": 1, "right_window_size": 1} if flags & tables.WINDOW else {}
    output = _compute_attention(
        q, k[:, :, start:], v[:, :, start:], attn_mask=mask, nonpad_kv_seqlen=lengths, scale=float(scale),
        is_causal=int(bool(flags & tables.CAUSAL)), softcap=2.5 if flags & tables.SOFTCAP else 0.0, **past, **window)[0]
    for row, expected in table()[flags, wide].items():
        b, h, i = np.unravel_index(row, (tables.B, tables.H, tables.TQ))
        # float64's roundings of a few sums of five; the values are at most 2.
        np.testing.assert_allclose(output[b, h, i], expected, rtol=0, atol=1e-13, err_msg=f"row {row}")
