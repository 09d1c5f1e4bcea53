"""Every public name says what it is, in the words that the reference is made of (./dev docs).

Read from the sources: heed.torch, heed.jax, heed.onnx and heed.transformers need libraries to be imported.
"""

import ast
import re

import pytest
from support import ROOT

import heed

SOURCES = ROOT / "python/heed"
MODULES = ("__init__", "study", "torch", "jax", "onnx", "transformers")
ARRAYS = re.compile(r"\b(Array|Tensor)\b")
SHAPE = re.compile(r"\[([^\]\n]*\b(T[qk]?|S|H)\b[^\]\n]*|\.\.)\]")
FORMULA = re.compile(r"softmax\(|exp\(| = | / ")
# They take arrays and compute nothing from them, or nothing of their own.
NO_FORMULA = {"keep", "drop", "add", "inspect_weights", "summarize", "explain", "inspect"}
NO_ERRORS = {"keep", "drop", "add", "entropy_share", "effective_keys", "mean_diagonal"}


def definition(module: str, name: str) -> ast.AST | None:
    """Where a module has a name from; None for modules and what the compiled part has."""
    tree = ast.parse((SOURCES / f"{module}.py").read_text())
    for node in tree.body:
        if getattr(node, "name", None) == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.level == 1 and name in [alias.name for alias in node.names]:
            return definition(node.module, name) if node.module and node.module != "_core" else None
    return None


def public(module: str) -> list[str]:
    tree = ast.parse((SOURCES / f"{module}.py").read_text())
    [names] = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"]
    return ast.literal_eval(names)


NAMES = [(module, name) for module in MODULES for name in public(module)]


@pytest.mark.parametrize("module, name", NAMES, ids=[f"{module}.{name}" for module, name in NAMES])
def test_a_public_name_says_what_it_is(module, name):
    node = definition(module, name)
    if node is None:
        assert getattr(heed, name).__doc__, name
        return
    text = ast.get_docstring(node) or ""
    assert text and ast.get_docstring(ast.parse((SOURCES / f"{module}.py").read_text()))
    if isinstance(node, ast.ClassDef):
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                assert ast.get_docstring(part), f"{name}.{part.name}"
        return
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    if any(ARRAYS.search(ast.unparse(one.annotation)) for one in arguments if one.annotation is not None):
        assert SHAPE.search(text), "no shape"
        assert name in NO_FORMULA or FORMULA.search(text), "no formula"
        assert name in NO_ERRORS or ":raises " in text, "no errors"
    documented = re.findall(r":param (\w+):", text)
    kept = {one.arg for one in (*arguments, node.args.kwarg) if one is not None}
    assert set(documented) <= kept | {"opset_version"}, "a parameter that there is not"


def test_every_field_says_what_it_is():
    """The fields of what is returned."""
    seen = 0
    for path in sorted(SOURCES.glob("*.py")):
        lines = path.read_text().splitlines()
        for node in ast.parse("\n".join(lines)).body:
            if isinstance(node, ast.ClassDef) and node.name in heed.__all__ and "NamedTuple" in map(ast.unparse, node.bases):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign):
                        assert "#: " in lines[field.lineno - 1], f"{path.name}: {node.name}.{field.target.id}"
                        seen += 1
    assert seen > 60


def test_the_reference_has_a_page_for_every_module():
    pages = {path.stem for path in (ROOT / "docs/reference").glob("heed*.rst")}
    assert pages == {"heed" if module == "__init__" else f"heed.{module}" for module in MODULES}
    index = (ROOT / "docs/reference/index.rst").read_text()
    for page in pages:
        assert f".. automodule:: {page}\n" in (ROOT / "docs/reference" / f"{page}.rst").read_text()
        assert f"   {page}\n" in index
