"""What of the kernels the tests reach, for each instruction set: reads what llvm-cov exports.

The kernels are optimised and inlined into each other, and one source makes the functions of all instruction sets: lines of
an object file do not say whose they are. Clang's counters stand in the source before any of that, each with its function,
whose name has Highway's namespace of the instruction set.
"""

import collections
import pathlib
import re

CODE, BRANCH = 0, 4  # kinds of regions in the export; 1 expansion, 2 skipped, 3 gap

# As the table calls them, by what names of functions have. BF16 stands in the namespace of AVX-512.
TARGETS = {"scalar": r"\d+N_(?:SCALAR|EMU128)", "AVX2": r"\d+N_AVX2", "AVX-512": r"\d+N_AVX3(?!6paired)",
           "AVX-512 BF16": r"\d+N_AVX36paired"}
ALL = "all"  # what is compiled once: which table an instruction set has

Region = collections.namedtuple("Region", "first first_column last last_column count file expanded kind")


def target_of(name):
    return next((target for target, pattern in TARGETS.items() if re.search(pattern, name)), ALL)


def is_code(text):
    """Whether a line has more than a comment, braces, or a word to the preprocessor."""
    text = text.strip()
    return bool(re.sub(r"[{}();\s]", "", text)) and not text.startswith(("//", "#"))


def instances(export, folder):
    """Of each function in `folder`: target, file, its regions of code, and its branches."""
    for function in export["data"][0]["functions"]:
        target = target_of(function["name"])
        regions = [Region(*region) for region in function["regions"]]
        branches = function.get("branches", [])
        for index, filename in enumerate(function["filenames"]):
            _, found, name = filename.rpartition(f"{folder}/")
            if found:
                yield (target, folder + "/" + name, function["name"], [r for r in regions if r.file == index and r.kind == CODE],
                       [b for b in branches if b[6] == index])


def extents(functions):
    """How far the region that begins at each place goes, at most."""
    ends = collections.defaultdict(int)
    for _, file, _, regions, _ in functions:
        for region in regions:
            place = file, region.first, region.first_column
            ends[place] = max(ends[place], region.last)
    return ends


def around(regions, line, column):
    """The innermost region that begins before this place and ends after it, or none."""
    place = line, column
    found = [r for r in regions if (r.first, r.first_column) < place < (r.last, r.last_column)]
    return max(found, key=lambda r: (r.first, r.first_column), default=None)


def not_compiled(file, text, regions, ends):
    """Lines in branches of `if constexpr` that this instance of a function has not.

    In a template such a branch is a region of one character, where other instances have one of several lines. Elsewhere it
    is never run, though what is around it is.
    """
    lines = set()
    for region in regions:
        outer = around(regions, region.first, region.first_column)
        while outer is not None and text[outer.first - 1][outer.first_column - 1:].startswith("if constexpr"):
            outer = around(regions, outer.first, outer.first_column)  # what an `else` is before it
        constant = "if constexpr" in text[region.first - 1][:region.first_column - 1]
        end = ends[file, region.first, region.first_column]
        if region.last < end:
            lines.update(range(region.last + 1, end))
        elif constant and region.count == 0 and outer is not None and outer.count > 0:
            lines.update(range(region.first + 1, region.last))
    return lines


def counts_of(file, text, regions, ends):
    """How often this instance ran each line of code, as pairs of line and count.

    A line has the count of the innermost region that it lies in, or the largest of those that begin on it.
    """
    left_out = not_compiled(file, text, regions, ends)
    for line in range(min(r.first for r in regions), max(r.last for r in regions) + 1):
        if line in left_out or line > len(text) or not is_code(text[line - 1]):
            continue
        counts = [r.count for r in regions if r.first == line]
        outer = around(regions, line, 1)
        if outer is not None:
            counts.append(outer.count)
        if counts:
            yield line, max(counts)


def measure(export, root, folder="src/kernels"):
    """For each target: {(file, line): count} and {(file, place of a branch): [times true, times false]}."""
    functions = list(instances(export, folder))
    ends = extents(functions)
    texts = {file: (root / file).read_text(encoding="utf-8").splitlines() for _, file, *_ in functions}
    lines, branches = collections.defaultdict(dict), collections.defaultdict(dict)
    for target, file, _, regions, sides in functions:
        for line, count in counts_of(file, texts[file], regions, ends) if regions else ():
            lines[target][file, line] = max(count, lines[target].get((file, line), 0))
        for first, column, last, last_column, true, false, *_ in sides:
            both = branches[target].setdefault((file, first, column, last, last_column), [0, 0])
            both[0], both[1] = max(both[0], true), max(both[1], false)
    return lines, branches
