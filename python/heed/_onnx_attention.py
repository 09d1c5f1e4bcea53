"""ONNX's operator Attention, of opsets 23 to 25, in heed's words.

    ONNX                          heed
    past_key, past_value          query_start = their length, and they stand before the keys
    nonpad_kv_seqlen              key_lengths, and query_start = nonpad_kv_seqlen - Tq
    is_causal, *_window_size      causal, window; both count from query_start
    attn_mask                     mask: boolean keeps, numbers are added
    softmax_precision             float64 if it is that, else the type of sums, which is no narrower
"""

from typing import NamedTuple

import numpy as np

from ._attention import attention
from ._options import told

FLOAT64 = 11  # onnx.TensorProto.DOUBLE
PRECISIONS = {1: "FLOAT", 10: "FLOAT16", FLOAT64: "DOUBLE", 16: "BFLOAT16"}  # of onnx.TensorProto
FLOATING = ("float16", "bfloat16", "float32", "float64")

# What heed's arguments are called here.
NAMES = {"q": "Q", "k": "K", "v": "V", "mask (keep)": "attn_mask", "mask (add)": "attn_mask", "mask": "attn_mask",
         "key_lengths": "nonpad_kv_seqlen", "query_start": "nonpad_kv_seqlen", "window.left": "left_window_size",
         "window.right": "right_window_size"}
RAW, CAPPED, BIASED, SOFTMAX = range(4)  # qk_matmul_output_mode


class Attributes(NamedTuple):
    """Of the operator, with the defaults of opset 25."""

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = RAW
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None


def onnx_attention(q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen, attributes, outputs, pads=True):
    """The first ``outputs`` of Y, present_key, present_value and qk_matmul_output, as NumPy arrays. ``pads``: a mask of one
    column is one of the first key, as from opset 24 on; else it is one of all keys."""
    check(q, k, v, past_key, past_value, nonpad_kv_seqlen, attributes)
    packed = q.ndim == 3
    if packed:
        q = heads_apart("Q", q, "q_num_heads", attributes.q_num_heads)
        k = heads_apart("K", k, "kv_num_heads", attributes.kv_num_heads)
        v = heads_apart("V", v, "kv_num_heads", attributes.kv_num_heads)
    check_more(q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen)
    if past_key is not None:
        k, v = np.concatenate((past_key, k), 2), np.concatenate((past_value, v), 2)
    if attn_mask is not None:
        attn_mask = whole_mask(attn_mask, k.shape[2], pads)
    options = options_of(q, attn_mask, 0 if past_key is None else past_key.shape[2], nonpad_kv_seqlen, attributes)
    wanted = outputs > 3 and attributes.qk_matmul_output_mode == SOFTMAX

    wide = types_of(q, v, attributes)
    read = (q, k, v) if wide is None else (x.astype(wide) for x in (q, k, v))
    rows = np.empty((*q.shape[:1], *((q.shape[2], q.shape[1]) if packed else q.shape[1:3]), v.shape[-1]),
                    q.dtype if wide is None else wide)
    try:
        seen = attention(*read, out=rows.swapaxes(1, 2) if packed else rows, return_weights=wanted, reproducible=True,
                         **options)
    except (TypeError, ValueError) as error:
        raise type(error)(told("Attention", str(error), NAMES)) from None
    y = rows.reshape(*rows.shape[:2], rows.shape[2] * rows.shape[3]) if packed else rows
    result = [y.astype(q.dtype, copy=False), k, v]
    if outputs > 3:
        result.append((seen.weights if wanted else scores(q, k, options, attributes)).astype(q.dtype))
    return tuple(result[:outputs])


def check(q, k, v, past_key, past_value, nonpad_kv_seqlen, attributes):
    """What heed.attention cannot know."""
    for name, x in (("Q", q), ("K", k), ("V", v)):
        if not hasattr(x, "dtype") or x.dtype.name not in FLOATING:
            kind = x.dtype.name if hasattr(x, "dtype") else f"of type {type(x).__qualname__}"
            raise TypeError(f"Attention: {name} is {kind}; expected an array of {', '.join(FLOATING)}")
    if k.dtype != q.dtype:
        raise TypeError(f"Attention: K is {k.dtype}, Q is {q.dtype}; they must be equal")
    ranks = q.ndim, k.ndim, v.ndim
    if ranks not in ((3, 3, 3), (4, 4, 4)):
        raise ValueError(f"Attention: Q, K and V have {ranks} axes; expected 3 each, or 4 each")
    if (past_key is None) != (past_value is None):
        raise ValueError("Attention: one of past_key and past_value is absent; expected both or neither")
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise ValueError("Attention: past_key and nonpad_kv_seqlen are both given; expected one of them")
    for name in ("left_window_size", "right_window_size"):
        if getattr(attributes, name) < -1:
            raise ValueError(f"Attention: {name} is {getattr(attributes, name)}; expected -1 or more")
    for name, heads, whose, x in (("q_num_heads", attributes.q_num_heads, "Q", q),
                                  ("kv_num_heads", attributes.kv_num_heads, "K", k)):
        if x.ndim == 4 and heads is not None and heads != x.shape[1]:
            raise ValueError(f"Attention: {name} is {heads}, {whose} has shape {x.shape}; expected its second axis, or "
                             "nothing")
    if attributes.is_causal not in (0, 1):
        raise ValueError(f"Attention: is_causal is {attributes.is_causal}; expected 0 or 1")
    if not attributes.softcap >= 0:
        raise ValueError(f"Attention: softcap is {attributes.softcap}; expected 0, which is none, or more")
    if attributes.softmax_precision is not None and attributes.softmax_precision not in PRECISIONS:
        raise ValueError(f"Attention: softmax_precision is {attributes.softmax_precision}; expected "
                         + ", ".join(f"{number} ({name})" for number, name in PRECISIONS.items()))
    if attributes.qk_matmul_output_mode not in range(4):
        raise ValueError(f"Attention: qk_matmul_output_mode is {attributes.qk_matmul_output_mode}; expected 0 to 3")


def check_more(q, k, v, attn_mask, past_key, past_value, nonpad_kv_seqlen):
    """Of the inputs that may be absent, beside Q, K and V with four axes."""
    past = 0
    for name, x, present, whose in (("past_key", past_key, k, "K"), ("past_value", past_value, v, "V")):
        if x is None:
            continue
        if x.dtype != present.dtype:
            raise TypeError(f"Attention: {name} is {x.dtype}, {whose} is {present.dtype}; they must be equal")
        wanted = (*present.shape[:2], x.shape[2] if x.ndim == 4 else "P", present.shape[3])
        if x.shape != wanted:
            raise ValueError(f"Attention: {name} has shape {x.shape}; expected ({', '.join(map(str, wanted))})")
        past = x.shape[2]
    if past_key is not None and past_key.shape[2] != past:
        raise ValueError(f"Attention: past_key has {past_key.shape[2]} keys, past_value {past}; expected equal numbers")
    keys = k.shape[2] + past
    if nonpad_kv_seqlen is not None:
        lengths = nonpad_kv_seqlen
        if lengths.dtype.kind not in "iu":
            raise TypeError(f"Attention: nonpad_kv_seqlen is {lengths.dtype}; expected int64")
        if lengths.size != q.shape[0]:
            raise ValueError(f"Attention: nonpad_kv_seqlen has shape {lengths.shape}; expected ({q.shape[0]},)")
        for i in np.flatnonzero((lengths.reshape(-1) < 0) | (lengths.reshape(-1) > keys))[:1]:
            raise ValueError(f"Attention: nonpad_kv_seqlen[{i}] is {lengths.reshape(-1)[i]}; expected 0 .. {keys}")
    if attn_mask is None:
        return
    if attn_mask.dtype.kind not in "biu" and attn_mask.dtype.name not in FLOATING:
        raise TypeError(f"Attention: attn_mask is {attn_mask.dtype}; expected bool or a type of numbers")
    full, shape = (*q.shape[:3], keys), attn_mask.shape
    if not 1 <= len(shape) <= 4 or shape[-1] > keys or any(m not in (1, n) for m, n in zip(shape[-2::-1], full[-2::-1])):
        raise ValueError(f"Attention: attn_mask has shape {shape}; expected one that broadcasts to {full}, and may have fewer "
                         "columns")


def heads_apart(name, x, attribute, heads):
    """[B, T, H D] seen as [B, H, T, D]"""
    if not heads or heads < 0 or x.shape[2] % heads:
        raise ValueError(f"Attention: {attribute} is {heads}, {name} has shape {x.shape}; expected a divisor of its last "
                         "axis")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def types_of(q, v, attributes):
    """The type to compute in, None for q's as it is: V may have another one, and softmax may be asked for in float64."""
    if attributes.softmax_precision == FLOAT64 or (q.dtype != v.dtype and np.float64 in (q.dtype, v.dtype)):
        return None if q.dtype == v.dtype == np.float64 else np.dtype(np.float64)
    return None if q.dtype == v.dtype else np.dtype(np.float32)


def options_of(q, attn_mask, past, nonpad_kv_seqlen, attributes) -> dict:
    start = past if nonpad_kv_seqlen is None else nonpad_kv_seqlen.reshape(-1) - q.shape[2]
    window = tuple(None if size < 0 else int(size)
                   for size in (attributes.left_window_size, attributes.right_window_size))
    return {"scale": None if attributes.scale is None else float(attributes.scale),
            "softcap": float(attributes.softcap) if attributes.softcap > 0 else None,
            "mask": attn_mask,
            "causal": bool(attributes.is_causal), "query_start": start, "window": window,
            "key_lengths": None if nonpad_kv_seqlen is None else nonpad_kv_seqlen.reshape(-1)}


def whole_mask(mask, keys, pads):
    """One with a column for each key: those that are missing are hidden, where a single one is not ``pads``'s but every
    key's. Integers are numbers to add."""
    boolean = mask.dtype == np.bool_
    if not boolean and np.issubdtype(mask.dtype, np.integer):
        mask = mask.astype(np.float64)
    missing = keys - mask.shape[-1]
    if missing <= 0 or not pads and mask.shape[-1] == 1:
        return mask
    hidden = np.full((*mask.shape[:-1], missing), False if boolean else -np.inf, mask.dtype)
    return np.concatenate((mask, hidden), -1)


def scores(q, k, options, attributes):
    """[B, H, Tq, Tk]: scores before softmax, which attention itself never keeps. Takes the memory that it says."""
    wide = np.float64 if q.dtype == np.float64 or attributes.softmax_precision == FLOAT64 else np.float32
    (batch, heads, rows, size), kv_heads = q.shape, k.shape[1]
    grouped = q.reshape(batch, kv_heads, heads // kv_heads, rows, size).astype(wide)
    t = np.matmul(grouped, k[:, :, None].astype(wide).swapaxes(-1, -2)).reshape(batch, heads, rows, k.shape[2])
    t *= wide(size**-0.5 if options["scale"] is None else options["scale"])
    if attributes.qk_matmul_output_mode == RAW:
        return t
    if options["softcap"] is not None:
        t = np.tanh(t / wide(options["softcap"])) * wide(options["softcap"])
    if attributes.qk_matmul_output_mode == CAPPED:
        return t
    mask = options["mask"]
    allowed = allowed_places(rows, t.shape[-1], options)
    if mask is not None and mask.dtype == np.bool_:
        allowed = allowed & mask
    elif mask is not None:
        t = t + mask.astype(wide)
        allowed = allowed & (mask != -np.inf)  # also of a NaN
    return np.where(allowed, t, wide(-np.inf))


def allowed_places(rows, keys, options):
    """[B or 1, 1, Tq, Tk]: what causal, window and key_lengths leave."""
    key = np.arange(keys)
    position = np.reshape(options["query_start"], (-1, 1, 1, 1)) + np.arange(rows)[:, None]
    left, right = options["window"]
    lengths = options["key_lengths"]
    allowed = np.ones((1, 1, rows, keys), bool)
    if options["causal"]:
        allowed = allowed & (key <= position)
    if left is not None:
        allowed = allowed & (key >= position - left)
    if right is not None:
        allowed = allowed & (key <= position + right)
    return allowed if lengths is None else allowed & (key < np.reshape(lengths, (-1, 1, 1, 1)))
