"""What is installed: the names, their documentation, the stub, the command, and examples that run."""

import importlib.metadata
import inspect
import pathlib
import re
import subprocess
import sysconfig

import pytest
from support import ROOT

import heed
from heed import _core, _options

PACKAGE = pathlib.Path(heed.__file__).parent


def test_every_name_is_there_and_documented():
    for name in heed.__all__:
        value = getattr(heed, name)
        assert value.__doc__, name
    public = {name for name in vars(heed) if not name.startswith("_")}
    assert public == set(heed.__all__)


def test_options_are_those_of_attention_everywhere():
    *names, last, packing, role = inspect.signature(_options.pack).parameters
    names.append(packing)
    assert (packing, last, role) == ("packing", "reproducible", "role") and list(_options.Options.__annotations__) == [*names, last, "threads"]
    parameters = list(inspect.signature(heed.attention).parameters)
    assert parameters[:3] == ["q", "k", "v"] and parameters[3:3 + len(names)] == names
    documented = re.findall(r":param (\w+)", heed.attention.__doc__)
    assert [name for name in parameters[3:] if name not in documented] == ["seed"]


def test_the_stub_names_what_the_module_has():
    assert (PACKAGE / "py.typed").is_file()
    stub = (PACKAGE / "_core.pyi").read_text()
    functions = {}
    for name, arguments, result in re.findall(r"^def (\w+)\((.*?)\)\s*\\?\s*-> ([^\n]*): \.\.\.$", stub, re.M | re.S):
        functions[name] = re.findall(r"(\w+):", arguments), result
    assert set(functions) == {name for name in dir(_core) if not name.startswith("_")}
    for name, (arguments, result) in functions.items():
        signature = getattr(_core, name).__nb_signature__[0][0]
        assert re.findall(r"(\w+):", signature) == arguments, signature
        assert signature.endswith((f"-> {result}", "-> object")), signature


def test_one_module_for_all_pythons():
    assert pathlib.Path(_core.__file__).name == "_core.abi3.so"
    needed = importlib.metadata.requires("heed")
    assert {re.match(r"[\w-]+", name)[0] for name in needed} == {"numpy", "nanobind-backend"}


@pytest.mark.parametrize("question", ["hardening", "imports"])
def test_the_module_and_the_command_are_hardened_and_call_nothing_outside(question):
    for file in (_core.__file__, PACKAGE / "bin/heed"):
        done = subprocess.run(["python3", ROOT / "tests/package/binaries.py", question, file], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "\n")


def test_the_module_shows_no_name_of_heed():
    names = subprocess.run(["nm", "-D", "--defined-only", _core.__file__], capture_output=True, text=True, check=True).stdout
    assert " PyInit__core\n" in names
    assert not re.findall(r"\S*4heed\S*", names)


def test_the_command_is_native_and_finds_its_sample():
    command = pathlib.Path(sysconfig.get_path("scripts")) / "heed"
    assert (PACKAGE / "bin/heed").read_bytes()[:4] == b"\x7fELF"
    done = subprocess.run([command, "demo"], capture_output=True, text=True)
    assert done.returncode == 0 and "animal" in done.stdout
    assert subprocess.run([command, "--version"], capture_output=True, text=True).stdout.split()[-1] == heed.__version__
    assert subprocess.run([command, "no such command"], capture_output=True).returncode == 2


def test_a_build_says_what_the_system_lacks(tmp_path):
    absent = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("hwy", "PNG")]
    done = subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", "-DHEED_BUILD_PYTHON=ON", *absent],
                          capture_output=True, text=True)
    assert done.returncode != 0
    assert "apt-get install libhwy-dev libpng-dev\n" in done.stderr


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_examples_run(page, tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_figures_beside_the_example_of_reading_attention_are_what_it_prints(monkeypatch, capsys):
    """Each to as many digits as the page has. It reads a sample of the checkout."""
    page = "docs/reading-attention.md"
    [block] = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    monkeypatch.chdir(ROOT)
    exec(compile(block, page, "exec"), {})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    figures = [line.split() for line in re.findall(r"^print\(.*\) +# (.*)$", block, re.M)]
    assert len(figures) == len(printed) == 5
    assert [[f"{float(x):.{len(figure.partition('.')[2])}f}" for x, figure in zip(*pair, strict=True)]
            for pair in zip(printed, figures)] == figures
