"""What ./dev accuracy --check holds heed to: T2 and T3 of docs/numerics.md, and the exceptions from them that are known.

An exception covers cells of one type and class of values, one limit and one library. It has a reason, and what was measured
where: the largest of these is its ceiling. What is above a limit and not covered fails, as does what is above its ceiling, in
two digits. So does a library that has fewer results than it had when these were measured (MEASURED), unless --without names it.
"""

import dataclasses
import re

MEDIAN, PERCENTILE, LISTED = 1.15, 2.0, 4.0              # T2
FEWEST, RMS, RMS_LONG, SHORT_HEAD, LONG = 4096, 1.6, 1.1, 128, 512   # T3
KINDS = {"T2 median": MEDIAN, "T2 95 %": PERCENTILE, "T2 case": LISTED, "T3": RMS, "T3 long": RMS_LONG}

EPYC = "AMD EPYC (CPU family 26), 2026-11-23"
XEON = "Intel Xeon (model 167), 2026-11-24"
ZEN3 = "AMD EPYC (CPU family 25, AVX2), 2026-11-28"


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    kind: str          # of KINDS
    dtype: str
    values: str        # of cells.VALUES
    library: str       # of accuracy_runs.PEERS; best: the best of all, as "T2 case" has it
    cells: str         # a pattern of their names; "": all
    measured: dict     # {where and when: the largest ratio}
    reason: str

    @property
    def ceiling(self):
        return max(self.measured.values())

    def covers(self, kind, dtype, values, library, name):
        return ((kind, dtype, values, library) == (self.kind, self.dtype, self.values, self.library)
                and re.search(self.cells, name) is not None)


JAX = "It adds up products in several chains and errs less."
FEW_ROWS = "q . k is most of heed's error; for so few rows the library adds it up in another order and errs less."
ONE_AND_FIVE = FEW_ROWS + " These are cases of 1 and of 5 rows."
KEYS = "l and O, each one chain in a block of 96 keys, are most of heed's error."
BASE_2 = "In base 2 a score, here some 40,000, is rounded once more than in e^x, with a scale that is a power of two: 2.3e-05 of 6.4e-05."
LARGE = ("q . k of scores of 1e5 is most of the error (float32, 300 x 520, d = 128, keep: 2.4e-03 of 2.5e-03). PyTorch's fused kernel and "
         "ONNX Runtime have the same; these operations round it otherwise.")
CHANCE = "Few outputs: chance, as the table shows where the case is drawn anew."


def on_xeon(ratio):
    """{where and when: ratio}; a bare one is of XEON."""
    return ratio if isinstance(ratio, dict) else {XEON: ratio}


def jax(dtype, **ratios):
    """class: (T3, T3 long), as on_xeon has them."""
    for values, pair in ratios.items():
        for kind, ratio in zip(("T3", "T3 long"), pair):
            yield Known(kind, dtype, values, "jax", "", on_xeon(ratio), JAX)


def few_rows(dtype, kind, **ratios):
    """class_library: the same, of cells with 5 rows."""
    for name, ratio in ratios.items():
        values, library = name.rsplit("_", 1)
        yield Known(kind, dtype, values, library, "-n5x7-", on_xeon(ratio), FEW_ROWS)


KNOWN = (
    # float32, standard normal
    Known("T2 case", "float32", "normal", "best", "n1x700-d1$", {EPYC: 7.01, XEON: 6.53}, CHANCE),
    Known("T2 case", "float32", "normal", "best", "n1x700-d1-keep", {EPYC: 4.5, XEON: 4.44}, CHANCE),
    Known("T2 case", "float32", "normal", "best", "n33x64-d1-keep", {EPYC: 4.6},
          "With one product a score, sums over keys are most of the error, and l is one chain like O; the rest is one row, in which O, "
          "q . k, O / l and l err in the same direction."),
    Known("T2 case", "float32", "normal", "best", "n100x129-d80$", {EPYC: 5.06, XEON: 5.06},
          "JAX alone: PyTorch's fused kernel and ONNX Runtime have heed's error, of which q . k as one chain makes more than half."),
    Known("T3", "float32", "normal", "torch", "-n5x7-", {EPYC: 1.84, XEON: 2.27}, FEW_ROWS),
    Known("T3", "float32", "normal", "math", "-n5x7-", {EPYC: 1.81, XEON: 1.94}, FEW_ROWS),
    Known("T3 long", "float32", "normal", "math", "n520-d16-causal-window=100", {EPYC: 1.10}, KEYS),
    Known("T3 long", "float32", "normal", "onnxruntime", "-d1x128", {EPYC: 1.17, XEON: 1.17},
          KEYS + " At d = 1 next are q . k and base 2, which rounds a score once more than e^x does."),
    Known("T3", "float32", "normal", "jax", "", {EPYC: 2.18, XEON: 2.18}, JAX),
    Known("T3 long", "float32", "normal", "jax", "", {EPYC: 2.09, XEON: 2.09}, JAX),
    # float32, other values
    *jax("float32", one_signed=(2.56, 1.62), v_one_signed=(2.33, 1.66), v_constant=(2.54, 1.72), sharp=({XEON: 2.43, ZEN3: 2.81}, 2.43),
         offset=(3.27, 3.27)),
    *few_rows("float32", "T3", one_signed_torch=1.62, one_signed_math=1.74, sharp_torch=3.92, sharp_math=3.93,
              sharp_onnxruntime=2.76, sharp_openvino=2.85, offset_torch=3.37, offset_math=3.37),
    Known("T2 case", "float32", "sharp", "best", "n5x7-d16-", {XEON: 4.91},
          "JAX alone: the others have heed's error, of which q . k makes 2.2e-06 of 2.3e-06."),
    Known("T2 case", "float32", "sharp", "best", "n5x7-d256-", {XEON: 7.79}, FEW_ROWS),
    Known("T2 case", "float32", "sharp", "best", "n1x700-d128-sharp-keep", {ZEN3: 4.68}, FEW_ROWS),
    Known("T2 case", "float32", "offset", "best", "n5x7-d128-", {XEON: 7.02, ZEN3: 7.72}, FEW_ROWS),
    Known("T2 95 %", "float32", "sharp", "torch", "", {XEON: 3.24, ZEN3: 3.83}, ONE_AND_FIVE),
    Known("T2 95 %", "float32", "offset", "torch", "", {XEON: 2.94, ZEN3: 3.42}, ONE_AND_FIVE),
    Known("T2 case", "float32", "offset", "best", "n1x700-d128-offset-keep", {XEON: 10.51, ZEN3: 11.89}, FEW_ROWS),
    *(Known("T3 long", "float32", values, "onnxruntime", "", {XEON: 1.12}, KEYS) for values in ("v_one_signed", "v_constant")),
    *(Known("T3 long", "float32", "offset", library, "n520-d16-offset-causal", {XEON: 1.14}, BASE_2)
      for library in ("torch", "onnxruntime")),
    Known("T3 long", "float32", "offset", "math", "", {XEON: 1.27}, LARGE),
    Known("T3 long", "float32", "offset", "openvino", "", {XEON: 1.29}, LARGE),
    *(Known("T3", "float32", "offset", library, "n33x64-d128-offset-keep", {XEON: ratio}, LARGE)
      for library, ratio in (("math", 1.86), ("openvino", 1.62))),
    # float16
    *few_rows("float16", "T3", offset_torch={XEON: 2.73, ZEN3: 3.89}, offset_math={XEON: 2.72, ZEN3: 3.90}),
    Known("T2 95 %", "float16", "offset", "torch", "", {ZEN3: 2.86}, ONE_AND_FIVE),
    Known("T2 case", "float16", "offset", "best", "n(5x7|1x700)-d256-float16-offset-keep", {ZEN3: 4.88}, FEW_ROWS),
    Known("T3", "float16", "offset", "math", "n33x64-d128-float16-offset-keep", {XEON: 1.71}, LARGE),
    Known("T3 long", "float16", "offset", "math", "", {XEON: 1.28}, LARGE),
    # bfloat16, by dot products
    Known("T2 case", "bfloat16", "normal", "best", "n1x700-d1-bfloat16-keep", {EPYC: 8.09},
          "6 outputs. Weights rounded to bfloat16 move one result by 2.7e-04, more than half a unit in its last place (4.9e-04), so that it is "
          "stored as the next number; PyTorch's fused kernel rounds them too and was lucky."),
    *(Known("T3 long", "bfloat16", "normal", library, "", {EPYC: ratio},
            "Weights stay float32 there, where heed's and PyTorch's fused dot products round them to bfloat16.")
      for library, ratio in (("math", 1.36), ("jax", 1.34))),
    Known("T3 long", "bfloat16", "offset", "math", "", {XEON: 1.12}, LARGE + " Their weights stay float32, too."),
)

# How many cells a library has a result of.
MEASURED = {
    ("float32", "normal"): {"torch": 632, "math": 852, "onnxruntime": 732, "openvino": 852, "jax": 632},
    ("bfloat16", "normal"): {"torch": 632, "math": 852, "openvino": 852, "jax": 582},
    ("float16", "normal"): {"torch": 632, "math": 852, "onnxruntime": 582},
} | {(dtype, values): dict.fromkeys(libraries, 44)
     for values in ("one_signed", "v_one_signed", "v_constant", "sharp", "offset")
     for dtype, libraries in (("float32", ("torch", "math", "onnxruntime", "openvino", "jax")),
                              ("bfloat16", ("torch", "math", "openvino", "jax")),
                              ("float16", ("torch", "math", "onnxruntime")))}
