"""heed's modules beside PyTorch's: outputs and gradients on the same weights.

The truth is PyTorch in float64. heed's float32 must be within the bound that module_bounds.py derives, in
every element: a worst case, of which errors take a hundredth at most, so it tells a wrong formula or a
product in fewer bits; the digits of products and of attention have tests of their own. Outputs of 4,096
elements or more also hold T3 of docs/numerics.md: the root of the mean square of heed's error is at most
1.6 times that of PyTorch's float32. For gradients the ratio is printed: here sums of some hundred rows are
one chain in heed and eight or sixteen in PyTorch's vectors.
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
from module_bounds import Known
from module_bounds import module as bounds_of_module
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


def with_torch_names(tensors, case):
    """What is called W_q, b_q .. as nn.MultiheadAttention calls it."""
    named = {name: t for name, t in tensors.items() if not name.startswith("gradients.")}
    take = {name.removeprefix("gradients."): t for name, t in tensors.items() if name.startswith("gradients.")}
    packed = {"in_proj_bias": "b"} if case.bias else {}
    if case.d_keys in (0, case.d_model) and case.d_values in (0, case.d_model):
        packed["in_proj_weight"] = "W"
    else:
        named |= {f"gradients.{n}_proj_weight": take[f"W_{n}"] for n in "qkv"}
    for name, letter in packed.items():
        parts = [take[f"{letter}_{n}"] for n in "qkv"]
        named[f"gradients.{name}"] = Known(torch.cat([t.value for t in parts]), torch.cat([t.error for t in parts]))
    named["gradients.out_proj.weight"] = take["W_o"]
    return named | ({"gradients.out_proj.bias": take["b_o"]} if case.bias else {})


def with_heed_names(state, case):
    """The parameters of nn.MultiheadAttention as W_q, b_q .."""
    weights = state["in_proj_weight"].chunk(3) if "in_proj_weight" in state else [
        state[f"{n}_proj_weight"] for n in "qkv"]
    named = dict(zip(("W_q", "W_k", "W_v"), weights)) | {"W_o": state["out_proj.weight"]}
    if case.bias:
        named |= dict(zip(("b_q", "b_k", "b_v"), state["in_proj_bias"].chunk(3))) | {"b_o": state["out_proj.bias"]}
    return named


def compare(case, ours, theirs, truth, known):
    """Every element within its bound; prints the errors, and how much of the bound heed's takes."""
    assert known.keys() == truth.keys()
    print(f"\n{case}\n    {'root of the mean square':32}{'heed':>11}{'torch':>11}{'ratio':>8}{'of bound':>10}")
    for name, true in truth.items():
        assert ours[name].shape == true.shape, name
        bound = known[name].error
        # The analysis is of this function: both compute it in float64.
        assert ((known[name].value - true).abs() <= 1e-6 * bound).all(), f"{case}: {name}: not the same formula"
        error = (ours[name] - true).abs()
        assert (error <= bound).all(), f"{case}: {name}: {(error / bound).max():.2f} of the bound"
        off, other = (float((t[name].double() - true).square().mean().sqrt()) for t in (ours, theirs))
        ratio = off / other if other else 1.0
        print(f"    {name:32}{off:11.2e}{other:11.2e}{ratio:8.2f}{(error / bound).max():10.3f}")
        assert name != "output" or true.numel() < 4096 or ratio <= 1.6, f"{case}: {ratio:.2f}"


def test_multi_head_attention_is_that_of_torch(tmp_path):
    torch.set_num_threads(1)
    for number, case in enumerate(TORCH):
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
        known = with_torch_names(bounds_of_module(case, with_heed_names(state, case), inputs), case)
        compare(case, ours, theirs, truth, known)


def test_what_torch_has_no_module_for_is_the_formula_in_torch(tmp_path):
    torch.set_num_threads(1)
    for number, case in enumerate(FORMULA):
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
        compare(case, ours, by_formula(case, parameters, inputs, torch.float32),
                by_formula(case, parameters, inputs, torch.float64), bounds_of_module(case, parameters, inputs))
