"""Every library's results of cells, each library in a process of its own, and how far they are from the truth."""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import platform
from unittest import mock

import numpy as np

from . import tensors
from .peers import NAMES
from .tensors import SEED, inputs_of, rounded, truth

LIBRARIES = {"heed": "heed", "torch": "PyTorch, fused", "math": "PyTorch, plain"} | {
    name: NAMES[name] for name in ("onnxruntime", "openvino", "jax")}
PEERS = tuple(LIBRARIES)[1:]


def drawn(cell, seed):
    with mock.patch.object(tensors, "SEED", seed):
        return inputs_of(cell)


def truth_of(cell, seed=SEED):
    return truth(cell, drawn(cell, seed), np.arange(cell.queries))[0]


def loaded(library):
    """The library with one thread, and what it says of itself."""
    from . import graph_peers, heed_library, peers
    if library == "heed":
        if platform.machine() == "x86_64":   # bfloat16 by dot products on every CPU that has them, however fast they are there
            os.environ.setdefault("HEED_MAX_ISA", "avx512_bf16")
        made = heed_library.Heed(1)
        facts = made.facts()
        return made, f"{facts['version']} by {facts['instruction_set']}"
    # Of two ways to make a call the first one, not the faster one: a result must not depend on what else the machine does.
    graph_peers.seconds_of = lambda call: 0
    made = peers.load("torch" if library == "math" else library, 1)
    return made, made.version


def results_of(library, draws):
    """Version, and an output of each (cell, seed) or why there is none. Runs in a process of its own."""
    made, version = loaded(library)
    backend = contextlib.nullcontext
    if library in ("torch", "math"):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        backend = functools.partial(sdpa_kernel, SDPBackend.MATH if library == "math" else SDPBackend.FLASH_ATTENTION)
    found = []
    for cell, seed in draws:
        try:
            call, result = made.prepare(cell, drawn(cell, seed))
            with backend():
                call()
            # To the cell's type, which changes OpenVINO's alone: it has bfloat16 inside, between tensors of float32.
            found.append(rounded(np.array(result()[0], np.float32), cell.dtype).astype(np.float64))
        except Exception as error:   # whatever a library throws: it has no result there
            found.append(str(error).splitlines()[0][:100])
    return version, found


def by_library(library, draws):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(results_of, library, draws).result()


def difference(result, true):
    """o - o*, or in words why there is none."""
    if isinstance(result, str):
        return result
    if result.shape != true.shape:
        return f"shape {result.shape}, not {true.shape}"
    return result - true if np.isfinite(result).all() else "not finite"


def deviations(cells, libraries):
    """[library][cell] of (largest, root mean square) of o - o*, nan where there is none; versions; [library][name of a cell] why.

    A library that is not among `libraries` has no result.
    """
    versions, found, why = {}, {}, {}
    truths = [truth_of(cell) for cell in cells]
    for library in LIBRARIES:
        if library in libraries:
            versions[library], results = by_library(library, [(cell, SEED) for cell in cells])
        else:
            results = ["left out"] * len(cells)
        errors = {cell.name: difference(*pair) for cell, *pair in zip(cells, results, truths, strict=True)}
        found[library] = np.array([(np.nan, np.nan) if isinstance(error, str) else (np.abs(error).max(), np.sqrt((error**2).mean()))
                                   for error in errors.values()])
        why[library] = {name: error for name, error in errors.items() if isinstance(error, str)}
    return found, versions, why
