"""How far results are from the truth: heed beside its peers on the same inputs.

    ./dev accuracy
    ./dev accuracy --check --markdown docs/numerics.md

The truth o* is NumPy's in float64. T2 of docs/numerics.md: the ratio of max|o - o*|, heed / a library, over all cases;
beside PyTorch's fused kernel its median is at most 1.15 and its 95th percentile at most 2; cases above 4 times the best
library are listed. T3: in cases of 4,096 outputs or more the root mean square of o - o* is at most 1.6 times each
library's, 1.1 times for heads up to 128 and 512 keys or more. What is known to be above stands in
bench/compare/accuracy_limits.py with its reason and a ceiling that was measured; --check fails above the ceiling, for what
is not known, and for a library that lacks cases which it could do when that was measured, but for those of --without.

Each library runs in a process of its own, heed with HEED_MAX_ISA=avx512_bf16 where it is not set: bfloat16 by dot products.
A CPU without them prints its tables of bfloat16, where heed has the errors of float32 rounded once; those of FILE stay.
The comparison fails where heed has no finite result of the right shape, where PyTorch's fused kernel has none at all, and
where no library can do a cell. There are two tables of each type: q, k and v standard normal, and other classes of values.

Of the cases that are listed a second table says where heed's largest error is, what the others have there, and how all do
when the case is drawn anew; and which of heed's roundings make that error.
"""

import argparse
import itertools
import sys

from . import accuracy_runs as runs
from . import pages
from .accuracy_report import report
from .accuracy_runs import LIBRARIES, PEERS
from .cells import DTYPES, VALUES, Cell
from .pages import evidence
from .tensors import CONSTANT, OFFSET, SHARP

SIZES = (1, 8, 16, 32, 40, 64, 80, 128, 192, 256)
LENGTHS = ((1, 1), (5, 7), (16, 16), (33, 64), (1, 700), (100, 129), (256, 256), (300, 520), (64, 1024), (520, 520))
MASKS = ("none", "causal", "keep", "bias", "padded")
GROUPED = (32, 64, 128)                                  # sizes of heads of which three share keys and values
UNEVEN = ((64, 32), (32, 64), (192, 128), (128, 1), (1, 128))   # d and d_v
WINDOWS = (7, 100)
# Of other classes of values: what all libraries can do.
FEWER_SIZES = (16, 64, 128, 256)
FEWER_LENGTHS = ((5, 7), (33, 64), (1, 700), (300, 520), (520, 520))
FEWER_MASKS = ("none", "causal", "keep")
TABLES = {"normal": VALUES[:1], "values": VALUES[1:]}


def normal_cells(dtype):
    heads = [*({"heads": 3, "d": d} for d in SIZES), *({"heads": 6, "kv_heads": 2, "d": d} for d in GROUPED),
             *({"heads": 3, "d": d, "dv": dv} for d, dv in UNEVEN)]
    masked = [Cell(2, queries=queries, keys=keys, dtype=dtype, mask=mask, **head)
              for head, mask, (queries, keys) in itertools.product(heads, MASKS, LENGTHS)
              if mask != "causal" or queries == keys]   # where they differ, libraries do too
    return masked + [Cell(2, 3, n, d, dtype=dtype, mask=f"causal-window={window}")
                     for d, (n, keys), window in itertools.product(SIZES, LENGTHS, WINDOWS) if n == keys and n > 1]


def cells(dtype, table):
    if table == "normal":
        return normal_cells(dtype)
    return [Cell(2, 3, queries, d, keys=keys, dtype=dtype, values=values, mask=mask)
            for values, mask, d, (queries, keys) in itertools.product(TABLES[table], FEWER_MASKS, FEWER_SIZES, FEWER_LENGTHS)
            if mask != "causal" or queries == keys]


def description(table):
    if table == "normal":
        return f"standard normal q, k, v, masks {', '.join(MASKS)}, causal windows of {' and '.join(map(str, WINDOWS))}"
    return (f"one_signed: q, k, v in [0, 1); v_one_signed: v alone; v_constant: {CONSTANT}; sharp: q times {SHARP}; offset: {OFFSET} "
            f"added to q and k; d {', '.join(map(str, FEWER_SIZES))}; queries x keys "
            f"{', '.join(f'{queries} x {keys}' for queries, keys in FEWER_LENGTHS)}; masks {', '.join(FEWER_MASKS)}")


def written(table, dtype, without, fail):
    """The section in Markdown."""
    listed = cells(dtype, table)
    found, versions, why = runs.deviations(listed, [library for library in LIBRARIES if library not in without])
    told = ", ".join(f"{LIBRARIES[name]} {version}" for name, version in versions.items() if name != "math")
    return "\n".join([f"`./dev accuracy`, {evidence.today()}, {told}; {description(table)}:", "",
                      *report(dtype, listed, found, why, fail, without)])


def section(table, dtype):
    """What its marks are called."""
    return f"accuracy, {table}, {dtype}"


def belongs_on_page(dtype, instruction_sets):
    return dtype != "bfloat16" or instruction_sets[-1].endswith("bf16")


def names(allowed):
    def parsed(text):
        chosen = text.split(",")
        if not set(chosen) <= set(allowed):
            raise argparse.ArgumentTypeError(f"{text}; known are {', '.join(allowed)}")
        return chosen
    return parsed


def main():
    parser = argparse.ArgumentParser(prog="./dev accuracy", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", type=names(DTYPES), default=list(DTYPES))
    parser.add_argument("--table", type=names(TABLES), default=list(TABLES), help="normal, values or both, which is the default")
    parser.add_argument("--without", type=names(PEERS), default=[], help="libraries that are not there")
    parser.add_argument("--check", action="store_true", help="exit with 1 if T2 or T3 does not hold, but for what is known")
    parser.add_argument("--markdown", metavar="FILE", help="replaces the sections that FILE has between marks")
    chosen = parser.parse_args()
    listed, failed = list(itertools.product(chosen.table, chosen.dtype)), []
    page = pages.opened(parser, chosen.markdown, itertools.starmap(section, listed)) if chosen.markdown else None
    for table, dtype in listed:
        failing = []
        text = written(table, dtype, chosen.without, failing.append)
        if failing:
            text += f"\nNot as it should be: {'; '.join(failing)}.\n"
        failed += failing
        if page and belongs_on_page(dtype, evidence.instruction_sets()):
            pages.replace(page, section(table, dtype), text)
        else:
            print(text)
    for line in failed:
        print("FAILS ", line, file=sys.stderr)
    return 1 if failed and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
