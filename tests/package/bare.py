"""The README's first command where there is nothing: a new Debian 12 as debootstrap's minbase leaves it, a fresh clone.

    python3 tests/package/bare.py [--folder FOLDER] [--keep] [--summary FILE]

As root, since it makes a root folder and changes into it. What is cloned is the last commit; what is not committed is not
seen. There are two newcomers: one who may not install packages, and is told the line that root must run, and root, who
needs nothing but ./dev demo. Packages come from where this machine's apt takes its own. All mounts and processes are
of a namespace that ends with this program, and the folder, 2 GB, is removed; --keep leaves it there.
"""

import argparse
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

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
        for name, how in (("proc", ["-t", "proc", "proc"]), ("dev", ["--bind", "/dev"])):
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
                       **{name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}}
        return subprocess.run(["chroot", *how, self.root, "sh", "-c", command], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def of_root(self, command):
        done = self.in_root(command)
        if done.returncode:
            raise SystemExit(f"bare: {command}: {done.stdout}")
        return done

    def note(self, what, began):
        self.lines.append(f"| {what} | {time.monotonic() - began:.0f} s |")
        print(f"{time.monotonic() - began:6.0f} s  {what}", flush=True)

    def tries(self, who, command, code, *patterns):
        """Runs it in the clone; the exit code must be `code`, and each pattern be in what is printed."""
        began = time.monotonic()
        home = "/root" if who == "root" else f"/home/{USER}"
        how = [] if who == "root" else [f"--userspec={who}:{who}"]
        done = self.in_root(f"cd /home/{USER}/heed && HOME={home} {command}", *how)
        missing = [pattern for pattern in patterns if not re.search(pattern, done.stdout)]
        self.note(f"{who}: `{command}`: exit code {done.returncode}", began)
        if done.returncode != code or missing:
            self.failed += 1
            self.lines.append(f"| expected {code}, and {missing} in the output | failed |")
            print(f"{done.stdout[-6000:]}\nfailed: expected exit code {code}, and {missing} in the output")
        else:
            self.passed += 1


def walk(bare):
    # The first has no rights to install, and is told what root must run.
    install = r"(?m)^apt-get update && apt-get install -y --no-install-recommends .*\bg\+\+ "
    bare.tries(USER, "./dev demo", 3, "packages are missing; as root, run this line", install)
    bare.tries(USER, "./dev nonsense", 2, 'there is no command "nonsense"')
    bare.give_to("root")
    bare.tries("root", "./dev demo", 0, r"installing .*g\+\+", "heed: building", r"in a browser:\n  /root/\S+\.html")
    bare.give_to(USER)
    # All packages are there now, and nothing is left to build.
    bare.tries(USER, "./dev demo", 0, rf"in a browser:\n  /home/{USER}/\S+\.html")
    bare.tries(USER, "build/release/cli/heed info", 0, "used: the best")
    bare.tries(USER, "cmake --build build/release --target example_basic && build/release/examples/example_basic", 0, "something round")
    twelve = re.search(r"(?s)```cpp\n(.*?)```", (ROOT / "README.md").read_text())[1]
    (bare.root / "tmp" / "twelve.cc").write_text(twelve)
    bare.tries(USER, "c++ -std=c++20 -I include /tmp/twelve.cc -o /tmp/twelve $(find build -name libheed.a) -lhwy -pthread && "
               "/tmp/twelve", 0, r"query 0:  5\.00  5\.00  5\.00\nquery 1:  1\.00")


def cpu():
    names = re.findall(r"^model name\s*: (.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return names[0] if names else "a CPU without a name"


def page(bare):
    return "\n".join(["# On a Debian that has nothing", "",
                      f"`./dev bare`, {datetime.date.today()}, {cpu()}, {os.cpu_count()} cores: debootstrap's minbase of {RELEASE}, a user",
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
