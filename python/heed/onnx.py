"""heed inside ONNX programs: the operator Attention of opsets 23, 24 and 25, computed by heed.

::

    import heed.onnx
    heed.onnx.Backend.run_model(model, [q, k, v])                                  onnx.backend.base.Backend
    onnx.reference.ReferenceEvaluator(model, new_ops=[heed.onnx.Attention])        the evaluator with heed's operator

Every other operator is the reference evaluator's of the package onnx.
"""

from typing import Any, Sequence

import numpy as np
import onnx
from onnx import checker, defs, helper
from onnx.backend import base
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from ._arrays import refuse_masked
from ._onnx_attention import Attributes, onnx_attention

__all__ = ["Attention", "Backend", "BackendRep"]


class Attention(OpRun):
    """The operator, for ``new_ops`` of onnx.reference.ReferenceEvaluator. Results have the types of the specification."""

    op_domain = ""

    def run(self, *inputs: Any, **attributes: Any) -> Any:
        """What the reference evaluator calls.

        :raises TypeError, ValueError: inputs or attributes do not fit the specification
        """
        try:
            return super().run(*inputs, **attributes)
        except TypeError as error:  # OpRun puts text of its own over what is said here
            if isinstance(error.__cause__, TypeError) and str(error.__cause__).startswith("Attention: "):
                raise error.__cause__ from None
            raise

    def _run(self, Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, **attributes):
        given = {name: value for name, value in attributes.items() if value is not None}
        opset = self.run_params["opsets"].get("", 0)
        if opset >= 25 and Q.ndim == 4 and not given.keys().isdisjoint(
                ("q_num_heads", "kv_num_heads")):
            raise ValueError("Attention: q_num_heads or kv_num_heads is given and Q has 4 axes; expected 3 axes with them")
        outputs = len(self.onnx_node.output)
        return onnx_attention(Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, Attributes(**given), outputs,
                              pads=opset >= 24)


def refuse(function: str, keywords) -> None:
    """No keyword is lost without a word."""
    if keywords:
        raise TypeError(f"{function}: got an unexpected keyword argument {min(keywords)!r}")


def known(function: str, inputs: dict, names) -> None:
    """No array is lost, either."""
    for name in inputs:
        if name not in names:
            raise ValueError(f"{function}: inputs has {name!r}; expected names among {', '.join(names)}")


class Evaluator(ReferenceEvaluator):
    """onnx's, which makes others of its class for the functions of a model, without ``new_ops``."""

    def __init__(self, proto: Any, **options: Any):
        super().__init__(proto, **({"new_ops": [Attention]} | options))


class BackendRep(base.BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: onnx.ModelProto):
        self.evaluator = Evaluator(model)
        graph = model.graph
        self.given = {x.name for x in graph.initializer} | {x.values.name for x in graph.sparse_initializer}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's outputs, in its order.

        :param inputs: arrays in the order of the model's inputs, one array, or a dictionary by name
        :raises TypeError: there is a keyword, as base.BackendRep allows: heed has none
        :raises ValueError: there are more arrays than inputs, or fewer, or Attention's do not fit its specification
        """
        refuse("run", kwargs)
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        names = self.evaluator.input_names
        if not isinstance(inputs, dict):
            if len(inputs) > len(names):
                raise ValueError(f"run: inputs has {len(inputs)} arrays; expected at most {len(names)}: {', '.join(names)}")
            inputs = dict(zip(names, inputs))
        known("run", inputs, [*names, *sorted(self.given - {*names})])
        absent = [name for name in names if name not in inputs and name not in self.given]
        if absent:
            raise ValueError(f"run: inputs lacks {', '.join(absent)}; expected arrays for {', '.join(names)}")
        return tuple(self.evaluator.run(None, inputs))


class Backend(base.Backend):
    """onnx.backend.base.Backend on the CPU."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BackendRep:
        """The model, checked and ready to run.

        :raises ValueError: device is none that heed has
        :raises onnx.checker.ValidationError: the model is not valid
        """
        if not cls.supports_device(device):
            raise ValueError(f"prepare: device is {device!r}; expected 'CPU'")
        refuse("prepare", kwargs)
        super().prepare(model, device)  # checks the model
        return BackendRep(model)

    @classmethod
    def run_node(cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU",
                 outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs of one operator.

        :param inputs: arrays in the order of the node's inputs, one array, or a dictionary by name
        :param opset_version: by name, the newest one unless given
        :raises ValueError: device is none that heed has, or Attention's inputs do not fit its specification
        """
        refuse("run_node", kwargs.keys() - {"opset_version"})
        super().run_node(node, inputs, device, outputs_info, **kwargs)  # checks the node
        names = list(dict.fromkeys(name for name in node.input if name))
        if isinstance(inputs, dict):
            known("run_node", inputs, names)
            inputs = [inputs[name] for name in names if name in inputs]
        inputs = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(inputs) != len(names):
            raise ValueError(f"run_node: inputs has {len(inputs)} arrays; expected {len(names)}: {', '.join(names)}")
        for name, x in zip(names, inputs):
            refuse_masked(f"run_node: {name}", x)
        inputs = [np.asarray(x) for x in inputs]
        typed = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                 for name, array in zip(names, inputs)]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        version = kwargs.get("opset_version", defs.onnx_opset_version())
        model = helper.make_model(helper.make_graph([node], "node", typed, results),
                                  opset_imports=[helper.make_opsetid("", version)])
        if not cls.supports_device(device):
            raise ValueError(f"run_node: device is {device!r}; expected 'CPU'")
        return BackendRep(model).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether it is "CPU", perhaps with a number."""
        kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
        return kind == "CPU" and (number.isdecimal() or device == "CPU")
