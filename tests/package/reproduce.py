"""Builds the tree twice, in two folders and without a compiler cache, and compares what is installed, byte for byte.

    python3 tests/package/reproduce.py [--jobs N] [--shared] [--summary FILE]

Prints the files' SHA-256; exits with 1 if any differ.
"""

import argparse
import datetime
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "reproduce"
FOLDERS = ("one", "another/whose-name-is-longer")


def build(folder, jobs, flags):
    """The prefix that a user would get."""
    tree, prefix = WORK / folder / "tree", WORK / folder / "prefix"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split("\n")
    for name in listed:
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    for command in (["cmake", "-S", tree, "-B", tree / "build", "-G", "Ninja", "-D", "CMAKE_BUILD_TYPE=Release",
                     "-D", "HEED_BUILD_TESTS=OFF", "-D", "HEED_BUILD_EXAMPLES=OFF", "-D", "HEED_BUILD_BENCH=OFF", *flags],
                    ["cmake", "--build", tree / "build", "-j", jobs],
                    ["cmake", "--install", tree / "build", "--prefix", prefix]):
        done = subprocess.run([str(x) for x in command], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise SystemExit(f"{done.stdout[-3000:]}\n{command[0]} {command[1]} {command[2]} failed")
    return prefix


def hashes(prefix):
    return {path.relative_to(prefix).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(prefix.rglob("*")) if path.is_file() and not path.is_symlink()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--shared", action="store_true", help="shared libraries instead of static ones")
    parser.add_argument("--summary", type=pathlib.Path)
    arguments = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    flags = ["-D", f"BUILD_SHARED_LIBS={'ON' if arguments.shared else 'OFF'}"]
    one, other = (hashes(build(folder, arguments.jobs, flags)) for folder in FOLDERS)
    differing = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    command = "python3 tests/package/reproduce.py" + (" --shared" if arguments.shared else "")
    lines = ["# Reproducible builds", "",
             f"{len(one) - len(differing)} of {len(one)} installed files are the same after builds in two folders, without a "
             f"compiler cache. `{command}`, {datetime.date.today()}, {compiler}.", "", "| file | SHA-256 |", "|---|---|"]
    lines += [f"| {name} | {'**differs**' if name in differing else value} |" for name, value in one.items()]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.summary:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(text, encoding="utf-8")
    return 1 if differing or not one else 0


if __name__ == "__main__":
    sys.exit(main())
