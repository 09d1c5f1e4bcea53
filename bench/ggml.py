"""llama.cpp's attention, one operation of its library ggml, called on the memory of PyTorch's tensors.

    build/peers/bin/pip install --no-deps llama-cpp-python==0.3.36    # builds llama.cpp, some minutes

ggml_flash_attn_ext has queries and outputs in float32 and keys and values in float32, float16 or bfloat16. Internally it
rounds queries to the type of the keys, and with values in float16 adds up in float16.
"""

import ctypes
import importlib.util
import pathlib

import torch

TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 30}   # enum ggml_type
OBJECTS = 1 << 16                                                  # bytes for tensors and a graph, without their data


class _Init(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_data", ctypes.c_bool)]


class _Plan(ctypes.Structure):
    _fields_ = [("work_size", ctypes.c_size_t), ("work", ctypes.c_void_p), ("threads", ctypes.c_int),
                ("pool", ctypes.c_void_p), ("abort", ctypes.c_void_p), ("abort_data", ctypes.c_void_p),
                ("reference", ctypes.c_bool)]


def libraries():
    """The folder of llama.cpp's libraries, None where it is not installed."""
    found = importlib.util.find_spec("llama_cpp")
    return pathlib.Path(found.submodule_search_locations[0]) / "lib" if found else None


def _loaded(folder):
    """Its functions by name, with the types of what they take and give."""
    base, cpu = (ctypes.CDLL(str(folder / f"libggml-{part}.so"), ctypes.RTLD_GLOBAL) for part in ("base", "cpu"))
    at, size, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    known = {"ggml_init": (base, at, [_Init]),
             "ggml_new_tensor_4d": (base, at, [at, ctypes.c_int, size, size, size, size]),
             "ggml_backend_tensor_alloc": (base, ctypes.c_int, [at, at, at]),
             "ggml_backend_cpu_buffer_from_ptr": (base, at, [at, ctypes.c_size_t]),
             "ggml_flash_attn_ext": (base, at, [at, at, at, at, at, real, real, real]),
             "ggml_new_graph": (base, at, [at]),
             "ggml_build_forward_expand": (base, None, [at, at]),
             "ggml_cpu_init": (cpu, None, []),
             "ggml_graph_plan": (cpu, _Plan, [at, ctypes.c_int, at]),
             "ggml_graph_compute": (cpu, ctypes.c_int, [at, ctypes.POINTER(_Plan)])}
    for name, (library, gives, takes) in known.items():
        function = getattr(library, name)
        function.restype, function.argtypes = gives, takes
    return {name: getattr(library, name) for name, (library, _, _) in known.items()}


class Attention:
    """Calls of ggml_flash_attn_ext on q [1, H, Tq, D], float32, and one of several pairs k and v [1, Hkv, Tk, D]."""

    def __init__(self, q, k, v, threads):
        self.ggml = _loaded(libraries())
        self.ggml["ggml_cpu_init"]()
        _, heads, rows, size = q.shape
        self.output = torch.empty(1, rows, heads, size)
        self.kept = [q, *k, *v]     # what the graphs point to
        self.plans = [self._planned(q, one_k, one_v, threads) for one_k, one_v in zip(k, v)]

    def __call__(self, i):
        graph, plan, _ = self.plans[i]
        if self.ggml["ggml_graph_compute"](graph, plan) != 0:
            raise RuntimeError("ggml_graph_compute failed")

    def _planned(self, q, k, v, threads):
        context = self.ggml["ggml_init"](_Init(OBJECTS + (1 << 18), None, True))
        views = [self._view(context, tensor) for tensor in (q, k, v)]
        attended = self.ggml["ggml_flash_attn_ext"](context, *views, None, q.shape[-1] ** -0.5, 0.0, 0.0)
        self._place(attended, self.output)
        graph = self.ggml["ggml_new_graph"](context)
        self.ggml["ggml_build_forward_expand"](graph, attended)
        plan = self.ggml["ggml_graph_plan"](graph, threads, None)
        work = torch.empty(max(plan.work_size, 1), dtype=torch.uint8)
        plan.work = work.data_ptr()
        return graph, ctypes.byref(plan), (plan, work)

    def _view(self, context, tensor):
        """ggml counts dimensions from the one that lies together."""
        seen = self.ggml["ggml_new_tensor_4d"](context, TYPES[tensor.dtype], *reversed(tensor.shape))
        self._place(seen, tensor)
        return seen

    def _place(self, seen, tensor):
        buffer = self.ggml["ggml_backend_cpu_buffer_from_ptr"](tensor.data_ptr(), tensor.nbytes)
        if self.ggml["ggml_backend_tensor_alloc"](buffer, seen, tensor.data_ptr()) != 0:
            raise RuntimeError("ggml_backend_tensor_alloc failed")
