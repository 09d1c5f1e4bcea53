"""F11: arrays whose fields are drawn, DLPack's foremost: the bits of NumPy's own view of that memory, or a refusal.

Never a crash, so the draws run in a process of their own; one that dies names the draw. Memory lies between unreadable
pages. A draw is skipped only if its fields describe memory that is not there, which no reader can know.

    HEED_TEST_DRAWS=100000 python -m pytest tests/python/test_python_drawn_arrays.py
    python tests/python/test_python_drawn_arrays.py dlpack 17 18       that draw alone
"""

import array
import ast
import collections
import ctypes
import faulthandler
import gc
import math
import mmap
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from handmade import Device, Managed, Tensor, Type, Versioned, integers, new_capsule

import heed

DRAWS = max(3000, int(os.environ.get("HEED_TEST_DRAWS", "0")))
REFUSALS = (TypeError, ValueError, BufferError)
ARGUMENTS = ("q", "k", "v", "mask", "bias", "key_lengths", "out")
BFLOAT = np.dtype(ml_dtypes.bfloat16)
TYPES = {(6, 8): np.dtype(bool), (2, 16): np.dtype(np.float16), (2, 32): np.dtype(np.float32),
         (2, 64): np.dtype(np.float64), (4, 16): BFLOAT}
TYPES |= {(code, 8 * size): np.dtype(f"{kind}{size}") for code, kind in ((0, "i"), (1, "u")) for size in (1, 2, 4, 8)}

deleted = collections.Counter()
kept = []   # for good, so that no address comes twice
delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda managed: deleted.update([managed]))


class Arena:
    """16 KiB between two pages that nobody can read."""

    def __init__(self):
        page = mmap.PAGESIZE
        self.size = 4 * page
        self.memory = mmap.mmap(-1, self.size + 2 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for guard in (start, start + page + self.size):
            assert protect(guard, page, 0) == 0   # PROT_NONE
        self.address = start + page
        self.bytes = np.frombuffer(self.memory, np.uint8, self.size, page)

    def view(self, address, dtype, shape, strides):
        """NumPy's view; strides in bytes."""
        return np.ndarray(shape, dtype, self.bytes, address - self.address, strides)


lent = []   # of each capsule the address that it points to
is_named = ctypes.pythonapi.PyCapsule_IsValid
is_named.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Fields:
    """What a DLPack tensor says, and the capsules that say so."""

    def __init__(self, data, shape, strides, dtype):
        self.data, self.offset, self.ndim = data, 0, len(shape)
        self.shape, self.strides = list(shape), list(strides)
        self.code, self.bits = next(key for key, value in TYPES.items() if value == dtype)
        self.lanes, self.device = 1, 1
        self.name, self.version, self.read_only, self.old = b"dltensor", (1, 0), False, False
        self.made = []   # capsules' tensors and their sizes, which must outlive them

    def __dlpack__(self, **options):
        if self.old and options:
            raise TypeError("__dlpack__() got an unexpected keyword argument")
        if not isinstance(self.name, bytes):
            return self.name
        more = [1] * 128   # what ndim may claim beyond the sizes that were drawn
        arrays = [integers(None if x is None else (x + more)[:128]) for x in (self.shape, self.strides)]
        tensor = Tensor(self.data, Device(self.device, 0), self.ndim, Type(self.code, self.bits, self.lanes), *arrays,
                        self.offset)
        deleter = ctypes.cast(delete, ctypes.c_void_p)
        if self.name == b"dltensor_versioned":
            managed = Versioned(*self.version, None, deleter, int(self.read_only), tensor)
        else:
            managed = Managed(tensor, None, deleter)
        self.made.append((managed, arrays))
        kept.append(managed)
        capsule = new_capsule(ctypes.addressof(managed), self.name, None)
        if self.name != b"used_dltensor":
            lent.append((ctypes.addressof(managed), capsule))
        return capsule

    def __dlpack_device__(self):
        return (self.device, 0)

    def change(self, random):
        """One field becomes something that it should not be, or something harmless."""
        pick = lambda *values: values[random.integers(len(values))]
        axis = int(random.integers(4))
        size, stride = ((x[axis] if x is not None and axis < len(x) else 1) for x in (self.shape, self.strides))
        match random.integers(13):
            case 0:
                self.ndim = pick(-1, 0, 1, 2, 3, 5, 6, 64, 128, 129, 2**31 - 1, -2**31)
            case 1 | 2 if self.shape is not None and axis < len(self.shape):
                self.shape[axis] = pick(0, 0, 1, size - 1, size + 1, -1, -size, 2**50, 2**62, 2**63 - 1, -2**63)
            case 3 | 4 if self.strides is not None and axis < len(self.strides):
                self.strides[axis] = pick(0, 1, 2, -1, -stride, 2**31, 2**61, -2**61, 2**62, 2**63 - 1, -2**63)
            case 5:
                self.strides = None
            case 6:
                self.shape = pick(self.shape, None)
            case 7:
                self.data = pick(None, self.data)
            case 8:
                self.offset = pick(0, 1, 4, 64, 4096, 2**32, 2**63, 2**64 - 4, 2**64 - 1)
            case 9:
                self.code, self.bits = pick(*TYPES) if random.random() < 0.5 else (pick(*range(9), 17, 255), self.bits)
            case 10:
                self.bits, self.lanes = pick((0, 1), (1, 1), (4, 1), (31, 1), (64, 1), (128, 1), (255, 1), (self.bits, 0),
                                             (self.bits, 2), (self.bits, 65535))
            case 11:
                self.device = pick(0, 1, 2, 3, 7, 10, 13, -1, 2**31 - 1)
            case 12:
                self.name = pick(b"used_dltensor", b"", b"DLTENSOR", None, 1, "dltensor", np.float32(1))

    @staticmethod
    def of_nothing(shape, dtype):
        try:
            return np.empty(shape, dtype)
        except ValueError:   # without the sizes of 0 too large
            return None

    def numpy(self, arena):
        """NumPy's view of it; None: it must be refused; False: there is no such memory."""
        dtype = TYPES.get((self.code, self.bits))
        if (not isinstance(self.name, bytes) or self.name not in (b"dltensor", b"dltensor_versioned") or self.device != 1
                or (self.name == b"dltensor_versioned" and self.version[0] > 1) or dtype is None or self.lanes != 1
                or not 0 <= self.ndim <= 128 or (self.ndim and self.shape is None)):
            return None
        shape = ((self.shape or []) + [1] * 128)[:self.ndim]
        if self.strides is None:
            strides = [math.prod(shape[axis + 1:]) for axis in range(self.ndim)]
        else:
            strides = (self.strides + [1] * 128)[:self.ndim]
        if min(shape, default=0) < 0 or self.ndim > 64:   # NumPy's most axes
            return None
        if 0 in shape:
            return self.of_nothing(shape, dtype)
        if self.data is None:
            return None
        ends = [(size - 1) * stride * dtype.itemsize for size, stride in zip(shape, strides)]
        # 2^50 elements need no memory if they are all the same, but nothing else has that many.
        if sum(map(abs, ends)) >= 2**63 or math.prod(shape) >= 2**50:
            return None
        first = (self.data + self.offset) % 2**64
        low, high = first + sum(n for n in ends if n < 0), first + sum(n for n in ends if n > 0) + dtype.itemsize
        if not arena.address <= low <= high <= arena.address + arena.size:
            return False
        return arena.view(first, dtype, shape, [stride * dtype.itemsize if size > 1 else 0
                                                for size, stride in zip(shape, strides)])


def attended(arguments, changed=None, by=None):
    """The output of attention with one argument in place of another, or the error."""
    arguments = {**arguments, **({changed: by} if changed else {})}
    out = arguments.get("out")
    try:
        seen = heed.attention(arguments.pop("q"), arguments.pop("k"), arguments.pop("v"), **arguments)
    except (*REFUSALS, MemoryError) as error:
        return error
    return seen if out is None else out


def drawn_arguments(random, name):
    """All arguments of a call, with the shape of the one that is to be replaced."""
    batch, heads, rows, keys, size, width = (int(random.integers(1, 4)) for _ in range(6))
    dtype = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT)[random.choice(4, p=[.6, .2, .1, .1])]
    shapes = {"q": (batch, heads, rows, size), "k": (batch, heads, keys, size), "v": (batch, heads, keys, width)}
    arguments = {each: random.standard_normal(shape).astype(dtype) for each, shape in shapes.items()}
    if name in ("mask", "bias"):
        shape = (batch, heads, rows, keys)[int(random.integers(4)) if random.random() < 0.3 else 0:]
        shape = tuple(1 if random.random() < 0.3 else n for n in shape)
        values = random.random(shape) < 0.7 if name == "mask" else random.standard_normal(shape).astype(dtype)
        arguments[name] = values
    if name == "key_lengths":
        arguments[name] = random.integers(0, keys + 1, batch).astype((np.int32, np.int64)[random.integers(2)])
    if name == "out":
        arguments[name] = np.zeros((batch, heads, rows, width), dtype)
    return arguments


def placed(random, arena, values, broadcast):
    """The numbers somewhere in the arena, axes in any order, apart, backwards, at any address: address, strides in elements."""
    order = random.permutation(values.ndim)
    strides, span = [0] * values.ndim, 1
    for axis in order:
        strides[axis] = span * int(random.choice([1, 1, 1, 2]))
        span = strides[axis] * values.shape[axis]
        if broadcast and random.random() < 0.05:
            strides[axis] = 0
    strides = [-n if random.random() < 0.2 else n for n in strides]
    ends = [(size - 1) * stride * values.itemsize for size, stride in zip(values.shape, strides)]
    low, high = sum(n for n in ends if n < 0), sum(n for n in ends if n > 0) + values.itemsize
    room = arena.size - (high - low)
    start = int(random.choice([0, room, random.integers(room + 1), random.integers(room // values.itemsize + 1) * values.itemsize]))
    address = arena.address + start - low
    arena.view(address, values.dtype, values.shape, [n * values.itemsize for n in strides])[...] = values
    return address, strides


def judged(name, arguments, view, seen, sound):
    """What came of the call against the one with NumPy's view; says which of the two it was."""
    refused = isinstance(seen, Exception)
    if view is None:
        assert refused, f"{name} was taken, though NumPy could not"
        return "refused"
    if name == "out":
        expected = attended(arguments, name, np.zeros(view.shape, view.dtype))
        if not refused:
            seen = view.copy()
    else:
        expected = attended(arguments, name, view.copy())
    if refused:   # a size of 0 or 1 hides strides that cannot be computed with; an output may touch itself
        assert not sound, f"{name} was refused: {seen!r}"
        return "refused"
    assert not isinstance(expected, Exception), f"{name} was taken, but NumPy's view is refused: {expected!r}"
    assert seen.shape == expected.shape and np.array_equal(seen, expected, equal_nan=True), f"other bits for {name}"
    return "taken"


def draw_dlpack(seed, arena):
    random = np.random.default_rng([seed, 11])
    name = ARGUMENTS[random.integers(len(ARGUMENTS))]
    arguments = drawn_arguments(random, name)
    values = arguments[name]
    arena.bytes[:] = random.integers(0, 256, arena.size, np.uint8) if random.random() < 0.3 else 1
    address, strides = placed(random, arena, values, name != "out")
    fields = Fields(address, values.shape, strides, values.dtype)
    fields.offset = int(random.choice([0, 0, 1, 8, 256, 4096]))
    fields.data -= fields.offset
    if random.random() < 0.4:
        fields.name = b"dltensor_versioned"
        fields.version = (1, 0) if random.random() < 0.8 else (int(random.integers(3)), int(random.integers(3)))
        fields.read_only = random.random() < 0.3
    fields.old = fields.name == b"dltensor" and random.random() < 0.5
    hostile = random.random() < 0.7
    for _ in range(random.integers(1, 3) if hostile else 0):
        fields.change(random)
    view = fields.numpy(arena)
    if view is False:
        return "no such memory"
    if name == "out" and fields.read_only and fields.name == b"dltensor_versioned":
        view = None
    if name == "q" and view is not None and view.dtype == BFLOAT:
        hostile = True   # NumPy, which the results come from, takes no bfloat16 by DLPack
    sound = not hostile and fields.version[0] == 1
    before = arena.bytes.copy()
    seen = attended(arguments, name, fields)
    if isinstance(seen, Exception) or name != "out":
        assert np.array_equal(arena.bytes, before), "memory was written that is only read"
    try:
        result = judged(name, arguments, view, seen, sound)
    except AssertionError as error:
        error.add_note(str({**vars(fields), "made": len(fields.made)}))
        raise
    if name == "out" and result == "taken":   # and nothing beside it
        view[...] = 0
        after, arena.bytes[:] = arena.bytes.copy(), before
        view[...] = 0
        assert np.array_equal(after, arena.bytes), "memory beside out was written"
    assert max(deleted.values(), default=0) <= 1, "a tensor was given back twice"
    return result


class Interface:
    """NumPy's older protocol, which heed does not read: it holds nothing alive."""

    def __init__(self, **fields):
        self.__array_interface__ = fields


def draw_buffer(seed, arena):
    """Arrays of NumPy in any type and place, and other owners of buffers."""
    random = np.random.default_rng([seed, 12])
    name = ARGUMENTS[random.integers(len(ARGUMENTS))]
    arguments = drawn_arguments(random, name)
    values = arguments[name]
    if random.random() < 0.4:
        types = "?bBhHiIlLqQefdgFDGSUVOmM"
        text = types[random.integers(len(types))] + ("4" if random.random() < 0.1 else "")
        try:
            values = values.astype(np.dtype((">" if random.random() < 0.3 else "") + text))
        except (TypeError, ValueError):
            return "no such array"
    arena.bytes[:] = 1
    if values.dtype.hasobject or values.itemsize > 32 or random.random() < 0.1:
        view = values
    else:
        address, strides = placed(random, arena, values, name != "out")
        strides = [n * values.itemsize for n in strides]
        view = arena.view(address, values.dtype, values.shape, strides)
    if random.random() < 0.3:   # indices that NumPy knows how to check
        axis = int(random.integers(max(view.ndim, 1)))
        view = [lambda: view[..., None], lambda: view[0], lambda: view.T, lambda: view[..., :0], lambda: view[()],
                lambda: view.swapaxes(0, axis), lambda: np.broadcast_to(view, (2, *view.shape)),
                lambda: np.lib.stride_tricks.as_strided(view, (*view.shape[:-1], 0), [2**61] * view.ndim)][random.integers(8)]()
    view = np.asarray(view)
    if random.random() < 0.2:
        view.flags.writeable = False
    given = view
    real = view.dtype == BFLOAT or (view.dtype.isnative and view.dtype.kind in "biuf" and view.itemsize <= 8)
    wrapping = random.integers(10)
    try:
        if wrapping == 0:
            given = memoryview(view)
        elif wrapping == 1 and view.ndim:
            given, real = np.ma.masked_array(view), False
        elif wrapping == 2 and view.flags.c_contiguous and view.flags.writeable and view.size:
            given = memoryview(view).cast("B").cast(memoryview(view).format, view.shape)
        elif wrapping == 3 and values.dtype.char in "bBhHiIlLqQfd":
            given = array.array(values.dtype.char, view.ravel().tolist())
            view, real = np.asarray(given), True
        elif wrapping == 4 and view.size:
            given, real = Interface(shape=view.shape, typestr=values.dtype.str, data=(view.ctypes.data, False), version=3,
                                    strides=view.strides if random.random() < 0.5 else None), False
        elif wrapping == 5:
            given, real = Interface(shape=(2**62,), typestr="<f4", data=(random.integers(2) * 8, False), version=3), False
        elif wrapping in (6, 7) and values.dtype.char in "fdiB":
            of = {"f": ctypes.c_float, "d": ctypes.c_double, "i": ctypes.c_int, "B": ctypes.c_ubyte}[values.dtype.char]
            for n in reversed(view.shape):
                of = of * n
            if wrapping == 7:   # the buffer comes first, and of the capsule nothing is followed
                fields = Fields(arena.address, values.shape, [0] * values.ndim, np.float32)
                fields.shape = None if random.random() < 0.5 else fields.shape
                fields.change(random)
                of = type("Both", (of,), {"__dlpack__": lambda _, **options: fields.__dlpack__(**options),
                                          "__dlpack_device__": lambda _: fields.__dlpack_device__()})
            given = of.from_buffer_copy(view.tobytes())
            view, real = np.asarray(given), True
    except (TypeError, ValueError, BufferError, NotImplementedError):
        return "no such array"
    seen = attended(arguments, name, given)
    if not real or (name == "out" and not view.flags.writeable):
        view = None
    try:
        return judged(name, arguments, view, seen, False)
    except AssertionError as error:
        error.add_note(" ".join(str(getattr(given, each, "")) for each in ("__class__", "dtype", "shape", "strides")))
        raise


def run(kind, first, last):
    """Draws, one after another; the last that began is on standard output."""
    faulthandler.enable()
    arena, results = Arena(), collections.Counter()
    for seed in range(first, last):
        os.write(1, f"{seed}\n".encode())   # before the draw: what dies cannot tell any more
        with np.errstate(all="ignore"):
            results[{"dlpack": draw_dlpack, "buffer": draw_buffer}[kind](seed, arena)] += 1
    gc.collect()   # exceptions hold the frames of their calls
    taken = {address for address, capsule in lent
             if any(is_named(capsule, b"used_" + name) for name in (b"dltensor", b"dltensor_versioned"))}
    assert deleted.keys() == taken, f"{len(taken - deleted.keys())} tensors were not given back"
    print(dict(results))


@pytest.mark.parametrize("kind,share", [("dlpack", 1.0), ("buffer", 0.5)])
def test_drawn_arrays_are_numpys_view_of_them_or_refused(kind, share):
    draws = int(share * DRAWS)
    done = subprocess.run([sys.executable, __file__, kind, "0", str(draws)], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"{kind} {lines[-1] if lines else ''}, code {done.returncode}:\n{done.stderr[-3000:]}"
    results = ast.literal_eval(lines[-1])
    assert sum(results.values()) == draws
    # The test is about both outcomes.
    assert results["taken"] > 0.25 * draws and results["refused"] > 0.25 * draws, results


if __name__ == "__main__":
    run(sys.argv[1], *map(int, sys.argv[2:4]))
