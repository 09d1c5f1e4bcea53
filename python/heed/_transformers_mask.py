"""Masks for transformers that say what they mean in O(T) memory, and are the matrix for whoever looks at them."""

from typing import NamedTuple

import torch
import transformers
from torch import Tensor
from transformers import masking_utils
from transformers.masking_utils import sdpa_mask


class Rule(NamedTuple):
    """A query looks at the keys that causal, window and padding all allow: the words that heed.attention has for it."""

    causal: bool | None  #: None where heed has no words for what the mask allows
    window: tuple[int | None, int | None] | None
    query_start: int  #: position of the first query, counted from the first key
    keys: Tensor | None  #: [B, Tk], True for tokens, False for padding; None: all are tokens
    key_lengths: Tensor | None  #: [B], where padding stands at the end only

    def options(self) -> dict:
        """For heed.torch.attention."""
        padded = self.keys is not None and self.key_lengths is None
        return {"causal": self.causal, "window": self.window, "query_start": self.query_start or None,
                "key_lengths": self.key_lengths, "mask": self.keys[:, None, None] if padded else None}


class RuleMask(Tensor):
    """A boolean mask [B, 1, Tq, Tk], True where a query may look, that is kept as a Rule.

    Whatever else is done to it (a slice, a sum, a print) is done to the matrix, which transformers' own sdpa_mask makes
    then, and which is kept: a model that writes into its mask gets what it would have got, and there is no rule any more.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, rule, arguments):
        shape = (arguments["batch_size"], 1, arguments["q_length"], arguments["kv_length"])
        return Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=arguments["device"])

    def __init__(self, rule, arguments):
        self.rule = rule
        self.arguments = arguments
        self.matrix: Tensor | None = None  #: what was looked at, and how it was then
        self.copy: Tensor | None = None

    def is_changed(self) -> bool:
        """Somebody has written into the matrix, itself or a view of it."""
        return self.matrix is not None and not torch.equal(self.matrix, self.copy)

    def fits(self, query, key) -> bool:
        """Whether the rule is one for these queries and keys."""
        return not self.is_changed() and self.shape[2:] == (query.shape[2], key.shape[2]) and self.shape[0] == query.shape[0]

    def dense(self) -> Tensor:
        if self.matrix is None:
            self.matrix = sdpa_mask(**self.arguments, allow_is_causal_skip=False)
            self.copy = self.matrix.clone()  # versions of tensors do not count what is written beneath a subclass
        return self.matrix

    def numpy(self, *arguments, **named):
        return self.dense().numpy(*arguments, **named)

    def tolist(self):
        return self.dense().tolist()

    def __deepcopy__(self, memory):
        return self.dense().clone() if self.is_changed() else type(self)(self.rule, self.arguments)

    def __repr__(self):
        return f"RuleMask{tuple(self.shape)}({self.rule})"

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        def matrix(x):
            return x.dense() if isinstance(x, cls) else x
        return function(*torch.utils._pytree.tree_map(matrix, arguments),
                        **torch.utils._pytree.tree_map(matrix, options or {}))


def mask_for_heed(batch_size, q_length, kv_length, q_offset=0, kv_offset=0,
                  mask_function=masking_utils.causal_mask_function, attention_mask=None, use_vmap=False, device="cpu",
                  **rest):
    """transformers' mask function for "heed": a rule in O(T) memory where heed has words for the mask, else what transformers'
    sdpa_mask makes, a boolean matrix [B, 1, Tq, Tk]. Arguments are those of sdpa_mask."""
    arguments = dict(batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset,
                     kv_offset=kv_offset, mask_function=mask_function, attention_mask=attention_mask,
                     use_vmap=use_vmap, device=device)
    if use_vmap or watched(attention_mask, q_offset):
        return sdpa_mask(**arguments, **rest)
    # A static cache counts in place, before a layer looks at the mask.
    q_offset, kv_offset = int(q_offset), int(kv_offset)
    arguments |= {"q_offset": q_offset, "kv_offset": kv_offset}
    keys = None
    if attention_mask is not None:
        keys = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        keys = keys[:, kv_offset:kv_offset + kv_length].bool()
        if keys.shape[0] != batch_size:
            keys = keys.expand(batch_size, -1)
        keys = None if bool(keys.all()) else keys
    looks = rule_of(mask_function)
    rule = Rule(*(looks or (None, None)), q_offset - kv_offset, keys, lengths_of(keys))
    if looks:
        return RuleMask(rule, arguments)
    mask = sdpa_mask(**arguments, **rest)
    if mask is not None:
        mask.rule = rule  # its padding and place, for heed.record
    return mask


def watched(*values) -> bool:
    """A trace has to see the matrix made."""
    return (torch.compiler.is_compiling() or torch.jit.is_tracing()
            or torch._C._functorch.peek_interpreter_stack() is not None or torch._C._len_torch_dispatch_stack() > 0
            or any(isinstance(x, Tensor) and type(x) is not Tensor for x in values))


def lengths_of(keys):
    """[B]: tokens of each entry, if no padding stands before one."""
    if keys is None:
        return None
    lengths = keys.sum(-1)
    ends = torch.arange(keys.shape[-1], device=keys.device) < lengths[:, None]
    return lengths if torch.equal(ends, keys) else None


def rule_of(function):
    """(causal, window) of one of transformers' mask functions; None for those that heed has no words for.

    They are known by their names, and by what register() has seen them answer.
    """
    if getattr(function, "__module__", None) != masking_utils.__name__:
        return None
    inside = dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in function.__closure__ or ())))
    match function.__qualname__.split(".")[0]:
        case "causal_mask_function":
            return True, None
        case "bidirectional_mask_function":
            return False, None
        case "sliding_window_overlay" if isinstance(size := inside.get("sliding_window"), int):
            return False, (size - 1, None)
        case "sliding_window_bidirectional_overlay" if isinstance(size := inside.get("sliding_window"), int):
            return False, (size, size)
        case "and_masks":
            parts = [rule_of(part) for part in inside.get("mask_functions", ())]
            windows = [part[1] for part in parts if part and part[1]]
            if not parts or None in parts or len(windows) > 1:
                return None
            return any(part[0] for part in parts), windows[0] if windows else None
    return None


def check_rules() -> None:
    """That transformers' functions still answer as heed understands them.

    :raises ImportError: they do not; this version of transformers needs another heed
    """
    functions = (masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function,
                 masking_utils.sliding_window_causal_mask_function(3),
                 masking_utils.sliding_window_bidirectional_mask_function(2))
    queries, keys = (torch.arange(count, device="cpu") for count in (7, 11))
    queries, first = queries[:, None] + 4, torch.zeros((), dtype=torch.int64, device="cpu")
    for function in functions:
        causal, window = rule_of(function) or (None, None)
        left, right = window or (None, None)
        if causal is None:
            raise ImportError(complaint(function))
        expected = (keys <= queries) | (not causal)
        if left is not None:
            expected &= keys >= queries - left
        if right is not None:
            expected &= keys <= queries + right
        seen = function(first, first, queries, keys).expand(7, 11)
        if not torch.equal(seen, expected):
            raise ImportError(complaint(function))


def complaint(function) -> str:
    return (f"heed.transformers: the mask function {function.__qualname__} of transformers {transformers.__version__} is "
            "not what heed takes it for; expected transformers 5")
