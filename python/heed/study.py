"""The studies of the heed command: why attention is built as it is, in numbers (docs/studies.md).

::

    seen = heed.study.variance()
    seen                               # in a notebook: the charts and what they show
    seen.tables["by_size"]["variance"] # the numbers, as arrays
"""

import functools
import json
import pathlib

import numpy as np

from . import _html
from ._command import as_numpy, in_folder, place, run, write_safetensors
from ._options import integer

__all__ = ["Study", "variance", "scaling", "gradients", "strategies", "initialisation", "complexity", "masks", "precision",
           "training"]


class Study:
    """One study's numbers, charts and findings. In a notebook it shows itself.

    ``title``, ``formula``, ``findings`` (a list of sentences) and ``text`` (what the command prints) are its words.
    """

    def __init__(self, name, flags, tensors):
        self.name = name

        def work(folder):
            given = list(flags)
            if tensors:
                write_safetensors(folder / "your tensors", tensors, {})  # which is what findings call them
                given.append("--input=your tensors")
            told = run("study", name, *given, "-o", "files", folder=folder).decode()
            self.text = "".join(line for line in told.splitlines(True) if not line.startswith("written to "))  # and gone
            return {path.suffix: path.read_bytes() for path in (folder / "files").iterdir()}
        self._files = in_folder(work)
        told = json.loads(self._files[".json"])
        told = told.get(name, told)
        self.title: str = told["title"]
        self.formula: str = told["formula"]
        self.findings: list[str] = told["findings"]
        self._rows = told["tables"]

    @functools.cached_property
    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """An array for each column of each table, NaN where there is no number; pandas.DataFrame takes a table as it is."""
        return {name: {column: array_of([row.get(column) for row in rows]) for column in rows[0]} if rows else {}
                for name, rows in self._rows.items()}

    @property
    def svg(self) -> str:
        """The charts."""
        return self._files[".svg"].decode()

    def save(self, path) -> pathlib.Path:
        """Writes a page with charts, findings and tables (.html), the charts (.svg), or the numbers (.csv, .json).

        :raises ValueError: another kind of file, no name, or a suffix alone
        """
        path = place("save", path)
        if path.suffix == ".html":
            path.write_text(_html.page(self.title, self.svg, self._rows), encoding="utf-8")
        elif path.suffix in self._files:
            path.write_bytes(self._files[path.suffix])
        else:
            raise ValueError(f"save: {path.name} ends in {path.suffix or 'nothing'}; expected .html, .svg, .csv or .json")
        return path

    def figure(self, table: str | None = None):
        """A matplotlib figure of a table, the first one if none is named: its columns against the first of them.

        :raises ValueError: there is no such table
        :raises ImportError: matplotlib is not installed
        """
        from ._figures import of_table
        table = table or next(iter(self.tables))
        if table not in self.tables:
            raise ValueError(f"figure: table is {table!r}; expected one of {', '.join(self.tables)}")
        return of_table(f"{self.name}: {table}", self.tables[table])

    def __repr__(self):
        return "\n".join([f"heed.study.{self.name}: {self.title}", f"  {self.formula}",
                          *(f"  {finding}" for finding in self.findings), f"  tables: {', '.join(self.tables)}"])

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": repr(self), "image/svg+xml": self.svg,
                "text/html": _html.picture(self.svg, repr(self)) + _html.of_tables(self._rows)}


def array_of(column: list) -> np.ndarray:
    """Null, where JSON has no number, is NaN beside numbers, and alone."""
    if all(x is None or type(x) in (int, float) for x in column) and None in column:
        column = [np.nan if x is None else x for x in column]
    return np.array(column)


def made(name, seed, numpy_seed, tensors=(), last=()):
    """``last``: names of tensors that may follow q, k and v."""
    if seed is not None and numpy_seed is not None:
        raise ValueError(f"study: seed is {seed} and numpy_seed {numpy_seed}; expected one of them")
    flags = [f"--{name.replace('_', '-')}={integer('study', name, value, 0, most)}" for name, value, most in
             (("seed", seed, 2**64 - 1), ("numpy_seed", numpy_seed, 2**32 - 1)) if value is not None]
    names = ("q", "k", "v", *last)
    expected = "expected q, k and v" + "".join(f", and perhaps {one}" for one in last)
    if tensors is None:
        tensors = ()
    if not isinstance(tensors, dict):
        if not hasattr(tensors, "__iter__") or isinstance(tensors, (str, bytes)):
            raise TypeError(f"study: tensors is of type {type(tensors).__qualname__}; {expected}, or a dict of them")
        tensors = tuple(tensors)
        if len(tensors) > len(names):
            raise ValueError(f"study: tensors are {len(tensors)}; {expected}")
        tensors = dict(zip(names, tensors))
    given = {key: x for key, x in tensors.items() if x is not None}
    if given and not set("qkv") <= set(given) <= set(names):
        raise ValueError(f"study: tensors are {', '.join(given)}; {expected}")
    return Study(name, flags, {key: as_numpy(key, x, floats=True) for key, x in given.items()})


def variance(*, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """The variance of a dot product grows with d_k: q, k ~ N(0, 1), independent => Var(q . k) = d_k.

    :raises ValueError: seed and numpy_seed are both given
    """
    return made("variance", seed, numpy_seed)


def scaling(tensors=(), *, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """What 1 / sqrt(d_k) does to weights: softmax(Q K^T) against softmax(Q K^T / sqrt(d_k)).

    :param tensors: q, k and v of a model, [B, H, T, D] each, in place of the sample
    :raises TypeError, ValueError: the tensors do not fit, or seed and numpy_seed are both given
    """
    return made("scaling", seed, numpy_seed, tensors)


def gradients(tensors=(), *, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """What 1 / sqrt(d_k) does to gradients: dP_i / dS_j = P_i (1 - P_i) where i = j, -P_i P_j elsewhere.

    :param tensors: q, k and v of a model, [B, H, T, D] each, in place of the sample,
        and perhaps d_output [B, H, T, Dv], or a dict of these
    :raises TypeError, ValueError: the tensors do not fit, or seed and numpy_seed are both given
    """
    return made("gradients", seed, numpy_seed, tensors, ("d_output",))


def strategies(tensors=(), *, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """Other divisors, temperatures and cosine attention: softmax(Q K^T / c) for c = 1, sqrt(d), d, d^(1/4), 2 sqrt(d).

    :param tensors: q, k and v of a model, [B, H, T, D] each, in place of the sample
    :raises TypeError, ValueError: the tensors do not fit, or seed and numpy_seed are both given
    """
    return made("strategies", seed, numpy_seed, tensors)


def initialisation(*, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """Where projections begin: Q = X W_q, K = X W_k, W ~ N(0, std^2) => Var(q . k) ~ d_k (d_model std^2)^2.

    :raises ValueError: seed and numpy_seed are both given
    """
    return made("initialisation", seed, numpy_seed)


def complexity(*, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """Operations, memory and time against length: operations = 2 n^2 d + n^2 + 5 n^2 + 2 n^2 d_v, matrix = 4 n^2 bytes.

    :raises ValueError: seed and numpy_seed are both given
    """
    return made("complexity", seed, numpy_seed)


def masks(*, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """What masks hide, and what that costs: S_ij = -inf where the mask forbids (i, j) => P_ij = 0.

    :raises ValueError: seed and numpy_seed are both given
    """
    return made("masks", seed, numpy_seed)


def precision(*, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """How exact float32 is: ``max |O_float32 - O_float64|`` in units of 2^-24.

    :raises ValueError: seed and numpy_seed are both given
    """
    return made("precision", seed, numpy_seed)


def training(*, seed: int | None = None, numpy_seed: int | None = None) -> Study:
    """A model that learns to copy, with and without the scale 1 / sqrt(d_k), softmax(Q K^T / sqrt(d_k)): some seconds.

    :raises ValueError: numpy_seed is given: training draws as this project does
    """
    if numpy_seed is not None:
        raise ValueError(f"study: numpy_seed is {numpy_seed!r}; expected none, training draws from heed's own generator: give seed")
    return made("training", seed, None)
