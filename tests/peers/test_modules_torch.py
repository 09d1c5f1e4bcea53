"""heed's modules beside PyTorch's: outputs and gradients on the same weights.

The truth is PyTorch in float64. heed's module and PyTorch's, both in float32, are compared with it,
tensor by tensor: heed's error must be below 3e-6 of the tensor's norm, and its root of the mean square
beside PyTorch's at most 1.6 in the median and 3 at the 95th percentile. These cases are small: a sum of
forty numbers is one chain in heed and eight or sixteen in PyTorch's vectors.
nn.MultiheadAttention has its own names in the files, both ways; what it cannot do (other head sizes,
grouped-query heads, a temperature) is computed by the same formula in PyTorch's functions.

    ./dev peers
"""

import dataclasses
import os
import pathlib
import subprocess

import numpy as np
import torch
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = os.environ.get("HEED_MODULE_RUN", ROOT / "build" / "release" / "tests" / "modules" / "module_run")


@dataclasses.dataclass(frozen=True)
class Case:
    d_model: int
    heads: int
    batch: int = 2
    queries: int = 20
    keys: int = 0  # 0: self-attention
    kv_heads: int = 0
    head_size: int = 0
    value_size: int = 0
    d_keys: int = 0
    d_values: int = 0
    bias: bool = True
    causal: bool = False
    mask: str = ""  # "", "bias" or "drop"
    temperature: int = 0  # 0 none, 1 one, 2 per head

    @property
    def own_values(self):
        return self.keys > 0 and self.d_values not in (0, self.d_keys)


# What nn.MultiheadAttention can do.
TORCH = [
    Case(16, 2),
    Case(48, 3, queries=65, bias=False),
    Case(64, 8, batch=3, queries=33, causal=True),
    Case(64, 4, queries=50, mask="bias"),
    Case(32, 4, queries=40, mask="drop"),
    Case(40, 5, queries=17, keys=90),
    Case(48, 4, queries=30, keys=70, d_keys=20, d_values=36, mask="bias"),
    Case(384, 12, batch=2, queries=256, causal=True),
]

# What it cannot: by formula.
FORMULA = [
    Case(24, 1, queries=30, head_size=10, value_size=7, bias=False, causal=True),  # SelfAttention
    Case(32, 6, queries=40, kv_heads=2, head_size=16, temperature=2),
    Case(20, 4, queries=25, keys=60, kv_heads=1, head_size=8, value_size=12, d_keys=28, temperature=1,
         mask="bias"),
]


def inputs_of(case, random):
    def normal(*shape):
        return torch.from_numpy(random.standard_normal(shape).astype(np.float32))
    keys = case.keys or case.queries
    made = {"x": normal(case.batch, case.queries, case.d_model),
            "d_output": normal(case.batch, case.queries, case.d_model)}
    if case.keys:
        made["context"] = normal(case.batch, keys, case.d_keys or case.d_model)
    if case.own_values:
        made["values"] = normal(case.batch, keys, case.d_values)
    if case.mask == "bias":
        made["bias"] = normal(case.queries, keys)
    if case.mask == "drop":  # padding at the end of some entries
        lengths = random.integers(1, keys + 1, case.batch)
        made["drop"] = torch.from_numpy(np.arange(keys)[None, :] >= lengths[:, None]).reshape(case.batch, 1, 1, keys)
    return made


def by_heed(case, inputs, parameters, names, folder):
    numbers = {k: int(v) for k, v in dataclasses.asdict(case).items() if k not in ("mask", "batch", "queries", "keys")}
    if not case.keys:
        numbers["d_keys"] = numbers["d_values"] = 0
    metadata = {k: str(v) for k, v in numbers.items()} | names
    tensors = {k: v.contiguous() for k, v in (inputs | parameters).items()}
    save_file(tensors, folder / "in.safetensors", metadata)
    done = subprocess.run([RUN, folder / "in.safetensors", folder / "out.safetensors"], capture_output=True, text=True)
    assert done.returncode == 0, f"{case}: {done.stderr}"
    return load_file(folder / "out.safetensors")


def leaves_of(inputs, dtype):
    """The inputs that have a gradient, by their names."""
    return {name: tensor.detach().clone().to(dtype).requires_grad_(True) for name, tensor in inputs.items()
            if name not in ("d_output", "drop")}


def finished(leaves, parameters, output, inputs):
    """Output and gradients as module_run names them."""
    output.backward(inputs["d_output"].to(output.dtype))
    result = {"output": output.detach()}
    result |= {name: leaf.grad.clone() for name, leaf in leaves.items()}
    return result | {f"gradients.{name}": p.grad.clone() for name, p in parameters.items()}


def by_module(case, module, inputs, dtype):
    module = module.to(dtype)
    module.zero_grad(set_to_none=True)
    leaves = leaves_of(inputs, dtype)
    context = leaves.get("context", leaves["x"])
    values = leaves.get("values", context)
    mask = leaves.get("bias")
    if case.causal:
        mask = torch.full((case.queries, case.queries), -torch.inf, dtype=dtype).triu(1)
    padding = inputs["drop"].reshape(case.batch, -1) if "drop" in inputs else None
    output, _ = module(leaves["x"], context, values, attn_mask=mask, key_padding_mask=padding, need_weights=False)
    return finished(leaves, dict(module.named_parameters()), output, inputs)


def by_formula(case, parameters, inputs, dtype):
    leaves = leaves_of(inputs, dtype)
    p = {name: tensor.detach().clone().to(dtype).requires_grad_(True) for name, tensor in parameters.items()}
    context = leaves.get("context", leaves["x"])
    values = leaves.get("values", context)
    kv_heads = case.kv_heads or case.heads

    def heads(rows, letter, count):
        y = torch.nn.functional.linear(rows, p[f"W_{letter}"], p.get(f"b_{letter}"))
        return y.reshape(*y.shape[:2], count, -1).transpose(1, 2)
    q = heads(leaves["x"], "q", case.heads)
    k = heads(context, "k", kv_heads).repeat_interleave(case.heads // kv_heads, 1)
    v = heads(values, "v", kv_heads).repeat_interleave(case.heads // kv_heads, 1)
    scores = q @ k.transpose(-1, -2) / case.head_size**0.5
    if case.temperature:
        scores = scores / p["temperature"].reshape(-1, 1, 1)
    if "bias" in leaves:
        scores = scores + leaves["bias"]
    if case.causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    o = (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
    output = torch.nn.functional.linear(o, p["W_o"], p.get("b_o"))
    return finished(leaves, p, output, inputs)


def compare(case, ours, theirs, truth):
    """The ratios of the errors, one for each tensor."""
    ratios = []
    for name, true in truth.items():
        size = true.norm()
        if name.endswith(("in_proj_bias", "b_k")):  # the part of the keys is 0 but for rounding
            size = max(size, truth["output"].norm())
        assert ours[name].shape == true.shape, name
        off, other = (float((t[name].double() - true).square().mean().sqrt()) for t in (ours, theirs))
        assert off * true.numel()**0.5 < 3e-6 * size, f"{case}: {name}"
        if true.numel() < 12:  # of few numbers the ratio is chance
            continue
        ratios.append(off / other if other else 1.0)
        print(f"    {name:32}{off:11.2e}{other:11.2e}{ratios[-1]:8.2f}")
    return ratios


def judge(ratios):
    print(f"rms of errors, heed / torch: median {np.median(ratios):.2f}, 95 % {np.percentile(ratios, 95):.2f}, "
          f"largest {max(ratios):.2f}, {len(ratios)} tensors")
    assert np.median(ratios) <= 1.6
    assert np.percentile(ratios, 95) <= 3


def test_multi_head_attention_is_that_of_torch(tmp_path):
    torch.set_num_threads(1)
    ratios = []
    for number, case in enumerate(TORCH):
        print(f"\n{case}\n    {'':32}{'heed':>11}{'torch':>11}{'ratio':>8}")
        random = np.random.default_rng(number)
        torch.manual_seed(number)
        module = torch.nn.MultiheadAttention(
            case.d_model, case.heads, bias=case.bias, batch_first=True,
            kdim=case.d_keys or None, vdim=(case.d_values or case.d_keys) or None)
        with torch.no_grad():  # PyTorch's biases begin at 0
            for p in module.parameters():
                if p.dim() == 1:
                    p.copy_(torch.randn(p.shape))
        state = {name: p.detach().clone() for name, p in module.state_dict().items()}
        inputs = inputs_of(case, random)
        ours = by_heed(case, inputs, {f"parameters.{n}": p for n, p in state.items()}, {"names": "torch"}, tmp_path)
        written = {n.removeprefix("parameters."): p for n, p in ours.items() if n.startswith("parameters.")}
        assert written.keys() == state.keys() and all(torch.equal(written[n], state[n]) for n in state)
        module.load_state_dict(written)  # strict
        theirs = by_module(case, module, inputs, torch.float32)
        truth = by_module(case, module, inputs, torch.float64)
        ratios += compare(case, ours, theirs, truth)
    judge(ratios)


def test_what_torch_has_no_module_for_is_the_formula_in_torch(tmp_path):
    torch.set_num_threads(1)
    ratios = []
    for number, case in enumerate(FORMULA):
        print(f"\n{case}\n    {'':32}{'heed':>11}{'torch':>11}{'ratio':>8}")
        random = np.random.default_rng(100 + number)
        value_size, kv_heads = case.value_size or case.head_size, case.kv_heads or case.heads
        rows = {"q": case.heads * case.head_size, "k": kv_heads * case.head_size, "v": kv_heads * value_size,
                "o": case.d_model}
        d_keys = case.d_keys or case.d_model
        columns = {"q": case.d_model, "k": d_keys, "v": d_keys, "o": case.heads * value_size}
        made = {f"W_{n}": random.standard_normal((rows[n], columns[n])) / columns[n]**0.5 for n in "qkvo"}
        if case.bias:
            made |= {f"b_{n}": random.standard_normal(rows[n]) for n in "qkvo"}
        if case.temperature:
            made["temperature"] = random.uniform(0.5, 2, 1 if case.temperature == 1 else case.heads)
        parameters = {n: torch.from_numpy(p.astype(np.float32)) for n, p in made.items()}
        inputs = inputs_of(case, random)
        ours = by_heed(case, inputs, {f"parameters.{n}": p for n, p in parameters.items()}, {}, tmp_path)
        ratios += compare(case, ours, by_formula(case, parameters, inputs, torch.float32),
                          by_formula(case, parameters, inputs, torch.float64))
    judge(ratios)
