"""heed, through the C functions of bench/c_abi.h, in the shape in which peers.py has the others."""

import ctypes
import os
import time

import numpy as np

from .cells import DTYPES
from .tensors import SEED, bits_of, values_of

int64 = ctypes.c_int64


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", int64 * 4), ("stride", int64 * 4)]

    @classmethod
    def of(cls, array):
        assert all(stride % array.itemsize == 0 for stride in array.strides)
        made = cls(data=array.ctypes.data)
        made.shape[:array.ndim] = array.shape
        made.stride[:array.ndim] = [stride // array.itemsize for stride in array.strides]
        return made


class Call(ctypes.Structure):
    _fields_ = [*((name, Tensor) for name in ("q", "k", "v", "output", "weights", "lse",
                                              "d_output", "dq", "dk", "dv", "bias", "keep",
                                              "key_lengths")),
                ("window_left", int64), ("causal", int64), ("threads", int64),
                ("dropout", ctypes.c_double), ("seed", int64), ("dtype", int64)]


class Heed:
    """The library that HEED_BENCH_ABI names."""

    def __init__(self, threads):
        self.threads = threads
        self.library = ctypes.CDLL(os.environ["HEED_BENCH_ABI"])
        self.library.heed_bench_facts.restype = ctypes.c_char_p
        self.library.heed_bench_fma_peak.restype = ctypes.c_double
        sizes = int64(), int64()
        self.library.heed_bench_sizes(*map(ctypes.byref, sizes))
        if [size.value for size in sizes] != [ctypes.sizeof(Tensor), ctypes.sizeof(Call)]:
            raise RuntimeError("the structs here are not those of bench/c_abi.h")

    def facts(self):
        lines = self.library.heed_bench_facts().decode().splitlines()
        facts = dict(line.split(": ", 1) for line in lines)
        if "error" in facts:
            raise RuntimeError(facts["error"])
        return facts

    def fma_peak(self, dtype):
        return self.library.heed_bench_fma_peak(int64(DTYPES.index(dtype)), int64(self.threads))

    def prepare(self, cell, inputs):
        """A function without arguments that makes the call, and one that returns its results."""
        shape = (cell.batch, cell.heads, cell.queries, cell.dv)
        stored = np.float32 if cell.dtype == "float32" else np.uint16
        if stored is np.uint16:
            inputs = inputs | {name: bits_of(inputs[name], cell.dtype) for name in "qkv"}
        if cell.layout == "bthd":
            output = np.empty([shape[i] for i in (0, 2, 1, 3)], stored).transpose(0, 2, 1, 3)
        else:
            output = np.empty(shape, stored)
        weights = np.empty(shape[:3] + (cell.keys,), np.float32) if cell.weights else None
        arrays = inputs | {"output": output} | ({"weights": weights} if cell.weights else {})
        if cell.backward:
            arrays["lse"] = np.empty(shape[:3], np.float32)
            arrays |= {"d" + name: np.empty_like(inputs[name]) for name in "qkv"}
        call = Call(window_left=cell.window - 1, causal=cell.is_causal, threads=self.threads,
                    dropout=cell.dropout, seed=SEED, dtype=DTYPES.index(cell.dtype),
                    **{name: Tensor.of(array) for name, array in arrays.items()})
        self.repeated = self._caller(call, arrays)
        once = self._caller(call, arrays, 1)
        return once, lambda: (arrays["dq"] if cell.backward else values_of(output, cell.dtype),
                              weights)

    def _caller(self, call, arrays, repeat=None):
        """Everything is converted once: what is timed is one call of a C function by ctypes."""
        forward = self.library.heed_bench_forward
        error = ctypes.create_string_buffer(1000)
        pointer, size = ctypes.byref(call), int64(len(error))
        fixed = None if repeat is None else int64(repeat)

        def fail():
            raise RuntimeError(error.value.decode())

        def run():
            if forward(pointer, fixed, error, size):
                fail()

        def run_repeated(times):
            if forward(pointer, int64(times), error, size):
                fail()

        chosen = run_repeated if repeat is None else run
        chosen.keep_alive = call, arrays   # the struct holds bare addresses
        return chosen

    def seconds_in_c(self, seconds):
        """The best time of a call when the loop over calls is in C: what C++ users see."""
        times = 1
        while True:
            begin = time.perf_counter()
            self.repeated(times)
            lasted = time.perf_counter() - begin
            if lasted > seconds / 10:
                break
            times *= 2
        best = lasted / times
        for _ in range(10):
            begin = time.perf_counter()
            self.repeated(times)
            best = min(best, (time.perf_counter() - begin) / times)
        return best
