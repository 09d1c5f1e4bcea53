"""heed.attention on the tensors of PyTorch and JAX: the same bits as for NumPy's, of the caller's kind."""

import signal
import subprocess
import sys

import jax
import jax.numpy
import numpy as np
import pytest
import torch

import heed

Q, K, V = (np.random.default_rng(seed).standard_normal((2, 4, 9, 16), np.float32) for seed in range(3))
EXPECTED = heed.attention(Q, K, V, causal=True, return_lse=True, statistics=True)
TYPES = ["float16", "bfloat16", "float32", "float64"]


def as_numpy(x):
    """Exactly, of whatever kind and type."""
    if isinstance(x, torch.Tensor):
        return x.double().numpy()
    return np.asarray(x).astype(np.float64)


def of_torch(x, dtype):
    return torch.from_numpy(x).to(getattr(torch, dtype))


def of_jax(x, dtype):
    return jax.numpy.asarray(x, dtype)


@pytest.mark.parametrize("kind,make", [(torch.Tensor, of_torch), (jax.Array, of_jax)])
@pytest.mark.parametrize("dtype", TYPES)
def test_kind_and_type_are_the_callers(kind, make, dtype):
    with jax.enable_x64(dtype == "float64"):
        tensors = [make(x, dtype) for x in (Q, K, V)]
        seen = heed.attention(*tensors, causal=True, return_lse=True, return_weights=True, statistics=True, reproducible=True)
        assert isinstance(seen.output, kind) and seen.output.dtype == tensors[0].dtype and str(seen.output.dtype).endswith(dtype)
        assert seen.output.shape == tensors[0].shape and isinstance(seen.lse, kind)
        assert isinstance(seen.statistics.entropy, kind) and isinstance(seen.weights, kind)
        wide = heed.attention(*(as_numpy(x).astype(np.float64 if dtype == "float64" else np.float32) for x in tensors),
                              causal=True, return_lse=True)
        assert np.array_equal(as_numpy(seen.output), as_numpy(make(wide.output, dtype)))
        assert np.array_equal(as_numpy(seen.lse), wide.lse)


def test_torchs_views_are_read_where_they_lie():
    packed = torch.randn(2, 9, 3, 4, 16, generator=torch.Generator().manual_seed(1))
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    seen = heed.attention(q, k, v)
    assert np.array_equal(seen, heed.attention(*(x.contiguous() for x in (q, k, v))))
    assert seen.transpose(1, 2).is_contiguous()
    assert torch.allclose(seen, torch.nn.functional.scaled_dot_product_attention(q, k, v), atol=1e-5)
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    masked = heed.scaled_dot_product_attention(q, k, v, mask)
    assert torch.equal(masked, heed.attention(q, k, v, causal=True))
    expanded = heed.attention(q, k[:, :1].expand(-1, 4, -1, -1), v[:, :1].expand(-1, 4, -1, -1))
    assert torch.equal(expanded, heed.attention(q, k[:, :1], v[:, :1]))


@pytest.mark.parametrize("call", ["heed.attention(q, k, v, out=out)", "heed.torch.attention(q, k, v)",
                                  "heed.torch.scaled_dot_product_attention(q, k, v)",
                                  "heed.transformers.attention_forward(layer, q, k, v, None, is_causal=False)[0]"])
def test_torchs_views_are_not_copied(call):
    """Beside the result, 48 MB where the call makes it, nothing of the size of a tensor is allocated."""
    done = subprocess.run([sys.executable, "-c", f"""
import resource, torch, heed, {"heed.transformers" if "transformers" in call else "heed.torch"}
q, k, v, out = (torch.ones(1, 2, 3 << 16, 32).transpose(1, 2) for _ in range(4))
layer = torch.nn.Module()
small = q[:, :2]
def call(q, k, v, out):
    return {call}
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
with torch.no_grad():
    call(small, small, small, out[:, :2])
    before = peak()
    made = call(q, k, v, out)
print(peak() - before < (12 if made is out else 60), made.min().item(), made.max().item())
"""], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True 1.0 1.0\n", "")


def test_out_of_torch_is_written():
    out = torch.zeros(2, 4, 9, 16, dtype=torch.bfloat16)
    q, k, v = (of_torch(x, "bfloat16") for x in (Q, K, V))
    assert heed.attention(q, k, v, out=out) is out
    assert torch.equal(out, heed.attention(q, k, v))
    with pytest.raises(ValueError, match="out is read-only"):
        heed.attention(Q, K, V, out=of_jax(Q, "float32"))


@pytest.mark.parametrize("call", [
    lambda q, k, v, out: heed.attention(q, k, v, out=out), lambda q, k, v, out: heed.attention(q, k, v, out=out, return_lse=True),
    lambda q, k, v, out: heed.attention(q.numpy(), k.numpy(), v.numpy(), out=out),
    lambda q, k, v, out: heed.attention_decode(q, *cache_of(k, v), out=out)])
def test_out_of_torch_is_seen_to_be_written(call):
    """Autograd takes what is saved for what was there, unless the tensor's version says otherwise."""
    q, k, v = (of_torch(x[:1], "float32") for x in (Q, K, V))
    out, weight = torch.zeros(1, 4, 9, 16), torch.ones(1, 4, 9, 16, requires_grad=True)
    loss = (weight * out).sum()
    with pytest.raises(ValueError):
        call(q[..., :3], k, v, out)
    loss.backward(retain_graph=True)   # refused arguments are before anything is written
    call(q, k, v, out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with torch.inference_mode():
        call(q, k, v, torch.zeros(1, 4, 9, 16))   # a tensor of its own kind, that has no version


def test_out_of_torch_is_seen_to_be_written_where_a_signals_handler_ends_the_call():
    """Whatever it raises: part of the tensor is written by then."""
    def handler(*_):
        if out[0, 0, 0, 0] != 0:
            raise ValueError("enough")
    long = torch.ones(1, 4, 16384, 32)
    out, weight = torch.zeros_like(long), torch.ones_like(long, requires_grad=True)
    loss = (weight * out).sum()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(ValueError, match="enough"):
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
            heed.attention(long, long, long, out=out, threads=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert out.any() and not out.all()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def cache_of(k, v):
    cache = heed.KvCache(kv_heads=4, head_size=16, pages=4)
    name = cache.create()
    cache.append(name, k, v)
    return cache, name


def test_gradients_are_torchs():
    q, k, v = (torch.from_numpy(x.astype(np.float64)).requires_grad_() for x in (Q, K, V))
    output = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    output.backward(torch.ones_like(output))
    plain = [x.detach() for x in (q, k, v)]
    forward = heed.attention(*plain, causal=True, return_lse=True)
    seen = heed.attention_backward(*plain, forward.output, forward.lse, torch.ones(1).double().expand(2, 4, 9, 16),
                                   causal=True)
    for ours, theirs in zip(seen[:3], (q.grad, k.grad, v.grad)):
        assert isinstance(ours, torch.Tensor) and torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_a_tensor_that_requires_a_gradient_is_refused():
    q = torch.from_numpy(Q).clone().requires_grad_()
    with pytest.raises(ValueError, match="q requires a gradient.*heed.torch"):
        heed.attention(q, K, V)
    with pytest.raises(ValueError, match="mask requires a gradient"):
        heed.attention(Q, K, V, mask=torch.zeros(9, 9, requires_grad=True))
    assert np.array_equal(heed.attention(q.detach(), K, V), heed.attention(Q, K, V))


def test_tensors_without_memory_are_refused():
    for tensor in (torch.empty(Q.shape, device="meta"), torch.from_numpy(K).to_sparse()):
        with pytest.raises((TypeError, ValueError), match="^k "):
            heed.attention(Q, tensor, V)
    rows = torch.from_numpy(Q[0, 0])
    for q in (rows.to_sparse_csr(), rows.to_sparse()):   # refused before an output is made of its like
        with pytest.raises(ValueError, match="^q has layout torch.sparse_(csr|coo); expected torch.strided"):
            heed.attention(q, rows, rows[:, :3])
    with pytest.raises(TypeError, match="k is "):
        jax.jit(lambda k: heed.attention(Q, k, V))(K)


def test_what_numpy_cannot_take_is_refused_by_its_name_for_the_command_too():
    k = of_torch(K, "float32")
    for x, words in ((torch.complex(k, k).conj().imag, r"a negated view.*\.resolve_neg\(\)"), (k.to("meta"), "on device meta; expected cpu"),
                     (k.to_sparse(), "layout torch.sparse_coo; expected torch.strided"),
                     (k.to(torch.float8_e4m3fn), "an array of torch.float8_e4m3fn; expected real numbers")):
        for call, name in ((lambda x: heed.inspect(Q, x), "k"), (lambda x: heed.study.scaling({"q": Q, "k": x, "v": V}), "k"),
                           (lambda x: heed.entropy_share(x, 3), "entropy_share: entropy")):
            with pytest.raises((TypeError, ValueError), match=f"^{name} (is|has) {words}"):
                call(x)


def test_kinds_mix():
    seen = heed.attention(Q, of_torch(K, "float32"), of_jax(V, "float32"), causal=True)
    assert isinstance(seen, np.ndarray) and np.array_equal(seen, EXPECTED.output)


class Measured(torch.Tensor):
    """A subclass that lives in another module."""


def test_what_dlpack_would_lose_is_refused():
    q, k, v = (of_torch(x, "float32") for x in (Q, K, V))
    negated = torch._neg_view(k)
    imaginary = torch.complex(k, k).conj().imag
    for x in (negated, imaginary):
        with pytest.raises(ValueError, match=r"k is a negated view.*k\.resolve_neg\(\)"):
            heed.attention(q, x, v)
        assert torch.equal(heed.attention(q, x.resolve_neg(), v), heed.attention(q, -k, v))
    with pytest.raises(ValueError, match="out is a negated view"):
        heed.attention(q, k, v, out=torch._neg_view(torch.zeros_like(q)))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(k, v)
        with pytest.raises(ValueError, match="k has a tangent of forward mode.*heed.attention_jvp"):
            heed.attention(q, dual, v)
        assert torch.equal(heed.attention(q, k, v), heed.attention(Q, K, V, out=torch.empty_like(q)))


def test_transforms_and_devices_are_named():
    q, k, v = (of_torch(x, "float32") for x in (Q, K, V))
    for transformed in (lambda f: torch.vmap(f)(k), lambda f: torch.func.jvp(f, (k,), (v,)),
                        lambda f: torch.func.grad(lambda x: f(x).sum())(k)):
        with pytest.raises(ValueError, match="k is inside a transform of PyTorch.*heed.torch.attention"):
            transformed(lambda x: heed.attention(q, x, v))
    with pytest.raises(ValueError, match="^k is on device meta; expected cpu"):
        heed.attention(q, k.to("meta"), v)
    with pytest.raises(ValueError, match="^k has layout torch.sparse_coo; expected torch.strided"):
        heed.attention(q, k.to_sparse(), v)
    for transformed in (jax.jit, jax.vmap, jax.grad):
        with pytest.raises(TypeError, match="^k is traced by JAX.*heed.jax.attention"):
            transformed(lambda x: heed.attention(Q, x, V))(K)


def test_a_subclass_of_another_module_is_a_tensor():
    q = of_torch(Q, "float32").as_subclass(Measured)
    seen = heed.attention(q, K, V, return_lse=True)
    assert isinstance(seen.output, torch.Tensor) and isinstance(seen.lse, torch.Tensor)
    assert np.array_equal(seen.output.as_subclass(torch.Tensor), heed.attention(Q, K, V))


def test_gradients_have_the_kind_of_what_they_are_of():
    q, k, v = of_torch(Q, "float32"), K, of_jax(V, "float32")
    forward = heed.attention(q, k, v, return_lse=True)
    plain = heed.attention(Q, K, V, return_lse=True)
    seen = heed.attention_backward(q, k, v, forward.output, forward.lse, q)
    expected = heed.attention_backward(Q, K, V, plain.output, plain.lse, Q)
    for gradient, kind, same in zip(seen, (torch.Tensor, np.ndarray, jax.Array), expected):
        assert isinstance(gradient, kind) and np.array_equal(as_numpy(gradient), same.astype(np.float64))


@pytest.mark.parametrize("make", [lambda x: x, torch.Tensor.numpy, lambda x: jax.numpy.asarray(x.numpy())], ids=["torch", "numpy", "jax"])
def test_packed_and_merged_results_are_of_the_callers_kind(make):
    q = make(torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(5)))
    packing = torch.tensor([1, 4, 5]), np.array([0, 3, 6])
    seen = heed.attention(q, q, q, packing=packing, return_lse=True, statistics=["max_weight_key"])
    back = heed.attention_backward(q, q, q, seen.output, seen.lse, q, gradients=["dq", "ds_norms"], packing=packing)
    merged = heed.merge([seen.output, seen.output], [seen.lse, make(torch.full((1, 2, 6), -torch.inf))])
    for x in (seen.output, seen.lse, *back[:1], back.ds_norms, *merged):
        assert type(x) is type(q)
    assert np.array_equal(as_numpy(merged.output), as_numpy(seen.output))
    assert np.array_equal(as_numpy(seen.statistics.max_weight_key)[0, :, [0, 5]], np.full((2, 2), -1))
    assert np.array_equal(as_numpy(seen.output)[0, :, 1:4], as_numpy(heed.attention(q[:, :, 1:4], q[:, :, :3], q[:, :, :3]))[0])
