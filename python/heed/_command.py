"""The native command inside the package, and the files that it reads."""

import json
import operator
import os
import pathlib
from typing import Any

import numpy as np

from . import _core
from ._arrays import Torch, kind_of, numpys_view, refuse_masked
from ._options import ADD, Options, known, meaning_of, number

PROGRAM = pathlib.Path(__file__).parent / "bin" / "heed"
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bool": "BOOL",
         **{f"{kind}{bits}": f"{kind[0].upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}}

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


SUFFIXES = (".html", ".svg", ".png", ".json", ".csv")
"""Of all files that the package writes."""


def place(function: str, path) -> pathlib.Path:
    """Where a file goes. The empty name is none, though pathlib takes it for the current folder; nor is a suffix alone, which
    pathlib takes for a name."""
    try:
        name = os.fspath(path)
    except TypeError:
        name = None
    if not isinstance(name, str):
        raise TypeError(f"{function}: path is of type {type(path).__qualname__}; expected a string or a path")
    if not name:
        raise ValueError(f"{function}: path is ''; expected a name")
    if "\0" in name:
        raise ValueError(f"{function}: path is {name!r}; expected a name without a zero byte")
    path = pathlib.Path(name)
    if path.name in SUFFIXES and not path.is_dir():
        raise ValueError(f"{function}: path is {name!r}; expected a name before {path.name}")
    return path


def in_folder(work):
    """work(a new folder), which is gone afterwards."""
    import tempfile
    with tempfile.TemporaryDirectory(prefix="heed-") as folder:
        return work(pathlib.Path(folder))


def is_bfloat16(x) -> bool:
    """An array that the command gets as float32."""
    return str(getattr(x, "dtype", "")) in ("bfloat16", "torch.bfloat16")


def as_numpy(name: str, x, floats: bool = False) -> np.ndarray:
    """An array of any kind in a type that the command reads: its own; bfloat16, exactly, as float32. With ``floats`` others
    than floating types are refused."""
    given = x
    if kind_of(x) is Torch:
        x = x.detach()
        try:
            x = (x.float() if is_bfloat16(x) else x).numpy()
        except (RuntimeError, TypeError) as error:
            _core.checked_memory(name, x)  # which says the same in heed's words
            raise TypeError(f"{name}: {error}") from None
    x = in_numpy(name, x)
    if is_bfloat16(x):
        x = x.astype(np.float32)
    if x.dtype.name not in NAMES or floats and x.dtype.kind != "f":
        made = f" of {x.dtype.name}" if isinstance(given, (list, tuple)) else ""
        given = getattr(given, "dtype", type(given).__qualname__)
        raise TypeError(f"{name} is of type {given}{made}; expected a floating type{'' if floats else ', integers or bool'}")
    return x


def in_numpy(name: str, x) -> np.ndarray:
    """An array as NumPy's, of its own type."""
    refuse_masked(name, x)
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        x = numpys_view(name, x)
    try:
        return np.asarray(memoryview(x) if isinstance(x, bytes) else x)  # of bytes alone NumPy would make text
    except ValueError as error:  # lists of lists whose lengths differ
        raise ValueError(f"{name} is of type {type(x).__qualname__}, of which NumPy makes no array ({error})") from None


def copy_of(name: str, x, floats: bool = False) -> np.ndarray:
    """as_numpy, as it is now."""
    return np.array(as_numpy(name, x, floats))


def own_copy_of(name: str, x):
    """An array as it is now, of its own type, so that heed.attention can tell whether it takes that."""
    return x.detach().clone() if kind_of(x) is Torch else np.array(in_numpy(name, x))


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
    """One number, a list or an array of them."""
    if isinstance(value, (list, tuple)):
        return np.array([read(one) for one in value], dtype)
    axes = getattr(value, "ndim", None)
    is_one = hasattr(value, "__float__") or hasattr(value, "__index__") if axes is None else axes == 0
    return np.array(read(value), dtype) if is_one else as_numpy(name, value)


def offered(options: dict) -> None:
    """Refuses options that heed.inspect has not. What drops nothing passes, with the seed that it may have everywhere.

    :raises TypeError, ValueError: there is no such option, or weights would be dropped
    """
    known("inspect", [name for name in options if name not in DROPOUT], LOOKED_AT)
    dropout_p, seed = (options.get(name) for name in DROPOUT)
    if dropout_p is not None and number("inspect", "dropout_p", dropout_p) != 0:
        raise ValueError(f"inspect: dropout_p is {dropout_p!r}; {UNDROPPED}")
    if dropout_p is None and seed is not None:
        raise ValueError(f"inspect: seed is {seed!r}; {UNDROPPED}")


def for_command(options: dict) -> tuple[dict[str, np.ndarray], list[str]]:
    """Options as the tensors and flags of the command: read, not checked, for heed.attention has taken them."""
    tensors, flags = {}, []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if name in ("causal", "normalize_qk"):
            flags += [flag] if value else []
        elif name == "window":
            flags.append(f"{flag}={','.join('inf' if side is None else str(operator.index(side)) for side in value)}")
        elif name == "softcap":
            flags.append(f"{flag}={float(value)}")
        elif name == "threads":
            flags.append(f"{flag}={operator.index(value)}")
        elif name == "mask":
            role, array = meaning_of(value)
            array = as_numpy(name, array)
            role = role or (ADD if array.dtype.kind == "f" else 1)
            tensors[{1: "keep", 2: "drop", ADD: "bias"}[role]] = array if role == ADD else array != 0
        elif name == "bias":
            tensors[name] = as_numpy(name, value)
        elif name in ("scale", "alibi", "sinks"):
            tensors[name] = each(name, value, float, np.float64)
        elif name in ("query_start", "key_lengths", "query_lengths"):
            tensors[name] = each(name, value, operator.index, np.int64)
    return tensors, flags
