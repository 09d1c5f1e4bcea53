"""heed.torch beside PyTorch's scaled_dot_product_attention on a random grid of what both can do.

Shapes, masks (boolean, added, broadcast), causal, scale, grouped heads, Dv != D and the layout of the memory are drawn.
float32: outputs and gradients keep T1 (bounds.py). T2: where PyTorch's fused kernel serves the case, the ratio of the
largest errors has a median of at most 1.15 and a 95th percentile of at most 2, as in test_torch.py. float64: outputs and
gradients, that of an added mask included, equal PyTorch's within 1e-12 of the largest element.

    ./dev peers
"""

import numpy as np
import pytest
import torch
from bounds import exact, share
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import heed.torch


def draw(seed, dtype):
    """q, k, v, gradient of the output; options"""
    random = np.random.default_rng([seed, 7])
    kv_heads, group = int(random.integers(1, 4)), int(random.choice([1, 1, 2, 3]))
    batch, heads = int(random.integers(1, 4)), kv_heads * group
    rows, keys = (int(random.choice([random.integers(1, 20), random.integers(20, 300)])) for _ in range(2))
    keys = int(random.integers(768, 1000)) if random.random() < 0.1 else keys
    size = int(random.choice([8, 16, 32, 33, 64, 80, 128]))
    value_size = size if random.random() < 0.7 else int(random.integers(1, 100))
    given = {"enable_gqa": group > 1}
    kind = random.choice(["none", "causal", "bool", "float", "row"])

    def tensor(count, length, width, scale=1.0):
        """[B, H, T, D]; half of them of memory [B, T, H, D]"""
        x = torch.from_numpy(random.standard_normal((batch, count, length, width)) * scale).to(torch.float32).to(dtype)
        return x if random.random() < 0.5 else x.transpose(1, 2).contiguous().transpose(1, 2)

    q, k = tensor(heads, rows, size, 2.0**random.integers(-1, 3)), tensor(kv_heads, keys, size)
    v, gradient = tensor(kv_heads, keys, value_size), tensor(heads, rows, value_size)
    full = [batch, heads, rows, keys]
    shape = [1 if axis < 3 and random.random() < 0.5 else length for axis, length in enumerate(full)]
    if kind == "causal":
        given["is_causal"] = True
    if kind == "bool":
        keep = random.random(full) < 0.7
        keep[..., 0] = True   # each query sees at least one key
        given["attn_mask"] = torch.from_numpy(keep)
    if kind in ("float", "row"):
        shape[2] = 1 if kind == "row" else shape[2]
        given["attn_mask"] = torch.from_numpy(random.standard_normal(shape).astype(np.float32)).to(dtype)
    if random.random() < 0.3:
        given["scale"] = float(random.uniform(0.01, 0.5))
    return (q, k, v, gradient), given


def truth(tensors, given):
    q, k, v, *gradient = (x.numpy() for x in tensors)
    mask = given.get("attn_mask")
    adds = mask is not None and mask.dtype != torch.bool
    allowed = np.tri(q.shape[2], k.shape[2], dtype=bool) if given.get("is_causal") else True
    return exact(q, k, v, scale=given.get("scale"), bias=mask.numpy().astype(np.float64) if adds else 0.0,
                 allowed=mask.numpy() if mask is not None and not adds else allowed, d_output=gradient[0] if gradient else None)


def gradients(attention, tensors, given):
    """output, dq, dk, dv and, of a mask that adds, its own"""
    *qkv, gradient = tensors
    leaves = [x.detach().clone().requires_grad_() for x in qkv]
    mask = given.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        leaves.append(mask.clone().requires_grad_())
        given = given | {"attn_mask": leaves[-1]}
    output = attention(*leaves[:3], **given)
    return output.detach(), *torch.autograd.grad(output, leaves, gradient)


def by_fused(tensors, given):
    """PyTorch's fused kernel, or None where it does not serve the case."""
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
            return scaled_dot_product_attention(*tensors[:3], **given)
    except RuntimeError:
        return None


def told(capsys, text):
    with capsys.disabled():
        print("\n" + text)


@pytest.mark.filterwarnings("ignore")
def test_outputs_keep_t1_and_t2(capsys):
    """The 95th percentile needs many cases: 2.30 on the first 160 seeds (120 cases that PyTorch fuses), 1.90 on 320, and 1.94
    and 1.79 on the 480 and 500 that follow. Its tail is few keys with large heads."""
    largest, ratios = 0.0, []
    for seed in range(320):
        tensors, given = draw(seed, torch.float32)
        true = truth(tensors[:3], given)["output"]
        output = heed.torch.scaled_dot_product_attention(*tensors[:3], **given)
        part = share(output, true)
        assert part <= 1, (seed, [x.shape for x in tensors], given, part)
        largest = max(largest, part)
        fused = by_fused(tensors, given)
        if fused is not None:
            errors = [np.abs(x.double().numpy() - true[0]).max() for x in (output, fused)]
            ratios += [errors[0] / errors[1]] if errors[1] else []
    median, high = np.median(ratios), np.percentile(ratios, 95)
    told(capsys, f"T1, largest error of an output as a share of the bound: {largest:.2f}; T2 beside PyTorch's fused kernel: "
                 f"median {median:.2f}, 95 % {high:.2f}, {len(ratios)} cases")
    assert len(ratios) >= 200 and median <= 1.15 and high <= 2


@pytest.mark.filterwarnings("ignore")
def test_gradients_keep_t1(capsys):
    ours, theirs = [], []
    for seed in range(80):
        tensors, given = draw(seed, torch.float32)
        true = truth(tensors, given)
        for shares, attention in ((ours, heed.torch.scaled_dot_product_attention), (theirs, scaled_dot_product_attention)):
            made = zip(("dq", "dk", "dv"), gradients(attention, tensors, given)[1:])
            shares.append([share(x, true[name]) for name, x in made])
        assert all(part <= 1 for part in ours[-1]), (seed, [x.shape for x in tensors], given, ours[-1])
    told(capsys, "T1, largest error of dq, dk, dv as a share of the bound: "
         + "; ".join(f"{who} " + ", ".join(f"{x:.2f}" for x in np.max(shares, 0))
                     for who, shares in (("heed", ours), ("PyTorch", theirs))))


@pytest.mark.filterwarnings("ignore")
def test_float64_equals_pytorch():
    for seed in range(80):
        tensors, given = draw(seed, torch.float64)
        made = [gradients(f, tensors, given) for f in (heed.torch.scaled_dot_product_attention, scaled_dot_product_attention)]
        for a, b in zip(*made, strict=True):
            assert a.shape == b.shape and (a - b).abs().max() <= 1e-12 * max(1, b.abs().max()), (seed, given)
