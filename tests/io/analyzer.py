"""GCC's -fanalyzer over the readers and writers of files: every report is one that somebody has looked at.

    python3 tests/io/analyzer.py [--summary FILE]

GCC 12's manual calls the analyzer fit for C only: it does not follow an exception, for one. KNOWN says of each report
why it is none, and how many of it a file has. Another one, another number, or a file that takes too long is a failure.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import evidence  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONGEST = 900   # seconds for one file
FLAGS = ("-std=c++20", "-O2", "-D_GLIBCXX_ASSERTIONS", "-I", "include", "-I", "src", "-fanalyzer", "-fdiagnostics-plain-output")

NAMELESS = "a value without a name, which a function of libstdc++ returned: at -O0 nothing is reported, and valgrind ({}) sees no such read"

# (file, what it says, in which function, how often in each such file, why that is not so). The first three are regular expressions.
KNOWN = (
    (r"npy|npy_header|output_file", r"use of uninitialized value '<unknown>'", r"std::operator\+\(", 1, NAMELESS.format("`./dev sanitize`")),
    (r"tensor", r"use of uninitialized value '<unknown>'", r"std::operator\+\(", 1,
     NAMELESS.format("of `io_test --gtest_filter=write.a_type_that_is_none_is_refused`")),
    (r"npz_layout", r"use of uninitialized value '\*\(.*&__last .*_M_current\)\)'", r"std::__(unguarded_partition_pivot|make_heap)\(", 4,
     "`__last`, an argument of functions of libstdc++ in `std::sort` that every call of them gives: with -fno-inline nothing "
     "is reported"),
    (r"safetensors_header", r"leak of '<anonymous>\.std::\S+::_M_p'", r"Tokens::end_array\(", 2,
     "`refuse_end` throws, and the text that it was given is destroyed while the stack unwinds"),
)


def reports(source, *flags):
    """What it says about a file: (words, function) of each report."""
    done = subprocess.run(["g++", *FLAGS, *flags, "-c", source, "-o", "/dev/null"], cwd=ROOT, capture_output=True, text=True,
                          timeout=LONGEST, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        raise SystemExit(f"analyzer: {source} does not compile:\n{done.stderr[-2000:]}")
    found, function = [], "none"
    for line in done.stderr.splitlines():
        inside = re.search(r"\bIn (?:\S+ )*(?:function|constructor|destructor) '(.*?)'[,:]?$", line)
        said = re.search(r"warning: (.*\[-Wanalyzer-\S+\])", line)
        function = inside[1] if inside else function
        if said:
            found.append((said[1], function))
    return found


def known(stem, words, function):
    """The entry of KNOWN, None if there is none."""
    return next((entry for entry in KNOWN
                 if re.fullmatch(entry[0], stem) and re.search(entry[1], words) and re.search(entry[2], function)), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--summary", type=pathlib.Path)
    arguments = parser.parse_args()
    rows, failed = [], 0
    sources = sorted((ROOT / "src" / "io").glob("*.cc"))
    for source in sources:
        began = time.monotonic()
        try:
            found = reports(source.relative_to(ROOT))
        except subprocess.TimeoutExpired:
            found = [(f"not done after {LONGEST} s", "")]
        entries = collections.Counter((words, known(source.stem, words, function), function) for words, function in found)
        print(f"{time.monotonic() - began:5.0f} s  {source.name}: {len(found)} reports", flush=True)
        times_of = collections.Counter()
        for (words, entry, function), times in entries.items():
            times_of[entry] += times
            failed += entry is None
            rows.append(f"| {source.name} | `{words.partition(' [CWE')[0]}` | {times} | {entry[4] if entry else '**not known**'} |")
            if entry is None:
                print(f"failed: {source.name}: {words} in {function}: nobody has looked at this")
        for entry in KNOWN:
            if re.fullmatch(entry[0], source.stem) and times_of[entry] != entry[3]:
                failed += 1
                print(f"failed: {source.name}: {times_of[entry]} reports as {entry[1:3]}; KNOWN has {entry[3]}")
    for entry in KNOWN:
        if not any(re.fullmatch(entry[0], source.stem) for source in sources):
            failed += 1
            print(f"failed: KNOWN has {entry[0]}, but no file is called so: remove the entry")
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    text = "\n".join(["# GCC's analyzer over the readers and writers", "",
                      f"`./dev analyzer`, {evidence.today()}, {compiler}, `-O2 -fanalyzer`: {len(sources)} files of",
                      "src/io. The manual of GCC 12 says that its analyzer is fit for C only: it follows no exception, for",
                      "one. What it reports is listed with the reason why it is none; a report that is not",
                      "fails the command. Clang's analyzer (`clang-analyzer-*` of .clang-tidy) runs in `./dev tidy` over the C++ sources that the",
                      "release build and the Python package compile, but for that of heed.jax; there each of its reports is an error.", "",
                      f"Not as it should be: {f'{failed} kinds of reports that are not known, or of another number' if failed else 'nothing'}.", "",
                      "| file | report | times | why it is none |", "|---|---|---|---|", *rows, ""])
    if arguments.summary:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(text, encoding="utf-8")
    print(f"{len(sources)} files, {failed} kinds of reports that are not known, or of another number")
    return 1 if failed or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
