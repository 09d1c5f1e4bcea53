"""What the running forward call of a model of transformers says of its tokens: ids, padding, place in the cache."""

import dataclasses
import inspect
import sys
import threading
import types
import weakref
from typing import Any

import numpy as np


class Forward:
    """One call of a model, or of a part that is a model itself, such as an encoder. B entries, T tokens."""

    def __init__(self, given: dict[str, Any], outer: "Forward | None"):
        ids, rows = given.get("input_ids"), given.get("inputs_embeds")
        text = ids if ids is not None else rows
        self.given = ids
        self.shape = None if text is None else tuple(text.shape[:2])  #: (B, T), if it is a call with tokens
        self.ids = matrix(ids)  #: [B, T]
        mask = matrix(given.get("attention_mask"))
        self.mask = None if mask is None else mask != 0  #: [B, before + T], True for tokens
        self.cache = given.get("past_key_values")
        self.before: int | None = 0  #: tokens in the cache, None where nobody knows
        if self.cache is not None:
            self.before = int(self.cache.get_seq_length()) if hasattr(self.cache, "get_seq_length") else None
        # The tokens are those of the caller where it hands on their embeddings, or their ids beside a mask that is made
        # already. Not to a decoder: what its caller has under these names is the encoder's.
        if (outer is not None and self.shape is not None and self.shape == outer.shape and (ids is None or ids is outer.given)
                and given.get("encoder_hidden_states") is None):
            self.ids = outer.ids if self.ids is None else self.ids
            self.mask = outer.mask if self.mask is None else self.mask
        self.names: np.ndarray | None = None  #: [B, before + T], ids of all tokens since the cache was empty
        self.is_named = False

    def tokens(self, batch: int, rows: int) -> np.ndarray | None:
        """[B, Tq], True for tokens, of attention's queries; None where the mask is not of these."""
        if self.mask is None or self.before is None or self.mask.shape != (batch, self.before + rows):
            return None
        return self.mask[:, self.before:]

    def start(self, batch: int, rows: int, keys: int | None = None) -> int | None:
        """Place of attention's first query in its sequence, or among the keys of this sequence: behind what a cache has, and
        at the end of one that slides. None where nobody knows."""
        if rows == keys:
            return 0
        is_known = self.shape == (batch, rows) or self.shape is None and keys is None  # pictures have no cache
        if self.before is None or not is_known or keys is not None and keys < rows:
            return None
        return self.before if keys is None else min(self.before, keys - rows)

    def of_keys(self, x: np.ndarray | None, start: int | None, batch: int, keys: int) -> np.ndarray | None:
        """What ``x`` has of the keys, where it has one for each: a cache that slides has let the first ones go."""
        if x is None or self.before is None or start is None or start > self.before:
            return None
        x = x[:, self.before - start:]
        return x if x.shape == (batch, keys) else None


@dataclasses.dataclass
class Running:
    """A call of a part of a model that has begun, and PyTorch's own that calls the hook and the part."""
    call: Forward | None
    part: Any
    frame: types.FrameType


def frames_behind() -> list[types.FrameType]:
    """Of this thread, those that run below the hook, the latest first."""
    frames, frame = [], sys._getframe(3)  # behind this function, begin and Hook
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


class Hook:
    """What a part of a model calls. A copy of the model, pickled or not, gets one that does nothing:
    it is not the one that is recorded, and nobody would take the hook from it."""

    def __init__(self, does):
        self.does = does

    def __call__(self, *arguments):
        self.does(*arguments)

    def __reduce__(self):
        return Hook, (nothing,)


def nothing(*_) -> None:
    """As a hook."""


class Forwards:
    """The running calls of a model and of its parts, of each thread its own."""

    def __init__(self):
        self.of_thread = threading.local()
        self.past = weakref.WeakKeyDictionary()  # the ids that are in a cache

    def watch(self, model, undo: list[Any]) -> None:
        """Hooks on a model and on all that are models in it; ``undo`` gets what removes them."""
        undo.append(self._forget)
        for part in model.modules():
            if hasattr(part, "set_attn_implementation"):
                begins, ends = Hook(self._begins(part)), Hook(self._ends)
                undo.append(part.register_forward_pre_hook(begins, with_kwargs=True).remove)
                undo.append(part.register_forward_hook(ends, always_call=True).remove)

    def _begins(self, part):
        from torch.compiler import is_compiling  # here there is PyTorch, whose model it is
        order = list(inspect.signature(part.forward).parameters)

        def begin(_, arguments, named):
            if is_compiling():  # which attention refuses in its own words
                return
            running, frames = self._running(), frames_behind()
            running[:] = [one for one in running if one.frame in frames]  # Ctrl-C ends a call without the hook
            outer = running[-1].call if running else None
            running.append(Running(None, part, frames[0]))  # there is one to end, whatever is raised here
            running[-1].call = Forward({**dict(zip(order, arguments)), **named}, outer)
        return begin

    def _ends(self, part, arguments, output) -> None:
        running, frames = self._running(), frames_behind()
        at = max((i for i, one in enumerate(running) if one.part is part and (one.frame is frames[0] or one.frame not in frames)),
                 default=None)
        if at is None:  # another's hook failed before that of this call
            return
        ended = running[at].call
        del running[at:]
        if ended is not None and ended.is_named and ended.cache is None:
            for made in output.values() if isinstance(output, dict) else output if isinstance(output, tuple) else ():
                if hasattr(made, "get_seq_length"):
                    self.past[made] = ended.names

    def _forget(self) -> None:
        """Calls that Ctrl-C has ended, whose frames hold all that was there."""
        self.of_thread = threading.local()

    def _running(self) -> list[Running]:
        if not hasattr(self.of_thread, "running"):
            self.of_thread.running = []
        return self.of_thread.running

    def place(self, batch: int, rows: int, keys: int, rule, across: bool) -> tuple:
        """What a call of attention does with the tokens of the innermost call that runs, which ``rule``, the mask's, may say too.

        :returns: place of the first query in its sequence, and, None for unknown: ids of the keys [B, Tk]; which keys are
            tokens [B, Tk]; which queries are [B, Tq], None where all are
        """
        call, ids = self._innermost(), None
        tokens = call.tokens(batch, rows)
        real = None if rule is None or rule.keys is None or rule.keys.shape != (batch, keys) else rule.keys.numpy()
        if across:
            start = call.start(batch, rows)
        else:
            start = call.start(batch, rows, keys) if rule is None else rule.query_start
            ids = call.of_keys(self._names(call), start, batch, keys)
            real = call.of_keys(call.mask, start, batch, keys) if real is None else real
            if tokens is None and real is not None and start + rows <= keys:
                tokens = real[:, start:start + rows]  # of frames of sound, which are fewer than what the model's mask is for
        return start, ids, real, None if tokens is None or tokens.all() else tokens.copy()

    def _innermost(self) -> Forward:
        running = self._running()
        if running and running[-1].call is not None:
            return running[-1].call
        unknown = Forward({}, None)  # a layer is called by itself
        unknown.before = None
        return unknown

    def _names(self, call: Forward) -> np.ndarray | None:
        """[B, before + T]: ids of all tokens since the cache was empty; None where some of them were not seen."""
        if not call.is_named:
            call.is_named = True
            earlier = self.past.get(call.cache) if call.before else None
            if call.ids is None or call.before is None:
                call.names = None
            elif not call.before:
                call.names = call.ids.copy()
            elif earlier is not None and len(earlier) == len(call.ids) and earlier.shape[1] >= call.before:
                call.names = continued(earlier, call.before, call.ids)
            if call.cache is not None and call.before is not None:
                self.past[call.cache] = call.names
        return call.names


def continued(earlier: np.ndarray, before: int, ids: np.ndarray) -> np.ndarray:
    """The first ``before`` of ids, and more. Calls hold views of the same room, which doubles: a token at a time, n tokens
    take O(n) memory. What a call has seen stays as it is: ids that replace others go to a room of their own."""
    end = before + ids.shape[1]
    room = earlier if earlier.base is None else earlier.base
    if before < earlier.shape[1] or end > room.shape[1]:
        room = np.empty((len(ids), 2 * end), ids.dtype)
        room[:, :before] = earlier[:, :before]
    room[:, before:end] = ids
    return room[:, :end]


def matrix(x) -> np.ndarray | None:
    """A tensor of two axes; of a mask of floating numbers, whether they are 0."""
    if not hasattr(x, "detach") or x.dim() != 2:
        return None
    x = x.detach().cpu()
    return (x.bool() if x.is_floating_point() else x).numpy()
