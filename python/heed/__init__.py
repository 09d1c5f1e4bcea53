"""Exact, fast, inspectable scaled dot-product attention for CPUs.

::

    S = scale * Q K^T      scores    [B, H, Tq, Tk]
    P = softmax(S)         weights   each row sums to 1
    O = P V                output    [B, H, Tq, Dv]
"""

from . import study
from ._attention import AttentionResult, RowStatistics, attention, scaled_dot_product_attention
from ._cache import KvCache, attention_decode
from ._gradients import Gradients, JvpResult, attention_backward, attention_jvp
from ._inspect import Inspection, Remark, inspect
from ._inspection import (Summary, WeightViews, effective_keys, entropy_share, inspect_weights, mean_diagonal,
                          saturation, summarize)
from ._merge import MergeResult, merge
from ._options import Mask, Options, add, drop, keep
from ._record import LayerCall, Record, record
from ._runtime import (Explanation, InstructionSet, cap_instruction_set, default_threads, explain, instruction_set,
                       instruction_sets, refused_thread_starts, version)

__version__ = version()

__all__ = [
    "attention", "scaled_dot_product_attention", "AttentionResult", "RowStatistics",
    "keep", "drop", "add", "Mask", "Options",
    "inspect", "Inspection", "Remark", "study", "record", "Record", "LayerCall",
    "attention_backward", "Gradients", "attention_jvp", "JvpResult",
    "KvCache", "attention_decode", "merge", "MergeResult",
    "inspect_weights", "WeightViews", "summarize", "Summary", "saturation", "entropy_share", "effective_keys",
    "mean_diagonal",
    "explain", "Explanation", "instruction_sets", "InstructionSet", "instruction_set", "cap_instruction_set",
    "default_threads", "refused_thread_starts", "version",
]
