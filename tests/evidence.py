"""What the pages of docs/evidence say of themselves: the day, the CPU, and of which source of the library they are.

    python3 tests/evidence.py [PAGE..]

tells of which of these pages, else of all and of docs/numerics.md and performance.md, the source is not this tree's any more, how much has changed
since then, which is not there, and which tells of something that failed or was not run. Of a page that is named by instruction
sets it tells where this CPU is not one to make it anew. A page whose tables stand between marks, <!-- name --> and
<!-- /name -->, is judged by each of them. The source is that of the library and of what builds it, not of tests, command or
package: it is named by the first 12 digits of what this prints, so whoever has the repository can tell without this program.
A source that is in no commit is nobody's.

    git ls-tree HEAD src include cmake CMakeLists.txt CMakePresets.json | git hash-object --stdin
"""

import datetime
import functools
import os
import pathlib
import platform
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "evidence"
BY_HAND = ("unreached.md",)   # of no run
NAMES = ("allocations", "analyzer", "bare", "clang", "coverage", "full", "full_sanitized", "full_threads", "fuzzing", "mutants", "neon",
         "old_cpus", "peers", "reproducible", "sanitize", "test", "tidy")
# The tables of pages beside that folder, which stand between marks.
TABLES = {"numerics.md": ("torch", "torch gradients", *(f"accuracy, {values}, {dtype}" for values in ("normal", "values")
                                                        for dtype in ("float32", "bfloat16", "float16"))),
          "performance.md": ("growth", "compare")}
# Of these a page without `_without_` in its name is of all instruction sets: nothing on it was skipped, but of MAY_SKIP what
# tests/tally.py has a reason for on any CPU.
BY_ISA = ("clang", "coverage", "full", "full_sanitized", "full_threads", "fuzzing", "peers", "sanitize", "test")
MAY_SKIP = ("clang", "peers", "sanitize", "test")
LIBRARY = ("src", "include", "cmake", "CMakeLists.txt", "CMakePresets.json")
DIGITS = 12
# How pages tell of what is wrong: in words, and by a column that is to be 0, or not to be.
WRONG = re.compile(r"\b[1-9][\d,]* (?:failed|survived|were not run)\b|\*\*(?:survived|not run|differs|not known)\*\*|\| not run \| \||\| FAILED \|"
                   r"|^Failed: (?!none\.).*|^Not as it should be: (?!nothing\.).*",
                   re.MULTILINE)
COLUMNS = {"failed": True, "not run": True, "findings": True, "by these": False}
# As the system calls them, the widest of an architecture first, and as heed does.
WIDEST = {"avx512_bf16": "avx512_bf16", "avx512f": "avx512", "avx2": "avx2", "bf16": "neon_bf16", "asimd": "neon"}
# The instruction sets of x86-64 that heed has kernels for, and as the system calls them.
X86 = {"AVX2": "avx2", "AVX-512": "avx512f", "AVX-512 BF16": "avx512_bf16"}
# Those of this architecture, as the system calls them.
KERNEL_ISAS = ("asimd", "bf16") if platform.machine() == "aarch64" else tuple(X86.values())
MARKED = re.compile(r"^<!-- (\w[^>]*) -->\n(.*?)^<!-- /\1 -->$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"source ([0-9a-f]{%d}|unknown)( with changes)?" % DIGITS)


def of_cpu(*names):
    """The first line of /proc/cpuinfo with one of these names, without it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(names)), "")


def instruction_sets():
    """Those of heed that this CPU has, the widest last."""
    flags = of_cpu("flags", "Features").split()
    return ["scalar", *reversed([name for flag, name in WIDEST.items() if flag in flags])]


def cpu():
    """Its name, which may be that of several generations, the widest instructions that heed has for it, and its cores."""
    return f"{of_cpu('model name') or 'unknown CPU'} ({instruction_sets()[-1]}), {os.cpu_count()} cores"


def lacking():
    """A line on what of X86 this CPU lacks; none where it has all, or is of another architecture."""
    flags = of_cpu("flags").split()
    lacks = [name for name, flag in X86.items() if flag not in flags] if platform.machine() == "x86_64" else []
    return [f"This CPU has no {' and no '.join(lacks)}: kernels stay untested."] if lacks else []


def missing_isas(flags, wanted):
    return [isa for isa in wanted if isa not in flags.split()]


def may_lack(missing, leave):
    """Whether a run goes on without these instruction sets; tells of them."""
    if missing:
        more = "" if leave else "; --allow-missing-isa goes on without"
        print(f"this CPU has no {' and no '.join(missing)}: kernels stay untested{more}", file=sys.stderr)
    return leave or not missing


def page_without(missing, page):
    """Where such a run is told of: a page of its own, so that one of more instruction sets stays."""
    return page.with_stem("_without_".join([page.stem, *missing]))


def page_here(page):
    """The page of this CPU."""
    return page_without(missing_isas(of_cpu("flags", "Features"), KERNEL_ISAS), page) if page.stem in BY_ISA else page


def git(root, *words, given=None):
    """What it prints; raises ValueError where it fails."""
    other = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}   # a hook's are of its own
    try:
        return subprocess.run(["git", *words], cwd=root, env=other, input=given, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise ValueError("git " + " ".join(words)) from error


def digest(root, commit):
    """Of the library in a commit."""
    tree = git(root, "ls-tree", commit, *LIBRARY)
    return git(root, "hash-object", "--stdin", given=tree + "\n")[:DIGITS] if tree else ""


def source(root=ROOT):
    """Of the last commit, and whether the tree differs from it: `source 0123456789ab with changes`."""
    try:
        above = git(root, "rev-parse", "--show-prefix")   # not empty where an archive lies in a repository of something else
        name, changed = digest(root, "HEAD"), git(root, "status", "--porcelain", "--", *LIBRARY)
    except ValueError:
        return "source unknown"
    return "source unknown" if above or not name else f"source {name}" + (" with changes" if changed else "")


def since(root, name):
    """How much of the library has changed since the commit of that source."""
    try:
        commits = git(root, "log", "--format=%H", "--", *LIBRARY).split()
        found = next((commit for commit in commits if digest(root, commit) == name), None)
        return f"since then {git(root, 'diff', '--shortstat', found, '--', *LIBRARY) or 'no tracked file'}" if found else "of no commit"
    except ValueError:
        return "of no commit"


def parts(page):
    """(what it is called, as BY_ISA knows it, text) of what is written at once."""
    text = page.read_text()
    marked = MARKED.findall(text)
    return [(f"{page.name}, {name}", name, part) for name, part in marked] or [(page.name, page.stem, text)]


def wrong(text, stem=""):
    """What a page tells that went wrong, its first words; one of all instruction sets lacks none of them."""
    found, names = [match[0] for match in WRONG.finditer(text)], []
    if stem in BY_ISA:
        found += re.findall(r"^This CPU has no .*", text, re.MULTILINE)
    columns = {**COLUMNS, "skipped": True} if stem in BY_ISA and stem not in MAY_SKIP else COLUMNS
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] if line.startswith("|") else []
        if set(cells) & set(columns):
            names = cells
        if cells and len(cells) != len(names) and set(names) & set(columns):
            found.append(f"{cells[0]}: has {len(cells)} cells beneath {len(names)} names")
        for name, cell in zip(names, cells):
            if name in columns and re.fullmatch(r"[\d,]+", cell) and (cell == "0") != columns[name]:
                found.append(f"{cells[0]}: {name} {cell}")
        names = names if cells else []
    return found


def untold(text, stem):
    """Seeded faults that their page says nothing of: they came later."""
    patches = sorted((ROOT / "tests" / "mutants").glob("*.patch")) if stem == "mutants" else []
    return [f"{patch.stem} is not there" for patch in patches if f"| {patch.stem} |" not in text]


def other_cpu(stem):
    """On which other CPU alone a page of this name is made; nothing if this one will do."""
    name, *lacked = stem.split("_without_")
    missing = missing_isas(of_cpu("flags", "Features"), KERNEL_ISAS) if name in BY_ISA else lacked
    told = {"with": [isa for isa in missing if isa not in lacked], "without": [isa for isa in lacked if isa not in missing]}
    return "".join(f", needs a CPU {word} {' and '.join(isas)}" for word, isas in told.items() if isas)


SOURCE = source()   # when a run begins, whatever is committed meanwhile


def today(missing=()):
    """How a page begins to tell of a run: the instruction sets that it went on without, the day, the CPU, the source."""
    without = f"on a CPU without {' and '.join(missing)}, " if missing else ""
    return f"{without}{datetime.date.today()}, {cpu()}, {SOURCE}"


def main(pages):
    now, other, bad, age = source(), 0, 0, functools.cache(functools.partial(since, ROOT))
    there = {page.stem for page in PAGES.glob("*.md") if page.name not in BY_HAND}
    lost = [f"{page} is not there" for page in pages if not page.is_file()]
    if not pages:   # one without some instruction set stands beside that of all
        lost += [f"{name}.md is not there" for name in NAMES if name not in there]
        lost += [f"{name}.md is in no list of pages" for name in sorted(there) if name.partition("_without_")[0] not in NAMES]
        for page, tables in TABLES.items():
            place = PAGES.parent / page
            marked = {name for name, _ in MARKED.findall(place.read_text())} if place.is_file() else set()
            lost += [f"{page}, {name} is not there" for name in tables if name not in marked]
            lost += [f"{page}, {name} is in no list of tables" for name in sorted(marked) if name not in tables]
    pages = [page for page in pages if page.is_file()] if pages else [
        *(PAGES / f"{name}.md" for name in sorted(there)), *(place for page in TABLES if (place := PAGES.parent / page).is_file())]
    for name, stem, text in [part for page in pages for part in parts(page)]:
        told = NAMED.search(text)
        if not told or told[0] != now or told[1] == "unknown" or told[2]:
            other += 1
            print(f"{name}: {told[0]}, {age(told[1])}" if told else f"{name}: names no source", other_cpu(stem), sep="")
        for words in wrong(text, stem) + untold(text, stem):
            bad += 1
            print(f"{name}: {words}")
    print(*lost, f"{other} pages are not of {now}, {len(lost)} are missing or unknown, {bad} places tell of something wrong", sep="\n")
    return 1 if other or bad or lost else 0


if __name__ == "__main__":
    sys.exit(main([pathlib.Path(page) for page in sys.argv[1:]]))
