"""The README where there is nothing: a new Debian 12 as debootstrap's minbase leaves it, a fresh clone.

    python3 tests/package/bare.py [--folder FOLDER] [--keep] [--summary FILE]

As root, since it makes a root folder and changes into it. What is cloned is the last commit; what is not committed is not
seen. There are two newcomers: one who may not install packages, and is told the line that root must run, and root, who
needs nothing but ./dev demo, and runs ./dev test. Then the first one does what the README says, its lines taken from there: the program of
twelve lines, the Python package, what CMake and pkg-config find, the command line. Packages come from where this machine's
apt takes its own. All mounts and processes are of a namespace that ends with this program, and the folder, 2 GB, is removed;
--keep leaves it there.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import evidence  # noqa: E402
import tally  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSIDE = "HEED_BARE_INSIDE"
RELEASE = "bookworm"
USER = "newcomer"


def own_namespaces():
    """Begins anew where mounts and processes are nobody else's."""
    if os.environ.get(INSIDE) is None:
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        os.execvpe(command[0], [*command, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def mirror():
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)", "Created-By: Packages"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = [line.split()[0] for line in lines if line.split()[1:] == [RELEASE, "main"]]
    if not found:
        raise SystemExit(f"bare: this machine's apt has no '{RELEASE} main' to take packages from")
    return found[0]


class Bare:
    """The new system, and what was tried in it."""

    def __init__(self, folder):
        self.folder, self.lines, self.passed, self.failed = folder, [], 0, 0
        self.mounted = []

    def make(self):
        began = time.monotonic()
        log = self.folder / "debootstrap.log"
        self.root = self.folder / "root"
        with log.open("w") as out:
            done = subprocess.run(["debootstrap", "--variant=minbase", RELEASE, self.root, mirror()], stdout=out, stderr=out)
        if done.returncode:
            raise SystemExit(f"bare: debootstrap failed:\n{log.read_text()[-3000:]}")
        for name in ("resolv.conf", "hosts"):
            if pathlib.Path("/etc", name).exists():
                shutil.copyfile(pathlib.Path("/etc", name), self.root / "etc" / name)
        # Terminals are below /dev, control groups below /sys.
        for name, how in (("proc", ["-t", "proc", "proc"]), ("dev", ["--rbind", "/dev"]), ("sys", ["--rbind", "/sys"])):
            subprocess.run(["mount", *how, self.root / name], check=True)
            self.mounted.append(self.root / name)
        self.of_root(f"useradd --create-home {USER}")
        subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}",
                        self.root / "home" / USER / "heed"], check=True)
        packages = self.of_root("dpkg-query -W -f='${Package}\\n'").stdout.split()
        self.note(f"debootstrap: {len(packages)} packages", began)
        self.give_to(USER)

    def give_to(self, user):
        self.of_root(f"chown -R {user}: /home/{USER}")

    def in_root(self, command, *how):
        """A login's environment and nothing of ours, but the way to the network."""
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM": "dumb",
                       **{name: value for name, value in os.environ.items()
                          if name.lower().endswith("_proxy") or name in ("PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT")}}
        return subprocess.run(["chroot", *how, self.root, "sh", "-c", command], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def of_root(self, command):
        done = self.in_root(command)
        if done.returncode:
            raise SystemExit(f"bare: {command}: {done.stdout}")
        return done

    def writes(self, name, text):
        """A file of the first newcomer."""
        path = self.root / "home" / USER / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        self.give_to(USER)

    def trusts_the_way_to_the_network(self):
        """A certificate of this machine that its pip is told of is known there, too."""
        certificates = os.environ.get("PIP_CERT")
        if certificates:
            there = self.root / certificates.lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(certificates, there)

    def note(self, what, began):
        self.lines.append(f"| {what} | {time.monotonic() - began:.0f} s |")
        print(f"{time.monotonic() - began:6.0f} s  {what}", flush=True)

    def tries(self, who, command, code, *patterns, never=r"(?!)"):
        """Runs it in the clone; the exit code must be `code`, and each pattern be in what is printed, but not `never`."""
        began = time.monotonic()
        home = "/root" if who == "root" else f"/home/{USER}"
        how = [] if who == "root" else [f"--userspec={who}:{who}"]
        done = self.in_root(f"export HOME={home}; cd /home/{USER}/heed; {command}", *how)
        missing = [pattern for pattern in patterns if not re.search(pattern, done.stdout)]
        unwanted = re.findall(never, done.stdout)
        self.note(f"{who}: `{command}`: exit code {done.returncode}", began)
        if done.returncode != code or missing or unwanted:
            self.failed += 1
            expected = f"expected {code}, and {missing} in the output" + (f", and not {unwanted}" if unwanted else "")
            self.lines.append(f"| {expected} | failed |")
            print(f"{done.stdout[-6000:]}\nfailed: {expected}")
        else:
            self.passed += 1


class Readme:
    """What the README tells its readers to type."""

    def __init__(self):
        self.text = (ROOT / "README.md").read_text()

    def section(self, title):
        return re.search(rf"(?ms)^## {title}$(.*?)(?=^## |\Z)", self.text)[1]

    def lines(self, title):
        """The indented ones, without what is said beside them."""
        found = [re.sub(r" +# .*", "", line) for line in re.findall(r"(?m)^    (\S.*)$", self.section(title))]
        if not found:
            raise SystemExit(f"bare: the README has no indented lines under '{title}'")
        return found

    def block(self, title, language):
        return re.search(rf"(?s)```{language}\n(.*?)```", self.section(title))[1]


TWELVE = r"query 0:  5\.00  5\.00  5\.00\nquery 1:  1\.00"   # what the twelve lines print

# A project as the README's lines begin one, and the files that its commands name.
PROJECT = """cmake_minimum_required(VERSION 3.25)
project(newcomer CXX)
{find}add_executable(app twelve.cc)
{link}"""
FILES = """import numpy as np
q, k, v, g = np.random.default_rng(0).standard_normal((4, 1, 2, 40, 16), np.float32)
for name in "qkv": np.save(name, vars()[name])
np.save("mask", np.tri(40, dtype=bool))
np.savez("qkvg", q=q, k=k, v=v, d_output=g)
from safetensors.numpy import save_file
save_file(dict(q=q, k=k, v=v), "qkv.safetensors")
save_file(dict(q=q, k=k), "qk.safetensors")
"""


def from_cmake(bare, readme):
    """Installed under ~/.local, found by CMake and by pkg-config."""
    for line in readme.lines("From CMake"):
        bare.tries(USER, line, 0)
    find, link = readme.block("From CMake", "cmake").split("\n", 1)
    bare.writes("project/CMakeLists.txt", PROJECT.format(find=find + "\n", link=link))
    bare.writes("project/twelve.cc", readme.block("Twelve lines", "cpp"))
    bare.tries(USER, "cd ~/project && cmake -G Ninja -B build -D CMAKE_PREFIX_PATH=$HOME/.local && cmake --build build && build/app", 0, TWELVE)
    bare.tries(USER, "cd ~/project && export PKG_CONFIG_PATH=$HOME/.local/lib/pkgconfig && "
               "c++ -std=c++20 twelve.cc -o twelve $(pkg-config --cflags --libs heed) && ./twelve", 0, TWELVE)


def from_python(bare, readme):
    """The package in the environment that the README makes, and its example."""
    for line in readme.lines("From Python"):
        bare.tries(USER, line, 0)
    bare.writes("example.py", readme.block("From Python", "python"))
    bare.tries(USER, "~/heed-python/bin/python ~/example.py", 0, r"(?m)^\[\[\d")


def from_the_command_line(bare, readme):
    bare.writes("files.py", FILES)
    bare.tries(USER, "~/heed-python/bin/pip install -q safetensors && mkdir ~/files && cd ~/files && ~/heed-python/bin/python ../files.py", 0)
    for line in readme.lines("From the command line"):
        bare.tries(USER, f"cd ~/files && ~/.local/bin/{line}", 0)


def other_skips(flags):
    """A pattern of the skips that tests/tally.py tells and this CPU is not the reason of. It allows some anywhere, for want of
    rights or addresses; root has both."""
    of_cpu = [re.escape(reason) for _, _, where, reason in tally.ALLOWED
              if where in ("no bf16", "not x86_64") and tally.may_be(where, "", flags)]
    return rf"(?m)^skipped: (?!.*\((?:{'|'.join(of_cpu)})\)(?:, \d+ times)?$).*"


def walk(bare):
    readme = Readme()
    # The first has no rights to install, and is told what root must run.
    install = r"(?m)^apt-get update && apt-get install -y --no-install-recommends .*\bg\+\+ "
    bare.tries(USER, "./dev demo", 3, "packages are missing; as root, run this line", install)
    bare.tries(USER, "./dev nonsense", 2, 'there is no command "nonsense"')
    bare.give_to("root")
    bare.tries("root", "./dev demo", 0, r"installing .*g\+\+", "heed: building", r"in a browser:\n  /root/\S+\.html")
    bare.trusts_the_way_to_the_network()
    flags = evidence.of_cpu("flags", "Features").split()
    bare.tries("root", "./dev test", 0, r"(?m)^\d+ passed, 0 failed, \d+ skipped$", never=other_skips(flags))
    bare.give_to(USER)
    # All packages are there now, and nothing is left to build.
    bare.tries(USER, "./dev demo", 0, rf"in a browser:\n  /home/{USER}/\S+\.html")
    bare.tries(USER, "build/release/cli/heed info", 0, "used: the best")
    bare.tries(USER, "cmake --build build/release --target example_basic && build/release/examples/example_basic", 0, "something round")
    bare.writes("twelve.cc", readme.block("Twelve lines", "cpp"))
    bare.tries(USER, "c++ -std=c++20 -I include ~/twelve.cc -o ~/twelve $(find build -name libheed.a) -lhwy -pthread && ~/twelve", 0, TWELVE)
    from_cmake(bare, readme)
    from_python(bare, readme)
    from_the_command_line(bare, readme)


def page(bare):
    return "\n".join(["# On a Debian that has nothing", "",
                      f"`./dev bare`, {evidence.today()}: debootstrap's minbase of {RELEASE}, a user",
                      "without rights, a fresh clone. Times hold what the network and the machine's other work took.",
                      "", "| who: what | time |", "|---|---|", *bare.lines, "",
                      f"{bare.passed} passed, {bare.failed} failed", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, help="where the new system is made; it must not be there yet")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--summary", type=pathlib.Path)
    arguments = parser.parse_args()
    if os.getuid() != 0:
        raise SystemExit("bare: only root can change into another root folder")
    if not shutil.which("debootstrap"):
        raise SystemExit("bare: there is no debootstrap; Debian has it in the package of that name")
    own_namespaces()
    if arguments.folder:
        arguments.folder.mkdir(parents=True)
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="heed-bare-"))
    folder.chmod(0o755)
    bare = Bare(folder.resolve())
    try:
        bare.make()
        walk(bare)
    finally:
        if not arguments.keep:
            # What is bound below root/dev is this machine's: with a mount that stays, nothing is removed.
            for place in bare.mounted:
                subprocess.run(["umount", "--lazy", place], check=True)
            subprocess.run(["rm", "-rf", "--one-file-system", folder], check=True)
    print(f"{bare.passed} passed, {bare.failed} failed")
    if arguments.summary:
        arguments.summary.parent.mkdir(parents=True, exist_ok=True)
        arguments.summary.write_text(page(bare), encoding="utf-8")
    return 1 if bare.failed else 0


if __name__ == "__main__":
    sys.exit(main())
