"""The peers that run a graph made beforehand: ONNX Runtime and OpenVINO."""

import time

import numpy as np

from .cells import Unsupported
from .tensors import mask_array


def additive(mask):
    """A boolean mask as numbers to add; the lowest float, since -inf is not safe everywhere."""
    if mask is None or mask.dtype != bool:
        return mask
    return np.where(mask, np.float32(0), np.finfo(np.float32).min)


def seconds_of(call):
    """The least of three calls after one that warms up."""
    call()
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        call()
        took.append(time.perf_counter() - begin)
    return min(took)


class OnnxRuntime:
    """com.microsoft.MultiHeadAttention or GroupQueryAttention, which is always causal: where both can, the faster one. Tensors
    are [B, T, H * D]; keys and values that a single query meets, [B, H, T, D], as a cache has them, if d_v = d. In float32
    and float16."""

    def __init__(self, threads):
        import onnx
        import onnxruntime
        self.onnx, self.runtime, self.threads = onnx, onnxruntime, threads
        self.version = onnxruntime.__version__

    def prepare(self, cell, inputs):
        if cell.dtype == "bfloat16":
            raise Unsupported("its kernels on CPUs take float32 and float16")
        if cell.dtype == "float16" and cell.mask == "bias":
            raise Unsupported("it would round the bias, too")
        if cell.backward or cell.dropout:
            raise Unsupported("graphs have no gradients and no dropout")
        if cell.weights:
            raise Unsupported("MultiHeadAttention returns no weights")
        causal = cell.is_causal and cell.queries == cell.keys or cell.mask == "none" and cell.queries == 1
        grouped = causal and cell.d == cell.dv and cell.d % 8 == 0
        many = cell.kv_heads == cell.heads and cell.window == 0
        if not grouped and not many:
            raise Unsupported("GroupQueryAttention is causal, its heads of a multiple of 8")
        feeds = {name: np.ascontiguousarray(inputs[name].transpose(0, 2, 1, 3), cell.dtype).reshape(
            cell.batch, inputs[name].shape[2], -1) for name in "qkv"}
        if cell.queries == 1:   # all but the newest token, which GroupQueryAttention itself puts behind them
            feeds |= {f"cached_{name}": np.array(inputs[name], cell.dtype, order="C") for name in "kv"}
        ways = [self._many_heads(cell, inputs, feeds)] if many else []
        ways += [self._grouped_heads(cell, feeds)] if grouped else []
        return min(ways, key=lambda way: seconds_of(way[0])) if len(ways) > 1 else ways[0]

    def _grouped_heads(self, cell, feeds):
        cached = ["", ""]
        if cell.queries == 1:
            cached = ["cached_k", "cached_v"]
            feeds = {name: array[:, -1:] if name in "kv" else array for name, array in feeds.items()}
        extra = {"seqlens": np.full(cell.batch, cell.keys - 1, np.int32), "total": np.array(cell.keys, np.int32)}
        present = (cell.batch, cell.kv_heads, cell.keys, cell.d)
        outputs = {"output": (cell.batch, cell.queries, cell.heads * cell.dv), "present_k": present, "present_v": present}
        attributes = {"num_heads": cell.heads, "kv_num_heads": cell.kv_heads}
        if cell.window:
            attributes["local_window_size"] = cell.window
        return self._bound("GroupQueryAttention", ["q", "k", "v", *cached, "seqlens", "total"], attributes,
                           feeds | extra, outputs, cell)

    def _many_heads(self, cell, inputs, feeds):
        mask = additive(mask_array(cell, inputs))
        cached = cell.queries == 1 and mask is None and cell.d == cell.dv   # [B, H, T, D] of both, or it refuses them
        names, extra = ["q", "cached_k", "cached_v"] if cached else ["q", "k", "v"], {}
        if mask is not None:
            extra["mask"] = np.ascontiguousarray(np.broadcast_to(
                np.maximum(mask, np.finfo(cell.dtype).min), mask.shape[:2] + (cell.queries, cell.keys)), cell.dtype)
            names += ["", "", "mask"]
        attributes = {"num_heads": cell.heads, "unidirectional": int(cell.is_causal)}
        outputs = {"output": (cell.batch, cell.queries, cell.heads * cell.dv)}
        return self._bound("MultiHeadAttention", names, attributes, feeds | extra, outputs, cell)

    def _bound(self, operator, names, attributes, feeds, outputs, cell):
        """A session with inputs and outputs at fixed places, so that a call copies nothing."""
        onnx, runtime = self.onnx, self.runtime
        helper, numbers = onnx.helper, onnx.TensorProto
        feeds = {name: array for name, array in feeds.items() if name in names}
        types = {"float32": numbers.FLOAT, "float16": numbers.FLOAT16, "int32": numbers.INT32}
        node = helper.make_node(operator, names, list(outputs), domain="com.microsoft",
                                **attributes)
        graph = helper.make_graph(
            [node], "attention",
            [helper.make_tensor_value_info(name, types[array.dtype.name], array.shape)
             for name, array in feeds.items()],
            [helper.make_tensor_value_info(name, types[cell.dtype], shape)
             for name, shape in outputs.items()])
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)])
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        session = runtime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
        binding, results = session.io_binding(), {}
        values = {name: runtime.OrtValue.ortvalue_from_numpy(np.require(array, requirements="C")) for name, array in feeds.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name, shape in outputs.items():   # a cache grows where it is
            results[name] = values.get(name.replace("present", "cached")) or runtime.OrtValue.ortvalue_from_numpy(
                np.empty(shape, cell.dtype))
            binding.bind_ortvalue_output(name, results[name])

        def result():
            output = results["output"].numpy().astype(np.float32)
            output = output.reshape(cell.batch, cell.queries, cell.heads, cell.dv)
            return output.transpose(0, 2, 1, 3), None
        return lambda: session.run_with_iobinding(binding), result


class OpenVino:
    """opset13.ScaledDotProductAttention in float32, which must be asked for: else it takes bf16. For a
    cell of bfloat16 it is asked for that, between tensors of float32, which it likes best."""

    def __init__(self, threads):
        import openvino
        from openvino import opset13
        self.openvino, self.operators = openvino, opset13
        self.version = openvino.__version__.split("-")[0]
        self.core = openvino.Core()
        self.config = {"INFERENCE_NUM_THREADS": str(threads), "NUM_STREAMS": "1", "PERFORMANCE_HINT": "LATENCY",
                       "ENABLE_CPU_PINNING": "NO"}

    def prepare(self, cell, inputs):
        if cell.backward or cell.dropout:
            raise Unsupported("graphs have no gradients and no dropout")
        if cell.weights:
            raise Unsupported("ScaledDotProductAttention returns no weights")
        if cell.dtype == "float16":   # largest error 4.9e-3 where float16's last place is 4.9e-4
            raise Unsupported("asked for float16, it computes in bfloat16 on CPUs like this one")
        hint = {"INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[cell.dtype]}
        op = self.operators
        feeds = {name: np.ascontiguousarray(inputs[name]) for name in "qkv"}
        mask = mask_array(cell, inputs)
        if mask is not None:
            feeds["mask"] = mask
        nodes = {name: op.parameter(array.shape, array.dtype, name)
                 for name, array in feeds.items()}
        q, k, v = (nodes[name] for name in "qkv")
        if cell.kv_heads != cell.heads:   # the operator wants equal numbers, so the graph repeats
            k, v = (self._repeated(node, cell) for node in (k, v))
        arguments = [q, k, v] + ([nodes["mask"]] if "mask" in nodes else [])
        attention = op.scaled_dot_product_attention(*arguments, causal=cell.mask == "causal")
        model = self.openvino.Model([op.result(attention)], list(nodes.values()), "attention")
        request = self.core.compile_model(model, "CPU", self.config | hint).create_infer_request()
        for index, array in enumerate(feeds.values()):
            request.set_input_tensor(index, self.openvino.Tensor(array, shared_memory=True))

        def call():   # infer() would wrap all results in new objects
            request.start_async()
            request.wait()
        call.keep_alive = feeds
        return call, lambda: (request.get_output_tensor(0).data, None)

    def _repeated(self, node, cell):
        op, (batch, heads, rows, size) = self.operators, node.shape
        group = cell.heads // heads
        five = op.reshape(node, np.array([batch, heads, 1, rows, size]), False)
        wide = op.broadcast(five, np.array([batch, heads, group, rows, size]))
        return op.reshape(wide, np.array([batch, cell.heads, rows, size]), False)
