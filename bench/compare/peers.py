"""The peers that run operations as they come or compile functions: PyTorch and JAX.

A peer has `version` and `prepare(cell, inputs)`, which returns a function that makes one call and
one that returns (output [B, H, Tq, Dv], weights or None) of the last call. Inputs are brought into
the layout that the peer likes best, untimed. What it cannot do raises Unsupported with the reason.
"""

import numpy as np

from . import graph_peers
from .cells import Unsupported
from .tensors import mask_array

NAMES = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "jax": "JAX"}


def load(library, threads):
    """The peer of this name, its library imported and told how many threads it has."""
    kinds = {"torch": Torch, "jax": Jax, "onnxruntime": graph_peers.OnnxRuntime,
             "openvino": graph_peers.OpenVino}
    return kinds[library](threads)


class Torch:
    """torch.nn.functional.scaled_dot_product_attention, by whichever kernel it chooses."""

    def __init__(self, threads):
        import torch
        self.torch, self.version = torch, torch.__version__
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)

    def prepare(self, cell, inputs):
        torch = self.torch
        dtype = getattr(torch, cell.dtype)
        q, k, v = (torch.from_numpy(inputs[name]).to(dtype) for name in "qkv")
        last = []
        if cell.backward:
            if cell.mask not in ("none", "causal"):
                raise Unsupported("gradients are compared without mask arrays")
            d_output = torch.from_numpy(inputs["d_output"])
            attend = torch.nn.functional.scaled_dot_product_attention
            for tensor in (q, k, v):
                tensor.requires_grad_()

            def call():
                with torch.enable_grad():
                    output = attend(q, k, v, is_causal=cell.is_causal,
                                    enable_gqa=cell.kv_heads != cell.heads)
                    last[:] = torch.autograd.grad(output, (q, k, v), d_output)
            return call, lambda: (last[0].numpy(), None)
        if cell.weights:
            scale = cell.d ** -0.5

            def call():
                weights = torch.softmax((q * scale) @ k.transpose(-1, -2), -1)
                last[:] = weights @ v, weights
        else:
            attend = torch.nn.functional.scaled_dot_product_attention
            mask = mask_array(cell, inputs)
            options = {"attn_mask": None if mask is None else torch.from_numpy(mask),
                       "is_causal": cell.mask == "causal",
                       "enable_gqa": cell.kv_heads != cell.heads}

            def call():
                last[:] = attend(q, k, v, dropout_p=cell.dropout, **options),
            if cell.dropout:
                return call, lambda: (attend(q, k, v, **options).numpy(), None)
        return call, lambda: tuple(tensor.float().numpy() for tensor in last)


class Jax:
    """jax.nn.dot_product_attention, compiled; it has its own windows and lengths."""

    def __init__(self, threads):
        import jax
        self.jax, self.version = jax, jax.__version__
        jax.config.update("jax_platforms", "cpu")

    def prepare(self, cell, inputs):
        jax, numpy = self.jax, self.jax.numpy
        if cell.dtype == "bfloat16" and cell.d == 1:
            raise Unsupported("its compiler ends the process there")
        if cell.dropout:
            raise Unsupported("it has no dropout")
        if cell.backward:
            raise Unsupported("its gradients take n x n memory")
        if cell.weights:
            return self._prepare_weights(cell, inputs)
        if cell.d != cell.dv:
            raise Unsupported("values have the size of keys")
        q, k, v = (numpy.asarray(np.ascontiguousarray(inputs[name].transpose(0, 2, 1, 3)), cell.dtype)
                   for name in "qkv")
        arrays = {}
        if cell.mask == "keep":
            arrays["mask"] = inputs["keep"]
        if cell.mask == "bias":
            arrays["bias"] = inputs["bias"]
        if cell.mask == "padded":
            arrays["key_value_seq_lengths"] = inputs["key_lengths"].astype(np.int32)
        arrays = {name: numpy.asarray(array) for name, array in arrays.items()}
        window = {"local_window_size": (cell.window - 1, 0)} if cell.window else {}
        attend = jax.jit(lambda q, k, v, arrays: jax.nn.dot_product_attention(
            q, k, v, is_causal=cell.is_causal, **window, **arrays))
        last = []

        def call():
            last[:] = attend(q, k, v, arrays).block_until_ready(),
        return call, lambda: (np.asarray(last[0], np.float32).transpose(0, 2, 1, 3), None)

    def _prepare_weights(self, cell, inputs):
        jax, numpy = self.jax, self.jax.numpy
        q, k, v = (numpy.asarray(inputs[name]) for name in "qkv")

        @jax.jit
        def attend(q, k, v):
            weights = jax.nn.softmax((q * cell.d ** -0.5) @ k.swapaxes(-1, -2), axis=-1)
            return weights @ v, weights
        last = []

        def call():
            last[:] = jax.block_until_ready(attend(q, k, v))
        return call, lambda: tuple(np.asarray(array) for array in last)
