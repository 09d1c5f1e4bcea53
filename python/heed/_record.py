"""heed.record: what every attention layer of a model of transformers does, while it runs as it always does."""

import pathlib
import re
import threading
import warnings
from typing import Any, NamedTuple, Sequence

import numpy as np

from ._attention import RowStatistics
from ._command import copy_of, place
from ._forward import Forwards
from ._inspect import Inspection, counted, strings
from ._inspection import SATURATED, entropy_share, inspect_weights
from ._options import integer

watchers: tuple["Record", ...] = ()
lock = threading.Lock()


def observers(module) -> list["Record"]:
    """Those that want to see what this module's attention computes."""
    return [watcher for watcher in watchers if id(module) in watcher.names]


class LayerCall(NamedTuple):
    """One call of one layer's attention. B entries, H heads, Tq queries, Tk keys.

    Sums and maps leave rows of padding out: those of the attention_mask, of two axes, of the model or part that runs.
    """

    name: str  #: the module's name in the model
    layer: int  #: layers are counted in the order of their first calls
    call: int  #: calls of this layer's attention, from 0; some layers make several in one call of the model
    statistics: RowStatistics  #: [B, H, Tq] each
    lse: np.ndarray  #: [B, H, Tq]
    keys: int  #: Tk
    column_sums: np.ndarray | None  #: [B, H, Tk]: how much each key is attended to; None: see heed.record
    sink_key: np.ndarray  #: [B, H] int64: the key with the largest of these sums, -1 without any weight
    sink_share: np.ndarray  #: [B, H]: its share of all of them
    mean_map: np.ndarray  #: [B, H, R, C]: weights as means over cells
    lift_map: np.ndarray  #: [B, H, R, C]: log2 of (visible keys x weight); 0 is uniform
    tokens: np.ndarray | None  #: [B, Tq]: True for tokens, False for padding; None: all are tokens
    ids: np.ndarray | None  #: [B, Tk]: the input_ids that the keys are of; None: of none, or nobody knows
    start: int | None  #: place of the first query among the keys, which are the last ones where a cache slides; across: in its
    #: own sequence; None: nobody knows
    across: bool  #: keys are not of the queries' sequence
    kept: Any  #: q, k and options of the entry that report() draws, why they cannot be, or None: another call has more tokens


class Record:
    """See heed.record."""

    def __init__(self, model, tokens, tokenizer, sample, cells):
        if not hasattr(model, "set_attn_implementation"):
            raise TypeError(f"record: model is of type {type(model).__qualname__}; expected a model of transformers")
        self.model, self.sample = model, None if sample is None else integer("record", "sample", sample, 0)
        self.cells = integer("record", "cells", cells, 1)
        if tokens is not None and tokenizer is not None:
            raise ValueError("record: tokens and tokenizer are both given; expected one of them, both say what keys are called")
        if tokenizer is not None and not hasattr(tokenizer, "convert_ids_to_tokens"):
            raise TypeError(f"record: tokenizer is of type {type(tokenizer).__qualname__}; expected one of transformers, with "
                            "convert_ids_to_tokens")
        self.tokenizer, self.given = tokenizer, lists_of_strings(tokens)
        self.names = {id(module): name for name, module in model.named_modules()}
        self.calls: list[LayerCall] = []
        self.layers: dict[str, int] = {}  # in the order of their first calls
        self.counts: dict[str, int] = {}  # calls of each layer
        self.longest: dict[str, int] = {}  # of each layer the call whose q and k are kept: its place in calls
        self.most: dict[str, int] = {}  # its tokens, of the entry that is kept
        self.forwards = Forwards()
        self.undo: list[Any] = []

    def __enter__(self) -> "Record":
        global watchers
        from . import transformers
        if self.undo:
            raise RuntimeError("record: the block has begun already; expected a record for each block")
        try:
            transformers.register()
            before = implementations(self.model)
            self.undo.append(lambda: put_back(before))
            self.model.set_attn_implementation("heed")
            if self.model.config._attn_implementation != "heed":
                raise ValueError(f"record: {type(self.model).__name__} does not let its attention be chosen; expected a "
                                 "model that goes through transformers' AttentionInterface")
            self.forwards.watch(self.model, self.undo)
            with lock:
                watchers += (self,)
            self.undo.append(self._stop)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, error=None, *_) -> None:
        while self.undo:
            self.undo.pop()()
        if error is None:
            self._tell_of_idle_tokens()

    def _tell_of_idle_tokens(self) -> None:
        """Tokens that are of no call: pages and tables would be without them, and nobody would know why."""
        if self.given is None or not self.calls:
            return
        entries, keys = max(len(call.lse) for call in self.calls), {call.keys for call in self.calls}
        if len(self.given) > entries:
            warnings.warn(f"record: tokens has lists for {len(self.given)} entries; expected at most {entries}, those of the "
                          "batch", stacklevel=3)
        for i, labels in enumerate(self.given[:entries]):
            if len(labels) not in keys:
                what = "tokens" if len(self.given) == 1 else f"tokens[{i}]"
                warnings.warn(f"record: {what} has {counted(len(labels), 'string')}, which name nothing; expected one for each key of a "
                              f"call: {', '.join(map(str, sorted(keys)[:6]))}{', ..' if len(keys) > 6 else ''}", stacklevel=3)

    def _stop(self) -> None:
        global watchers
        with lock:
            watchers = tuple(watcher for watcher in watchers if watcher is not self)

    def _see(self, module, query, key, seen, options, mask) -> None:
        """A call of attention, with its results."""
        import torch

        from ._transformers_mask import lengths_of
        if torch.compiler.is_compiling():
            raise RuntimeError("record: the model is being compiled; expected one that runs as it is")
        if torch._C._current_graph_task_id() != -1:
            return  # a backward pass computes again what was seen forward: gradient checkpointing
        batch, rows, keys = len(query), query.shape[2], key.shape[2]
        if self.sample is not None and self.sample >= batch and not self.calls:
            raise ValueError(f"record: sample is {self.sample}, and the batch has {batch} entries; expected one of them, "
                             "or None")
        options = {name: x.detach() if isinstance(x, torch.Tensor) else x for name, x in options.items()
                   if x is not None and x is not False}
        query, key, lse = query.detach(), key.detach(), seen.lse.detach()
        name = self.names[id(module)]
        across = is_across(module, name)
        start, ids, real, tokens = self.forwards.place(batch, rows, keys, getattr(mask, "rule", None), across)
        queries = {}  # those that are no padding
        if tokens is not None and (lengths := lengths_of(torch.from_numpy(tokens))) is not None:
            queries["query_lengths"] = lengths
        elif tokens is not None:
            # A column hides the other rows without a matrix; beside a bias, which often is one, it joins that.
            of_type = torch.float64 if query.dtype == torch.float64 else torch.float32
            column = torch.where(torch.from_numpy(tokens)[:, None, :, None], 0.0, -torch.inf).to(of_type)
            queries["bias"] = column + options["bias"] if "bias" in options else column
        cells = min(self.cells, rows), min(self.cells, keys)
        views = inspect_weights(query, key, lse, column_sums=True, mean_map=cells, lift_map=cells,
                                threads=torch.get_num_threads(), **{**options, **queries})
        sums = np.asarray(views.column_sums)
        total = sums.sum(-1)
        sink = np.where(total > 0, sums.argmax(-1), -1) if keys else np.full(total.shape, -1)
        share = np.divide(sums.max(-1, initial=0), total, out=np.full_like(total, np.nan), where=total > 0)
        kept = None
        if self.sample is not None and self.sample >= batch:
            kept = f"sample is {self.sample}, and its batch has {batch} {'entry' if batch == 1 else 'entries'}"
        elif self.sample is not None:
            mine = None if tokens is None else tokens[self.sample]
            count = rows if mine is None else int(mine.sum())
            if not count:
                kept = f"of entry {self.sample} it sees nothing but padding"
            elif count > self.most.get(name, 0):
                kept = Kept.of(self.sample, query, key, options, None if real is None else real[self.sample], mine,
                               sums[self.sample])
        with lock:
            if isinstance(kept, Kept):
                if kept.q.shape[1] > self.most.get(name, 0):
                    if name in self.longest:
                        shorter = self.longest[name]
                        self.calls[shorter] = self.calls[shorter]._replace(kept=None)
                    self.longest[name], self.most[name] = len(self.calls), kept.q.shape[1]
                else:
                    kept = None  # another thread's call was longer
            count = self.counts.setdefault(name, 0)
            self.counts[name] = count + 1
            self.layers.setdefault(name, len(self.layers))
            self.calls.append(LayerCall(
                name, self.layers[name], count, RowStatistics(*(x.detach().numpy() for x in seen.statistics)), lse.numpy(),
                keys, sums if keys <= self.cells * rows else None, sink, share, np.asarray(views.mean_map),
                np.asarray(views.lift_map), tokens, ids, start, across, kept))

    def labels(self, call: LayerCall, sample: int) -> list[str] | None:
        """What the keys of a call are called."""
        if self.given is not None:
            labels = self.given[sample] if sample < len(self.given) else []
        elif self.tokenizer is not None and call.ids is not None:
            labels = [plain(token) for token in self.tokenizer.convert_ids_to_tokens(call.ids[sample].tolist())]
        else:
            return None
        return list(labels) if len(labels) == call.keys else None

    def label(self, call: LayerCall, sample: int, key: int | None) -> str | None:
        """What one key is called, without a look at the others."""
        if key is None or not 0 <= key < call.keys:
            return None
        if self.given is not None:
            labels = self.given[sample] if sample < len(self.given) else []
            return labels[key] if len(labels) == call.keys else None
        if self.tokenizer is None or call.ids is None:
            return None
        return plain(self.tokenizer.convert_ids_to_tokens([int(call.ids[sample, key])])[0])

    def inspections(self) -> list[tuple[list[str], Inspection]]:
        """Layers (their names) whose shapes and options are the same, each with what heed.inspect has of them: of each
        layer the call with the most tokens of the entry ``sample``, without its padding. Layers that are together call their
        keys the same."""
        if not self.calls:
            raise ValueError("report: no call of attention was seen; expected a model that was run inside the block and goes "
                             "through transformers' AttentionInterface")
        if not self.longest:
            why = next((call.kept for call in self.calls if call.kept), "sample is None; expected one of the batch")
            raise ValueError(f"report: no entry's q and k were kept: {why}")
        for name, why in {call.name: call.kept for call in self.calls if isinstance(call.kept, str)}.items():
            if name not in self.longest:
                warnings.warn(f"report: no page has {name}: {why}", stacklevel=3)
        groups: dict[Any, list[LayerCall]] = {}
        for place in self.longest.values():
            call = self.calls[place]
            labels = self.labels(call, self.sample)
            if labels is not None and call.kept.keys is not None:
                labels = [label for label, real in zip(labels, call.kept.keys) if real]
            groups.setdefault((call.across, None if labels is None else tuple(labels), call.kept.likeness()), []).append(call)
        found = []
        for (_, labels, _), calls in groups.items():
            names = [call.name for call in calls]
            found.append((names, Inspection(np.stack([call.kept.q for call in calls]),
                                            np.stack([call.kept.k for call in calls]), None, None, None if labels is None else list(labels),
                                            shortened(names), [], calls[0].kept.options, type(self.model).__name__)))
        return found

    def report(self, path) -> list[pathlib.Path]:
        """Writes a page to look through (.html). Layers whose shapes or options differ, as those with and without a window,
        get pages of their own: NAME.html, NAME_2.html ..

        :returns: the pages
        """
        path = place("report", path)
        if path.suffix != ".html":
            raise ValueError(f"report: {path.name} ends in {path.suffix or 'nothing'}; expected .html")
        return [seen.save(path if i == 1 else path.with_stem(f"{path.stem}_{i}"))
                for i, (_, seen) in enumerate(self.inspections(), 1)]

    def to_dataframe(self, per: str = "head"):
        """A pandas.DataFrame with a line for each call, layer, entry of the batch and head, or, per="row", for each query
        row of these too. Rows of padding are left out.

        :raises ImportError: pandas is not installed
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_dataframe: needs pandas, which is not installed: pip install pandas. The numbers are in "
                              ".calls and need nothing") from error
        if per not in ("head", "row"):
            raise ValueError(f"to_dataframe: per is {per!r}; expected 'head' or 'row'")
        lines = of_heads if per == "head" else of_rows
        return pandas.concat([pandas.DataFrame(lines(self, call)) for call in self.calls], ignore_index=True) \
            if self.calls else pandas.DataFrame()

    def __repr__(self):
        layers = {call.layer for call in self.calls}
        return f"heed.Record of {type(self.model).__name__}: {len(layers)} layers, {len(self.calls)} calls of attention"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.inspections()[0][1]._repr_mimebundle_() if self.calls else {"text/plain": repr(self)}


class Kept(NamedTuple):
    """One entry's q and k without padding."""

    q: np.ndarray
    k: np.ndarray
    keys: np.ndarray | None  #: [Tk], which keys these are
    options: dict

    @staticmethod
    def of(sample, query, key, options, keys, rows, sums) -> "Kept | str":
        """``keys`` and ``rows``: which are tokens, None: all. ``sums``: of the entry, over these rows."""
        ordered = options.get("causal") or "window" in options
        start = options.get("query_start") or 0
        options = {name: x for name, x in options.items() if name not in ("key_lengths", "query_start", "threads")}
        if keys is not None and (sums[:, ~keys] > 0).any():
            keys = None  # padding that is looked at
            if ordered and rows is not None and not rows[:rows.sum()].all():
                return "it looks at padding before tokens, which no page tells from tokens"
        if keys is not None and "window" in options and np.diff(np.flatnonzero(keys)).max(initial=1) > 1:
            return "there is padding between tokens and a window, which counts it; expected padding at the ends"
        q, k = copy_of("q", query[sample]), copy_of("k", key[sample])
        q = q if rows is None else q[:, rows]
        if keys is not None:
            k, start = k[:, keys], int(keys[:start].sum())
        for name in ("mask", "bias"):
            if name in options:
                x = options[name]
                x = x[(None,) * (4 - x.ndim)]
                x = copy_of(name, x[sample if x.shape[0] > 1 else 0])[None]
                x = x[..., rows, :] if rows is not None and x.shape[-2] > 1 else x
                options[name] = x[..., keys] if keys is not None and x.shape[-1] > 1 else x
        if "mask" in options and options["mask"].all():
            del options["mask"]  # it hid padding, which is cut away
        if start and ordered:
            options["query_start"] = start
        if "sinks" in options:
            options["sinks"] = copy_of("sinks", options["sinks"])
        return Kept(q, k, None if keys is None else keys.copy(), options)  # keys may be a view of the caller's mask

    def likeness(self):
        """Equal for what can share a page."""
        return (self.q.shape, self.k.shape, self.q.dtype.name,
                tuple((name, x.tobytes() if isinstance(x, np.ndarray) else x) for name, x in sorted(self.options.items())))


def is_across(module, name) -> bool:
    """Whether a layer's keys are of another sequence, by what models of transformers call it: a flag, its class, or what it is to
    its parent (crossattention and cross_attn; encoder_attn of BART, EncDecAttention of T5)."""
    return bool(getattr(module, "is_cross_attention", False) or "Cross" in type(module).__name__ or
                any(re.fullmatch(r"cross_?att\w*|encoder_attn|EncDecAttention", part) for part in name.split(".")))


def lists_of_strings(tokens) -> list[list[str]] | None:
    """One for each entry of the batch, of one list or of some."""
    if tokens is None:
        return None
    some = None if isinstance(tokens, (str, bytes)) or not hasattr(tokens, "__iter__") else list(tokens)
    if some and not isinstance(some[0], (str, bytes)) and hasattr(some[0], "__iter__"):
        return [strings("record", f"tokens[{i}]", one) for i, one in enumerate(some)]
    return [strings("record", "tokens", tokens if some is None else some)]


def plain(token: str) -> str:
    """A token without the marks for a space before it."""
    return token.replace("\u0120", " ").replace("\u2581", " ").replace("\u010a", "\\n").strip() or token


def shortened(names: list[str]) -> str:
    """layers.0.attention, layers.1.attention: layers.0, 1.attention; their numbers once, if the rest is the same."""
    parts = [re.split(r"(\d+)", name, maxsplit=1) for name in names]
    if len(parts) < 2 or any(len(part) < 3 or part[::2] != parts[0][::2] for part in parts):
        return ", ".join(names)
    before, _, after = parts[0]
    counted = [int(part[1]) for part in parts]
    if counted == list(range(counted[0], counted[0] + len(counted))):
        return f"{before}{counted[0]}..{counted[-1]}{after}"
    return f"{before}{', '.join(map(str, counted))}{after}"


def implementations(model) -> list[tuple[Any, Any]]:
    """All configurations of a model and its parts, each with its attn_implementation."""
    found: dict[int, tuple[Any, Any]] = {}
    ahead = [config for config in (getattr(module, "config", None) for module in model.modules()) if config is not None]
    while ahead:
        config = ahead.pop()
        if id(config) not in found and hasattr(config, "_attn_implementation_internal"):
            found[id(config)] = config, config._attn_implementation_internal
            ahead += [part for name in getattr(config, "sub_configs", ()) if (part := getattr(config, name, None)) is not None]
    return list(found.values())


def put_back(before) -> None:
    for config, implementation in before:
        config._attn_implementation_internal = implementation


def of_heads(record, call):
    """Lines of to_dataframe: means over the rows that are tokens and see something."""
    seen = call.statistics
    for sample, head in np.ndindex(call.lse.shape[:2]):
        one = RowStatistics(*(x[sample, head] for x in seen))
        rows = one.visible_keys > 0 if call.tokens is None else (one.visible_keys > 0) & call.tokens[sample]
        sink = int(call.sink_key[sample, head])
        count = int(rows.sum())
        choice = rows & (one.visible_keys > 1)

        def mean(x, of=rows):
            return float(x[of].mean()) if of.any() else np.nan
        yield {"call": call.call, "layer": call.layer, "name": call.name, "sample": sample, "head": head, "rows": count,
               "entropy": mean(one.entropy), "entropy_share": mean(entropy_share(one.entropy, one.visible_keys)),
               "max_weight": mean(one.max_weight), "saturated": mean(one.max_weight > SATURATED, choice),
               "max_score": float(one.max_score[rows].max()) if count else np.nan, "score_mean": mean(one.score_mean),
               "score_deviation": mean(np.sqrt(one.score_variance)), "jacobian_norm": mean(one.jacobian_norm),
               "sink_key": sink, "sink_token": record.label(call, sample, sink),
               "sink_share": float(call.sink_share[sample, head])}


def of_rows(record, call):
    """Lines of to_dataframe: one for each row that is a token."""
    for sample, head, row in np.ndindex(call.lse.shape):
        if call.tokens is None or call.tokens[sample, row]:
            place = None if call.start is None else call.start + row
            key = int(call.statistics.max_weight_key[sample, head, row])
            yield {"call": call.call, "layer": call.layer, "name": call.name, "sample": sample, "head": head, "row": place,
                   "token": None if call.across else record.label(call, sample, place),
                   "max_weight_token": record.label(call, sample, key), "lse": call.lse[sample, head, row],
                   **{name: x[sample, head, row] for name, x in call.statistics._asdict().items()}}


def record(model, *, tokens: Sequence[str] | Sequence[Sequence[str]] | None = None, tokenizer=None,
           sample: int | None = 0, cells: int = 32) -> Record:
    """Looks into a model of transformers while it runs, without eager attention and without a matrix of weights.

    ::

        with heed.record(model, tokenizer=tokenizer) as seen:
            model(**inputs)                    # or model.generate(..)
        seen.report("attention.html")          # a page to look through
        seen.to_dataframe()                    # a line for each layer and head
        seen.calls[0].statistics.entropy       # [B, H, Tq]

    Inside the block the model's attn_implementation is "heed"; afterwards, after an exception too, it is what it was. The
    output's bits are those of attn_implementation="heed" outside. Kept are row statistics, [B, H, Tq] each, sums over
    columns, pooled maps, and, from each layer's call with the most tokens of one entry of the batch, this entry's q and k,
    from which report() draws. Memory grows with the tokens, not with their square, a token at a time too: sums over columns are kept
    where a call has at most ``cells`` keys for each row; from the others the column with the largest sum, and mean_map.

    :param tokens: what keys are called, one list or one for each entry of the batch; a warning at the end of the block says
        so where no call has as many keys
    :param tokenizer: instead: it names the input_ids that the model, or a part that is called by itself, gets
    :param sample: the entry of the batch that report() draws; None keeps no q and k
    :param cells: of pooled maps, along each axis
    :raises TypeError: model or tokenizer is none of transformers, tokens are no strings
    :raises ValueError: tokens and tokenizer are both given; tokens are no text that UTF-8 can hold; the model does not let its
        attention be chosen; inside the block, the first batch has no entry ``sample``
    """
    return Record(model, tokens, tokenizer, sample, cells)
