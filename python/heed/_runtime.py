"""How calls run: explain, threads, instruction sets, version."""

from typing import NamedTuple, Unpack

from . import _core
from ._core import cap_instruction_set, default_threads, instruction_set, refused_thread_starts, version
from ._options import Array, Options, integer, pack_all

__all__ = ["Explanation", "InstructionSet", "cap_instruction_set", "default_threads", "explain", "instruction_set",
           "instruction_sets", "refused_thread_starts", "version"]

LARGEST = 2**63 - 1
"""Of the integers that the compiled part takes."""


class Explanation(NamedTuple):
    """What a call would do, told before it is made."""

    path: str  #: "tiles of 64 queries x 96 keys, float32"
    isa: str  #: the instruction set whose kernels would run
    reason: str  #: why this instruction set and path
    threads: int  #: workers that would get tasks
    tasks: int  #: pieces of work, for any worker
    scratch_bytes: int  #: all workers together, of a call without weights and statistics
    tiles_computed: int  #: tiles of queries x keys that some query may see
    tiles_skipped: int  #: tiles that no query may see: neither read nor computed
    tile_queries: int  #: rows of a tile
    tile_keys: int  #: keys of a tile


class InstructionSet(NamedTuple):
    """An instruction set that heed has kernels for, or could have."""

    isa: str  #: its name
    compiled: bool  #: this build has kernels for it
    supported: bool  #: this CPU and operating system can run it
    slow: bool  #: slower on this CPU than the one below it: a call has it only if the cap names it


def explain(q: Array | tuple[int, ...], k: Array | tuple[int, ...], v: Array | tuple[int, ...],
            **options: Unpack[Options]) -> Explanation:
    """What ``heed.attention(q, k, v, **options)`` would do. Reads shapes, lengths and masks, but no element of q, k, v or
    bias.

    :param q: [B, H, Tq, D], or a tuple of these sizes, which stands for a dense float32 array; k and v likewise
    :raises TypeError, ValueError: as heed.attention does
    """
    packed, threads = pack_all(options)
    given = (described(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    return Explanation(*_core.explain(*given, packed, threads))


def instruction_sets() -> list[InstructionSet]:
    """All instruction sets of this architecture, ascending."""
    return [InstructionSet(*fields) for fields in _core.instruction_sets()]


def described(name, tensor):
    """A pointer for a shape, of which nothing is read; arrays as they are.

    A stride beyond 64 bits is told as the largest one: C++ refuses the shape, by what is wrong with it.
    """
    if not isinstance(tensor, tuple):
        return tensor
    tensor = tuple(integer("explain", f"{name}[{axis}]", size) for axis, size in enumerate(tensor))
    if not tensor:
        raise ValueError(f"explain: {name} has rank 0; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]")
    strides, step = [], 1
    for size in reversed(tensor):
        strides.insert(0, step)
        step = max(-LARGEST, min(step * size, LARGEST))
    return 0, "float32", tensor, tuple(strides), _core._POINTER
