"""The options of attention: their names, what they mean, and how the compiled part gets them."""

import operator
import re
from typing import Any, NamedTuple, TypedDict

import numpy as np

from ._arrays import refuse_masked

Array = Any
"""Anything with ``__dlpack__`` or the buffer protocol: NumPy, PyTorch and JAX arrays on the CPU, memoryviews."""


ADD = 3
"""The role of a mask that adds."""


class Mask(NamedTuple):
    """A mask that says what it means; made by :func:`keep`, :func:`drop` and :func:`add`. One of another role is refused
    where it is used."""

    role: int  #: 1 keeps, 2 drops, 3 adds
    array: Array  #: broadcasts to [B, H, Tq, Tk]


def keep(mask: Array) -> Mask:
    """True (or any integer but 0) where a query may look at a key. Broadcasts to [B, H, Tq, Tk], right-aligned."""
    return Mask(1, bare("keep: mask", mask))


def drop(mask: Array) -> Mask:
    """True (or any integer but 0) where a query may not look at a key: the padding masks of some libraries. Broadcasts
    to [B, H, Tq, Tk], right-aligned."""
    return Mask(2, bare("drop: mask", mask))


def add(mask: Array) -> Mask:
    """Numbers that are added to the scores, -inf where a query may not look. Broadcasts to [B, H, Tq, Tk],
    right-aligned."""
    return Mask(ADD, bare("add: mask", mask))


def bare(name: str, mask) -> Array:
    """A mask that does not say yet what it means."""
    if mask is None or isinstance(mask, Mask):
        what = "None" if mask is None else "made by heed.keep, heed.drop or heed.add already"
        raise TypeError(f"{name} is {what}; expected an array")
    return mask


NO_CAUSAL_BIAS = ("expected causal=True (is_causal), for causal_lower_right with query_start = Tk - Tq, or a boolean mask; "
                  "heed.torch.scaled_dot_product_attention takes it")


def meaning_of(mask: Array | Mask | None, function: str = "") -> tuple[int, Array | None]:
    """The role and the array of the option ``mask``; role 0 where the array's type says what it means.

    Here and not where a Mask is made: a NamedTuple's _replace and _make go past its constructor.

    :raises TypeError, ValueError: there is no such role, or no array
    """
    what = f"{function}: mask" if function else "mask"
    inner = mask.array if isinstance(mask, Mask) else mask
    if type(inner).__qualname__ == "CausalBias" and type(inner).__module__.startswith("torch."):
        raise TypeError(f"{what} is of type CausalBias, which holds no numbers; {NO_CAUSAL_BIAS}")
    if not isinstance(mask, Mask):
        return 0, mask
    role = integer("", f"{what}.role", mask.role)
    if not 1 <= role <= ADD:
        raise ValueError(f"{what}.role is {role}; expected 1 (keep), 2 (drop) or 3 (add)")
    return role, bare(f"{what}.array", mask.array)


class Options(TypedDict, total=False):
    """What can happen to a score, in the order in which it happens, and ``packing``: sequences that lie end to end. All
    but the last two, which are of C++'s ``Execution``, have the names, the meaning and the order of ``AttentionOptions``::

        t = scale * (q_i . k_j)                    with normalize_qk: ... / (|q_i| |k_j|)
        t = softcap * tanh(t / softcap)
        t = t - slope_h * |p - j|                  alibi; p = query_start + i
        t = t + bias_bhij
        t = -inf where the mask forbids
        softmax over the keys and, if given, sink_h
        dropout: a weight becomes 0, or is divided by 1 - p
    """

    scale: float | Array | None
    normalize_qk: bool
    softcap: float | None
    alibi: Array | None
    bias: Array | None
    mask: Array | Mask | None
    causal: bool
    query_start: int | Array | None
    window: tuple[int | None, int | None] | None
    key_lengths: int | Array | None
    query_lengths: int | Array | None
    sinks: Array | None
    dropout_p: float | None
    seed: int | None
    packing: tuple[Array, Array | None] | None
    reproducible: bool
    threads: int


LONE_SEED = "seed is given, but dropout_p is not; expected both (dropout_p=0 drops nothing)"


def pack(scale=None, normalize_qk=False, softcap=None, alibi=None, bias=None, mask=None, causal=False,
         query_start=None, window=None, key_lengths=None, query_lengths=None, sinks=None, dropout_p=None,
         seed=None, reproducible=False, packing=None, role=None) -> tuple:
    """The tuple that heed._core takes for options. ``role`` is of a mask that meaning_of has seen already."""
    if seed is not None and dropout_p is None:
        raise ValueError(LONE_SEED)
    if role is None:
        role, mask = meaning_of(mask)
    return (scale, normalize_qk, softcap, alibi, bias, role, mask, causal, query_start, window, key_lengths,
            query_lengths, sinks, dropout_p, seed, reproducible, packing)


def pack_all(options: Options, function: str = "explain") -> tuple[tuple, int]:
    """Options given by name, to a function of that name: the tuple, and the number of threads.

    :raises TypeError: there is no such option, or threads is no integer
    :raises ValueError: threads is beyond its range
    """
    known(function, options, Options.__annotations__)
    rest = dict(options)
    threads = rest.pop("threads", 0)
    return pack(**rest), workers(threads)


def known(function: str, options, names) -> None:
    """Refuses options of other names.

    :raises TypeError: there is no such option
    """
    for name in options:
        if name not in names:
            raise TypeError(f"{function}: got an unexpected keyword argument {name!r}; expected options among "
                            f"{', '.join(names)}")


def require_pair(name: str, given, expected: str) -> None:
    """
    :raises TypeError: it has no elements by number
    :raises ValueError: it has more or less than two
    """
    refuse_masked(name, given)
    if not isinstance(given, (tuple, list)) and not (isinstance(given, np.ndarray) and given.ndim > 0):
        raise TypeError(f"{name} is not a pair, but of type {kind_of_number(given)}; expected {expected}")
    if len(given) != 2:
        raise ValueError(f"{name} is not a pair, but has {len(given)} element{'s'[:len(given) != 1]}; expected {expected}")


def sides(name: str, window, integer_of=None) -> tuple[int | None, int | None]:
    """(left, right) of a window; integer_of is integer, or the caller's own."""
    if window is None:
        return None, None
    require_pair(name, window, "(left, right), None for a side without end")
    left, right = (None if side is None else (integer_of or integer)("", f"{name}.{which}", side)
                   for which, side in zip(("left", "right"), window))
    return left, right


def pair_of_offsets(packing) -> tuple:
    """(query_offsets, key_offsets), None each without packing."""
    if packing is None:
        return None, None
    require_pair("attention: packing", packing, "(query_offsets, key_offsets)")
    return tuple(np.zeros(0, np.int64) if isinstance(x, (list, tuple)) and not x else x for x in packing)


MOST_THREADS = 4096
"""That a call may ask for: more are refused by the C++ library too."""


def workers(threads, function: str = "") -> int:
    """The number that the argument ``threads`` is."""
    if type(threads) is int and 0 <= threads <= MOST_THREADS:  # nearly all calls
        return threads
    return integer(function, "threads", threads, 0, MOST_THREADS)


def truth(name, value) -> bool:
    """True or False, and nothing that merely counts as one."""
    if value is True or value is False:
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(f"{name} is of type {type(value).__qualname__}; expected True or False")


def names_of(function: str, argument: str, wanted, known: tuple) -> tuple:
    """The names that an argument lists, each among those that are known.

    :raises TypeError: it is no list, or what it lists are no names
    :raises ValueError: there is no such name
    """
    if isinstance(wanted, str):
        raise TypeError(f"{function}: {argument} is the string {wanted!r}; expected a list of names, such as [{wanted!r}]")
    try:
        names = None if isinstance(wanted, bytes) else tuple(wanted)
    except TypeError:
        names = None
    if names is None:
        raise TypeError(f"{function}: {argument} is of type {type(wanted).__qualname__}; expected a list of names")
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"{function}: {argument}[{i}] is of type {type(name).__qualname__}; expected a name among "
                            f"{', '.join(known)}")
        if name not in known:
            raise ValueError(f"{function}: {argument} names {name!r}; expected names among {', '.join(known)}")
    return names


def told(function: str, message: str, names: dict[str, str]) -> str:
    """A message with the names that arguments have in the caller's function."""
    message = re.sub(r"^(attention|explain): ", "", message)
    for ours, theirs in names.items():
        message = re.sub(rf"(?<![\w.]){re.escape(ours)}(?!\w)", theirs, message)
    return f"{function}: {message}"


def is_truth(value) -> bool:
    """True, False, or an array of those: numbers to Python, whose bool is an int, but here a slip."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def integer(function: str, name: str, value, least: int = -2**63, most: int = 2**63 - 1) -> int:
    """An integer within this range, whatever Python or NumPy calls it; no boolean. The function may be "".

    An int comes first: torch.compile has symbols for them, which have no attributes to ask for.

    :raises TypeError: it is none
    :raises ValueError: it is beyond the range
    """
    what = f"{function}: {name}" if function else name
    if type(value) is int:
        given = value
    else:
        refuse_masked(what, value)
        try:
            given = None if is_truth(value) else operator.index(value)
        except TypeError:
            given = None
    if given is None:
        raise TypeError(f"{what} is of type {kind_of_number(value)}; expected an integer")
    if not least <= given <= most:
        came = given if abs(given) < 2**200 else "an integer of more than 60 digits"  # Python refuses to write thousands
        raise ValueError(f"{what} is {came}; expected {range_of(least, most, given)}")
    return given


def integers_in(function: str, name: str, given) -> np.ndarray:
    """int64, of a list or tuple: NumPy alone would make floats of an empty one, and objects of what no type holds."""
    return np.array([integer(function, f"{name}[{i}]", one) for i, one in enumerate(given)], np.int64)


def number(function: str, name: str, value) -> float:
    """A number that a float64 can hold, whatever Python or NumPy calls it; no boolean.

    :raises TypeError: it is none
    :raises ValueError: it is an integer beyond all float64
    """
    if type(value) is not float:
        refuse_masked(f"{function}: {name}", value)
    if not is_truth(value):
        try:
            kind = getattr(getattr(value, "dtype", None), "kind", "f")
            if not isinstance(value, (str, bytes, bytearray)) and kind not in "cSTU":  # text and complex numbers, which float would read
                return float(value)
        except (TypeError, ValueError):
            pass
        except OverflowError:
            raise ValueError(f"{function}: {name} is an integer beyond the largest float64; expected a number that it can "
                             "hold") from None
    raise TypeError(f"{function}: {name} is of type {kind_of_number(value)}; expected a number")


def kind_of_number(value) -> str:
    """The type that a message names."""
    return "bool" if is_truth(value) else type(value).__qualname__


def range_of(least: int, most: int, given: int) -> str:
    """For a message about a number beyond it."""
    if (least, most) == (-2**63, 2**63 - 1):
        return "one that fits 64 bits"
    if most == 2**63 - 1:
        return f"{least} or more" if given < least else "at most 2^63 - 1"
    return f"{least} .. {'2^64 - 1' if most == 2**64 - 1 else most}"
