"""The native command inside the package, and the files that it reads."""

import json
import os
import pathlib
from typing import Any

import numpy as np

from ._arrays import numpys_view, refuse_masked
from ._options import Options, integer, known, meaning_of, number, truth, workers

PROGRAM = pathlib.Path(__file__).parent / "bin" / "heed"
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}

DROPOUT = ("dropout_p", "seed")
LOOKED_AT = tuple(name for name in Options.__annotations__ if name not in ("packing", *DROPOUT))
"""Options that heed.inspect offers."""
UNDROPPED = "expected none, weights are looked at before dropout"


def run(*arguments, folder=None) -> bytes:
    """What the command prints.

    :raises ValueError: it refuses its arguments or input
    :raises OSError: a file cannot be read or written
    :raises MemoryError: it would take too much memory
    :raises RuntimeError: there is no such program, or it ended otherwise
    """
    import subprocess  # here, since most of those who import heed never come here
    if not PROGRAM.is_file():
        raise RuntimeError(f"heed: the command is not at {PROGRAM}; expected a package built with it, as pip install does")
    done = subprocess.run([PROGRAM, *map(os.fspath, arguments)], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode:
        kind = {2: ValueError, 3: ValueError, 4: OSError, 5: MemoryError}.get(done.returncode, RuntimeError)
        raise kind(done.stderr.decode(errors="replace").strip() or f"heed: the command ended with {done.returncode}")
    return done.stdout


def place(function: str, path) -> pathlib.Path:
    """Where a file goes. The empty name is none, though pathlib takes it for the current folder."""
    try:
        name = os.fspath(path)
    except TypeError:
        name = None
    if not isinstance(name, str):
        raise TypeError(f"{function}: path is of type {type(path).__qualname__}; expected a string or a path")
    if not name:
        raise ValueError(f"{function}: path is ''; expected a name")
    return pathlib.Path(name)


def in_folder(work):
    """work(a new folder), which is gone afterwards."""
    import tempfile
    with tempfile.TemporaryDirectory(prefix="heed-") as folder:
        return work(pathlib.Path(folder))


def as_numpy(name: str, x) -> np.ndarray:
    """An array of any kind in a type that the command reads; bfloat16, exactly, as float32."""
    given = x
    refuse_masked(name, x)
    if type(x).__module__.partition(".")[0] == "torch":
        x = x.detach()
        x = (x.float() if str(x.dtype) == "torch.bfloat16" else x).numpy()
    elif not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        x = numpys_view(name, x)
    x = np.asarray(x)
    if x.dtype.name == "bfloat16":
        x = x.astype(np.float32)
    if x.dtype.kind == "i" or x.dtype.kind == "u":
        x = x.astype(np.int64)
    if x.dtype.name not in NAMES:
        given = getattr(given, "dtype", type(given).__qualname__)
        raise TypeError(f"{name} is of type {given}; expected a floating type, integers or bool")
    return x


def copy_of(name: str, x) -> np.ndarray:
    """The same, as it is now."""
    return np.array(as_numpy(name, x))


def write_safetensors(path, tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> None:
    """8 bytes with the length of a JSON header, the header, the tensors one after the other."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    end = 0
    for name, x in tensors.items():
        header[name] = {"dtype": NAMES[x.dtype.name], "shape": x.shape, "data_offsets": [end, end + x.nbytes]}
        end += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for x in tensors.values():
            file.write(np.ascontiguousarray(x).astype(x.dtype.newbyteorder("<"), copy=False).data if x.size else b"")


def each(name: str, value, read, dtype) -> np.ndarray:
    """One number or a list of them, as heed.attention reads them; arrays as they are."""
    if isinstance(value, (list, tuple)):
        return np.array([read("inspect", f"{name}[{i}]", one) for i, one in enumerate(value)], dtype)
    if isinstance(value, (int, float, str)):
        return np.array(read("inspect", name, value), dtype)
    return as_numpy(name, value)


def refuse_dropout(dropout_p, seed) -> None:
    """What drops nothing passes, with the seed that it may have everywhere."""
    if dropout_p is not None and number("inspect", "dropout_p", dropout_p) != 0:
        raise ValueError(f"inspect: dropout_p is {dropout_p!r}; {UNDROPPED}")
    if dropout_p is None and seed is not None:
        raise ValueError(f"inspect: seed is {seed!r}; {UNDROPPED}")


def for_command(options: dict) -> tuple[dict[str, np.ndarray], list[str]]:
    """Options of heed.attention as the tensors and flags of the command."""
    known("inspect", [name for name in options if name not in DROPOUT], LOOKED_AT)
    refuse_dropout(*(options.get(name) for name in DROPOUT))
    tensors, flags = {}, []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if name in ("causal", "normalize_qk"):
            flags += [flag] if truth(name, value) else []
        elif name == "window":
            try:
                left, right = value
            except (TypeError, ValueError):
                raise ValueError(f"inspect: window is {value!r}; expected (left, right), None for a side without end") from None
            sides = (("window.left", left), ("window.right", right))
            flags.append(f"{flag}={','.join('inf' if side is None else str(integer('inspect', what, side)) for what, side in sides)}")
        elif name == "softcap":
            flags.append(f"{flag}={number('inspect', name, value)}")
        elif name == "threads":
            flags.append(f"{flag}={workers(value, 'inspect')}")
        elif name == "mask":
            role, array = meaning_of(value, "inspect")
            array = as_numpy("mask", array)
            if role == 0 and array.dtype.kind not in "bf":
                raise TypeError(f"mask is of type {array.dtype.name}; expected bool or a floating type, or heed.keep, "
                                "heed.drop or heed.add around it")
            role = role or (3 if array.dtype.kind == "f" else 1)
            if role == 3 and options.get("bias") is not None:
                raise ValueError("inspect: mask adds, and so does bias; expected one of them")
            tensors[{1: "keep", 2: "drop", 3: "bias"}[role]] = array if role == 3 else array != 0
        elif name == "bias":
            tensors[name] = as_numpy(name, value)
        elif name in ("scale", "alibi", "sinks"):
            tensors[name] = each(name, value, number, np.float64)
        elif name in ("query_start", "key_lengths", "query_lengths"):
            tensors[name] = each(name, value, integer, np.int64)
    return tensors, flags
