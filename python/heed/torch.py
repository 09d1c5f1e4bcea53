"""heed inside PyTorch: attention with autograd, torch.compile, vmap and autocast, on CPU tensors.

::

    import heed.torch
    heed.torch.scaled_dot_product_attention(q, k, v, is_causal=True)     PyTorch's signature
    heed.torch.attention(q, k, v, causal=True, return_lse=True)          heed's own options and outputs
    with heed.torch.enabled(): ...                                       models that call PyTorch's function
"""

import contextlib
import math
import re
import threading
import warnings
from typing import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias, CausalVariant

from . import _core, _options
from ._arrays import Torch, refuse_masked
from ._attention import AttentionResult, RowStatistics, statistics_of
from ._options import ADD, LONE_SEED, Array, Mask, meaning_of, pack, pair_of_offsets, sides, workers
from ._torch_checks import (INTEGRAL, SDPA, autocast_type, integer, is_plain, is_wrapper, number, refusal_of, refusal_of_options,
                            refusal_of_tensor, truth, unrecorded, unwatched)
from ._torch_ops import called_forward, named_statistics, pointer

__all__ = ["attention", "scaled_dot_product_attention", "enabled"]


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """PyTorch's function of that name, argument for argument: softmax(scale * q k' + mask) v, in O(Tq + Tk) memory.

    ::

        query  [..., H,  Tq, D ]     float32, float64, float16 or bfloat16 (sums in float32), on the
        key    [..., Hk, Tk, D ]     CPU, any strides; at least 2 axes. Hk != H needs enable_gqa
        value  [..., Hk, Tk, Dv]
               [..., H,  Tq, Dv]     what is returned
        attn_mask                    boolean: True where a query may look; floating: added; broadcasts to [..., H, Tq, Tk]

    Gradients of query, key, value and of a floating mask. Under autocast, query, key and value get its type, as PyTorch
    does. A seed for dropout_p is drawn from PyTorch's generator; which weights are dropped differs from PyTorch.

    As in PyTorch, is_causal counts from the first query and the first key, and a query that may look nowhere gets 0 and
    gives no gradient. Otherwise than there, NaN or infinity in what is masked changes nothing, a NaN elsewhere is never
    lost, and attn_mask and is_causal may both be given: a query looks where both allow it.

    :raises TypeError, ValueError: naming the argument, what was expected and what was found
    """
    if isinstance(attn_mask, CausalBias):
        attn_mask, is_causal = meaning_of_bias(attn_mask, is_causal)
    refusal = refusal_of_options(query, dropout_p, is_causal, scale, enable_gqa)
    if refusal is None:
        refusal = refusal_of(query, key, value, attn_mask, enable_gqa)
    if refusal is not None:
        raise refusal
    if not (is_plain(scale) and is_plain(dropout_p)):
        scale, dropout_p = number(SDPA, "scale", scale), number(SDPA, "dropout_p", dropout_p)
    query, key, value = autocast(query, key, value)
    shape = query.shape
    if query.dim() != 4:
        attn_mask = four_axes_of_mask(attn_mask, shape)
        query, key, value = (four_axes(x) for x in (query, key, value))
    adds = attn_mask is not None and attn_mask.dtype is not torch.bool
    bias, keep = (attn_mask, None) if adds else (None, attn_mask)
    given = (query, key, value, attn_mask)
    if not dropout_p and unrecorded(*given) and unwatched(*given):
        output = Torch.empty_like(query, (*query.shape[:-1], value.shape[-1]))
        _core.attention_forward(pointer(query), pointer(key), pointer(value), pointer(output), None, None, None,
                                pack(scale, bias=pointer(bias), mask=pointer(keep), causal=is_causal),
                                torch.get_num_threads())
    else:
        seed = drawn_seed() if dropout_p else None
        output = called_forward((query, key, value, bias, keep, *[None] * 6, seed, None, None),
                                {"factor": scale, "causal": is_causal, "dropout_p": dropout_p})[0]
    return output if len(shape) == 4 else output.reshape(*shape[:-1], output.shape[-1])


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float | Array | None = None, normalize_qk: bool = False,
              softcap: float | None = None, alibi: Array | None = None, bias: Tensor | None = None,
              mask: Tensor | Mask | None = None, causal: bool = False, query_start: int | Array | None = None,
              window: tuple[int | None, int | None] | None = None, key_lengths: int | Array | None = None,
              query_lengths: int | Array | None = None, sinks: Array | None = None, dropout_p: float | None = None,
              seed: int | Tensor | None = None, packing: tuple[Array, Array] | None = None,
              return_weights: bool = False, return_lse: bool = False, statistics: bool | Iterable[str] = False,
              threads: int = 0, reproducible: bool = False) -> Array:
    """heed.attention on tensors, with autograd: softmax(scale * q k') v in O(Tq + Tk) memory. Options and results are those
    of heed.attention, but for out.

    ::

        q  [B, H,  Tq, D ]      or [B, Tq, D ], [Tq, D ]: all of one rank
        k  [B, Hk, Tk, D ]      query head h reads KV head h / (H / Hk)
        v  [B, Hk, Tk, Dv]
           [B, H,  Tq, Dv]      what is returned

    output and lse are differentiable in q, k, v, scale, alibi, bias (or a mask that adds) and sinks, in forward mode
    (torch.func.jvp) in q, k, v and bias; weights and statistics are not. Second derivatives are refused.

    :param seed: of dropout; None draws one from PyTorch's generator. A tensor counts by its 64 bits: -1 is that of 2^64 - 1
    :param packing: (query_offsets, key_offsets), tensors or lists of integers; rows of no sequence get 0 and give no gradient
    :param threads: 0: torch.get_num_threads(). No number changes a bit of any result
    :param reproducible: as in heed.attention; of the gradients too
    :raises TypeError, ValueError: as heed.attention does
    :raises NotImplementedError: for a second derivative, and for forward mode in scale, alibi or sinks
    """
    role, mask = meaning_of(mask, "attention")
    if mask is not None and (role == ADD or role == 0 and isinstance(mask, Tensor) and mask.is_floating_point()):
        if bias is not None:
            raise ValueError("attention: mask adds, and so does bias; expected one of them")
        bias, mask, role = mask, None, ADD
    return_weights, return_lse = truth("return_weights", return_weights), truth("return_lse", return_lse)
    causal, normalize_qk = truth("attention: causal", causal), truth("attention: normalize_qk", normalize_qk)
    several = isinstance(scale, (Tensor, list, tuple)) or (not is_plain(scale) and hasattr(scale, "__len__")
                                                           and getattr(scale, "ndim", 1) > 0)
    factor, scale = (None, scale) if several else (number("attention", "scale", scale), None)
    softcap, dropout_p = number("attention", "softcap", softcap), number("attention", "dropout_p", dropout_p)
    if seed is not None and dropout_p is None:
        raise ValueError(f"attention: {LONE_SEED}")
    dropout_p = 0.0 if dropout_p is None else dropout_p
    seed = None if seed is None else seed_tensor(seed)
    seed = None if not dropout_p else drawn_seed() if seed is None else seed
    bias_name = "mask" if role == ADD else "bias"
    tensors = {"q": q, "k": k, "v": v, "bias": bias, "mask": mask, "scale": tensor_of("scale", scale),
               "alibi": tensor_of("alibi", alibi), "sinks": tensor_of("sinks", sinks),
               "query_start": integers_of("query_start", query_start), "key_lengths": integers_of("key_lengths", key_lengths),
               "query_lengths": integers_of("query_lengths", query_lengths)}
    offsets = {f"packing.{name}": integers_of(f"packing.{name}", x)
               for name, x in zip(("query_offsets", "key_offsets"), pair_of_offsets(packing))}
    for name, x in (tensors | offsets).items():
        told = bias_name if name == "bias" else name
        if (x is not None or name in ("q", "k", "v")) and (refusal := refusal_of_tensor("attention", told, x)) is not None:
            raise refusal
    for name in "qkv":
        if tensors[name].dim() < 2:
            raise ValueError(f"attention: {name} has shape {tuple(tensors[name].shape)}; expected [T, D], [B, T, D] or [B, H, T, D]")
    tensors |= zip("qkv", autocast(q, k, v))
    left, right = sides("attention: window", window, integer)
    names = statistics_of("attention", statistics)
    bits = sum(1 << RowStatistics._fields.index(name) for name in set(names))
    options = dict(factor=factor, normalize_qk=normalize_qk, softcap=softcap, mask_role=role, causal=causal,
                   window_left=left, window_right=right, dropout_p=dropout_p, weights=return_weights, statistics=bits,
                   threads=workers(threads), reproducible=truth("reproducible", reproducible))
    output, lse, weights, reals, integers = called_forward((*tensors.values(), seed, *offsets.values()), options)
    if not (return_weights or return_lse or names):
        return output
    rows = RowStatistics(**named_statistics(reals, integers, bits)) if names else None
    return AttentionResult(output, weights if return_weights else None, lse if return_lse else None, rows)


@contextlib.contextmanager
def enabled():
    """Replaces torch.nn.functional.scaled_dot_product_attention by heed's, and puts it back, whatever happens.

    What heed cannot serve goes to PyTorch's function, and a warning says so once for each kind of reason, under
    torch.compile when the graph is made: other devices, types and kinds of tensors, shapes that broadcast, attn_mask with
    is_causal (PyTorch has its own answer there), numbers that heed refuses, such as scale=inf.

    The function is replaced in its module, so for all threads of the process; blocks may nest, and overlap in threads:
    the last one to end puts it back. A name bound before, by ``from torch.nn.functional import ...``, is not replaced.
    """
    with lock:
        if not patches or not patches[-1].users:
            patches[:] = [Patch()]
        patch = patches[-1]
        patch.users += 1
    try:
        yield
    finally:
        with lock:
            patch.users -= 1
            if not patch.users:
                patch.remove()


def in_order(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False) -> tuple:
    """All arguments of PyTorch's function, of those that a call gives."""
    return query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa


class Patch:
    """The function that stands in PyTorch's place, and the one it replaced."""

    def __init__(self):
        self.users = 0
        self.told = set()
        self.original = original = torch.nn.functional.scaled_dot_product_attention

        def scaled_dot_product_attention_by_heed(*arguments, **named):
            try:
                given = in_order(*arguments, **named)
            except TypeError:  # Python's words name in_order
                reason = "arguments that heed does not have"
            else:
                if isinstance(given[3], CausalBias):  # which asks for the function that stood here
                    query, key, value, bias, dropout_p, is_causal, scale, enable_gqa = given
                    mask, is_causal = meaning_of_bias(bias, is_causal)
                    given = query, key, value, mask, dropout_p, is_causal, scale, enable_gqa
                    arguments, named = given[:6], {"scale": scale, "enable_gqa": enable_gqa}
                reason = self.reason(*given)
                if reason is None:
                    return scaled_dot_product_attention(*given)
            if self.users:
                tell(reason)
            return original(*arguments, **named)

        self.replacement = torch.nn.functional.scaled_dot_product_attention = scaled_dot_product_attention_by_heed

    def reason(self, query, key, value, mask, dropout_p, is_causal, scale, enable_gqa) -> str | None:
        """Why PyTorch has to compute it, or None."""
        if not self.users:
            return "the block has ended"
        if mask is not None and is_causal:
            return "attn_mask and is_causal are both given"
        if any(is_wrapper(x) for x in (query, key, value, mask)):
            return "a subclass of torch.Tensor that stands for other tensors"
        what, refusal = "an option", refusal_of_options(query, dropout_p, is_causal, scale, enable_gqa)
        if refusal is None:
            refusal = refusal_of(query, key, value, mask, enable_gqa)
            what = "an element type" if isinstance(refusal, TypeError) else "a shape, device or layout"
        if refusal is None:
            return None
        if torch.compiler.is_compiling():  # its shapes may be symbols, which have no text
            return f"{what} that heed does not serve (uncompiled, this call says which)"
        return str(refusal)

    def remove(self):
        """What somebody put on top meanwhile stays, and reaches PyTorch's function through the replacement."""
        if torch.nn.functional.scaled_dot_product_attention is self.replacement:
            torch.nn.functional.scaled_dot_product_attention = self.original


@torch.compiler.assume_constant_result  # compiled code warns when it is made: this call is no part of its graph
def tell(reason: str) -> bool:
    """Warns once in a block for each kind of reason: for all shapes of a message together."""
    kind = re.sub(r"(?<![\w.])\(?\d[\d., ]*(e[+-]\d+)?\)?", "", reason)
    told = patches[-1].told if patches else set()
    if kind not in told:
        told.add(kind)
        warnings.warn(f"heed.torch.enabled: PyTorch computes this call: {reason}", stacklevel=3)
    return True


def meaning_of_bias(bias: CausalBias, is_causal) -> tuple:
    """(attn_mask, is_causal) of a mask that acts by PyTorch's own function alone: its memory holds nothing.

    :raises ValueError: is_causal is given, too
    """
    if is_causal:
        raise ValueError(f"{SDPA}: attn_mask is a CausalBias and is_causal is True; expected one of them")
    more = bias.seq_len_kv - bias.seq_len_q
    if more == 0 or bias.variant == CausalVariant.UPPER_LEFT:
        return None, True
    return torch.ones(bias.seq_len_q, bias.seq_len_kv, dtype=torch.bool, device="cpu").tril(more), False


lock = threading.Lock()
patches: list[Patch] = []


def autocast(*tensors):
    """As PyTorch's own under autocast."""
    return tuple(x.to(autocast_type(x)) for x in tensors) if torch.is_autocast_enabled("cpu") else tensors


def four_axes(x):
    """[B, H, T, D]"""
    return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:]) if x.dim() > 4 else x[(None,) * (4 - x.dim())]


def four_axes_of_mask(mask, query_shape):
    """One that broadcasts to [B, H, Tq, Tk]: it does already, unless it has batch axes that become one."""
    if mask is None or mask.dim() <= 3 or len(query_shape) <= 4:
        return mask
    lead = query_shape[:-3]
    whole = mask[(None,) * (len(query_shape) - mask.dim())].expand(*lead, -1, -1, -1)
    return whole.reshape(math.prod(lead), *mask.shape[-3:])


def tensor_of(name, numbers):
    """Numbers or a list of them as a tensor; tensors and None as they are."""
    if numbers is None or isinstance(numbers, Tensor):
        return numbers
    refuse_masked(f"attention: {name}", numbers)
    if isinstance(numbers, (list, tuple)):
        numbers = [number("attention", f"{name}[{i}]", one) for i, one in enumerate(numbers)]
    return made_of(name, numbers, torch.float64, "a torch.Tensor or a list of numbers")


def integers_of(name, numbers):
    """An integer or a list of them as a tensor; tensors and None as they are, for heed to check."""
    if numbers is None or isinstance(numbers, Tensor):
        return numbers
    refuse_masked(f"attention: {name}", numbers)
    if isinstance(numbers, (int, torch.SymInt)) or not hasattr(numbers, "__len__"):
        return one_integer(integer("attention", name, numbers))
    if isinstance(numbers, (list, tuple)):
        numbers = [integer("attention", f"{name}[{i}]", one) for i, one in enumerate(numbers)]
        if numbers and (torch.compiler.is_compiling() or any(isinstance(one, torch.SymInt) for one in numbers)):
            return torch.stack([one_integer(one) for one in numbers])
    made = made_of(name, numbers, torch.int64 if isinstance(numbers, list) else None,
                   "an integer, a torch.Tensor or a list of integers")
    if made.dtype not in INTEGRAL:
        raise TypeError(f"attention: {name} is an array of {made.dtype}; expected integers")
    if made.dtype is torch.uint64:  # which int64 may not hold
        raise TypeError(f"attention: {name} is an array of torch.uint64; expected int64, or a type that it holds")
    return made.to(torch.int64)


def one_integer(value) -> Tensor:
    """Of a symbol too, which torch.tensor makes a constant of."""
    return torch.full((), value, dtype=torch.int64, device="cpu")  # whatever the default device


def made_of(name, numbers, dtype, expected) -> Tensor:
    """A tensor, of what PyTorch can make one of. Of a NumPy array the tensor's type is asked: torch.compile knows no other."""
    try:
        if not isinstance(numbers, bool):
            if not torch.compiler.is_compiling() and isinstance(numbers, np.ndarray):
                numbers = np.array(numbers, numbers.dtype.newbyteorder("="))  # PyTorch takes no other, nor negative strides
            wanted = dtype if isinstance(numbers, (list, int, float)) else None
            made = torch.as_tensor(numbers, dtype=wanted, device="cpu")
            if made.dtype != torch.bool and not made.is_complex():
                return made if dtype is None else made.to(dtype)
    except (TypeError, ValueError, RuntimeError):  # PyTorch's words have no name
        pass
    kind = _options.kind_of_number(numbers)
    raise TypeError(f"attention: {name} is of type {kind}; expected {expected}")


def drawn_seed():
    """64 bits of PyTorch's generator, as a tensor, for which torch.compile has a place in its graph."""
    return torch.randint(-2**63, 2**63 - 1, (), dtype=torch.int64, device="cpu")


def seed_tensor(seed):
    if isinstance(seed, Tensor):
        if seed.dim() or seed.dtype not in INTEGRAL:
            raise TypeError(f"attention: seed has shape {tuple(seed.shape)} and is {seed.dtype}; expected an integer")
        return seed
    seed = integer("attention", "seed", seed, 0, 2**64 - 1)
    beyond = not isinstance(seed, torch.SymInt) and seed >= 2**63  # no size is
    return one_integer(seed - 2**64 if beyond else seed)
