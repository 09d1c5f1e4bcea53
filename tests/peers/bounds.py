"""Attention in float64 by NumPy, and how far from it a float32 result may be: T1 and the gradients of docs/numerics.md."""

import numpy as np

U = 2.0**-24
ETA = 2.0**-149


def exact(q, k, v, *, scale=None, bias=0.0, allowed=True, d_output=None):
    """(value, bound) by name: output, and with d_output dq, dk and dv. Arrays [B, H, T, D], k and v with Hk heads."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group, size = q.shape[1] // k.shape[1], q.shape[3]
    keys, values = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scale = size**-0.5 if scale is None else scale
    s = scale * (q @ keys.swapaxes(2, 3)) + bias
    s = np.where(np.broadcast_to(allowed, s.shape), s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    p = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    output = p @ values

    # Weights of -inf are 0, and so is what a bias there adds to the conditioning.
    size_of_bias = np.where(np.isfinite(bias), np.abs(bias), 0)
    a = np.abs(scale) * (np.abs(q) @ np.abs(keys).swapaxes(2, 3)) + size_of_bias
    c = 1 + (p * a).sum(-1, keepdims=True) + a
    made = {"output": (output, of_output(output, p, a, values, size))}
    if d_output is None:
        return made

    # Bounds speak of visible pairs: elsewhere weights and what comes from them are exact zeros.
    count, seen = 4 + max(size, v.shape[3]) / 64, np.isfinite(s)
    scale_size = np.abs(scale)
    d_output = np.asarray(d_output, np.float64)
    size_of_d = np.abs(d_output)
    dp = d_output @ values.swapaxes(2, 3)
    difference = dp - (d_output * output).sum(-1, keepdims=True)
    ds = p * difference
    known = p * c   # P (1 + kappa + A)
    b = known @ np.abs(values) + lost_of_output(p) / U   # with what O lost
    tiny = 2.0**-102 * v.shape[3] * size_of_d.max(initial=0) * np.abs(values).max(initial=0) + ETA / U
    w = np.where(seen, known * np.abs(difference) + p * (size_of_d @ np.abs(values).swapaxes(2, 3)
                                                         + (size_of_d * b).sum(-1, keepdims=True)) + tiny, 0)
    faint = np.where(seen, known + 2.0**-102, 0)
    rows, n_k = group * s.shape[2], s.shape[3]
    most = 2 + max(rows, n_k)

    def of_heads(x):
        """Query heads' parts, added up for the KV head that they read."""
        return x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2)

    sums = of_heads(np.abs(ds).sum(2)[..., None])   # of |dS_ij| over the rows of key j
    for name, value, conditioning, lost in (
            ("dq", scale * ds @ keys, (2 * count + terms(n_k) / 2) * scale_size * (w @ np.abs(keys)),
             most + n_k * scale_size),
            ("dk", of_heads(scale * ds.swapaxes(2, 3) @ q),
             (4 * count + terms(rows) / 2) * scale_size * of_heads(w.swapaxes(2, 3) @ np.abs(q)), most + sums),
            ("dv", of_heads(p.swapaxes(2, 3) @ d_output),
             (2 * count + terms(rows) / 2) * of_heads(faint.swapaxes(2, 3) @ size_of_d), most)):
        made[name] = value, U * np.abs(value) + U * conditioning + lost * ETA
    return made


def of_output(output, p, a, values, size):
    """The bound of an output, from exact weights p, the sizes a of what each score adds up (A of docs/numerics.md) and heads of
    that size; values have a head for each of the query."""
    c, keys = 1 + (p * a).sum(-1, keepdims=True) + a, p.shape[-1]
    return (U * np.abs(output) + lost_of_output(p) + keys * 2.0**-126 * np.abs(values).max(initial=0)
            + U * ((4 + size / 64) * (p * c) @ np.abs(values) + terms(keys) * (p @ np.abs(values))))


def lost_of_output(p):
    """What an output loses below the normal numbers: eta (1 + n max P)."""
    return ETA * (1 + np.count_nonzero(p, -1, keepdims=True) * p.max(-1, keepdims=True, initial=0))


def terms(count):
    """N(n)"""
    return 32 + count / (2 * 768)


def share(seen, value_and_bound):
    """The largest error, as a share of the bound: at most 1."""
    value, bound = value_and_bound
    error = np.abs(np.asarray(seen, np.float64) - value)
    return (error / bound).max(initial=0) if error.size else 0.0
