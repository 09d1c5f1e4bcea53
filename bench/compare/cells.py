"""The cells: shapes, masks and layouts that are compared, and the floors that heed keeps there."""

import dataclasses

import numpy as np

DTYPES = ("float32", "bfloat16", "float16")   # as heed's C functions count them
MASKS = ("none", "causal", "causal-window", "keep", "bias", "padded")
VALUES = ("normal", "one_signed", "v_one_signed", "v_constant", "sharp", "offset")   # of q, k and v: tensors.py


class Unsupported(Exception):
    """A library has no operation for such a cell; the text says why."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One call of attention; kv_heads, keys and dv are those of q where not given."""

    batch: int
    heads: int
    queries: int
    d: int
    kv_heads: int = 0
    keys: int = 0
    dv: int = 0
    dtype: str = "float32"  # of q, k, v and the output, of DTYPES
    mask: str = "none"      # of MASKS; the window with its length: causal-window=256
    values: str = "normal"  # of VALUES
    weights: bool = False   # returned beside the output
    backward: bool = False  # and the gradients of q, k and v
    dropout: float = 0.0    # share of the weights that is dropped
    layout: str = "bhtd"    # of the tensors in memory; bthd: as a projection leaves them
    max_isa: str = ""       # caps heed; the peers do as they like
    floor: float = 0.0      # least ratio on one thread, 0: none
    against: str = "best"   # whose time the floor is a ratio to: the best peer's or one peer's
    scaling: float = 0.0    # least ratio of heed's time on one thread to that on two
    percent: float = 0.0    # least share of the peak on one thread, in percent
    microseconds: float = 0.0   # most time of a call from C++
    odd: bool = False       # a shape that kernels tend to be bad at

    def __post_init__(self):
        for name, same in (("kv_heads", "heads"), ("keys", "queries"), ("dv", "d")):
            if not getattr(self, name):
                object.__setattr__(self, name, getattr(self, same))
        assert self.mask_kind in MASKS and (self.window > 0) == (self.mask_kind == "causal-window")
        assert self.dtype in DTYPES and self.values in VALUES
        assert self.dtype == "float32" or not (self.weights or self.backward or self.dropout)
        assert self.layout in ("bhtd", "bthd") and self.heads % self.kv_heads == 0

    @property
    def mask_kind(self):
        return self.mask.split("=")[0]

    @property
    def window(self):
        """Keys that a query sees, its own position included; 0: no window."""
        return int(self.mask.split("=")[1]) if "=" in self.mask else 0

    @property
    def is_causal(self):
        return self.mask_kind.startswith("causal")

    @property
    def name(self):
        def pair(letter, one, two, between):
            return f"{letter}{one}" if one == two else f"{letter}{one}{between}{two}"
        parts = [f"b{self.batch}", pair("h", self.heads, self.kv_heads, "/"),
                 pair("n", self.queries, self.keys, "x"), pair("d", self.d, self.dv, "x")]
        parts += [self.dtype] * (self.dtype != "float32")
        parts += [self.values] * (self.values != "normal")
        parts += [self.mask] * (self.mask != "none") + ["weights"] * self.weights
        parts += [f"dropout={self.dropout:g}"] * (self.dropout > 0) + ["backward"] * self.backward
        parts += ["bthd"] * (self.layout == "bthd") + [self.max_isa] * bool(self.max_isa)
        return "-".join(parts)

    def key_ranges(self):
        """First key and one past the last that each query row sees; `keep` has holes in between."""
        rows = np.arange(self.queries)
        first, end = np.zeros_like(rows), np.full_like(rows, self.keys)
        if self.mask_kind == "padded":
            end[:] = self.key_length
        if self.is_causal:
            end = np.minimum(rows + 1, self.keys)
        if self.window:
            first = np.maximum(rows + 1 - self.window, 0)
        return first, np.maximum(first, end)

    @property
    def key_length(self):
        """Keys that are no padding in a padded cell."""
        return self.keys - self.keys // 2

    @property
    def flops(self):
        """2 (d + dv) for each visible pair; holes of `keep` count, strewn they save nothing.

        Backward there are three products over d and two over dv: q k', dO v', dS k, dS' q, P' dO.
        """
        first, end = self.key_ranges()
        pairs = self.batch * self.heads * float((end - first).sum())
        backward = 6.0 * self.d + 4.0 * self.dv if self.backward else 0.0
        return (2.0 * (self.d + self.dv) + backward) * pairs


def _long(d, **named):
    return Cell(1, 8, 2048, d, **named)


FLOORED = (
    _long(64, floor=1.07, scaling=1.85, percent=88),
    _long(128, floor=1.05, scaling=1.85, percent=91),
    _long(64, max_isa="avx2", floor=1.0, percent=81),
    _long(128, max_isa="avx2", floor=1.0, percent=86),
    Cell(1, 12, 512, 64, floor=1.03),
    Cell(8, 12, 128, 64, floor=1.2),
    Cell(1, 8, 64, 64, floor=1.25),
    Cell(1, 12, 16, 64, floor=1.5),
    Cell(1, 1, 4, 8, floor=2.0, against="torch", microseconds=1.0),
    _long(64, mask="causal", floor=1.5, scaling=1.85),
    _long(128, mask="causal", floor=1.5, scaling=1.85),
    Cell(1, 2, 8192, 64, mask="causal", floor=1.4),
    Cell(1, 32, 1024, 128, kv_heads=8, mask="causal", floor=1.5),
    _long(64, mask="keep", floor=1.4, against="torch"),
    _long(64, mask="bias", floor=1.3, against="torch"),
    _long(64, mask="padded", floor=2.5, against="torch"),
    _long(64, mask="causal-window=256", floor=6.0, against="torch"),
    _long(64, layout="bthd", floor=1.25, against="torch"),
    Cell(1, 8, 777, 33, keys=1333, dv=50, floor=1.5, against="torch"),
    _long(64, weights=True, floor=2.5, against="torch"),
    _long(64, dropout=0.1, floor=5.0, against="torch"),
    _long(64, dtype="bfloat16", floor=1.2, percent=75),
    _long(128, dtype="bfloat16", floor=1.1, percent=80),
    _long(64, dtype="bfloat16", mask="causal", floor=1.8),
    _long(128, dtype="bfloat16", mask="causal", floor=1.8),
    _long(64, dtype="float16", floor=1.6, against="torch"),
    _long(128, dtype="float16", floor=1.6, against="torch"),
    _long(64, backward=True, floor=1.15, against="torch", scaling=1.7),
    _long(128, backward=True, floor=1.1, against="torch"),
    _long(64, mask="causal", backward=True, floor=1.8, against="torch"),
    _long(128, mask="causal", backward=True, floor=1.8, against="torch"),
    Cell(1, 8, 512, 64, backward=True, floor=1.2, against="torch"),
    Cell(1, 1, 4096, 64, backward=True, floor=1.15, against="torch", scaling=1.7),
    *(Cell(1, 32, 1, 128, kv_heads=8, keys=4096, dtype=dtype, floor=4.0, against="torch")
      for dtype in ("float32", "bfloat16")),
    *(Cell(1, 32, 1, 128, keys=4096, dtype=dtype, floor=2.0, against="torch")
      for dtype in ("float32", "bfloat16")),
)

ODD = (
    *(Cell(1, 8, 1024, d, odd=True) for d in (72, 80, 96)),
    *(Cell(1, 12, n, 64, odd=True) for n in (24, 63, 197, 1111)),
    Cell(1, 12, 197, 64, mask="causal", odd=True),
    Cell(2, 96, 256, 16, odd=True),
    Cell(64, 16, 32, 32, odd=True),
    Cell(1, 8, 1024, 32, dv=96, odd=True),
    Cell(1, 32, 512, 128, kv_heads=8, layout="bthd", odd=True),
    Cell(1, 32, 512, 64, kv_heads=4, mask="causal", layout="bthd", odd=True),
)

CELLS = FLOORED + ODD
