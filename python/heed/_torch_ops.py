"""The operators of heed.torch: heed::attention_forward, heed::attention_backward and heed::attention_jvp, over pointers.

Tensors are positional, all else is by name, so that autograd saves the one and keeps the other. An operator's results
have fixed number: what is not wanted has no elements.
"""

import torch
from torch import Tensor

from . import _core
from ._core import _POINTER as POINTER
from ._arrays import Torch
from ._attention import COUNTS, RowStatistics, fill_rows_of_no_sequence
from ._options import ADD, pack
from ._torch_checks import NAMES, unrecorded, unwatched

TENSORS = ("q", "k", "v", "bias", "mask", "scale", "alibi", "sinks", "query_start", "key_lengths", "query_lengths",
           "seed", "query_offsets", "key_offsets")


def pointer(tensor):
    """What heed._core takes for a tensor; it checks shapes and types, and holds nothing."""
    if tensor is None:
        return None
    return tensor.data_ptr(), NAMES[tensor.dtype], tensor.shape, tensor.stride(), POINTER


def each(tensor):
    """One number, or one for each head or batch entry."""
    return tensor.item() if tensor is not None and tensor.dim() == 0 else pointer(tensor)


def fields_of(statistics: int) -> list[str]:
    """The fields of RowStatistics whose bits are set."""
    return [name for bit, name in enumerate(RowStatistics._fields) if statistics >> bit & 1]


def packed(bias, mask, scale, alibi, sinks, query_start, key_lengths, query_lengths, seed, query_offsets, key_offsets,
           factor, normalize_qk, softcap, mask_role, causal, window_left, window_right, dropout_p, reproducible) -> tuple:
    """What heed._core takes of an operator's arguments."""
    packing = None if query_offsets is None and key_offsets is None else (pointer(query_offsets), pointer(key_offsets))
    adds = mask_role == ADD  # a mask that adds is called mask in errors
    return pack(each(scale) if factor is None else factor, normalize_qk, softcap, pointer(alibi),
                None if adds else pointer(bias), pointer(bias if adds else mask), causal, each(query_start),
                (window_left, window_right), each(key_lengths), each(query_lengths), pointer(sinks), dropout_p,
                None if seed is None else seed.item() % 2**64, reproducible, packing, mask_role)


def rooms(q, k, v, weights, statistics):
    """Where the results go: output, lse, weights, the statistics that are real, those that are counts."""
    rows, names = q.shape[:-1], fields_of(statistics)
    counts = sum(name in COUNTS for name in names)
    return (Torch.empty_like(q, (*rows, v.shape[-1])), Torch.empty(q, rows),
            Torch.empty(q, (*rows, k.shape[-2]) if weights else (0,)), Torch.empty(q, (len(names) - counts, *rows)),
            Torch.empty(q, (counts, *rows), integer=True))


def named_statistics(reals, integers, statistics) -> dict:
    """The statistics by name: views."""
    names = fields_of(statistics)
    by_name = dict(zip((name for name in names if name not in COUNTS), reals.unbind()))
    return by_name | dict(zip((name for name in names if name in COUNTS), integers.unbind()))


def forward_kernel(
        q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None, scale: Tensor | None,
        alibi: Tensor | None, sinks: Tensor | None, query_start: Tensor | None, key_lengths: Tensor | None,
        query_lengths: Tensor | None, seed: Tensor | None, query_offsets: Tensor | None, key_offsets: Tensor | None, *,
        factor: float | None = None, normalize_qk: bool = False, softcap: float | None = None, mask_role: int = 0,
        causal: bool = False, window_left: int | None = None, window_right: int | None = None, dropout_p: float = 0.0,
        weights: bool = False, statistics: int = 0, threads: int = 0,
        reproducible: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    made = rooms(q, k, v, weights, statistics)
    by_name = named_statistics(*made[3:], statistics)
    if query_offsets is not None:
        made[0].zero_()  # the compiled part leaves rows of no sequence as they are
        fill_rows_of_no_sequence(made[1], [by_name.get(name) for name in RowStatistics._fields])
    _core.attention_forward(
        pointer(q), pointer(k), pointer(v), pointer(made[0]), pointer(made[1]), pointer(made[2]) if weights else None,
        [pointer(by_name.get(name)) for name in RowStatistics._fields] if statistics else None,
        packed(bias, mask, scale, alibi, sinks, query_start, key_lengths, query_lengths, seed, query_offsets, key_offsets,
               factor, normalize_qk, softcap, mask_role, causal, window_left, window_right, dropout_p, reproducible),
        threads or torch.get_num_threads())
    return made


attention_forward = torch.library.custom_op("heed::attention_forward", forward_kernel, mutates_args=(), device_types="cpu")


@attention_forward.register_fake
def _(q, k, v, *_, weights=False, statistics=0, **__):
    return rooms(q, k, v, weights, statistics)


GRADIENTS = ("q", "k", "v", "scale", "alibi", "bias", "sinks")  # in the order of heed.Gradients


def gradient_rooms(wanted, q, k, v, bias):
    """Where the gradients go; no elements for those that are not wanted."""
    heads = (q.shape[1] if q.dim() == 4 else 1,)
    shapes = [heads, heads, () if bias is None else bias.shape, heads]
    made = [Torch.empty_like(x, x.shape) if want else x.new_empty(0) for want, x in zip(wanted, (q, k, v))]
    return (*made, *(Torch.empty(q, shape if want else (0,)) for want, shape in zip(wanted[3:], shapes)))


@torch.library.custom_op("heed::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward(
        d_output: Tensor, output: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
        mask: Tensor | None, scale: Tensor | None, alibi: Tensor | None, sinks: Tensor | None,
        query_start: Tensor | None, key_lengths: Tensor | None, query_lengths: Tensor | None, seed: Tensor | None,
        query_offsets: Tensor | None, key_offsets: Tensor | None, *, wanted: list[bool],
        factor: float | None = None, normalize_qk: bool = False, softcap: float | None = None, mask_role: int = 0,
        causal: bool = False, window_left: int | None = None, window_right: int | None = None, dropout_p: float = 0.0,
        threads: int = 0, reproducible: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    made = gradient_rooms(wanted, q, k, v, bias)
    if query_offsets is not None:
        for gradient in made:
            gradient.zero_()
    _core.attention_backward(
        pointer(q), pointer(k), pointer(v), pointer(output), pointer(lse), pointer(d_output),
        tuple(pointer(x) if want else None for want, x in zip(wanted, made)),
        packed(bias, mask, scale, alibi, sinks, query_start, key_lengths, query_lengths, seed, query_offsets, key_offsets,
               factor, normalize_qk, softcap, mask_role, causal, window_left, window_right, dropout_p, reproducible),
        threads or torch.get_num_threads())
    return made


@attention_backward.register_fake
def _(d_output, output, lse, q, k, v, bias, *_, wanted, **__):
    return gradient_rooms(wanted, q, k, v, bias)


@torch.library.custom_op("heed::attention_jvp", mutates_args=(), device_types="cpu")
def attention_jvp(
        tangent_q: Tensor | None, tangent_k: Tensor | None, tangent_v: Tensor | None, tangent_bias: Tensor | None,
        output: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None,
        scale: Tensor | None, alibi: Tensor | None, sinks: Tensor | None, query_start: Tensor | None,
        key_lengths: Tensor | None, query_lengths: Tensor | None, seed: Tensor | None, query_offsets: Tensor | None,
        key_offsets: Tensor | None, *, factor: float | None = None, normalize_qk: bool = False,
        softcap: float | None = None, mask_role: int = 0, causal: bool = False, window_left: int | None = None,
        window_right: int | None = None, dropout_p: float = 0.0, threads: int = 0,
        reproducible: bool = False) -> tuple[Tensor, Tensor]:
    made = torch.empty_like(output), torch.empty_like(lse)
    if query_offsets is not None:
        for moved in made:
            moved.zero_()
    _core.attention_jvp(
        pointer(q), pointer(k), pointer(v), pointer(output), pointer(lse),
        tuple(pointer(x) for x in (tangent_q, tangent_k, tangent_v, tangent_bias)), pointer(made[0]), pointer(made[1]),
        packed(bias, mask, scale, alibi, sinks, query_start, key_lengths, query_lengths, seed, query_offsets, key_offsets,
               factor, normalize_qk, softcap, mask_role, causal, window_left, window_right, dropout_p, reproducible),
        threads or torch.get_num_threads())
    return made


@attention_jvp.register_fake
def _(tangent_q, tangent_k, tangent_v, tangent_bias, output, lse, *_, **__):
    return torch.empty_like(output), torch.empty_like(lse)


def setup_context(ctx, inputs, keyword_only_inputs, output):
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(*inputs, *output[:2])
    ctx.options = {name: value for name, value in keyword_only_inputs.items() if name not in ("weights", "statistics")}


def with_lse(d_output, d_lse, output, q, k, v):
    """A gradient of lse too, as one more column of the output.

    d lse_i / d s_ij = p_ij, so dS = P (dP - D + dlse). With V = [V, 0], O = [O, -dlse], dO = [dO, 1] the backward pass
    finds the same dP, and D = sum dO O - dlse. In float32 at least: O's column is no rounded number.
    """
    wide = torch.promote_types(q.dtype, torch.float32)
    column = (*output.shape[:-1], 1)
    return (torch.cat([d_output.to(wide), d_output.new_ones(column, dtype=wide)], -1),
            torch.cat([output.to(wide), -d_lse.to(wide).unsqueeze(-1)], -1), q.to(wide), k.to(wide),
            torch.cat([v.to(wide), v.new_zeros((*v.shape[:-1], 1), dtype=wide)], -1))


def backward(ctx, d_output, d_lse, *_):
    if d_output is None and d_lse is None:
        return (None,) * len(TENSORS)
    *inputs, output, lse = ctx.saved_tensors
    given = dict(zip(TENSORS, inputs))
    needed = dict(zip(TENSORS, ctx.needs_input_grad))
    if d_output is None:
        d_output = torch.zeros_like(output)
    q, k, v = inputs[:3]
    if d_lse is not None:
        d_output, output, q, k, v = with_lse(d_output, d_lse, output, q, k, v)
    options = ctx.options | {"wanted": [needed[name] for name in GRADIENTS]}
    made = called(attention_backward, BackwardInFunc, (d_output, output, lse, q, k, v, *inputs[3:]), options)
    gradients = dict(zip(GRADIENTS, made))
    if d_lse is not None and needed["v"]:
        gradients["v"] = gradients["v"][..., :-1]
    return tuple(shaped_as(given[name], gradients[name]) if needed[name] and name in gradients else None
                 for name in TENSORS)


def shaped_as(parameter, gradient):
    """One number for all heads gets the sum of theirs; rounded to the parameter's type."""
    if gradient.shape != parameter.shape:
        gradient = gradient.sum() if parameter.dim() == 0 else gradient.sum(0, keepdim=True)
    return gradient.to(parameter.dtype)


def one_by_one(operator):
    """vmap as a loop over its axis: each call is made of many pieces of work already. An axis without elements has one made
    up, for the shapes of its results."""
    def rule(info, in_dims, *tensors, **options):
        moved = [x if dim is None else x.movedim(dim, 0) for x, dim in zip(tensors, in_dims)]
        if not info.batch_size:
            moved = [x if dim is None else x.new_zeros(1, *x.shape[1:]) for x, dim in zip(moved, in_dims)]
        calls = [operator(*(x if dim is None else x[i] for x, dim in zip(moved, in_dims)), **options)
                 for i in range(max(1, info.batch_size))]
        return tuple(torch.stack(made)[:info.batch_size] for made in zip(*calls)), (0,) * len(calls[0])
    return rule


class Named:
    """What an operator takes by name: one thing to torch.func, which would see the entries of a dictionary as inputs."""

    def __init__(self, options):
        self.options = options


class ForwardInFunc(torch.autograd.Function):
    """The operator for torch.func's transforms, which do not know how operators differentiate."""

    @staticmethod
    def vmap(*arguments):
        return one_by_one(ForwardInFunc.apply)(*arguments)

    @staticmethod
    def forward(*arguments):
        return attention_forward(*arguments[:-1], **arguments[-1].options)

    @staticmethod
    def setup_context(ctx, inputs, output):
        setup_context(ctx, inputs[:-1], inputs[-1].options, output)
        ctx.save_for_forward(*inputs[:-1], *output[:2])

    @staticmethod
    def backward(ctx, *gradients):
        return *backward(ctx, *gradients), None

    @staticmethod
    def jvp(ctx, *tangents):
        moved = dict(zip(TENSORS, tangents))
        for name in ("scale", "alibi", "sinks"):
            if moved[name] is not None:
                raise NotImplementedError(f"heed.torch has no forward mode for {name}; expected tangents of q, k, v and bias "
                                          "alone")
        *inputs, output, lse = ctx.saved_tensors
        made = called(attention_jvp, JvpInFunc,
                      (*(moved[name] for name in ("q", "k", "v", "bias")), output, lse, *inputs), ctx.options)
        return *made, None, None, None


def no_second_derivatives(ctx, *_):
    raise NotImplementedError("heed.torch has no second derivatives")


def final_in_func(operator):
    """An operator for torch.func's transforms that nobody may differentiate once more."""
    class FinalInFunc(torch.autograd.Function):
        @staticmethod
        def vmap(*arguments):
            return one_by_one(FinalInFunc.apply)(*arguments)

        @staticmethod
        def forward(*arguments):
            return operator(*arguments[:-1], **arguments[-1].options)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        backward = staticmethod(no_second_derivatives)
        jvp = staticmethod(no_second_derivatives)

    return FinalInFunc


BackwardInFunc, JvpInFunc = final_in_func(attention_backward), final_in_func(attention_jvp)


def in_func() -> bool:
    """Inside a transform of torch.func, or in forward mode, whose tangents an operator would lose."""
    return (torch._C._functorch.peek_interpreter_stack() is not None
            or torch.autograd.forward_ad._current_level >= 0)


@torch.compiler.assume_constant_result  # transforms and levels inside the code are part of its graph
def derives_in_graph() -> bool:
    """Whether code that is being compiled differentiates by itself. torch.vmap alone does not: there
    the operator has a rule of its own."""
    transforms = torch._C._functorch.get_interpreter_stack() or ()
    return torch.autograd.forward_ad._current_level >= 0 or any(
        transform.key() != torch._C._functorch.TransformType.Vmap for transform in transforms)


class ForwardInEager(torch.autograd.Function):
    """The operator where only autograd looks, which costs less than the autograd that PyTorch gives operators:
    bench/python.py."""

    @staticmethod
    def forward(ctx, *arguments):
        output = forward_kernel(*arguments[:-1], **arguments[-1])
        setup_context(ctx, arguments[:-1], arguments[-1], output)
        return output

    @staticmethod
    def backward(ctx, *gradients):
        return *backward(ctx, *gradients), None


def called(operator, in_func_, tensors, options):
    is_in_func = derives_in_graph() if torch.compiler.is_compiling() else in_func()
    return in_func_.apply(*tensors, Named(options)) if is_in_func else operator(*tensors, **options)


@torch.compiler.allow_in_graph
def called_in_graph(*tensors, **options):
    """ForwardInFunc as one step of a compiled graph, which it looks into where the graph runs."""
    return ForwardInFunc.apply(*tensors, Named(options))


def called_forward(tensors, options):
    if torch.compiler.is_compiling() and derives_in_graph():  # else tangents would be lost unseen
        return called_in_graph(*tensors, **options)
    if unwatched(*tensors):
        return forward_kernel(*tensors, **options) if unrecorded(*tensors) else ForwardInEager.apply(*tensors, options)
    return called(attention_forward, ForwardInFunc, tensors, options)


attention_forward.register_autograd(backward, setup_context=setup_context)
attention_backward.register_autograd(no_second_derivatives)
attention_jvp.register_autograd(no_second_derivatives)


attention_forward.register_vmap(one_by_one(attention_forward))
attention_backward.register_vmap(one_by_one(attention_backward))
attention_jvp.register_vmap(one_by_one(attention_jvp))
