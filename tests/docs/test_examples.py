"""Every Python block of the README and the docs runs, and so does every example in a docstring.

The blocks of one page run one after the other in one namespace, in an empty folder of their own, so
that a page reads like a session. A block that should fail says so with try and except, like a user.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill
from tests.docs.docstrings import failures_of
from tests.docs.pages import BLOCK, PAGES, PAGES_ALONE, ROOT

# Those of `tidemill.spark` run where the tests have a session, in `tests/spark`.
MODULES = [
    "tidemill",
    *(
        module.name
        for module in pkgutil.walk_packages(tidemill.__path__, "tidemill.")
        if not module.name.startswith("tidemill.spark")
    ),
]


def _starts_slowly(text: str) -> bool:
    return "tidemill.spark" in text or "postgresql://app@localhost" in text


def _slow_if(starts_spark: bool, value: object) -> object:
    """A parameter; a session of Spark takes seconds to start."""
    return pytest.param(value, marks=pytest.mark.slow) if starts_spark else value


@pytest.mark.parametrize(
    "page",
    [_slow_if(_starts_slowly(page.read_text()), page) for page in PAGES_ALONE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_python_blocks_of_a_page_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    text = page.read_text()
    if "mysql://app@localhost" in "".join(BLOCK.findall(text)):
        text = _on_our_server(text, request)
    if "postgresql://app@localhost" in "".join(BLOCK.findall(text)):
        ours = request.getfixturevalue("postgres").url()
        text = text.replace("postgresql://app@localhost:5432/shop/orders", ours)
    if "redis://localhost" in "".join(BLOCK.findall(text)):
        ours = request.getfixturevalue("redis").url
        text = text.replace("redis://localhost:6379", ours)
    if "tidemill.spark" in text:
        _run_apart(text, page, tmp_path)
        return
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for match in BLOCK.finditer(text):
        # Blank lines in front make the line numbers of a traceback those of the page.
        line = text.count("\n", 0, match.start(1))
        exec(compile("\n" * line + match[1], str(page), "exec"), namespace)


def _run_apart(text: str, page: Path, folder: Path) -> None:
    """Run a page in a process of its own: Spark stays in the folder that it was started in."""
    script = folder / f"{page.stem}.py"
    script.write_text("\n".join(BLOCK.findall(text)))
    ended = subprocess.run(
        [sys.executable, script.name], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def _on_our_server(text: str, request: pytest.FixtureRequest) -> str:
    """A page that talks to a reader's server, with the one of the tests in its place."""
    server, database = request.getfixturevalue("mariadb"), request.getfixturevalue("database")
    for theirs, ours in {
        "app@localhost:3306/shop": f"root@127.0.0.1:{server.port}/{database}",
        'host="localhost", port=3306, user="app", database="shop"': (
            f'host="127.0.0.1", port={server.port}, user="root", database="{database}"'
        ),
    }.items():
        text = text.replace(theirs, ours)
    return text


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert failures_of(importlib.import_module(name)) == 0


def test_the_readme_has_an_example() -> None:
    assert BLOCK.search((ROOT / "README.md").read_text())


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
