"""heed inside JAX: attention as a custom call of XLA on the CPU, with jit, vmap and grad.

::

    import heed.jax
    heed.jax.attention(q, k, v, causal=True, return_lse=True)            heed's own options and outputs
    heed.jax.dot_product_attention(q, k, v, is_causal=True)              jax.nn's signature, [B, T, N, H]
"""

from typing import Any, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from . import _options
from ._arrays import refuse_masked
from ._attention import AttentionResult, RowStatistics, statistics_of
from ._jax_calls import Static, alike, attend, gathered
from ._jax_checks import NAMES, check
from ._options import ADD, LONE_SEED, Mask, meaning_of, pair_of_offsets, sides, truth, workers

__all__ = ["attention", "dot_product_attention"]

Array = Any


def attention(q: Array, k: Array, v: Array, *, scale: float | Array | None = None, normalize_qk: bool = False,
              softcap: float | None = None, alibi: Array | None = None, bias: Array | None = None,
              mask: Array | Mask | None = None, causal: bool = False, query_start: int | Array | None = None,
              window: tuple[int | None, int | None] | None = None, key_lengths: int | Array | None = None,
              query_lengths: int | Array | None = None, sinks: Array | None = None, dropout_p: float | None = None,
              seed: int | Array | None = None, packing: tuple[Array, Array] | None = None, return_weights: bool = False,
              return_lse: bool = False, statistics: bool | Iterable[str] = False, threads: int = 0,
              reproducible: bool = False) -> Array:
    """heed.attention on JAX's arrays, inside jit, vmap and grad: softmax(scale * q k') v in O(Tq + Tk) memory. Options and
    results are those of heed.attention, but for out.

    ::

        q  [B, H,  Tq, D ]      or [B, Tq, D ], [Tq, D ]: all of one rank
        k  [B, Hk, Tk, D ]      query head h reads KV head h / (H / Hk)
        v  [B, Hk, Tk, Dv]
           [B, H,  Tq, Dv]      what is returned

    output and lse are differentiable in q, k, v, scale, alibi, bias (or a mask that adds) and sinks; weights and
    statistics are constants. softcap, window, dropout_p and what is True or False are known when a function is traced;
    everything else may be an array. In grad, what has no gradient asked for costs none.

    :param seed: of dropout: an integer below 2^64, or uint32 [2], as jax.random.key_data gives it
    :param packing: as in heed.attention: the number of sequences is known when a function is traced, their lengths need
        not be
    :param threads: 0: heed.default_threads(). No number changes a bit of any result
    :param reproducible: makes no difference here: bfloat16 is computed as float32 and rounded once, so that it has the
        same bits on every CPU, those of heed.attention(..., reproducible=True)
    :raises TypeError, ValueError: when the function is traced, naming the argument, what was expected and what was found
    :raises ValueError, jax.errors.JaxRuntimeError: when it runs, where a value is what no shape can tell: key_lengths beyond
        the keys
    """
    require_known("attention", normalize_qk=normalize_qk, softcap=softcap, causal=causal, window=window, dropout_p=dropout_p,
                  return_weights=return_weights, return_lse=return_lse, statistics=statistics, threads=threads,
                  reproducible=reproducible)
    role, mask = meaning_of(mask, "attention")
    mask = None if mask is None else given("attention", "mask", mask)
    if mask is not None and (role == ADD or role == 0 and jnp.issubdtype(mask.dtype, jnp.floating)):
        if bias is not None:
            raise ValueError("attention: mask adds, and so does bias; expected one of them")
        bias, mask, role = mask, None, ADD
    names = statistics_of("attention", statistics)
    for name, value in (("reproducible", reproducible), ("return_weights", return_weights), ("return_lse", return_lse),
                        ("causal", causal), ("normalize_qk", normalize_qk)):
        truth(f"attention: {name}", value)
    if seed is not None and dropout_p is None:
        raise ValueError(f"attention: {LONE_SEED}")
    dropout_p = 0.0 if dropout_p is None else dropout_p
    factor = factor_of("attention", scale)
    static = Static(factor, normalize_qk, None if softcap is None else number("softcap", softcap), role == 2, causal,
                    sides("attention: window", window), number("dropout_p", dropout_p), False, bool(return_weights),
                    tuple(name for name in RowStatistics._fields if name in names), workers(threads))
    arrays = {"q": q, "k": k, "v": v, "bias": bias, "mask": mask, "scale": None if factor is not None else real("scale", scale),
              "alibi": real("alibi", alibi), "sinks": real("sinks", sinks)}
    arrays |= {name: whole(name, x) for name, x in (
        ("query_start", query_start), ("key_lengths", key_lengths), ("query_lengths", query_lengths))}
    arrays |= {name: whole(f"packing.{name}", x) for name, x in zip(
        ("query_offsets", "key_offsets"), pair_of_offsets(packing))}
    arrays["seed"] = halves(seed)
    output, lse, weights, rows = called("attention", static, arrays, role)
    if not (return_weights or return_lse or names):
        return output
    statistics = RowStatistics(**dict(zip(static.statistics, rows))) if names else None
    return AttentionResult(output, weights, lse if return_lse else None, statistics)


def dot_product_attention(query: Array, key: Array, value: Array, bias: Array | None = None, mask: Array | None = None, *,
                          scale: float | Array | None = None, is_causal: bool = False,
                          query_seq_lengths: Array | None = None, key_value_seq_lengths: Array | None = None,
                          local_window_size: int | tuple[int, int] | None = None, return_residual: bool = False):
    """jax.nn.dot_product_attention, but for ``implementation``: softmax(scale * query key' + bias) value, in O(T + S)
    memory, with the gradient of the bias.

    ::

        query  [B, T, N, H ]      or [T, N, H], [S, K, H]; N is a multiple of K. Read where it lies
        key    [B, S, K, H ]
        value  [B, S, K, Hv]      Hv may differ from H
               [B, T, N, Hv]      what is returned; with return_residual also lse [B, T, N]
        bias, mask                broadcast to [B, N, T, S]; bias is added, mask is True where a query may look

    Unlike there, a query that may look nowhere gets 0 (and its lse is -inf), and NaN or infinity in what is masked
    changes nothing.

    :raises TypeError, ValueError: as heed.jax.attention does
    """
    function = "dot_product_attention"
    require_known(function, is_causal=is_causal, local_window_size=local_window_size,
                  return_residual=return_residual)
    if isinstance(local_window_size, (int, np.integer)):
        local_window_size = (local_window_size, local_window_size)
    truth(f"{function}: is_causal", is_causal)
    truth(f"{function}: return_residual", return_residual)
    factor = factor_of(function, scale)
    static = Static(factor, False, None, False, is_causal, sides(f"{function}: local_window_size", local_window_size), 0.0, True,
                    False, (), 0)
    query, key, value = (given(function, name, x) for name, x in (("query", query), ("key", key), ("value", value)))
    shapes = [np.shape(x) for x in (query, key, value)]
    if len(shapes[0]) not in (3, 4) or len({len(shape) for shape in shapes}) != 1:
        raise ValueError(f"{function}: query has shape {shapes[0]}, key {shapes[1]}, value {shapes[2]}; expected 3 axes "
                         "each, or 4 each")
    arrays = {"q": query, "k": key, "v": value, "bias": bias, "mask": mask,
              "scale": None if factor is not None else real("scale", scale, function),
              "query_lengths": whole("query_seq_lengths", query_seq_lengths, function),
              "key_lengths": whole("key_value_seq_lengths", key_value_seq_lengths, function)}
    arrays = {name: None if x is None else given(function, NAMES.get(name, name), x) for name, x in arrays.items()}
    if len(shapes[0]) == 3:
        arrays |= {name: arrays[name][None] for name in "qkv"}
    output, lse, _, _ = called(function, static, arrays, 1)
    output, lse = (x[0] if len(shapes[0]) == 3 else x for x in (output, lse.swapaxes(1, 2)))
    return (output, lse) if return_residual else output


def called(function, static, arrays, role):
    """attend on arrays of any rank, of 16 bits too: output, lse, weights and statistics of the caller's rank."""
    arrays = {name: gathered(given(function, name, x)) for name, x in arrays.items() if x is not None or name in ("q", "k", "v")}
    for name in ("q", "k", "v"):
        if arrays[name].ndim == 0:  # which would be absent to the checks
            raise ValueError(f"{function}: {name} has rank 0; expected 2 [T, D], 3 [B, T, D] or 4 [B, H, T, D]")
    rank = arrays["q"].ndim
    each = {"scale": -3, "query_start": -4, "key_lengths": -4, "query_lengths": -4}
    q_shape = heads_first(static, arrays["q"].shape)
    lengths = {-3: q_shape[1] if rank == 4 else 1, -4: q_shape[0] if rank >= 3 else 1}
    if "query_offsets" in arrays and arrays["query_offsets"].ndim == 1:  # sequences in place of batch entries
        lengths[-4] = max(0, arrays["query_offsets"].shape[0] - 1)
    alone = [name for name in each if name in arrays and arrays[name].ndim == 0]
    for name in alone:  # one number for all
        arrays[name] = jnp.broadcast_to(arrays[name], (lengths[each[name]],))
    check(function, static, tuple((name, heads_first(static, x.shape) if name in ("q", "k", "v") else x.shape,
                                   str(x.dtype)) for name, x in arrays.items()), role)

    dtype = arrays["q"].dtype
    for name in ("q", "k", "v"):
        arrays[name] = widened(with_axes(arrays[name], rank))
    for name in ("bias", "mask"):
        if name in arrays:  # right-aligned in the caller's rank
            x = arrays[name]
            arrays[name] = with_axes(x.reshape((1,) * (rank - x.ndim) + x.shape), rank)
    arrays = dict(zip(arrays, alike(arrays.values())))
    try:
        output, lse, weights, rows = attend(static, arrays)
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        message = of_a_value(function, str(error), alone)
        if message is None:
            raise
        raise ValueError(message) from None

    def back(x):
        return None if x is None else x if rank == 4 else x[:, 0] if rank == 3 else x[0, 0]

    weights, *rows = (None if x is None else jax.lax.stop_gradient(back(x)) for x in (weights, *rows))
    return back(output).astype(dtype), back(lse), weights, rows


def of_a_value(function, message, alone) -> str | None:
    """What a call says that ran, of values that no shape can tell, with the names of the caller's function."""
    _, call, words = message.partition("INVALID_ARGUMENT: attention: ")
    if not call:
        return None
    for name in alone:
        words = words.replace(f"{name}[0]", name)
    return _options.told(function, words, NAMES if function == "dot_product_attention" else {})


AN_ARRAY = "an array of JAX or NumPy"


def given(function, name, x, expected=AN_ARRAY):
    """An array of JAX. A tensor of PyTorch would be copied, and lose its gradient, without a word."""
    if x is None or type(x).__module__.partition(".")[0] == "torch":
        kind = "NoneType" if x is None else "torch.Tensor"
        raise TypeError(f"{function}: {name} is of type {kind}; expected {expected}")
    refuse_masked(f"{function}: {name}", x)
    try:
        if not isinstance(x, (str, bytes)):  # NumPy reads them as names of types
            array = jnp.asarray(x)
            if fits(x, array.dtype):
                return array
            raise OverflowError
        error = None
    except OverflowError as raised:
        beyond = "64 bits" if jax.config.jax_enable_x64 else "32 bits, all that JAX has without jax_enable_x64"
        raise ValueError(f"{function}: {name} holds an integer beyond {beyond}; expected those that fit") from raised
    except (TypeError, ValueError) as raised:
        if isinstance(x, jax.Array):
            raise
        error = raised
    is_array = expected is AN_ARRAY and isinstance(x, np.ndarray)
    what = f"an array of {x.dtype}" if is_array else f"of type {type(x).__qualname__}"
    raise TypeError(f"{function}: {name} is {what}; expected {expected}{', of a type that JAX has' if is_array else ''}") from error


def fits(x, dtype) -> bool:
    """NumPy's integers are what they were: JAX keeps the low bits of each where it has no wider type."""
    if not isinstance(x, (list, tuple, np.ndarray, np.generic)) or not jnp.issubdtype(dtype, jnp.integer):
        return True
    try:
        whole = np.asarray(x)
    except jax.errors.TracerArrayConversionError:
        return True  # a list with numbers that nobody knows yet
    return whole.dtype.itemsize <= dtype.itemsize or np.array_equal(whole, whole.astype(dtype))


def heads_first(static, shape) -> tuple:
    """[B, H, T, D]"""
    return (shape[0], shape[2], shape[1], shape[3]) if static.bthd and len(shape) == 4 else shape


def with_axes(x, rank):
    """[B, T, D] as [B, 1, T, D], [T, D] as [1, 1, T, D]"""
    return x if rank == 4 else x[:, None] if rank == 3 else x[None, None]


def widened(x):
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


def require_known(function, **arguments) -> None:
    """What says how attention is computed, not on which numbers, is known when it is traced."""
    for name, value in arguments.items():
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, jax.core.Tracer):
                raise TypeError(f"{function}: {name} is a traced {part.dtype}; expected a value that jit, grad and vmap do not "
                                "trace: jax.jit has static_argnames")


def number(name, value, function="attention") -> float:
    """One of no other library, whose gradient would be lost."""
    if type(value).__module__.partition(".")[0] == "torch":
        kind = type(value).__qualname__
        raise TypeError(f"{function}: {name} is of type {kind}; expected a number")
    return _options.number(function, name, value)


def whole(name, numbers, function="attention"):
    """Integers of any type, alone or in a list, as heed.attention takes them: JAX would keep
    NumPy's narrow types, and make 1 of a True in a list."""
    if isinstance(numbers, np.integer):
        return int(numbers)
    return listed(numbers, lambda i, one: _options.integer(function, f"{name}[{i}]", one), np.int64)


def listed(numbers, read, dtype):
    """A list whose entries are read, each by its place, but for those of JAX; all else as it is."""
    if not isinstance(numbers, (list, tuple)):
        return numbers
    made = [one if isinstance(one, jax.Array) and one.dtype != bool else read(i, one)
            for i, one in enumerate(numbers)]
    return made if any(isinstance(one, jax.Array) for one in made) else np.array(made, dtype)


def factor_of(function, scale) -> float | None:
    """One number for all heads, where it is known now."""
    return _options.number(function, "scale", scale) if isinstance(scale, (int, float, np.number, np.bool_)) else None


def real(name, numbers, function="attention"):
    """One number or one for each head, in the widest type that JAX has now."""
    if numbers is None or isinstance(numbers, jax.Array) and numbers.dtype in (jnp.float32, jnp.float64):
        return numbers
    expected = "a number, or an array of JAX or NumPy" if name == "scale" else AN_ARRAY
    numbers = listed(numbers, lambda i, one: number(f"{name}[{i}]", one, function), np.float64)
    array = given(function, name, numbers, expected)
    if not jnp.issubdtype(array.dtype, jnp.integer) and not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{function}: {name} is {array.dtype}; expected numbers{'' if array.dtype == bool else ' that are real'}")
    return array.astype(float)


def halves(seed):
    """uint32 [2]: the low and the high half."""
    if seed is None:
        return None
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        raise TypeError(f"attention: seed is a {seed.dtype} of jax.random; expected an integer, or uint32 of shape (2,), as "
                        "jax.random.key_data gives it")
    known = isinstance(seed, (int, float, np.generic, np.ndarray, jax.Array)) and not isinstance(seed, jax.core.Tracer)
    if known and np.ndim(seed) == 0:
        seed = _options.integer("attention", "seed", seed, 0, 2**64 - 1)
        return np.array([seed % 2**32, seed // 2**32], np.uint32)
    seed = given("attention", "seed", seed, "an integer, or uint32 of shape (2,)")
    if seed.shape == (2,) and seed.dtype == jnp.uint32:
        return seed
    if seed.shape != () or not jnp.issubdtype(seed.dtype, jnp.integer):
        raise ValueError(f"attention: seed has shape {seed.shape} and is {seed.dtype}; expected an integer, or uint32 of "
                         "shape (2,)")
    high = (seed >> 32).astype(jnp.uint32) if seed.dtype.itemsize == 8 else jnp.zeros_like(seed, jnp.uint32)
    return jnp.stack([seed.astype(jnp.uint32), high])
