"""Builds the tree twice, in two folders and without a compiler cache, and compares what is installed, byte for byte: with
static libraries, with shared ones, and as the wheel of the Python package.

    python3 tests/package/reproduce.py [--jobs N] [--python PYTHON] [--summary FILE] [--only static|shared|wheel]

Prints the files' SHA-256. Of shared libraries it also says what is wrong with their names, what they export and their
hardening, and lets tests/consumer use them. The wheel is built by PYTHON, which has what pyproject.toml requires for that,
with SOURCE_DATE_EPOCH the time of the last commit: its files bear that date. Exits with 1 if anything differs or is wrong.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path[:0] = [str(folder) for folder in list(pathlib.Path(__file__).resolve().parents)[:2]]
import binaries
import evidence

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPORTED = ROOT / "tests" / "package" / "exported"
WORK = ROOT / "build" / "reproduce"
FOLDERS = ("one", "another/whose-name-is-longer")
KINDS = {"static": "Static libraries and the program", "shared": "Shared libraries and the program",
         "wheel": "The wheel of the Python package"}


# Some of what each installs: a prefix without it is not one.
INSTALLED = {"static": ("bin/heed", "include/heed/attention.h", "lib/libheed.a", "lib/libheed_io.a", "lib/pkgconfig/heed.pc"),
             "shared": ("bin/heed", "include/heed/attention.h", "lib/libheed.so.*", "lib/libheed_io.so.*"), "wheel": ("heed-*.whl",)}


def lacking(prefix, kind):
    return [f"{pattern} is not installed" for pattern in INSTALLED[kind] if not any(prefix.glob(pattern))]


def output_of(*command):
    return subprocess.run([str(x) for x in command], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def copy_of_tree(tree):
    for name in output_of("git", "ls-files", "-co", "--exclude-standard").split("\n"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)


def commands(kind, tree, prefix, jobs, python):
    """What a user would call to have this kind in a prefix."""
    if kind == "wheel":
        return [[python, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-build-isolation", "--no-deps",
                 "--wheel-dir", prefix, tree]]
    return [["cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja", "-D", "CMAKE_BUILD_TYPE=Release",
             "-D", "HEED_BUILD_TESTS=OFF", "-D", "HEED_BUILD_EXAMPLES=OFF", "-D", "HEED_BUILD_BENCH=OFF",
             "-D", f"BUILD_SHARED_LIBS={'ON' if kind == 'shared' else 'OFF'}"],
            ["cmake", "--build", tree / "build", "-j", jobs],
            ["cmake", "--install", tree / "build", "--prefix", prefix]]


def build(kind, folder, jobs, python):
    """The prefix that a user would get."""
    tree, prefix = WORK / kind / folder / "tree", WORK / kind / folder / "prefix"
    copy_of_tree(tree)
    environment = {**os.environ, "CCACHE_DISABLE": "1", "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
                   "SOURCE_DATE_EPOCH": output_of("git", "log", "-1", "--format=%ct").strip()}
    for command in commands(kind, tree, prefix, jobs, python):
        done = subprocess.run([str(x) for x in command], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(f"{done.stdout[-3000:]}\n{command[0]} {command[1]} {command[2]} failed")
    return prefix


def hashes(prefix):
    return {path.relative_to(prefix).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(prefix.rglob("*")) if path.is_file() and not path.is_symlink()}


def wrong_with_shared(prefix, version, exported=EXPORTED):
    """A shared library is named by the versions that it stands for (docs/versioning.md: those with the same first two
    numbers), exports what is listed, and is hardened as the program is."""
    found = sorted(path for path in prefix.rglob("*.so.*") if not path.is_symlink())
    if [path.name for path in found] != [f"lib{name}.so.{version}" for name in ("heed", "heed_io")]:
        yield f"shared libraries are {[path.name for path in found]}"
    for path in found:
        soname = re.search(r"\(SONAME\).*\[(.+)\]", output_of("readelf", "-dW", path))
        wanted = path.name.rpartition(".")[0]
        if not soname or soname[1] != wanted:
            yield f"{path.name} has the soname {soname and soname[1]}; expected {wanted}"
        for line in binaries.exports(path, exported / f"{path.name.removeprefix('lib').partition('.')[0]}.txt"):
            yield f"{path.name}: {line}"
        yield from binaries.hardening(path)
        yield from binaries.imports(path)


def wrong_with_consumers(prefix, work):
    """Programs that find this prefix, moved to another place, build, run, and catch what the libraries throw."""
    done = subprocess.run(["cmake", "-D", f"PREFIX={prefix}", "-D", f"WORK={work}", "-D", "CXX=c++", "-D", "IO=ON",
                           "-P", ROOT / "tests" / "consumer" / "check.cmake"], capture_output=True, text=True)
    if done.returncode:
        yield f"consumers of the installed tree: {' '.join(done.stderr.split())[-2000:]}"


def section(kind, one, other, wrong):
    """Lines of the page on hashes of two builds, and how many things are not as they should be."""
    differing = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    files = dict(sorted({**other, **one}.items()))   # also what only one of them has
    lines = ["", f"## {KINDS[kind]}", "", f"{len(files) - len(differing)} of {len(files)} files are the same.", ""]
    if wrong:
        lines += [*[f"Not as it should be: {line}" for line in wrong], ""]
    elif kind == "shared":
        lines += ["* Names, exports and hardening of the libraries are right; consumers of the moved tree run and catch their errors.", ""]
    lines += ["| file | SHA-256 |", "|---|---|"]
    lines += [f"| {name} | {'**differs**' if name in differing else value} |" for name, value in files.items()]
    return lines, len(differing) + len(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".venv" / "bin" / "python")
    parser.add_argument("--summary", type=pathlib.Path)
    parser.add_argument("--only", choices=list(KINDS), help="one of the three")
    arguments = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    compiler = output_of("c++", "--version").split("\n")[0]
    version = re.search(r"project\(heed VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    lines = ["# Reproducible builds", "",
             f"What `./dev reproduce` installs after builds in two folders, without a compiler cache. {evidence.today()}, {compiler}."]
    wrong = 0
    for kind in [arguments.only] if arguments.only else KINDS:
        one, other = prefixes = [build(kind, folder, arguments.jobs, arguments.python) for folder in FOLDERS]
        told = lacking(prefixes[0], kind)
        if kind == "shared":
            told += [*wrong_with_shared(prefixes[0], version), *wrong_with_consumers(prefixes[0], WORK / kind / "consumer")]
        more, count = section(kind, hashes(one), hashes(other), told)
        lines, wrong = lines + more, wrong + count
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.summary:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
