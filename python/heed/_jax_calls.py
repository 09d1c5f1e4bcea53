"""The custom calls of heed.jax: heed_attention_forward and heed_attention_backward, and the gradient that joins them.

Arrays travel by name in a dictionary; those that are options follow q, k and v in the order of OPTIONS. What is known
when a function is traced travels as Static. jax.vmap puts axes before an array's own, of length 1 where it is the same
for all entries; the calls go through them one by one.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _core
from ._attention import COUNTS, RowStatistics

targets = getattr(_core, "_jax_targets", None)
if targets is None:
    raise ImportError("heed was built without jaxlib's headers, so heed.jax is not in it. Install it again with the "
                      "environment variable HEED_JAX=1: HEED_JAX=1 pip install --force-reinstall --no-deps . (from a checkout)")
for name, target in targets().items():
    jax.ffi.register_ffi_target(name, target, platform="cpu")

OPTIONS = ("bias", "mask", "scale", "alibi", "sinks", "query_start", "key_lengths", "query_lengths", "seed",
           "query_offsets", "key_offsets")
GRADIENTS = ("q", "k", "v", "bias", "scale", "alibi", "sinks")


class Static(NamedTuple):
    """What a trace knows of a call."""

    factor: float | None
    normalize_qk: bool
    softcap: float | None
    mask_drops: bool
    causal: bool
    window: tuple
    dropout_p: float
    bthd: bool
    weights: bool
    statistics: tuple
    threads: int


def attributes(static, arrays) -> dict:
    """Of a custom call: both calls read these."""
    left, right = (-1 if side is None else side for side in static.window)
    return {"given": np.int64(sum(1 << bit for bit, name in enumerate(OPTIONS) if name in arrays)),
            "has_factor": static.factor is not None, "factor": np.float64(static.factor or 0),
            "normalize_qk": static.normalize_qk, "has_softcap": static.softcap is not None,
            "softcap": np.float64(static.softcap or 0), "mask_drops": static.mask_drops, "causal": static.causal,
            "window_left": np.int64(left), "window_right": np.int64(right), "dropout_p": np.float64(static.dropout_p),
            "bthd": static.bthd, "threads": np.int64(static.threads)}


def operands(arrays) -> list:
    return [arrays[name] for name in ("q", "k", "v", *OPTIONS) if name in arrays]


def rows_shape(static, q) -> tuple:
    """[B, H, Tq]"""
    return (q.shape[0], q.shape[2], q.shape[1]) if static.bthd else q.shape[:3]


def axes_of(x) -> frozenset:
    """Axes of jax.shard_map along which it differs; older versions of JAX do not tell."""
    return getattr(getattr(getattr(x, "aval", None), "manual_axis_type", None), "varying", frozenset())


def alike(arrays) -> list:
    """All differ along the axes along which one does: JAX's calls ask for it, and sum their gradients over the others."""
    arrays = list(arrays)
    axes = frozenset().union(*map(axes_of, arrays))
    return [jax.lax.pcast(x, tuple(axes - axes_of(x)), to="varying") if axes - axes_of(x) else x for x in arrays]


def gathered(x):
    """Whole on each device, where a mesh has explicit axes: sharding is part of an array's type there, that of a custom call's
    results is none, and JAX asks for gradients of the type of what they are of."""
    sharding = getattr(getattr(x, "aval", None), "sharding", None)
    if not any(getattr(sharding, "spec", ())):
        return x
    return jax.sharding.reshard(x, sharding.update(spec=jax.sharding.PartitionSpec()))


def custom_call(target, shapes, operands, **attributes) -> list:
    """Results of these shapes and types, which differ where the operands do: jax.ffi does not say so by itself."""
    results = tuple(jax.ShapeDtypeStruct(*shape) for shape in shapes)
    made = jax.ffi.ffi_call(target, results, vmap_method="expand_dims")(*alike(operands), **attributes)
    return alike([*made, *operands])[:len(made)]


def forward(static, arrays) -> tuple:
    """output, lse, weights or None, the statistics that are wanted"""
    q, v = arrays["q"], arrays["v"]
    rows = rows_shape(static, q)
    keys = arrays["k"].shape[1 if static.bthd else 2]
    # The counts are 64-bit integers, which JAX has only where it is told to.
    count = jax.dtypes.canonicalize_dtype(np.int64)
    shapes = [((*q.shape[:3], v.shape[3]), q.dtype), (rows, q.dtype)]
    if static.weights:
        shapes.append(((*rows, keys), q.dtype))
    shapes += [(rows, np.int64 if name in COUNTS else q.dtype) for name in static.statistics]
    wanted = sum(1 << RowStatistics._fields.index(name) for name in static.statistics)
    output, lse, *rest = custom_call("heed_attention_forward", shapes, operands(arrays), weights=static.weights,
                                     statistics=np.int64(wanted), **attributes(static, arrays))
    weights = rest.pop(0) if static.weights else None
    return output, lse, weights, tuple(x.astype(count) if x.dtype == np.int64 else x for x in rest)


def backward(static, arrays, output, lse, d_output, wanted) -> dict:
    """Gradients by the names of what they are of. wanted: a bit for each of GRADIENTS"""
    given = [name for bit, name in enumerate(GRADIENTS) if wanted >> bit & 1]
    shapes = [(arrays[name].shape, arrays["q"].dtype) for name in given]
    made = custom_call("heed_attention_backward", shapes, [*operands(arrays), output, lse, d_output],
                       wanted=np.int64(wanted), **attributes(static, arrays))
    return dict(zip(given, made))


@functools.partial(jax.jit, static_argnums=0)  # else each call outside of jit is traced and dispatched anew
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attend(static, arrays):
    """forward with gradients of its output and lse."""
    return forward(static, arrays)


def attend_forward(static, arrays):
    """What gradients are wanted is told by the shape of an array without elements, and not by the tree: JAX has one tree for
    all calls of a jitted function, that of the last one it traced, whatever is wanted of the others."""
    values = {name: x.value for name, x in arrays.items()}
    made = forward(static, values)
    wanted = sum(1 << bit for bit, name in enumerate(GRADIENTS) if name in arrays and arrays[name].perturbed)
    return made, (values, made[:2], jnp.zeros((wanted, 0)))


def attend_backward(static, kept, cotangents):
    arrays, (output, lse), told = kept
    d_output, d_lse = (None if is_zero(x) else x for x in cotangents[:2])
    wanted = told.shape[0]
    gradients = dict.fromkeys(arrays)
    if not wanted or (d_output is None and d_lse is None):
        return (gradients,)
    if d_output is None:
        d_output = jnp.zeros_like(output)
    given = arrays
    if d_lse is not None:
        given, output, d_output = with_lse(static, arrays, output, d_output, d_lse)
    made = backward(static, given, output, lse, d_output, wanted)
    if d_lse is not None and "v" in made:
        made["v"] = made["v"][..., :-1]
    gradients |= {name: gradient.astype(arrays[name].dtype) for name, gradient in made.items()}
    return (gradients,)


attend.__wrapped__.defvjp(attend_forward, attend_backward, symbolic_zeros=True)


def is_zero(cotangent) -> bool:
    return isinstance(cotangent, jax.custom_derivatives.SymbolicZero)


def with_lse(static, arrays, output, d_output, d_lse):
    """A gradient of lse too, as one more column of the output.

    d lse_i / d s_ij = p_ij, so dS = P (dP - D + dlse). With V = [V, 0], O = [O, -dlse], dO = [dO, 1] the backward pass
    finds the same dP, and D = sum dO O - dlse.
    """
    v = arrays["v"]
    if static.bthd:
        d_lse = d_lse.swapaxes(1, 2)
    column = d_lse[..., None]
    wider = arrays | {"v": jnp.concatenate([v, jnp.zeros((*v.shape[:3], 1), v.dtype)], -1)}
    return (wider, jnp.concatenate([output, -column], -1),
            jnp.concatenate([d_output, jnp.ones(column.shape, d_output.dtype)], -1))
