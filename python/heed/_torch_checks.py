"""Which arguments heed.torch serves, and what it says of the others; and who watches a call."""

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.nn.attention.bias import CausalBias
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import _options

FLOATING = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16"}
INTEGRAL = {torch.uint8: "uint8", torch.int8: "int8", torch.uint16: "uint16", torch.int16: "int16",
            torch.uint32: "uint32", torch.int32: "int32", torch.uint64: "uint64", torch.int64: "int64"}
NAMES = FLOATING | INTEGRAL | {torch.bool: "bool"}
SDPA = "scaled_dot_product_attention"
LARGEST_SCALES = {"float32": float.fromhex("0x1.62e42ep+127"), "float64": float.fromhex("0x1.62e42fefa39eep+1023")}
"""By the type of the scores: times log2(e) they are finite still. As C++ has it, but torch.compile can look at it here."""


def refusal_of_tensor(function, name, x) -> Exception | None:
    """Why no function of heed can read it."""
    if not isinstance(x, Tensor):
        return TypeError(f"{function}: {name} is of type {type(x).__qualname__}; expected a torch.Tensor")
    if isinstance(x, CausalBias):
        return TypeError(f"{function}: {name} is of type CausalBias, which holds no numbers; {_options.NO_CAUSAL_BIAS}")
    if x.device.type != "cpu":
        return ValueError(f"{function}: {name} is on device {x.device}; expected cpu")
    if x.layout is not torch.strided or x.is_nested:
        layout = "nested" if x.is_nested else x.layout
        return ValueError(f"{function}: {name} has layout {layout}; expected torch.strided")
    if name in ("q", "k", "v", "query", "key", "value") and x.dtype not in FLOATING:
        return TypeError(f"{function}: {name} is {x.dtype}; expected float32, float64, float16 or bfloat16")
    if x.dtype not in NAMES:
        return TypeError(f"{function}: {name} is {x.dtype}; expected real numbers of up to 64 bits, or booleans")
    return None


def is_wrapper(x) -> bool:
    """A tensor that stands for others, such as a DTensor, and may know PyTorch's operators alone."""
    return type(x) not in (Tensor, torch.nn.Parameter) and is_traceable_wrapper_subclass(x)


def refusal_of(query, key, value, mask, enable_gqa) -> Exception | None:
    """Why scaled_dot_product_attention cannot serve such tensors."""
    if mask is None and type(query) is type(key) is type(value) is Tensor and (
            query.is_cpu and key.is_cpu and value.is_cpu and query.layout is key.layout is value.layout is torch.strided
            and query.dtype is key.dtype is value.dtype and query.dtype in FLOATING
            and not (query.is_nested or key.is_nested or value.is_nested) and query.dim() >= 2
            and query.shape[-1] and query.shape == key.shape == value.shape):
        return None  # the commonest case, in a third of the time
    function = SDPA
    for name, x in (("query", query), ("key", key), ("value", value), ("attn_mask", mask)):
        if x is not None or name != "attn_mask":
            if (refusal := refusal_of_tensor(function, name, x)) is not None:
                return refusal
    q, k, v = query.shape, key.shape, value.shape
    if not autocast_type(key) == autocast_type(value) == autocast_type(query):
        return TypeError(f"{function}: query is {query.dtype}, key {key.dtype}, value {value.dtype}; expected one type")
    if not 2 <= len(q) == len(k) == len(v):
        return ValueError(f"{function}: query has {len(q)} axes, key {len(k)}, value {len(v)}; expected equal numbers, "
                          "at least 2")
    if k[:-1] != v[:-1]:
        return ValueError(f"{function}: value has shape {tuple(v)}, key {tuple(k)}; expected the same but for the last "
                          "axis")
    if q[-1] != k[-1]:
        return ValueError(f"{function}: key has head size {k[-1]}, query {q[-1]}; expected equal ones")
    if q[-1] == 0:
        return ValueError(f"{function}: query has head size 0; expected at least 1")
    if q[:-2] != k[:-2]:
        grouped = enable_gqa and len(q) > 2 and q[:-3] == k[:-3] and k[-3] and q[-3] % k[-3] == 0
        if not grouped:
            return ValueError(f"{function}: key has shape {tuple(k)}, query {tuple(q)}; expected the same batch and heads, "
                              "or with enable_gqa=True heads that divide the query's")
    if mask is not None:
        if mask.dtype not in FLOATING and mask.dtype is not torch.bool:
            return TypeError(f"{function}: attn_mask is {mask.dtype}; expected bool or a floating type")
        full = (*q[:-1], k[-2])
        if mask.dim() > len(full) or any(m not in (1, n) for m, n in zip(mask.shape[::-1], full[::-1])):
            return ValueError(f"{function}: attn_mask has shape {tuple(mask.shape)}; expected one that broadcasts to "
                              f"{full}")
    return None


def autocast_type(x):
    """The type in which PyTorch's own function would compute it: autocast leaves float64 as it is."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") and x.dtype is not torch.float64 else x.dtype


def refusal_of_options(query, dropout_p, is_causal, scale, enable_gqa) -> Exception | None:
    """Why scaled_dot_product_attention cannot serve such options."""
    if scale is None and type(dropout_p) is float and dropout_p == 0 and type(is_causal) is type(enable_gqa) is bool:
        return None  # the commonest case
    try:
        for name, x in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
            truth(f"{SDPA}: {name}", x)
        factor, p = number(SDPA, "scale", scale), number(SDPA, "dropout_p", dropout_p)
    except (TypeError, ValueError) as error:
        return error
    scores = "float64" if getattr(query, "dtype", None) is torch.float64 else "float32"
    if factor is not None and not abs(factor) <= LARGEST_SCALES[scores]:
        return ValueError(f"{SDPA}: scale is {factor}; expected a number that is finite as {scores}, also times log2(e)")
    if p is None:
        return TypeError(f"{SDPA}: dropout_p is of type NoneType; expected a number")
    if not 0 <= p < 1 - 2**-17:
        return ValueError(f"{SDPA}: dropout_p is {p}; expected 0 <= p < 1, and 1 - p above 2^-17")
    return None


def truth(name, value) -> bool:
    """As of _options; torch.compile and torch.export have symbols for what sizes decide, torch.jit.trace has tensors."""
    if type(value) is bool or isinstance(value, torch.SymBool) or isinstance(value, Tensor) and torch.jit.is_tracing():
        return bool(value)
    return _options.truth(name, value)


def is_plain(value) -> bool:
    """No array. A number may be a symbol of torch.compile, which has no attributes to ask for."""
    return value is None or type(value) in (float, int, bool, str) or isinstance(value, (torch.SymFloat, torch.SymInt))


def number(function, name, value):
    """A number, or None."""
    if value is None or type(value) is float or isinstance(value, torch.SymFloat):
        return value
    if isinstance(value, torch.SymInt) or type(value) is int and torch.compiler.is_compiling():
        return torch.sym_float(value)
    return _options.number(function, name, of_tensor(function, name, value) if isinstance(value, Tensor) else value)


def integer(function, name, value, least=-2**63, most=2**63 - 1):
    """An integer. What sizes decide stays a symbol, which 64 bits hold: to ask whether they do would bound the sizes."""
    if isinstance(value, torch.SymInt) and (least == -2**63 or value >= least):
        return value
    return _options.integer(function, name, value, least, most)


@torch.compiler.disable  # it looks at the tensor's number anyway
def of_tensor(function, name, tensor):
    """The tensor's number; what autograd or forward mode has to learn of it would be lost."""
    if (lost := derivative_of(tensor)) is not None:
        raise ValueError(f"{function}: {name} {lost}, and heed.torch has none for it; expected a number, or {name}.detach()")
    return tensor.item() if tensor.numel() == 1 else tensor


def derivative_of(tensor) -> str | None:
    """Why it is no constant, of any of torch.func's transforms around this call."""
    if not unrecorded(tensor):
        return "requires a gradient"
    if torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None:
        return "has a tangent of forward mode"
    innermost = functorch.peek_interpreter_stack()
    if innermost is None:
        return None
    if functorch.maybe_get_level(tensor) == innermost.level():
        tensor = functorch.get_unwrapped(tensor)
    with temporarily_pop_interpreter_stack():
        return derivative_of(tensor)


def readable(*tensors) -> bool:
    """Their memory is the CPU's, and of types that heed has: an address may be handed over. What is not has words elsewhere."""
    return all(x is None or refusal_of_tensor("", "", x) is None for x in tensors)


def unwatched(*tensors) -> bool:
    """Nothing of PyTorch but autograd has to learn of the call: no trace, transform, mode or subclass. Then the operator's
    way through PyTorch's dispatcher can be left out."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.autograd.forward_ad._current_level >= 0:
        return False
    if torch._C._len_torch_dispatch_stack() or functorch.peek_interpreter_stack() is not None:
        return False
    return all(x is None or type(x) in (Tensor, torch.nn.Parameter) and not (x.is_neg() or x._is_zerotensor())
               for x in tensors)


def unrecorded(*tensors) -> bool:
    """Autograd has nothing to record."""
    return not torch.is_grad_enabled() or not any(x is not None and x.requires_grad for x in tensors)
