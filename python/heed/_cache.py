"""heed.KvCache and heed.attention_decode: keys and values of sequences that grow, and attention against them."""

import contextlib
import os
import threading
from typing import Any, Iterable, Sequence, Unpack

import numpy as np

from . import _core
from ._arrays import into, kind_of, refuse_masked
from ._attention import AttentionResult, RowStatistics, empty_statistics, fill_rows_of_no_sequence, finished, statistics_of
from ._options import Array, Options, integer, integers_in, pack_all, truth


class Process:
    """This process, in a way that no other one is: a number may come again."""

    now = object()


def forked():
    Process.now = object()


os.register_at_fork(after_in_child=forked)


class KvCache:
    """Keys and values of any number of sequences, in pages that forked sequences share until one writes to them.

    ::

        cache = heed.KvCache(kv_heads=2, head_size=64, pages=512)
        one = cache.create()
        cache.append(one, k, v)                          # k [1, Hk, n, D], v [1, Hk, n, Dv]
        heed.attention_decode(q, cache, one)             # the last q.shape[2] rows of what was appended

    All memory is taken at once: pages * page_keys * kv_heads * (head_size + value_size) elements. A name of a sequence is an
    integer, and never used again. One call at a time: others, from other threads, wait. A forked child has its own copy; one
    that another thread was changing at the fork may be half changed, and is refused (RuntimeError).

    :param value_size: head_size
    :param dtype: float32, float64, float16 or bfloat16
    :param pages: that all sequences together can have
    :param page_keys: keys of a page, a multiple of 16
    :raises ValueError: an argument does not fit; the cache stays as it was then
    :raises MemoryError: there are not pages enough; the cache stays as it was then
    """

    def __init__(self, kv_heads: int, head_size: int, pages: int, *, value_size: int | None = None, dtype: Any = "float32",
                 page_keys: int = 192):
        sizes = [integer("KvCache", name, x) for name, x in (
            ("kv_heads", kv_heads), ("head_size", head_size), ("value_size", head_size if value_size is None else value_size),
            ("pages", pages), ("page_keys", page_keys))]
        self._locks = {Process.now: threading.RLock()}  # what a thread held at a fork, nobody in the child lets go
        self._use_now: tuple[object, bool] | None = None  # in which process, and whether the call changes the cache
        self._value_size = sizes[2]
        self._made = (*sizes[:3], name_of_type(dtype), *sizes[3:])
        self._cache = _core._KvCache(*self._made)

    def __repr__(self):
        return "KvCache(kv_heads={}, head_size={}, value_size={}, dtype={!r}, pages={}, page_keys={})".format(*self._made)

    def __reduce__(self):
        raise TypeError("KvCache: neither copied nor pickled; expected a new one, or fork(sequence) for a sequence with the "
                        "same keys")

    @contextlib.contextmanager
    def _use(self, changes: bool = False):
        process = Process.now
        with self._locks.get(process) or self._locks.setdefault(process, threading.RLock()):
            if self._use_now is not None:
                begun, changing = self._use_now
                if begun == process:  # the same thread: Python's signals are handled during calls
                    raise RuntimeError("KvCache: a handler of a signal uses it during a call; expected one call at a time")
                if changing:
                    raise RuntimeError("KvCache: another thread was changing it when this process was forked, and this copy may "
                                       "be half changed; expected a fork at another time, or a new KvCache")
            self._use_now = process, changes
            try:
                yield self._cache
            finally:
                self._use_now = None

    def create(self) -> int:
        """A sequence without keys."""
        with self._use(changes=True) as cache:
            return cache.create()

    def fork(self, sequence: int) -> int:
        """A sequence with the same keys, in the same pages.

        :raises ValueError: there is no such sequence
        """
        with self._use(changes=True) as cache:
            return cache.fork(integer("fork", "sequence", sequence))

    def release(self, sequence: int) -> None:
        """Ends the sequence.

        :raises ValueError: there is no such sequence
        """
        with self._use(changes=True) as cache:
            cache.release(integer("release", "sequence", sequence))

    def append(self, sequences: int | Sequence[int], k: Array, v: Array, key_offsets: Array | None = None) -> None:
        """Puts keys and values behind those of each sequence: k [S, Hk, n, D], v [S, Hk, n, Dv], of the cache's type; with
        key_offsets [S + 1] they lie end to end, k [1, Hk, n, D]. With one head there may be three axes, k [S, n, D], or
        two. All sequences get theirs, or none does.

        :raises TypeError, ValueError: as heed.attention does, or there is no such sequence
        :raises MemoryError: there are not pages enough
        """
        offsets = integers_in("append", "key_offsets", key_offsets) if isinstance(key_offsets, (list, tuple)) else key_offsets
        with self._use(changes=True) as cache:
            cache.append(listed("append", sequences), k, v, offsets)

    def truncate(self, sequence: int, keys: int) -> None:
        """Keeps the first ``keys`` keys: takes back those of a rejected draft.

        :raises ValueError: there is no such sequence, it has fewer keys, or more of them are evicted
        """
        with self._use(changes=True) as cache:
            cache.truncate(integer("truncate", "sequence", sequence), integer("truncate", "keys", keys))

    def evict(self, sequence: int, keys: int) -> None:
        """Nobody sees the first ``keys`` keys any more; full pages that hold no others go back. Positions stay.

        :raises ValueError: there is no such sequence, or it has fewer keys
        """
        with self._use(changes=True) as cache:
            cache.evict(integer("evict", "sequence", sequence), integer("evict", "keys", keys))

    def length(self, sequence: int) -> int:
        """Keys of the sequence, evicted ones included.

        :raises ValueError: there is no such sequence
        """
        with self._use() as cache:
            return cache.length(integer("length", "sequence", sequence))

    def evicted(self, sequence: int) -> int:
        """Keys of the sequence that nobody sees any more.

        :raises ValueError: there is no such sequence
        """
        with self._use() as cache:
            return cache.evicted(integer("evicted", "sequence", sequence))

    @property
    def free_pages(self) -> int:
        """Pages that no sequence has."""
        with self._use() as cache:
            return cache.free_pages()

    @property
    def sequences(self) -> int:
        """Sequences that are not released."""
        with self._use() as cache:
            return cache.sequences()


def attention_decode(q: Array, cache: KvCache, sequences: int | Sequence[int], *, return_lse: bool = False,
                     statistics: bool | Iterable[str] = False, out: Array | None = None, **options: Unpack[Options]) -> Any:
    """Attention of the last rows of sequences against all keys that the cache has of them: decoding (one row), drafts
    (some), chunks of a prompt (many). Append the rows' own k and v first.

    ::

        q  [S, H, Tq, D ]    row i of sequence s is its row length_s - Tq + i
           [S, H, Tq, Dv]    what is returned: softmax(scale * q k') v over the sequence's keys

    With packing=(query_offsets, None) sequences have numbers of rows of their own and lie end to end, q [1, H, Tq, D].
    Options are those of heed.attention with the longest sequence as Tk, and ``causal`` is not the default; query_start is
    length_s - Tq unless it is given. Where a sequence has fewer keys than Tq, that is below 0: with ``causal`` the rows before position 0 see no
    key and get 0, else they see all keys. Evicted keys are masked. Each sequence has the bits of heed.attention on its rows
    and keys, but under dropout, which counts places in the whole call.

    :returns: the output, or AttentionResult if more was asked for
    :raises TypeError, ValueError: as heed.attention does
    """
    if not isinstance(cache, KvCache):
        raise TypeError(f"attention_decode: cache is of type {type(cache).__qualname__}; expected heed.KvCache")
    kind = kind_of(q)
    q = kind.seen(q)
    packed, threads = pack_all(options, "attention_decode")
    rows = tuple(q.shape[:-1])
    output = out if out is not None else kind.empty_like(q, (*rows, cache._value_size))
    lse = kind.empty(q, rows) if truth("return_lse", return_lse) else None
    wanted = statistics_of("attention_decode", statistics)
    counted = empty_statistics(kind, q, rows, wanted) if wanted else None
    if options.get("packing") is not None:
        if out is None:
            output[...] = 0
        fill_rows_of_no_sequence(lse, counted)
    with cache._use() as native:
        into(out, _core.attention_decode, q, native, listed("attention_decode", sequences), output, lse, counted, packed, threads)
    output = kind.finished(output) if out is None else out
    if not (return_lse or wanted):
        return output
    return AttentionResult(output, None, finished(kind, lse),
                           counted and RowStatistics(*(finished(kind, array) for array in counted)))


TYPES = ("float32", "float64", "float16", "bfloat16")


def name_of_type(dtype) -> str:
    """The name of an element type that caches have, of NumPy's or PyTorch's."""
    name = str(dtype).removeprefix("torch.")
    try:
        if name not in TYPES and dtype is not None:  # NumPy: None is float64
            given = np.dtype(dtype)
            name = given.name if given.isnative else None
    except (TypeError, ValueError, SyntaxError):   # NumPy reads text as a list of fields
        name = None
    if name in TYPES:
        return name
    named = name is not None or isinstance(dtype, (str, np.dtype))
    kind = ValueError if named and dtype is not None else TypeError
    raise kind(f"KvCache: dtype is {dtype!r}; expected float32, float64, float16 or bfloat16")


def listed(function, sequences) -> list[int]:
    """One name, or several."""
    refuse_masked(f"{function}: sequences", sequences)
    if hasattr(sequences, "__iter__") and getattr(sequences, "ndim", 1) and not isinstance(sequences, (str, bytes)):
        return [integer(function, f"sequences[{i}]", name) for i, name in enumerate(sequences)]
    return [integer(function, "sequences", sequences)]
