"""heed.inspect: what attention heads do, as arrays, pictures, a page, and in a notebook."""

import functools
import html
import json
import pathlib
import shutil
from typing import Any, Iterable, NamedTuple, Sequence, Unpack

import numpy as np

from ._attention import AttentionResult, RowStatistics, attention
from ._command import (as_numpy, copy_of, for_command, in_folder, is_bfloat16, offered, own_copy_of, place, run,
                       write_safetensors)
from ._inspection import inspect_weights
from ._arrays import refuse_masked
from ._options import Array, Mask, Options, integer, told
from ._html import picture


MOST_KEYS, MOST_CELLS = 64, 256
"""That the command lists for a row, and along each axis of a picture."""


class Remark(NamedTuple):
    """What is off with a head, or worth knowing."""

    layer: int  #: index of the batch entry
    head: int  #: index of the query head
    severity: str  #: "warning" or "note"
    sentence: str  #: what was seen, with numbers
    suggestion: str  #: what may help


class Inspection:
    """What heed.inspect found. Arrays are computed when they are first asked for, pictures by the heed command.

    In a notebook it shows itself. ``layer`` is the index of a batch entry: layers of one text are stacked there.
    """

    def __init__(self, q, k, v, d_output, tokens, sentence, flags, options, title="heed.inspect"):
        self._title = title
        self._tensors = {name: as_numpy(name, x) for name, x in
                         (("q", q), ("k", k), ("v", v), ("d_output", d_output)) if x is not None}
        offered(options)
        self._options, self._flags = dict(options), list(flags)
        self.tokens: list[str] | None = None if tokens is None else [str(token) for token in tokens]
        keys = self._tensors["k"].shape[-2]
        if self.tokens is not None and len(self.tokens) != keys:
            raise ValueError(f"inspect: tokens has {counted(len(self.tokens), 'string')}; expected one for each of {counted(keys, 'key')}")
        self.sentence = sentence
        self._of_rows  # noqa: B018  wrong arguments are told at once, by their names
        self._check_gradient()
        more, self._option_flags = for_command(options)
        self._tensors |= more

    @functools.cached_property
    def _of_rows(self) -> AttentionResult:
        q, k, v = (self._tensors.get(name) for name in "qkv")
        if v is None:
            v = np.zeros((*k.shape[:-1], 1), k.dtype)
        try:
            return attention(q, k, v, return_lse=True, statistics=True, **self._options)
        except (TypeError, ValueError) as error:
            raise type(error)(told("inspect", str(error), {})) from None

    def _check_gradient(self):
        """What the command would refuse when it is run."""
        gradient = self._tensors.get("d_output")
        if gradient is None:
            return
        if self.output is None:
            raise ValueError("inspect: d_output is given, but v is not; expected both: gradients take v too")
        if gradient.shape != self.output.shape:
            raise ValueError(f"inspect: d_output has shape {list(gradient.shape)}; expected {list(self.output.shape)}, that "
                             "of the output")

    @functools.cached_property
    def _views(self):
        q, k = self._tensors["q"], self._tensors["k"]
        cells = min(q.shape[-2], 96), min(k.shape[-2], 96)
        reach = min(64, max(q.shape[-2], k.shape[-2]))
        options = {name: x for name, x in self._options.items() if name not in ("dropout_p", "seed")}
        return inspect_weights(q, k, self.lse, column_sums=True, mean_map=cells, lift_map=cells,
                               distance_mass=2 * reach + 1, score_histogram=256, score_low=-32.0, score_high=32.0, **options)

    @property
    def statistics(self) -> RowStatistics:
        """Of each row, [B, H, Tq]: entropy, max_weight, jacobian_norm .."""
        return self._of_rows.statistics

    @property
    def lse(self) -> np.ndarray:
        """[B, H, Tq]: the logarithm of the sum of exponentials of each row's scores."""
        return self._of_rows.lse

    @property
    def output(self) -> np.ndarray | None:
        """[B, H, Tq, Dv], if v was given."""
        return self._of_rows.output if "v" in self._tensors else None

    @property
    def column_sums(self) -> np.ndarray:
        """[B, H, Tk]: how much each key is attended to."""
        return self._views.column_sums

    @property
    def mean_map(self) -> np.ndarray:
        """[B, H, R, C]: weights as means over cells, at most 96 x 96 of them."""
        return self._views.mean_map

    @property
    def lift_map(self) -> np.ndarray:
        """[B, H, R, C]: log2 of (visible keys x weight) over the same cells; 0 is uniform."""
        return self._views.lift_map

    @property
    def distance_mass(self) -> np.ndarray:
        """[B, H, N]: mass by distance key - query position, from -(N - 1) / 2 on, summed over the rows; the outermost hold what
        lies beyond."""
        return self._views.distance_mass

    @property
    def score_histogram(self) -> np.ndarray:
        """[B, H, 258]: below -32, 256 bins up to 32, above."""
        return self._views.score_histogram

    def weights(self, rows: Iterable[int]) -> np.ndarray:
        """[B, H, N, Tk]: all weights of some query rows, exp(s - lse), 0 where hidden.

        :raises TypeError: rows is no list of integers
        :raises ValueError: there is no such row
        """
        options = {name: x for name, x in self._options.items() if name not in ("dropout_p", "seed")}
        chosen = row_numbers("weights", rows, self._tensors["q"].shape[-2])
        return inspect_weights(self._tensors["q"], self._tensors["k"], self.lse, rows=chosen, row_weights=True,
                               **options).row_weights

    @functools.cached_property
    def found(self) -> list[dict[str, Any]]:
        """An object for each layer and head, as heed inspect --json has it (docs/inspect.md)."""
        return json.loads(self._run("--json"))["found"]

    @property
    def remarks(self) -> list[Remark]:
        """Warnings, then notes."""
        all_of = [Remark(head["layer"], head["head"], **remark) for head in self.found for remark in head["remarks"]]
        return sorted(all_of, key=lambda remark: remark.severity != "warning")

    @functools.cached_property
    def text(self) -> str:
        """What heed inspect prints."""
        return self._run().decode()

    @functools.cached_property
    def pictures(self) -> dict[str, bytes]:
        """SVG, PNG and CSV files by their names: poster.svg, entropy.png, head_l0_h1.svg .."""
        def draw(folder):
            self._run("--quiet", "--pictures", folder / "pictures")
            return {path.name: path.read_bytes() for path in sorted((folder / "pictures").iterdir())}
        return in_folder(draw)

    def save(self, path) -> pathlib.Path:
        """Writes a page (.html), the poster (.svg, .png), all numbers (.json), or all pictures (a folder).

        A folder that is there may have any name. A new one is made where the name has no suffix.

        :raises ValueError: another kind of file, no name, or a suffix alone
        """
        path = place("save", path)
        if path.is_dir() or not path.suffix:
            path.mkdir(parents=True, exist_ok=True)
            for name, content in self.pictures.items():
                (path / name).write_bytes(content)
        elif path.suffix in (".svg", ".png"):
            path.write_bytes(self.pictures[f"poster{path.suffix}"])
        elif path.suffix == ".json":
            path.write_bytes(self._run("--json"))
        elif path.suffix == ".html":
            def page(folder):
                self._run("--quiet", "--html", folder / "page.html")
                shutil.copyfile(folder / "page.html", path)
            in_folder(page)
        else:
            raise ValueError(f"save: {path.name} ends in {path.suffix}; expected .html, .svg, .png, .json, or a folder, which "
                             "must be there if its name has a dot")
        return path

    def figure(self, name: str = "poster", *, layer: int = 0, head: int = 0):
        """A matplotlib figure, to be restyled: poster, entropy, max_weight, histogram, distance, keys; or head, of one.

        :raises ImportError: matplotlib is not installed
        """
        from ._figures import of_inspection
        return of_inspection(self, name, layer, head)

    def __repr__(self):
        return f"{self._shapes()}. {self._SHOW}"

    _SHOW = "Show .text, .figure(), .statistics; .save('page.html')"

    def _shapes(self) -> str:
        q, k = self._tensors["q"].shape, self._tensors["k"].shape
        layers, heads = (*q[:-2], 1, 1)[:2]
        counts = ", ".join(f"{count} {one if count == 1 else more}" for count, one, more in (
            (heads, "head", "heads"), (q[-2], "query", "queries"), (k[-2], "key", "keys")))
        return f"heed.Inspection: {layers} x {counts}, head size {q[-1]}"

    def _caption(self) -> str:
        """With what the command found: not for repr, which debuggers and logs call."""
        warned = sum(remark.severity == "warning" for remark in self.remarks)
        return f"{self._shapes()}; {warned} warning{'' if warned == 1 else 's'}. {self._SHOW}"

    def _repr_mimebundle_(self, include=None, exclude=None):
        poster = self.pictures["poster.svg"].decode()
        remarks = "".join(f"<li>{html.escape(line)}</li>" for line in self._lines())
        caption = self._caption()
        return {"text/plain": caption, "image/png": self.pictures["poster.png"], "image/svg+xml": poster,
                "text/html": f'<figure style="margin:0"><figcaption>{html.escape(caption)}</figcaption>'
                             f'{picture(poster, "Lift of every head")}</figure>'
                             f"{f'<ul>{remarks}</ul>' if remarks else ''}"}

    def _lines(self) -> list[str]:
        """Remarks that say the same, on one line with the heads that they are about."""
        about: dict[str, list[Remark]] = {}
        for remark in self.remarks:
            if remark.sentence.startswith("weights neither"):
                continue  # all is well
            about.setdefault(remark.sentence, []).append(remark)
        lines = []
        for sentence, heads in about.items():
            first = ", ".join(f"{one.layer}.{one.head}" for one in heads[:6])
            more = f" and {len(heads) - 6} more" if len(heads) > 6 else ""
            lines.append(f"{heads[0].severity} (layer.head {first}{more}): {sentence}")
        return lines[:12] + ([f"and {len(lines) - 12} more: .remarks"] if len(lines) > 12 else [])

    def _run(self, *flags) -> bytes:
        metadata = {}
        if self.tokens is not None:
            metadata["tokens"] = json.dumps(self.tokens)
        if self.sentence is not None:
            metadata["sentence"] = self.sentence

        def work(folder):
            # The file's name is what pictures, the page and .text tell of it.
            write_safetensors(folder / self._title, self._tensors, metadata)
            return run("inspect", self._title, *self._option_flags, *self._flags, *flags, folder=folder)
        return in_folder(work)


def inspect(q: Array, k: Array, v: Array | None = None, *, d_output: Array | None = None,
            tokens: Sequence[str] | None = None, sentence: str | None = None, rows: Sequence[int] | None = None,
            top: int = 8, map: int = 96, **options: Unpack[Options]) -> Inspection:
    """What every head's weights look like, and whether something is off, without a matrix of weights.

    ::

        seen = heed.inspect(q, k, causal=True, tokens=["The", "cat", ..])
        seen                                  # in a notebook: the poster and what is off
        seen.statistics.entropy               # [B, H, Tq]
        seen.save("page.html")                # everything, in one page

    Arrays are copied: what is drawn later is of the numbers that they have now.

    :param q: [T, D], [B, T, D] or [B, H, T, D]; the batch is called layer: stack the layers of one text there
    :param k: the same with Tk keys and as many heads as divide those of q
    :param v: values; with ``d_output``, the gradient of a loss with respect to the output, each head's gradients are told
    :param tokens: what keys are called, [Tk]; queries too if there are as many. Text that UTF-8 can hold, as ``sentence``
    :param sentence: above the page
    :param rows: query rows to be told in full
    :param top: keys listed for a row, at most 64
    :param map: cells of pictures along each axis, at most 256
    :param options: all that acts on a score, as heed.attention has it. ``reproducible`` makes no difference: bfloat16 is
        looked at as float32
    :raises TypeError, ValueError: as heed.attention does
    """
    flags = [f"--top={integer('inspect', 'top', top, 1, MOST_KEYS)}", f"--map={integer('inspect', 'map', map, 1, MOST_CELLS)}"]
    for name, x in (("q", q), ("k", k)):
        if x is None:
            raise TypeError(f"inspect: {name} is of type NoneType; expected an array")
    given = {"q": q, "k": k, "v": v, "d_output": d_output}
    tensors = {name: None if x is None else copy_of(name, x, floats=True) for name, x in given.items()}
    for name, x in (("q", tensors["q"]), ("k", tensors["k"])):
        if x.ndim < 2:
            raise ValueError(f"inspect: {name} has shape {list(x.shape)}; expected [T, D], [B, T, D] or [B, H, T, D]")
    types = {name: "bfloat16" if is_bfloat16(given[name]) else x.dtype.name for name, x in tensors.items() if x is not None}
    for name, kind in types.items():
        if kind != types["q"]:
            raise TypeError(f"inspect: {name} is {kind}, q is {types['q']}; they must be equal")
    if rows is not None:
        chosen = row_numbers("inspect", rows, tensors["q"].shape[-2])
        flags += [f"--rows={','.join(str(row) for row in chosen)}"] if chosen else []
    if sentence is not None:
        string("inspect", "sentence", sentence)
    options = {name: copied(name, x) for name, x in options.items()}
    return Inspection(*tensors.values(), strings("inspect", "tokens", tokens), sentence, flags, options)


def row_numbers(function: str, rows, queries: int) -> list[int]:
    """Each an index of a query row."""
    refuse_masked(f"{function}: rows", rows)
    given = rows if hasattr(rows, "__iter__") and getattr(rows, "ndim", 1) else None
    if given is None or isinstance(rows, (str, bytes)):
        raise TypeError(f"{function}: rows is {rows!r}; expected a list of integers")
    return [integer(function, f"rows[{i}]", row, 0, queries - 1) for i, row in enumerate(given)]


def counted(number: int, thing: str) -> str:
    """"1 string", "2 strings"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def strings(function: str, name: str, given) -> list[str] | None:
    """What keys are called."""
    if given is None:
        return None
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{function}: {name} is of type {type(given).__qualname__}; expected a list of strings")
    return [string(function, f"{name}[{i}]", one) for i, one in enumerate(given)]


def string(function: str, name: str, given) -> str:
    """Text that files can hold.

    :raises TypeError: it is no string
    :raises ValueError: it has half a character: a lone surrogate, which is how Python reads bytes that are no text
    """
    if not isinstance(given, str):
        raise TypeError(f"{function}: {name} is of type {type(given).__qualname__}; expected a string")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{function}: {name} has {given[error.start]!r} at {error.start}; expected text that UTF-8 can hold") from None
    return given


def copied(name, option):
    """An option as it is now."""
    if isinstance(option, Mask):
        return Mask(option.role, copied(name, option.array))
    if isinstance(option, list):
        return list(option)
    return own_copy_of(name, option) if is_array(option) else option


def is_array(option) -> bool:
    """Whether it has ``__dlpack__`` or the buffer protocol. NumPy's numbers and bytes have that too, and never change."""
    if isinstance(option, (np.generic, bytes)):
        return False
    if hasattr(option, "__dlpack__"):
        return True
    try:
        memoryview(option).release()
    except (TypeError, ValueError, BufferError):
        return False
    return True
