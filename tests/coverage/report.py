"""What of the library the tests reach: runs gcovr over a build with preset coverage, and writes a table.

    python3 tests/coverage/report.py --gcovr PROGRAM --build DIR [--summary FILE]
    python3 tests/coverage/report.py --programs    the programs whose tests count

Branches into exceptions that the compiler adds to calls are left out (--exclude-throw-branches); those that the
source has in words are counted. Exits with 1 if a floor below is not kept, or a reader has more that no test reaches than
is known.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Percent of lines and of branches.
FLOORS = {"src/io": (95, 90), "src/attention": (95, 90), "src/cache": (95, 85), "src/inspect": (95, 85), "src/modules": (95, 85),
          "src/runtime": (90, 80)}

# Whose tests run.
FOLDERS = ("forward", "backward", "cache", "inspection", "io", "jvp", "merge", "packing", "modules", "runtime")


def programs():
    """Targets, as the build files have them."""
    for folder in FOLDERS:
        yield from re.findall(r"^ *heed_(?:runtime_)?test\((\w+)", (ROOT / "tests" / folder / "CMakeLists.txt").read_text(), re.M)


def percent(part, whole):
    return 100.0 if whole == 0 else 100.0 * part / whole


def cpu():
    names = re.findall(r"^model name\s*: (.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return names[0] if names else "a CPU without a name"


def measure(gcovr, build):
    out = build / "coverage.json"
    filters = [flag for folder in FLOORS for flag in ("--filter", f"{folder}/")]
    subprocess.run([str(gcovr), "--root", str(ROOT), "--object-directory", str(build), *filters,
                    "--exclude-throw-branches", "--exclude-unreachable-branches",
                    "--merge-lines", "--gcov-ignore-parse-errors=negative_hits.warn",
                    "--json-summary", str(out), "--html-details", str(build / "coverage.html"), str(build / "src")],
                   check=True, cwd=ROOT)
    return json.loads(out.read_text())["files"]


# Lines and branches of src/io that no test reaches, at most: docs/evidence/unreached.md says of each why no input does. A reader
# that is not here has none. Writers fail where the system does, which tests/faults injects in a program of its own.
UNREACHED = {
    "src/io/convert.cc": (1, 0),
    "src/io/input_file.cc": (0, 7),
    "src/io/memory_budget.cc": (0, 2),
    "src/io/messages.cc": (1, 0),
    "src/io/npz_reader.cc": (4, 30),
    "src/io/npz_writer.cc": (12, 34),
    "src/io/output_file.cc": (0, 28),
    "src/io/output_file.h": (0, 1),
    "src/io/safetensors.cc": (2, 11),
    "src/io/safetensors_header.cc": (1, 12),
    "src/io/tensor.cc": (0, 11),
    "src/io/tensor_file.cc": (4, 4),
    "src/io/zip_source.cc": (0, 1),
}


def report(files, without):
    """The text, and the folders that lie below their floor."""
    lines = ["# Coverage", "",
             f"`./dev coverage`, {datetime.date.today()}, {cpu()}: lines and branches that the tests reach "
             f"(`tests/{{{','.join(FOLDERS)}}}`), without optimisation. Branches that the compiler adds for exceptions are not "
             "counted. `build/coverage/coverage.html` shows each line." +
             (f" Not run this time: {', '.join(without)}." if without else ""), "",
             "| folder | lines | branches |", "|---|---|---|"]
    below, rows = [], []
    for folder, floors in FLOORS.items():
        own = [file for file in files if file["filename"].startswith(folder + "/")]
        total = {key: sum(file[key] for file in own)
                 for key in ("line_covered", "line_total", "branch_covered", "branch_total")}
        line, branch = (percent(total[f"{x}_covered"], total[f"{x}_total"]) for x in ("line", "branch"))
        lines.append(f"| {folder} | {total['line_covered']} of {total['line_total']}, {line:.1f} % | "
                     f"{total['branch_covered']} of {total['branch_total']}, {branch:.1f} % |")
        if line < floors[0] or branch < floors[1] or not own:
            below.append(f"{folder}: {line:.1f} % of lines and {branch:.1f} % of branches; at least {floors} are wanted")
        rows += [file for file in own if file["line_covered"] < file["line_total"]
                 or file["branch_covered"] < file["branch_total"]]
    lines += ["", "Files with something that no test reaches:", "", "| file | lines missed | branches missed |", "|---|---|---|"]
    lines += [f"| {file['filename']} | {file['line_total'] - file['line_covered']} | "
              f"{file['branch_total'] - file['branch_covered']} |" for file in rows]
    for file in files:
        name, missed = file["filename"], (file["line_total"] - file["line_covered"], file["branch_total"] - file["branch_covered"])
        most = UNREACHED.get(name, (0, 0))
        if name.startswith("src/io/") and (missed[0] > most[0] or missed[1] > most[1]):
            below.append(f"{name}: {missed[0]} lines and {missed[1]} branches missed; {most[0]} and {most[1]} are known, with reasons")
    return "\n".join([*lines, "", "What the readers have in this list no input reaches: `unreached.md` says why, and a reader that misses more fails "
                      "the command.", ""]), below


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--gcovr", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--summary", type=pathlib.Path)
    parser.add_argument("--without", nargs="*", default=[], help="programs that were not run: the summary says so")
    arguments = parser.parse_args()
    if arguments.programs:
        print("\n".join(programs()))
        return 0
    text, below = report(measure(arguments.gcovr, arguments.build.resolve()), arguments.without)
    print(text)
    if arguments.summary:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(text, encoding="utf-8")
    print("\n".join(below))
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
