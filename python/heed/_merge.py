"""heed.merge: attention over parts of the keys, computed apart, becomes attention over all of them."""

from typing import Any, Iterable, NamedTuple

from . import _core
from ._arrays import kind_of
from ._options import Array, workers


class MergeResult(NamedTuple):
    """What one call over the keys of all parts would give, up to rounding."""

    output: Any  #: [B, H, Tq, Dv]
    lse: Any  #: [B, H, Tq]


def merge(outputs: Iterable[Array], lses: Iterable[Array], *, threads: int = 0) -> MergeResult:
    """Output and lse of the same queries over the keys of all parts, row by row.

    ::

        lse = m + ln l,  m = max lse_p,  l = sum_p e^(lse_p - m)
        O   = sum_p e^(lse_p - m) / l  O_p

    Sums run over the parts in the order given. A part that is empty for a row (lse -inf) changes no bit of it; a row with
    one part that is not empty has that part's bits (but an lse of -0, which no call writes, becomes +0); one with none gets
    output 0, lse -inf. Same bits for any number of threads. Parts must not share keys; a sink belongs to one of them only.

    :param outputs: of heed.attention, one for each part, [B, H, Tq, Dv], [B, Tq, Dv] or [Tq, Dv], of any floating
        type. A list of arrays, or whatever gives one after the other, but no array of arrays: its first axis could be the batch
    :param lses: theirs: float64 with outputs of float64, else float32
    :param threads: 0: heed.default_threads(). No number changes a bit of any result
    :returns: arrays of the first output's kind and type
    :raises TypeError, ValueError: as heed.attention does
    """
    outputs, lses = parts("outputs", outputs), parts("lses", lses)
    if not outputs:
        raise ValueError("merge: outputs has 0 parts; expected 1 or more")
    kind = kind_of(outputs[0])
    first = kind.seen(outputs[0], "outputs[0]")
    output = kind.empty_like(first, tuple(first.shape))
    lse = kind.empty(first, tuple(first.shape[:-1]))
    _core.merge(outputs, lses, output, lse, workers(threads, "merge"))
    return MergeResult(kind.finished(output), kind.finished(lse))


def parts(name, given) -> list:
    """The arrays, one for each part."""
    what = f"of type {type(given).__qualname__}"
    if hasattr(given, "__dlpack__") or hasattr(given, "shape"):
        what = f"one array, {what}"  # it would be taken apart along its batch
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes, bytearray)):
        return list(given)
    raise TypeError(f"merge: {name} is {what}; expected a list of arrays, one for each part")
