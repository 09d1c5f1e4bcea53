"""Derivatives: heed.attention_backward and heed.attention_jvp."""

from typing import Any, Iterable, NamedTuple, Unpack

from . import _core
from ._arrays import kind_of, shape_of
from ._attention import finished
from ._options import Array, Options, names_of, pack_all


class Gradients(NamedTuple):
    """Gradients of the loss, None for those not asked for."""

    dq: Any = None  #: [B, H, Tq, D]
    dk: Any = None  #: [B, Hk, Tk, D]
    dv: Any = None  #: [B, Hk, Tk, Dv]
    dscale: Any = None  #: [H]
    dalibi: Any = None  #: [H]
    dbias: Any = None  #: the shape of bias, or of the mask that adds
    dsinks: Any = None  #: [H]
    ds_norms: Any = None  #: [B, H, Tq]: ``|dS_i|``, how much of the gradient reaches a row's scores


class JvpResult(NamedTuple):
    """How output and lse move."""

    output: Any  #: [B, H, Tq, Dv]
    lse: Any  #: [B, H, Tq]


def attention_backward(q: Array, k: Array, v: Array, output: Array, lse: Array, d_output: Array, *,
                       gradients: Iterable[str] = ("dq", "dk", "dv"), **options: Unpack[Options]) -> Gradients:
    """Gradients of a loss whose gradient with respect to the output is ``d_output``, in O(Tq + Tk) memory.

    ::

        q  [B, H,  Tq, D ]      output, d_output  [B, H, Tq, Dv]
        k  [B, Hk, Tk, D ]      lse               [B, H, Tq]
        v  [B, Hk, Tk, Dv]

    ``output`` and ``lse`` are those of heed.attention(q, k, v, return_lse=True) with the same options, the same seed
    included. ``gradients`` names the fields of Gradients that are wanted; the others are None and cost nothing.
    dq, dk and dv have q's type, each the kind of array of what it is the gradient of; the others have q's kind and are
    float32 (float64 for float64), as lse is.

    ::

        D_i = sum_x dO_ix O_ix       P = exp(S - lse)              dV = P' dO
        dP  = dO V'                  dS = P (dP - D), by element   dQ = scale dS K, dK = scale dS' Q
                                     ds_norms = sqrt(sum_j dS_ij^2), of the final scores

    Same bits for any number of threads, and from run to run.

    :raises TypeError, ValueError: as heed.attention does
    """
    kind = kind_of(q)
    q = kind.seen(q)
    names = names_of("attention_backward", "gradients", gradients, Gradients._fields)
    packed, threads = pack_all(options, "attention_backward")
    for name, option in ("dalibi", "alibi"), ("dsinks", "sinks"):
        if name in names and options.get(option) is None:
            raise ValueError(f"attention_backward: {name} is wanted, but {option} is None; expected both")
    heads = (q.shape[1] if len(q.shape) == 4 else 1,)
    made = Gradients(
        dq=kind.empty_like(q, tuple(q.shape)) if "dq" in names else None,
        dk=made_like("k", k) if "dk" in names else None,
        dv=made_like("v", v) if "dv" in names else None,
        dscale=kind.empty(q, heads) if "dscale" in names else None,
        dalibi=kind.empty(q, heads) if "dalibi" in names else None,
        dbias=kind.empty(q, shape_of_bias(options)) if "dbias" in names else None,
        dsinks=kind.empty(q, heads) if "dsinks" in names else None,
        ds_norms=kind.empty(q, tuple(q.shape[:-1])) if "ds_norms" in names else None)
    blank(made, options)
    _core.attention_backward(q, k, v, output, lse, d_output, tuple(made), packed, threads)
    kinds = {"dk": kind_of(k), "dv": kind_of(v)}
    return Gradients(*(finished(kinds.get(name, kind), array) for name, array in made._asdict().items()))


def attention_jvp(q: Array, k: Array, v: Array, output: Array, lse: Array, *, tangent_q: Array | None = None,
                  tangent_k: Array | None = None, tangent_v: Array | None = None, tangent_bias: Array | None = None,
                  **options: Unpack[Options]) -> JvpResult:
    """How output and lse move when q, k, v and bias move along tangents (forward mode), in O(Tq + Tk) memory.

    ``output`` and ``lse`` are those of heed.attention with the same options. A tangent has the shape of what it moves
    and q's type; tangent_bias is of any floating type, broadcasts to [B, H, Tq, Tk] by itself and moves a bias of 0 where bias
    is None. One that is None does not move and costs nothing.

    ::

        q  [B, H,  Tq, D ]      output  [B, H, Tq, Dv]       what is returned has these shapes too
        k  [B, Hk, Tk, D ]      lse     [B, H, Tq]
        v  [B, Hk, Tk, Dv]

        P = exp(S - lse)        S' = scale (q' k + q k') + bias', through all options that act on a score
        lse'_i = sum_j P_ij S'_ij
        O'_i   = sum_j P_ij (S'_ij - lse'_i) v_j + P_ij v'_j

    :raises TypeError, ValueError: as heed.attention does
    """
    kind = kind_of(q)
    q = kind.seen(q)
    packed, threads = pack_all(options, "attention_jvp")
    made = JvpResult(kind.empty_like(q, q.shape[:-1] + shape_of("v", v)[-1:]), kind.empty(q, q.shape[:-1]))
    blank(made, options)
    _core.attention_jvp(q, k, v, output, lse, (tangent_q, tangent_k, tangent_v, tangent_bias), made.output, made.lse,
                        packed, threads)
    return JvpResult(kind.finished(made.output), kind.finished(made.lse))


def made_like(name, array):
    """Room for the gradient of an array, of its kind."""
    kind = kind_of(array)
    seen = kind.seen(array, name)
    return kind.empty_like(seen, tuple(seen.shape))


def blank(made, options) -> None:
    """Rows that belong to no sequence get 0: the compiled part leaves them as they are."""
    if options.get("packing") is not None:
        for array in made:
            if array is not None:
                array[...] = 0


def shape_of_bias(options) -> tuple:
    """Of bias, or of the mask that adds."""
    bias = options.get("bias")
    if bias is None:
        mask = options.get("mask")
        bias = getattr(mask, "array", mask)
    if bias is None:
        raise ValueError("attention_backward: dbias is wanted, but bias is None; expected both")
    return shape_of("bias", bias)
