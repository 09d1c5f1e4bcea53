"""The rules of the house that a machine can check, one function each.

    python3 tests/rules/rules.py RULE [--root DIR] [--cxx COMPILER]

Prints what breaks the rule, one `file:line: why` each, and exits with 1 if anything does.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import messages

SOURCES = {".h", ".cc", ".inc", ".py"}
LONGEST_FILE = 500
WIDEST_LINE = 100

# Who may include whom inside src/: each folder itself and what stands below it.
BELOW = {
    "kernels": set(),
    "runtime": {"kernels"},
    "attention": {"kernels", "runtime"},
    "io": set(),
    "cache": {"attention", "kernels", "runtime"},
    "inspect": {"attention", "kernels", "runtime"},
    "modules": {"attention", "io", "kernels", "runtime"},   # io: files.cc alone, which is built into heed::io; others would not link
}

# Where a library that is not ours may appear.
HOMES = {
    r"hwy/": ("src/kernels", "tests/internal"),
    r"CLI/": ("cli",),
    r"nlohmann/": ("src/io", "cli", "tests"),
    r"zip\.h": ("src/io", "tests"),
    r"png\.h": ("cli", "tests"),
    r"g(test|mock)/": ("tests",),
    r"(nanobind/|Python\.h)": ("python",),
}

MACHINE = r"-m(?=[a-z])[\w.=+-]+"

# What changes a result, of g++ and Clang. -fno-trapping-math and -fno-math-errno change none.
FAST_MATH = (r"-Ofast|-ffp-contract=(?!off\b)[\w-]+|-ffp-model=(?!strict\b|precise\b)\w+"
             r"|-f(?:fast-math|finite-math-only|unsafe-math|associative-math|reciprocal-math|approx-func|no-signed-zeros"
             r"|no-honor-nans|no-honor-infinities|cx-limited-range|cx-fortran-rules|single-precision-constant|denormal-fp-math)")

# Files that may choose instructions themselves, by [[gnu::target(..)]] or a pragma.
TARGETED = {
    "cli/peak.cc": "measures the machine: a loop for each instruction set, called only where the CPU has it",
    "tests/full/fused_oracle.cc": "the core block in half the time, by programs that tests/full/run.py starts only where AVX2 and FMA are",
}


def files(root, folders, suffixes=frozenset(SOURCES)):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")


def code_of(text):
    """The text without comments and strings' contents; line numbers stay."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group()) if match.group()[0] == "/" else '""'
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(\\.|[^"\\\n])*"', blank, text, flags=re.S)


def includes(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match[1], match[2]


def is_std(name):
    return re.fullmatch(r"[a-z_0-9]+", name) is not None


def public_headers_include_only_heed_and_std(root, _):
    for path, text in files(root, ["include"]):
        for line, bracket, name in includes(text):
            if not (is_std(name) if bracket == "<" else name.startswith("heed/")):
                yield f"{path}:{line}: {name} is neither heed's nor std's"


def public_headers_stand_alone(root, compiler):
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", str(root / "include")]
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "alone.cc"
        for path, _ in files(root, ["include"]):
            header = path.removeprefix("include/")
            source.write_text(f'#include "{header}"\n#include "{header}"\n')
            done = subprocess.run([compiler, *flags, source], capture_output=True, text=True)
            if done.returncode:
                yield f"{path}:1: does not compile on its own\n{done.stderr}"


def users_see_the_public_headers_only(root, _):
    for path, text in files(root, ["cli", "training", "python", "examples", "tests", "bench"], {".h", ".cc"}):
        if path.startswith(("tests/fuzz/", "tests/internal/", "tests/io/internal/", "tests/runtime/")):
            continue
        for line, _, name in includes(text):
            if name.split("/")[0] in BELOW or "src" in name.split("/"):
                yield f"{path}:{line}: {name} is internal to src/"
            if path.startswith("tests/oracle/") and name.startswith("heed/"):
                yield f"{path}:{line}: the oracle shares no header with heed"


def sources_include_downwards_only(root, _):
    for path, text in files(root, ["src"]):
        layer = path.split("/")[1]
        for line, _, name in includes(text):
            target = next(part for part in name.split("/") if part != "..")
            if target in BELOW and target != layer and target not in BELOW.get(layer, set()):
                yield f"{path}:{line}: {layer} stands below {target}"


def libraries_stay_at_home(root, _):
    for path, text in files(root, ["include", "src", "cli", "training", "python", "examples", "tests", "bench"]):
        for line, _, name in includes(text):
            for library, homes in HOMES.items():
                if re.match(library, name) and not path.startswith(tuple(f"{home}/" for home in homes)):
                    yield f"{path}:{line}: {name} belongs in {', '.join(homes)}"


def kernels_see_std_and_highway_and_allocate_nothing(root, _):
    heap = re.compile(r"\bnew\b|\b((m|c|re|aligned_|v)alloc|posix_memalign|AllocateAligned|MakeUniqueAligned\w*)\b|"
                      r"std::(vector|string|function|any|(unordered_)?(multi)?(map|set)|list|deque|make_(unique|shared))\b")
    for path, text in files(root, ["src/kernels"]):
        for line, bracket, name in includes(text):
            asks_the_system = path.endswith("targets.cc") and name == "sys/auxv.h"   # what this CPU can do
            if not (name.startswith(("hwy/", "kernels/")) or (bracket == "<" and is_std(name)) or asks_the_system):
                yield f"{path}:{line}: {name} is neither std nor Highway"
        for line, code in enumerate(code_of(text).splitlines(), 1):
            if heap.search(code):
                yield f"{path}:{line}: allocates"


def lambdas_over_pairs_have_their_attributes(root, _):
    for path, text in files(root, ["src/kernels"]):
        for line, code in enumerate(code_of(text).splitlines(), 1):
            if "HEED_PAIRS_TARGET" in text and re.search(r"\bHWY_ATTR\b", code):
                yield f"{path}:{line}: HWY_ATTR takes the dot products of bfloat16 away with Clang"


def files_have_at_most_500_lines(root, _):
    for path, text in files(root, ["include", "src", "cli", "training", "python", "tests", "examples", "bench"]):
        lines = text.count("\n")
        if lines > LONGEST_FILE:
            yield f"{path}:{lines}: wants to be two files"


def lines_have_at_most_100_columns(root, _):
    """Comments too, which clang-format leaves as they are."""
    for path, text in files(root, ["include", "src", "cli", "training", "python", "tests", "examples", "bench"], {".h", ".cc"}):
        for line, code in enumerate(text.splitlines(), 1):
            if len(code) > WIDEST_LINE:
                yield f"{path}:{line}: has {len(code)} columns"


def files_begin_with_a_sentence(root, _):
    for path, text in files(root, ["include", "src", "cli", "training", "python", "tests", "examples", "bench"],
                            {".h", ".cc", ".py"}):
        start = text.removeprefix("#!/usr/bin/env python3\n")
        if text and not re.match(r'//+ \.?\w|r?"""\w|# \w', start):
            yield f"{path}:1: the first line says what the file is"


def no_flag_changes_the_machine_or_the_arithmetic(root, _):
    """As it is written; tests/package/commands.py asks what the compiler was told."""
    flag = re.compile(rf"""(?:^|[\s"';=:(])({MACHINE}|{FAST_MATH})""")
    pragma = re.compile(r"#\s*pragma\s+(?:GCC|clang)\s+(optimize|target|fp)|#\s*pragma\s+STDC\s+(FP_CONTRACT)"
                        r"|(?:\[\[[^]]*?|\b__attribute(?:__)?\b[^;{}]*?)\b_*(target|target_clones|optimize)_*\s*\(")
    names = ("CMakeLists.txt", "*.cmake", "*.cmake.in", "CMakePresets.json", "pyproject.toml")
    build = [*root.glob("*"), *(path for folder in root.iterdir() if folder.is_dir() and folder.name not in ("build", ".venv")
                                for path in folder.rglob("*"))]   # others make and remove what is in those
    build = [path for path in build if any(path.match(name) for name in names)]
    for path in sorted(build):
        for line, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = flag.search(text.split("#")[0])
            if match:
                yield f"{path.relative_to(root)}:{line}: {match[1]}"
    for path, text in files(root, ["include", "src", "cli", "training", "python", "examples", "bench", "tests"],
                            {".h", ".cc", ".inc"}):
        code = code_of(text)
        for match in pragma.finditer(code):
            if "target" not in match.groups() or path not in TARGETED:
                yield f"{path}:{code.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}"


def seeded_faults_apply(root, _):
    """Each patch of tests/mutants still fits; what it breaks is asked by ./dev mutants alone."""
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(root.resolve().parent)}
    for path in sorted((root / "tests/mutants").glob("*.patch")):
        tried = subprocess.run(["git", "apply", "--check", path.resolve()], cwd=root, env=outside, capture_output=True, text=True)
        if tried.returncode:
            yield f"{path.relative_to(root)}:1: {tried.stderr.strip()}"


def messages_are_quoted_by_a_test(root, _):
    """Each refusal of the code has a reader among the tests, so that a new one is noticed."""
    tests = {path: text for path, text in files(root, ["tests"]) if not path.startswith("tests/rules/")}
    for path, line, words in messages.unquoted(dict(files(root, ["src", "cli", "python", "training"])), tests):
        yield f"{path}:{line}: no test quotes \"{words}\""


RULES = {rule.__name__: rule for rule in (
    public_headers_include_only_heed_and_std,
    public_headers_stand_alone,
    users_see_the_public_headers_only,
    sources_include_downwards_only,
    libraries_stay_at_home,
    kernels_see_std_and_highway_and_allocate_nothing,
    lambdas_over_pairs_have_their_attributes,
    files_have_at_most_500_lines,
    lines_have_at_most_100_columns,
    files_begin_with_a_sentence,
    no_flag_changes_the_machine_or_the_arithmetic,
    seeded_faults_apply,
    messages_are_quoted_by_a_test,
)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rule", choices=RULES)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--cxx", default="c++")
    arguments = parser.parse_args()
    if not (arguments.root / "src").is_dir():
        parser.error(f"argument --root: {arguments.root} has no src")
    broken = list(RULES[arguments.rule](arguments.root, arguments.cxx))
    print("\n".join(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
