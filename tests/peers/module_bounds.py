"""How far a float32 module may be from its formula: a running error analysis.

Every tensor has its value, in float64, and a bound of the error that heed's float32 may have there. A step
passes on the errors of what it takes, to first order, and adds its own: that of a product of matrices, and
T1 for attention and its gradients (docs/numerics.md, section 4 and Modules). SLACK is for what is of second
order: errors here are below 1e-4 of what they are errors of.
"""

import dataclasses

import torch

U = 2.0**-24
TINY = 2.0**-102
SLACK = 1.001


@dataclasses.dataclass
class Known:
    value: torch.Tensor
    error: torch.Tensor

    @classmethod
    def exact(cls, tensor):
        return cls(tensor.double(), torch.zeros_like(tensor, dtype=torch.float64))

    def map(self, change):
        """The same change of shape for both."""
        return Known(change(self.value), change(self.error))

    def __add__(self, other):
        value = self.value + other.value
        return Known(value, self.error + other.error + U * value.abs())


def product(a, b):
    """a b: an element is within u (min(n, 128) + n / 64 + 8) sum |a b| of the sum of its n products."""
    n = a.value.shape[-1]
    size = a.value.abs() @ b.value.abs()
    passed = a.error @ b.value.abs() + a.value.abs() @ b.error
    return Known(a.value @ b.value, SLACK * passed + U * (min(n, 128) + n / 64 + 8) * size)


def total(a, axes, shape):
    """Sums over some axes, each a chain in double that is rounded once."""
    value = a.value.sum(axes)
    return Known(value.reshape(shape), (SLACK * a.error.sum(axes) + U * value.abs()).reshape(shape))


@dataclasses.dataclass
class Attended:
    """Attention over heads, and the gradients of its inputs."""
    output: Known
    dq: Known
    dk: Known
    dv: Known
    dbias: Known
    dscale: Known   # one per head


def attention(q, k, v, d_output_of, scale, bias, visible, group):
    """q [B, H, Tq, D], k and v [B, Hk, Tk, ..]; scale [H, 1, 1]; visible [.., Tq, Tk] of booleans.
    d_output_of(output) is the gradient that comes back."""
    k, v = (t.map(lambda x: x.repeat_interleave(group, 1)) for t in (k, v))
    (d, dv), n_k, n_q = (q.value.shape[-1], v.value.shape[-1]), k.value.shape[-2], q.value.shape[-2]
    c, n = 4 + d / 64, 32 + n_k / 1536
    aq, ak, av = q.value.abs(), k.value.abs(), v.value.abs()

    # Forward: P, O and T1.
    dots = q.value @ k.value.mT
    score_error = scale * SLACK * (q.error @ ak.mT + aq @ k.error.mT)
    p = (scale * dots + bias).masked_fill(~visible, -torch.inf).softmax(-1)
    p_error = SLACK * p * (score_error + (p * score_error).sum(-1, keepdim=True))
    a = scale * (aq @ ak.mT) + bias.abs()
    kappa = (p * a).sum(-1, keepdim=True)
    known = p * (1 + kappa + a)
    o = p @ v.value
    m, b = p @ av, known @ av
    own = U * (o.abs() + c * b + n * m) + n_k * 2.0**-126 * av.max()
    o_error = SLACK * (p_error @ av + p @ v.error)
    output = Known(o, o_error + own)

    # Backward: dS, F and the bounds of the gradients.
    do = d_output_of(output)
    ado, c = do.value.abs(), 4 + max(d, dv) / 64
    dp = do.value @ v.value.mT
    dp_error = do.error @ av.mT + ado @ v.error.mT
    delta = (do.value * o).sum(-1, keepdim=True)
    delta_error = (do.error * o.abs() + ado * o_error).sum(-1, keepdim=True)
    ds = p * (dp - delta)
    ds_error = SLACK * (p_error * (dp - delta).abs() + p * (dp_error + delta_error))
    f = known * (dp - delta).abs() + p * (ado @ av.mT + (ado * b).sum(-1, keepdim=True))
    f = f + TINY * dv * ado.max() * av.max()

    def rows(t):   # the heads of a group add up in their KV head
        return t.unflatten(1, (-1, group)).sum(2)
    rest, n_rows = (2 + max(n_q, n_k)) * 2.0**-149, 32 + n_q * group / 1536
    dq, dk, dv_value = scale * (ds @ k.value), rows(scale * (ds.mT @ q.value)), rows(p.mT @ do.value)
    ds_size = ds.abs()
    dq_error = scale * (SLACK * (ds_error @ ak + ds_size @ k.error) + U * (2 * c + n / 2) * (f @ ak))
    dk_error = rows(scale * (SLACK * (ds_error.mT @ aq + ds_size.mT @ q.error) + U * (4 * c + n_rows / 2) * (f.mT @ aq)))
    dv_error = rows(SLACK * (p_error.mT @ ado + p.mT @ do.error) + U * (2 * c + n_rows / 2) * ((known + TINY).mT @ ado))
    scale_error = SLACK * (ds_error * dots.abs() + ds_size * score_error / scale) + U * (2 * c + n / 2) * f * (aq @ ak.mT)
    return Attended(
        output,
        *(Known(value, error + U * value.abs() + rest)
          for value, error in ((dq, dq_error), (dk, dk_error), (dv_value, dv_error))),
        Known(ds, ds_error + 2 * c * U * f),
        Known((ds * dots).sum((0, 2, 3)), scale_error.sum((0, 2, 3))))


def module(case, parameters, inputs):
    """Output and gradients of a module by its names W_q, b_q .., as module_run names them."""
    w = {name: Known.exact(p) for name, p in parameters.items()}
    x = Known.exact(inputs["x"])
    context = Known.exact(inputs["context"]) if "context" in inputs else x
    values = Known.exact(inputs["values"]) if "values" in inputs else context
    source = {"q": x, "k": context, "v": values}
    kv_heads = case.kv_heads or case.heads

    def linear(rows, letter):
        y = product(rows, w[f"W_{letter}"].map(lambda t: t.mT))
        if f"b_{letter}" not in w:
            return y
        b = w[f"b_{letter}"]
        return Known(y.value + b.value, y.error + U * (y.value.abs() + b.value.abs()))

    def split(y, heads):
        return y.map(lambda t: t.unflatten(-1, (heads, -1)).transpose(1, 2))

    def joined(y):
        return y.map(lambda t: t.transpose(1, 2).flatten(2))

    grads = {}

    def back(letter, rows, dy):
        """The gradients of a map's weights and bias; returns that of its rows."""
        flat, into = (t.map(lambda s: s.flatten(0, 1)) for t in (dy, rows))
        grads[f"gradients.W_{letter}"] = product(flat.map(lambda t: t.mT), into)
        if f"b_{letter}" in w:
            grads[f"gradients.b_{letter}"] = total(flat, 0, w[f"b_{letter}"].value.shape)
        return product(dy, w[f"W_{letter}"])

    q, k, v = (split(linear(source[n], n), case.heads if n == "q" else kv_heads) for n in "qkv")
    one = 1 / q.value.shape[-1]**0.5
    t = w["temperature"].value if case.temperature else torch.ones(1, dtype=torch.float64)
    scale = (one / t).reshape(-1, 1, 1).expand(case.heads, 1, 1)
    keys = k.value.shape[-2]
    visible = torch.ones(case.batch, 1, case.queries, keys, dtype=torch.bool)
    if case.causal:
        visible = visible.tril()
    if "drop" in inputs:
        visible = visible & ~inputs["drop"]
    bias = inputs.get("bias", torch.zeros(1)).double()

    d_output = Known.exact(inputs["d_output"])
    seen = {}

    def d_output_of(o):
        seen["output"] = linear(joined(o), "o")
        return split(back("o", joined(o), d_output), case.heads)
    done = attention(q, k, v, d_output_of, scale, bias, visible, case.heads // kv_heads)
    grads["output"] = seen["output"]
    dx = {n: back(n, source[n], joined(g)) for n, g in (("q", done.dq), ("k", done.dk), ("v", done.dv))}
    if "values" in inputs:
        grads |= {"x": dx["q"], "context": dx["k"], "values": dx["v"]}
    elif "context" in inputs:
        grads |= {"x": dx["q"], "context": dx["k"] + dx["v"]}
    else:
        grads["x"] = dx["q"] + dx["k"] + dx["v"]
    if "bias" in inputs:
        grads["bias"] = total(done.dbias, (0, 1), inputs["bias"].shape)
    if case.temperature:
        s = scale.flatten()
        dt = Known(-done.dscale.value * s / t, done.dscale.error * s / t + 4 * U * (done.dscale.value * s / t).abs())
        if case.temperature == 1:
            dt = dt.map(lambda e: e.sum().reshape(1))
        grads["gradients.temperature"] = dt
    return grads
