"""The house style, as far as a test can see it.

A rule that makes some code worse may be broken: raise the bound here, and say why in one line.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
SOURCES = sorted(SRC.rglob("*.py"))
PACKAGES = [path.parent for path in SOURCES if path.name == "__init__.py"]

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 90

# Such a name says nothing about what is inside, and so collects anything.
NAMES_THAT_SAY_NOTHING = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}

each_source = pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SRC)))


@each_source
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= FILE_LINES_MAX, "split it by noun"
    assert ast.get_docstring(ast.parse(text)), "a module starts with what it is and why"


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.relative_to(SRC)))
def test_a_package_that_lists_its_modules_lists_them_all(path: Path) -> None:
    words = ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or ""
    modules = {one.stem for one in path.iterdir() if one.suffix == ".py" or one in PACKAGES}
    listed = re.findall(r"^ *(\w+(?:, \w+)*)  +\S", words, re.MULTILINE)
    if len(modules & {name for line in listed for name in line.split(", ")}) > 2:
        assert modules - {"__init__"} - set(re.findall(r"\w+", words)) == set()


@each_source
def test_a_module_is_named_by_its_noun(path: Path) -> None:
    assert not NAMES_THAT_SAY_NOTHING & set(path.relative_to(SRC).with_suffix("").parts)


@each_source
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= FUNCTION_LINES_MAX, f"{node.name} has {lines} lines"


@each_source
def test_a_module_leaves_nothing_to_be_done(path: Path) -> None:
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())


@each_source
def test_nothing_stored_or_received_is_unpickled(path: Path) -> None:
    imported = set(_imports(ast.parse(path.read_text())))
    assert not imported & {"cloudpickle", "dill", "marshal", "pickle", "shelve", "yaml"}


@each_source
def test_only_the_gateway_prints(path: Path) -> None:
    if path.relative_to(SRC).parts[:2] == ("tidemill", "gateway"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno}"


def test_the_public_names_are_sorted_and_importable() -> None:
    assert list(tidemill.__all__) == sorted(tidemill.__all__)
    assert [name for name in tidemill.__all__ if not hasattr(tidemill, name)] == []
    assert set(tidemill.__all__) <= set(dir(tidemill))
    with pytest.raises(AttributeError, match="no attribute 'Queue'"):
        tidemill.Queue  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_loads_what_is_used_and_nothing_before() -> None:
    program = (
        "import sys, tidemill\n"
        "print([name for name in ('numpy', 'pyarrow', 'tidemill.errors') if name in sys.modules])\n"
        "from tidemill import *\n"
        "print([name for name in tidemill.__all__ if name not in globals()], Locked.__module__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n[] tidemill.errors\n", "")


@pytest.mark.parametrize("name", tidemill.__all__)
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    thing = getattr(tidemill, name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return
    assert thing.__doc__, f"{name} has no docstring"
    # An error needs no example: the sentence says when it is raised.
    if not (inspect.isclass(thing) and issubclass(thing, Exception)):
        assert ">>> " in thing.__doc__, f"the docstring of {name} has no example"


def test_tracked_files_name_no_machine_and_no_registry() -> None:
    machine = re.compile(r"(?<![\w.)\]}~*/-])/(?:home|root|work|opt|Users|mnt)/")
    registry = re.compile(r"\bpypi\b|pythonhosted|--(?:extra-)?index-url|--find-links")
    for path in set(_tracked()) - {Path(__file__).resolve()}:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            # Of the format of frames and folders; anything else is not to be read.
            assert "golden" in path.parts, f"{path.relative_to(ROOT)} is no text"
            continue
        for pattern in (machine, registry):
            found = pattern.search(text)
            assert found is None, f"{path.relative_to(ROOT)} names {found and found[0]}"


def _tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode != 0:
        pytest.skip("this is not a clone, so that nothing is tracked")
    names = listed.stdout.decode().split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file()]


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_decisions_are_numbered_without_gaps_or_doubles() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        assert page.read_text().startswith(f"# {int(page.name[:4])}. "), page.name
