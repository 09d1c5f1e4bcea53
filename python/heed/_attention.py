"""Attention forwards: heed.attention and PyTorch's signature of it."""

from typing import Any, Iterable, NamedTuple

import numpy as np

from . import _core
from ._arrays import into, kind_of, shape_of
from ._options import Array, Mask, names_of, number, pack, told, truth, workers


class RowStatistics(NamedTuple):
    """Statistics of each query row, [B, H, Tq] (or [B, Tq], [Tq]); None for those not asked for.

    s are the final scores of the keys that the row may see, in natural units, p = exp(s - lse) their weights, before
    dropout. A row that sees no key: max_score -inf, max_weight_key -1, everything else 0. A row that is NaN for a score of
    NaN or +infinity, or such a sink: visible_keys, max_weight_key -1, everything else NaN. A finite score counts as it is,
    the finfo.min of a bias that masks too: score_mean and score_variance may overflow, to infinity and not to NaN.
    """

    max_score: Any = None  #: max s
    max_weight: Any = None  #: max p
    max_weight_key: Any = None  #: int64: the key of max_score, the lowest one on ties
    entropy: Any = None  #: -sum p ln p, in nats
    visible_keys: Any = None  #: int64: keys that the row may see
    score_mean: Any = None  #: of the s that are not -inf
    score_variance: Any = None  #: of the same, the population's
    sum_squared_weights: Any = None  #: sum p^2
    sum_cubed_weights: Any = None  #: sum p^3
    jacobian_norm: Any = None  #: ``|diag(p) - p p'|``, Frobenius


def statistics_of(function: str, wanted) -> tuple[str, ...]:
    """The fields of RowStatistics that the argument ``statistics`` asks for; True asks for all, False and None for none."""
    if wanted is None or isinstance(wanted, (bool, np.bool_)):
        return RowStatistics._fields if wanted else ()
    return names_of(function, "statistics", wanted, RowStatistics._fields)


COUNTS = ("max_weight_key", "visible_keys")
"""The fields of RowStatistics that are integers."""


class AttentionResult(NamedTuple):
    """What heed.attention returns when more than the output is asked for; None for what is not."""

    output: Any  #: [B, H, Tq, Dv]
    weights: Any = None  #: [B, H, Tq, Tk], after dropout
    lse: Any = None  #: [B, H, Tq], natural logarithm; of a row that sees no key -inf, or its sink
    statistics: RowStatistics | None = None  #: those that were named


def attention(q: Array, k: Array, v: Array, *, scale: float | Array | None = None, normalize_qk: bool = False,
              softcap: float | None = None, alibi: Array | None = None, bias: Array | None = None,
              mask: Array | Mask | None = None, causal: bool = False, query_start: int | Array | None = None,
              window: tuple[int | None, int | None] | None = None, key_lengths: int | Array | None = None,
              query_lengths: int | Array | None = None, sinks: Array | None = None, dropout_p: float | None = None,
              seed: int | None = None, packing: tuple[Array, Array] | None = None, return_weights: bool = False,
              return_lse: bool = False, statistics: bool | Iterable[str] = False, out: Array | None = None,
              threads: int = 0, reproducible: bool = False) -> Any:
    """softmax(scale * q k') v, exactly, in O(Tq + Tk) memory.

    ::

        q  [B, H,  Tq, D ]      or [B, Tq, D ], [Tq, D ]: all of one rank
        k  [B, Hk, Tk, D ]      query head h reads KV head h / (H / Hk)
        v  [B, Hk, Tk, Dv]
           [B, H,  Tq, Dv]      what is returned

    q, k and v are arrays on the CPU of one type, float32, float64, float16 or bfloat16, with any strides of whole
    elements: NumPy, PyTorch, JAX, or anything with ``__dlpack__`` or the buffer protocol. They are read where they
    lie. The two 16-bit types have scores, softmax and sums in float32, and the result is rounded once; but see
    ``reproducible``, of bfloat16. The result is an array of q's kind (NumPy's for other buffers) and type, with q's
    order of axes in memory; or it is written to ``out``, which is returned.

    What happens to a score, in this order:

    :param scale: factor of the scores, one or one for each query head; 1 / sqrt(D), with normalize_qk 1. Arrays of numbers for
        each head (scale, alibi, sinks) are float32 or float64, those of lengths and positions int32 or int64; lists hold any
    :param normalize_qk: divide by the lengths of q and k (cosine attention)
    :param softcap: softcap * tanh(score / softcap)
    :param alibi: slopes [H]: subtracts ``slope * |query position - key|``
    :param bias: added; any floating type, broadcasts to [B, H, Tq, Tk]
    :param mask: boolean: True where a query may look; floating: added. heed.keep, heed.drop, heed.add say it outright.
        Broadcasts like bias, right-aligned
    :param causal: key <= query position
    :param query_start: position of the first query row, an integer or one for each batch entry; 0
    :param window: (left, right): position - left <= key <= position + right, None, or 2**63 - 1,
        is without end
    :param key_lengths: keys at or past it are padding; an integer or one for each batch entry
    :param query_lengths: rows at or past it see no key
    :param sinks: [H]: one more score for each head, without key or value
    :param dropout_p: share of weights that is dropped, from ``seed`` and the weight's place alone; None is 0, and takes
        no seed

    Sequences of any lengths in one call, without padding:

    :param packing: (query_offsets, key_offsets), integers [S + 1] each: q [1, H, Tq, D] holds S sequences end to end.
        Sequence s has rows query_offsets[s] .. query_offsets[s + 1] - 1, sees its own keys alone, likewise by key_offsets,
        and has the bits of a call on them, but under dropout, which counts places in the whole call. query_start and lengths
        are for each sequence; rows of none count as rows that see no key, not even a sink (lse -inf), but are left as
        they are in ``out``. Not with return_weights

    What is asked for, and how it runs:

    :param return_weights: the weights too, the one thing that takes O(Tq Tk) memory
    :param return_lse: the logarithm of the sum of exponentials too
    :param statistics: True, or names of RowStatistics' fields: statistics of each row, from the same pass
    :param out: where the output goes, of q's type and any strides
    :param threads: 0: heed.default_threads(). No number changes a bit of any result
    :param reproducible: bfloat16 has the same bits on every CPU, those of float32 rounded: bfloat16 is widened to float32
        also where heed would take the CPU's dot products of bfloat16, which round otherwise
    :returns: the output, or AttentionResult if more was asked for

    A row that sees no key gets 0. NaN or infinity in what is masked changes nothing.

    :raises TypeError: an argument is no array, or of a wrong element type
    :raises ValueError: a shape, value or device does not fit, or a tensor requires a gradient; nothing is written then
    :raises KeyboardInterrupt: Ctrl-C, in the main thread; ``out`` then holds anything
    """
    kind = kind_of(q)
    q = kind.seen(q)
    options = pack(scale, normalize_qk, softcap, alibi, bias, mask, causal, query_start, window, key_lengths,
                    query_lengths, sinks, dropout_p, seed, reproducible, packing)
    threads = workers(threads)
    if not (type(return_weights) is type(return_lse) is bool):
        return_weights, return_lse = truth("return_weights", return_weights), truth("return_lse", return_lse)
    wanted = statistics_of("attention", statistics)
    output = out if out is not None else kind.empty_like(q, output_shape(q, v))
    if packing is not None and out is None:
        output[...] = 0  # the compiled part leaves rows of no sequence as they are
    if not (return_weights or return_lse or wanted):
        into(out, _core.attention_forward, q, k, v, output, None, None, None, options, threads)
        return kind.finished(output) if out is None else out

    rows = q.shape[:-1]
    lse = kind.empty(q, rows) if return_lse else None
    weights = kind.empty(q, rows + shape_of("k", k)[-2:-1]) if return_weights else None
    counted = empty_statistics(kind, q, rows, wanted) if wanted else None
    if packing is not None:
        fill_rows_of_no_sequence(lse, counted)
    into(out, _core.attention_forward, q, k, v, output, lse, weights, counted, options, threads)
    return AttentionResult(kind.finished(output) if out is None else out, finished(kind, weights),
                           finished(kind, lse),
                           counted and RowStatistics(*(finished(kind, array) for array in counted)))


def scaled_dot_product_attention(query: Array, key: Array, value: Array, attn_mask: Array | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Any:
    """PyTorch's function of that name, argument for argument, on arrays of any kind, without autograd:
    softmax(scale * query key' + attn_mask) value.

    ::

        query  [B, H,  Tq, D ]     or three axes, or two: all of one rank
        key    [B, Hk, Tk, D ]     Hk != H needs enable_gqa, with which the first of three axes is that of heads
        value  [B, Hk, Tk, Dv]
               [B, H,  Tq, Dv]     what is returned
        attn_mask                  boolean: True where a query may look; floating: added; broadcasts to [B, H, Tq, Tk]

    Unlike there, attn_mask and is_causal may both be given (a query looks where both allow it), and a query that may
    look nowhere gets 0. dropout_p other than 0 is refused, since there is no seed: heed.attention takes one.

    :raises TypeError, ValueError: as heed.attention does, by the names of this function; for dropout_p, and for numbers of
        heads that differ without enable_gqa
    """
    function = "scaled_dot_product_attention"
    if dropout_p is not None and np.isnan(number(function, "dropout_p", dropout_p)):
        raise ValueError(f"{function}: dropout_p is nan; expected 0")
    if dropout_p is not None and number(function, "dropout_p", dropout_p):
        raise ValueError(f"{function}: dropout_p needs a seed, which this signature lacks; call heed.attention(..., "
                         "dropout_p=p, seed=s)")
    if not truth(f"{function}: enable_gqa", enable_gqa):
        heads, kv_heads = shape_of("query", query)[:-2], shape_of("key", key)[:-2]
        if len(heads) == len(kv_heads) and heads[1:2] != kv_heads[1:2]:   # of other ranks attention tells
            raise ValueError(f"{function}: query has {heads[1]} heads, key {kv_heads[1]}; expected equal numbers, or "
                             "enable_gqa=True")
    try:
        if enable_gqa and all(len(shape_of(name, x)) == 3 for name, x in (("q", query), ("k", key), ("v", value))):
            seen = (x if isinstance(x, np.ma.MaskedArray) else kind_of(x).seen(x, name)
                    for name, x in (("q", query), ("k", key), ("v", value)))
            one_batch = (x[None] for x in seen)
            return attention(*one_batch, scale=scale, mask=attn_mask, causal=is_causal)[0]
        return attention(query, key, value, scale=scale, mask=attn_mask, causal=is_causal)
    except (TypeError, ValueError) as error:
        names = {"q": "query", "k": "key", "v": "value", "mask (keep)": "attn_mask", "mask (add)": "attn_mask",
                 "mask": "attn_mask", "bias": "attn_mask", "causal": "is_causal"}
        raise type(error)(told(function, str(error), names)) from None


def output_shape(q, v) -> tuple:
    """[.., Tq, Dv]"""
    shape = shape_of("v", v)
    if len(q.shape) < 2 or len(shape) < 2:
        raise ValueError(f"attention: q has shape {tuple(q.shape)}, v {shape}; expected [T, D], [B, T, D] or "
                         "[B, H, T, D]")
    return q.shape[:-1] + shape[-1:]


def finished(kind, array):
    """A result as the caller's kind of array; None stays None."""
    return None if array is None else kind.finished(array)


def fill_rows_of_no_sequence(lse, statistics) -> None:
    """What rows that see no key have."""
    of_none = {"max_score": float("-inf"), "max_weight_key": -1}
    for name, array in (("lse", lse), *zip(RowStatistics._fields, statistics or ())):
        if array is not None:
            array[...] = float("-inf") if name == "lse" else of_none.get(name, 0)


def empty_statistics(kind, q, rows, wanted) -> list:
    """An array for each wanted field, None for the others."""
    return [kind.empty(q, rows, integer=name in COUNTS) if name in wanted else None for name in RowStatistics._fields]
