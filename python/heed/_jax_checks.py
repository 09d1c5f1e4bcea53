"""What heed.jax says of arguments when a function is traced: heed's own checks, on shapes and types alone."""

import functools

import numpy as np

from . import _core
from ._options import ADD, pack, told

FLOATING = ("float32", "float64", "float16", "bfloat16")
INTEGRAL = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")

# heed reads masks and lengths while it checks: one element stands for all, by strides of 0.
ONE = np.ones(1, np.int64)
NOTHING = np.zeros(1, np.int64)

# What arguments are called in jax.nn's function.
NAMES = {"q": "query", "k": "key", "v": "value", "key_lengths": "key_value_seq_lengths",
         "query_lengths": "query_seq_lengths", "window": "local_window_size", "causal": "is_causal"}


@functools.lru_cache(maxsize=1024)
def check(function, static, shapes, role):
    """Raises what heed.attention would. ``shapes`` holds (name, shape, dtype), with axes [B, H, T, D]."""
    seen = {name: (shape, dtype) for name, shape, dtype in shapes}
    names = NAMES if function == "dot_product_attention" else {"bias": "mask"} if role == ADD else {}
    for name, (shape, dtype) in seen.items():
        if not all(isinstance(axis, (int, np.integer)) for axis in shape):
            raise TypeError(told(function, f"{name} has shape ({', '.join(map(str, shape))}); expected numbers, not symbols of jax.export",
                                 names))
        floating = name in ("q", "k", "v", "bias", "scale", "alibi", "sinks")
        if dtype not in (FLOATING if floating else INTEGRAL) and name != "mask":
            raise TypeError(told(function, f"{name} is {dtype}; expected "
                                 + ("float32, float64, float16 or bfloat16" if floating else "an integer type"), names))

    def dense(name):
        """An array of which no element is read."""
        shape, dtype = seen[name]
        strides = [int(np.prod(shape[axis + 1:], dtype=np.int64)) for axis in range(len(shape))]
        return 0, dtype, shape, tuple(strides), _core._POINTER

    def same(name, element):
        shape, dtype = seen[name]
        if name == "mask" and dtype not in FLOATING + INTEGRAL:
            raise TypeError(told(function, f"mask is {dtype}; expected bool, an integer or a floating type", names))
        return element.ctypes.data, dtype, shape, (0,) * len(shape), _core._POINTER

    offsets = tuple(same(name, NOTHING) if name in seen else None for name in ("query_offsets", "key_offsets"))
    if offsets != (None, None) and static.weights:
        raise ValueError(f"{function}: return_weights is given together with packing; expected one of the two (weights of a "
                         "sequence come from a call on its rows alone)")
    options = pack(
        same("scale", NOTHING) if "scale" in seen else static.factor, static.normalize_qk, static.softcap,
        same("alibi", NOTHING) if "alibi" in seen else None, dense("bias") if "bias" in seen else None,
        same("mask", ONE) if "mask" in seen else None,
        static.causal, same("query_start", NOTHING) if "query_start" in seen else None, static.window,
        same("key_lengths", NOTHING) if "key_lengths" in seen else None,
        same("query_lengths", NOTHING) if "query_lengths" in seen else None,
        same("sinks", NOTHING) if "sinks" in seen else None, static.dropout_p, 0 if "seed" in seen else None,
        packing=None if offsets == (None, None) else offsets, role=role)
    try:
        _core.explain(dense("q"), dense("k"), dense("v"), options, 1)
    except (TypeError, ValueError) as error:
        raise type(error)(told(function, str(error), names)) from None
