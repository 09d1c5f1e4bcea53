"""What of the library the tests reach: runs gcovr over a build with preset coverage and llvm-cov over one with preset
kernel_coverage, and writes a table.

    python3 tests/coverage/report.py --gcovr PROGRAM --build DIR --kernels DIR [--summary FILE] [--allow-missing-isa]
    python3 tests/coverage/report.py --programs            the programs whose tests count
    python3 tests/coverage/report.py --kernel-programs     those whose tests count for the kernels; DIR/profiles has
                                                           what they leave, one PROGRAM.profraw each

Branches into exceptions that the compiler adds to calls are left out (--exclude-throw-branches); those that the
source has in words are counted. Exits with 1 if a floor below is not kept, if what no test reaches in src/io is not what
docs/evidence/unreached.md lists, or if there is any in the other readers of files. Where this CPU lacks an instruction set, whose
kernels are then not measured, it exits with 1, too, and writes no FILE; with --allow-missing-isa it goes by the rest, and writes a page
of its own beside FILE, as tests/full/run.py does.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import kernels
import unreached

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import evidence  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Percent of lines and of branches.
FLOORS = {f"src/{folder}": (95, 90) for folder in ("io", "attention", "cache", "inspect", "modules", "runtime")}
KERNEL_FLOORS = (95, 90)  # on each instruction set

# What listed lines and branches are held against; all that is not listed is reached.
LISTED = "src/io"
UNREACHED = ROOT / "docs/evidence/unreached.md"

# Readers of files in other folders: all of them is reached.
REACHED = ("src/modules/files.cc",)

# Whose tests run.
FOLDERS = ("forward", "backward", "cache", "inspection", "io", "jvp", "merge", "packing", "modules", "runtime")

# Whose tests run for the kernels: parts, both element types, both orders of decoding, and caches of all lengths.
KERNEL_PROGRAMS = ("kernels_test", "forward_matrix_test", "forward_decode_order_test", "cache_half_test")


def programs():
    """Targets, as the build files have them."""
    for folder in FOLDERS:
        yield from re.findall(r"^ *heed_(?:runtime_)?test\((\w+)", (ROOT / "tests" / folder / "CMakeLists.txt").read_text(), re.M)


def percent(part, whole):
    return 100.0 if whole == 0 else 100.0 * part / whole


def measure(gcovr, build):
    out, details = build / "coverage.json", build / "coverage_details.json"
    filters = [flag for folder in FLOORS for flag in ("--filter", f"{folder}/")]
    # Threads that race for a counter can make gcov give a negative count (GCC's bug 68080), at which gcovr ends without a
    # report. The build's -fprofile-update=prefer-atomic is to prevent that, and the data of 2026-11-22 have none; should one
    # come, the flag makes it a warning and a count of 0, which is missed: no line or branch is reached by it.
    subprocess.run([str(gcovr), "--root", str(ROOT), "--object-directory", str(build), *filters,
                    "--exclude-throw-branches", "--exclude-unreachable-branches",
                    "--merge-lines", "--gcov-ignore-parse-errors=negative_hits.warn",
                    "--json", str(details), "--json-summary", str(out), "--html-details", str(build / "coverage.html"), str(build / "src")],
                   check=True, cwd=ROOT)
    return json.loads(out.read_text())["files"], json.loads(details.read_text())["files"]


def not_reached(details):
    """What no test reaches in files of which all has to be."""
    for name in REACHED:
        places = unreached.missed(details, ROOT, str(pathlib.Path(name).parent))
        if not any(file["file"] == name for file in details):
            yield f"{name} was not measured"
        yield from (f"no test reaches {name}: `{source}`" for file, source in places if file == name)


def measure_kernels(build):
    profiles, data = build / "profiles", build / "kernels.profdata"
    subprocess.run(["llvm-profdata-14", "merge", *(str(profiles / f"{name}.profraw") for name in KERNEL_PROGRAMS), "-o", str(data)],
                   check=True)
    objects = [str(next(path for path in (build / "tests").rglob(name) if path.is_file())) for name in KERNEL_PROGRAMS]
    done = subprocess.run(["llvm-cov-14", "export", objects[0], *(f"--object={name}" for name in objects[1:]),
                           f"--instr-profile={data}"], check=True, capture_output=True, text=True)
    return kernels.measure(json.loads(done.stdout), ROOT)


def report_kernels(lines, branches, flags):
    """The text, and the targets that lie below the floors."""
    text = ["The kernels (`src/kernels`), of each instruction set what it has of them, with optimisation:", "",
            "| instruction set | lines | branches |", "|---|---|---|"]
    below, missed = [], {}
    for target in [*kernels.TARGETS, kernels.ALL]:
        run, sides = lines.get(target, {}), branches.get(target, {})
        hit = sum(count > 0 for count in run.values())
        taken, whole = sum((true > 0) + (false > 0) for true, false in sides.values()), 2 * len(sides)
        line, branch = percent(hit, len(run)), percent(taken, whole)
        if target in evidence.X86 and evidence.X86[target] not in flags.split():
            text.append(f"| {target} | this CPU lacks it | |")
            continue
        text.append(f"| {target} | {hit} of {len(run)}, {line:.1f} % | {taken} of {whole}, {branch:.1f} % |")
        if not run or not sides or line < KERNEL_FLOORS[0] or branch < KERNEL_FLOORS[1]:
            below.append(f"src/kernels, {target}: {line:.1f} % of lines and {branch:.1f} % of branches; "
                         f"at least {KERNEL_FLOORS} are wanted")
        for (file, number), count in run.items():
            if count == 0:
                missed.setdefault(file, {}).setdefault(number, []).append(target)
    text += ["", f"`{kernels.ALL}` is what is compiled once for all of them. Clang counts in the source, before it inlines; a line or "
             "branch of a template is reached if one of its instances on that instruction set is. What is for vectors only, such as "
             "asking for memory ahead, counts as missed on the scalar path. Lines that no test reaches:", "",
             "| file | lines | on |", "|---|---|---|"]
    for file, numbers in sorted(missed.items()):
        for targets in dict.fromkeys(map(tuple, numbers.values())):
            own = [number for number, on in sorted(numbers.items()) if tuple(on) == targets]
            text.append(f"| {file} | {', '.join(map(str, own))} | {', '.join(targets)} |")
    return text, below


def report(files, details, of_kernels, missing):
    """The text, and the folders that lie below their floor."""
    lines = ["# Coverage", "",
             f"`./dev coverage`, {evidence.today(missing)}: lines and branches that the tests reach "
             f"(`tests/{{{','.join(FOLDERS)}}}`), without optimisation. Branches that the compiler adds for exceptions are not "
             "counted. `build/coverage/coverage.html` shows each line.", "",
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
    below += unreached.differences(unreached.missed(details, ROOT, LISTED), unreached.listed(UNREACHED.read_text(), LISTED), LISTED)
    below += not_reached(details)
    text, low = report_kernels(*of_kernels, evidence.of_cpu("flags"))
    below += low
    return "\n".join([*lines, "", f"Not as it should be: {'; '.join(below) or 'nothing'}.", "", f"`unreached.md` lists each branch, and each line of code, that is counted here as missed in {LISTED}, and says why; where "
                      f"it and the tests disagree, or something is missed in {' or '.join(REACHED)}, the command fails.", "", *text, ""]), below


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--gcovr", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--kernel-programs", action="store_true")
    parser.add_argument("--kernels", type=pathlib.Path)
    parser.add_argument("--summary", type=pathlib.Path)
    parser.add_argument("--allow-missing-isa", action="store_true")
    arguments = parser.parse_args()
    if arguments.programs:
        print("\n".join(programs()))
        return 0
    if arguments.kernel_programs:
        print("\n".join(KERNEL_PROGRAMS))
        return 0
    missing = evidence.missing_isas(evidence.of_cpu("flags", "Features"), evidence.KERNEL_ISAS)
    text, below = report(*measure(arguments.gcovr, arguments.build.resolve()), measure_kernels(arguments.kernels.resolve()), missing)
    print(text)
    allowed = evidence.may_lack(missing, arguments.allow_missing_isa)
    if arguments.summary and allowed:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        evidence.page_without(missing, arguments.summary).write_text(text, encoding="utf-8")
    print("\n".join(below))
    return 1 if below or not allowed else 0


if __name__ == "__main__":
    sys.exit(main())
