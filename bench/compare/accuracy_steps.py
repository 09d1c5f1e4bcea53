"""The order of docs/numerics.md for one cell in float64, in which only the steps that are named round to float32.

So a step's share of heed's error is what is left when it alone rounds; with all of them the result is heed's, but for
float64's rounding in an FMA. Up to 768 keys, no options but masks.
"""

import numpy as np

from .tensors import rounded, visible_pairs

STEPS = ("q . k", "base 2", "t - m", "2^x", "l", "O", "O / l")   # base 2: the factor, and the score times it; O: before 1 / l
PAIRED_STEPS = ("weights", "output")   # 2^x as dot products of bfloat16 take it, and what is stored; the others are far below
COEFFICIENTS = [float.fromhex(c) for c in ("0x1.41fbbcp-13", "0x1.5f3e54p-10", "0x1.3b2d4cp-7", "0x1.c6aee8p-5",
                                           "0x1.ebfbdcp-3", "0x1.62e43p-1", "0x1p0")]


def rounding(on):
    return (lambda x: np.float64(np.float32(x))) if on else np.float64


def power(x, round_, polynomial):
    x = np.maximum(x, -127)
    whole = np.rint(x)
    made = np.zeros_like(x) if polynomial else 2.0**(x - whole)
    for c in COEFFICIENTS if polynomial else ():
        made = round_(made * (x - whole) + c)
    return np.where(x == -127, 0, made * 2.0**whole)


def chain(a, b, round_):
    """sum over the last axis, in its order"""
    made = 0.0
    for x in range(a.shape[-1]):
        made = round_(made + a[..., x] * b[..., x])
    return made


def has_steps(cell):
    """Whether by_steps can do it."""
    return cell.keys <= 768 and cell.heads == cell.kv_heads and cell.mask != "bias" and cell.dtype != "float16"


def steps_of(cell):
    return PAIRED_STEPS if cell.dtype == "bfloat16" else STEPS


def by_steps(cell, inputs, steps):
    """[B, H, Tq, Dv]: the output where `steps`, of STEPS or PAIRED_STEPS, round."""
    assert has_steps(cell)
    paired = cell.dtype == "bfloat16"
    score, base, difference, exp, sum_l, sum_o, quotient = (rounding(step in steps) for step in STEPS)
    q, k, v = (inputs[name].astype(np.float64) for name in "qkv")
    scores = 0.0
    for x in range(0, cell.d, 128):
        scores = score(scores + chain(q[:, :, :, None, x:x + 128], k[:, :, None, :, x:x + 128], score))
    factor = base(base(np.log2(np.e)) * base(cell.d**-0.5))
    t = np.where(visible_pairs(cell, inputs), base(scores * factor), -np.inf)
    m, l, output = np.full((*t.shape[:3], 1), -np.inf), 0.0, 0.0
    for first in range(0, cell.keys, 192 if paired else 96):
        keys = slice(first, first + (192 if paired else 96))
        top = np.maximum(m, t[..., keys].max(-1, keepdims=True))
        r = np.where(np.isneginf(top), 0, top)
        e, a = (power(difference(x - r), exp, "2^x" in steps) for x in (t[..., keys], m))
        l = sum_l(l * a + chain(np.ones_like(e), e, sum_l)[..., None])
        taken = np.float64(rounded(np.float32(e), "bfloat16")) if "weights" in steps else e
        output = sum_o(output * a + chain(taken[:, :, :, None], v[:, :, None, keys].swapaxes(3, 4), sum_o))
        m = top
    output = quotient(output * quotient(1 / l))
    return np.float64(rounded(np.float32(output), "bfloat16")) if "output" in steps else output
