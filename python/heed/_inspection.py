"""Looking inside: weights on demand, and summaries of statistics."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np

from . import _core
from ._arrays import kind_of, shape_of
from ._attention import finished
from ._command import as_numpy, in_numpy
from ._options import Array, Options, integer, integers_in, pack_all, require_pair, truth


SATURATED = 0.99
"""The largest weight above which a row hardly learns: C++'s default for heed::saturation."""


class WeightViews(NamedTuple):
    """What heed.inspect_weights computed; None for what was not asked for."""

    row_weights: Any = None  #: [B, H, N, Tk]: the weights of the chosen rows, 0 where hidden
    row_scores: Any = None  #: [B, H, N, Tk]: their final scores, -inf where hidden
    top_keys: Any = None  #: [B, H, Tq, K] int64: keys with the largest weights, -1 where none is above 0
    top_weights: Any = None  #: [B, H, Tq, K]
    top_mass: Any = None  #: [B, H, Tq]: their sum
    column_sums: Any = None  #: [B, H, Tk]: how much each key is attended to
    mean_map: Any = None  #: [B, H, R, C]: the mean over all pairs of a cell
    lift_map: Any = None  #: [B, H, R, C]: log2 of the mean of (visible keys) * p: 0 is uniform
    distance_mass: Any = None  #: [B, H, N]: mass by distance key - position, from -(N-1)/2 to (N-1)/2
    score_histogram: Any = None  #: [B, H, N + 2] int64: below, N bins, at or above


class Summary(NamedTuple):
    """How the numbers of one head's rows lie."""

    count: int  #: rows that were taken
    mean: float  #: of them
    quantiles: tuple[float, float, float, float, float]  #: lowest, 25 %, median, 75 %, highest


def inspect_weights(q: Array, k: Array, lse: Array, *, rows: Array | None = None, row_weights: bool = False,
                    row_scores: bool = False, top: int = 0, column_sums: bool = False,
                    mean_map: tuple[int, int] | None = None, lift_map: tuple[int, int] | None = None,
                    distance_mass: int = 0, score_histogram: int = 0, score_low: float = -4.0,
                    score_high: float = 4.0, **options: Unpack[Options]) -> WeightViews:
    """What is wanted of the weights p = exp(s - lse), in one pass over q and k, without a matrix of them.

    ``lse`` [B, H, Tq] is that of heed.attention with the same options; q is [B, H, Tq, D], k [B, Hk, Tk, D].

    :param rows: [N] query rows, integers in any order, for row_weights and row_scores, one of which must be wanted
    :param top: K >= 1 gives top_keys, top_weights and top_mass
    :param mean_map: (R, C) cells
    :param lift_map: the same cells, if both are given
    :param distance_mass: N, odd: how many distances; the outermost two also hold what lies beyond
    :param score_histogram: N bins of equal width over [score_low, score_high)
    :raises TypeError, ValueError: as heed.attention does
    :raises MemoryError: there is no memory for what an argument asks for
    """
    kind = kind_of(q)
    q = kind.seen(q)
    packed, threads = pack_all(options, "inspect_weights")
    row_weights, row_scores = truth("row_weights", row_weights), truth("row_scores", row_scores)
    column_sums = truth("column_sums", column_sums)
    top, distance_mass = count("top", top), count("distance_mass", distance_mass)
    score_histogram = count("score_histogram", score_histogram)
    before, queries = tuple(q.shape[:-2]), tuple(q.shape[-2:-1])
    keys = shape_of("k", k)[-2:-1]
    mean_map, lift_map = cells("mean_map", mean_map, queries + keys), cells("lift_map", lift_map, queries + keys)
    chosen = None if rows is None else integers("rows", rows)
    if chosen is None and (row_weights or row_scores):
        raise ValueError("inspect_weights: row_weights and row_scores want rows, which is None")
    if chosen is not None and not (row_weights or row_scores):
        raise ValueError("inspect_weights: rows is given, but neither row_weights nor row_scores is wanted; expected one of them")

    def made(argument, wanted, shape, integer=False):
        return empty(argument, kind, q, before + tuple(shape), integer) if wanted else None

    of_rows = () if chosen is None else chosen.shape + keys
    views = WeightViews(
        row_weights=made("row_weights", row_weights, of_rows), row_scores=made("row_scores", row_scores, of_rows),
        top_keys=made("top", top, (*queries, top), integer=True), top_weights=made("top", top, (*queries, top)),
        top_mass=made("top", top, queries), column_sums=made("column_sums", column_sums, keys),
        mean_map=made("mean_map", mean_map, mean_map or ()), lift_map=made("lift_map", lift_map, lift_map or ()),
        distance_mass=made("distance_mass", distance_mass, (distance_mass,)),
        score_histogram=made("score_histogram", score_histogram, (score_histogram + 2,), integer=True))
    _core.inspect_weights(q, k, lse, chosen, tuple(views), score_low, score_high, packed, threads)
    return WeightViews(*(finished(kind, array) for array in views))


def empty(argument, kind, q, shape, integer):
    """For a result that an argument asks for.

    :raises MemoryError: there is no memory for it
    """
    size = (8 if integer or str(q.dtype).endswith("float64") else 4) * math.prod(axis or 1 for axis in shape)
    try:
        if size < 2**63:  # beyond, what makes arrays has words of its own: NumPy's ValueError, PyTorch's RuntimeError
            return kind.empty(q, shape, integer)
    except (MemoryError, RuntimeError):  # the latter is PyTorch's
        pass
    raise MemoryError(f"inspect_weights: {argument}: {size} bytes could not be allocated, for shape {list(shape)}")


def integers(name, given) -> np.ndarray:
    """[N] int64, of any array or sequence of integers."""
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes, bytearray, memoryview)):
        return integers_in("inspect_weights", name, given)
    array = np.asarray(given) if isinstance(given, bytes) else in_numpy(name, given)
    if array.dtype.kind not in "iu":
        what = f"an array of {array.dtype.name}" if array.ndim else f"of type {type(given).__qualname__}"
        raise TypeError(f"inspect_weights: {name} is {what}; expected integers, in a list or an array")
    if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise ValueError(f"inspect_weights: {name} has {array.max()}; expected rows of q")
    return array.astype(np.int64)  # a copy: what is checked cannot change before it is used


def count(name, given) -> int:
    """0, which is none, or more."""
    return integer("inspect_weights", name, given, 0)


def cells(name, given, most) -> tuple[int, int] | None:
    """(R, C), where q and k have axes to be divided (Tq, Tk) no more than these: an array of a result is made first."""
    if given is None:
        return None
    require_pair(f"inspect_weights: {name}", given, "(R, C), numbers of cells")
    made = count(f"{name}[0]", given[0]), count(f"{name}[1]", given[1])
    if len(most) == 2 and (made[0] > most[0] or made[1] > most[1]):
        raise ValueError(f"inspect_weights: {name} is {made}; expected at most {most[0]} rows (Tq) and {most[1]} "
                         "columns (Tk) of cells")
    return made


def summarize(numbers: Array, visible_keys: Array | None = None) -> list[Summary]:
    """A summary for each head of numbers [B, H, Tq], in the order of batch and head. Rows that see no key are left out
    where visible_keys (int64 [B, H, Tq], JAX's int32 too, of heed.attention's statistics) is given. Quantiles are linear in between; a NaN,
    or no row at all, makes a head's mean and quantiles NaN.

    :raises TypeError, ValueError: the arrays are not of these types, or their shapes differ
    """
    return [Summary(*fields) for fields in
            ((count, mean, tuple(quantiles)) for count, mean, quantiles in _core.summarize(numbers, counts(visible_keys)))]


def saturation(max_weight: Array, visible_keys: Array | None = None, threshold: float = SATURATED) -> list[float]:
    """The share of rows whose largest weight is above the threshold, for each head: such rows hardly learn.

    ::

        sum_i [max_weight_i > threshold] / rows

    :param max_weight: [B, H, Tq], of heed.attention's statistics
    :param visible_keys: int64 [B, H, Tq], JAX's int32 too: rows that see no key are left out
    :param threshold: 0 .. 1
    :raises TypeError, ValueError: the arrays are not of these types, or their shapes differ; threshold is beyond its range
    """
    return _core.saturation(max_weight, counts(visible_keys), threshold)


def counts(visible_keys: Array | None) -> Array | None:
    """As they are counted: JAX without x64 has int32 for int64."""
    narrow = str(getattr(visible_keys, "dtype", "")) == "int32" and not isinstance(visible_keys, np.ma.MaskedArray)
    return np.asarray(visible_keys, np.int64) if narrow else visible_keys


def entropy_share(entropy: Array, visible_keys: Array) -> np.ndarray:
    """entropy / ln(visible_keys), both of any shape [..]: 1 is uniform, 0 is one key. One visible key, or none, counts as
    0."""
    entropy, keys = numbers("entropy_share", entropy=entropy, visible_keys=visible_keys)
    return np.where(keys < 2, 0.0, entropy / np.log(np.maximum(keys, 2), dtype=np.float64))


def effective_keys(entropy: Array) -> np.ndarray:
    """exp(entropy), of any shape [..]: the number of equal weights that would be as uncertain."""
    entropy, = numbers("effective_keys", entropy=entropy)
    return np.exp(entropy, dtype=np.result_type(entropy, np.float32))  # 16 bits end at 11 nats


def mean_diagonal(sum_squared_weights: Array, visible_keys: Array) -> np.ndarray:
    """(1 - sum p^2) / visible_keys, both of any shape [..]: the mean of p (1 - p) over the visible keys, which are the
    diagonal of the softmax's Jacobian. 0 where none is visible."""
    squares, keys = numbers("mean_diagonal", sum_squared_weights=sum_squared_weights, visible_keys=visible_keys)
    return np.where(keys < 1, 0.0, (1.0 - squares) / np.maximum(keys, 1))


def numbers(function: str, **given) -> list[np.ndarray]:
    """Arrays, or single numbers, of shapes that fit.

    :raises TypeError: they are none
    :raises ValueError: their shapes differ
    """
    lossy = {name for name, x in given.items() if isinstance(x, np.ma.MaskedArray) or hasattr(x, "detach")}
    try:
        arrays = {name: as_numpy(name, x) if name in lossy else in_numpy(name, x) for name, x in given.items()}
    except TypeError as error:
        raise TypeError(f"{function}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{function}: {error}") from None
    for name, x in arrays.items():
        if x.dtype.kind not in "fiu" and x.dtype.name != "bfloat16":
            what = f"an array of {x.dtype.name}" if x.ndim else f"of type {type(given[name]).__qualname__}"
            raise TypeError(f"{function}: {name} is {what}; expected numbers of NumPy's types")
    try:
        np.broadcast_shapes(*(x.shape for x in arrays.values()))
    except ValueError:
        shapes = ", ".join(f"{name} has shape {list(x.shape)}" for name, x in arrays.items())
        raise ValueError(f"{function}: {shapes}; they must be equal") from None
    return list(arrays.values())
