"""A newcomer's walk: what the README says to type is typed, in a fresh clone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    return BLOCK.findall((ROOT / "README.md").read_text())


def test_the_readme_has_a_walk_and_make_knows_its_targets() -> None:
    typed = "\n".join(blocks())
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert "make run" in typed
    assert set(named) <= set(targets)


@pytest.mark.soak
def test_the_readme_works_as_typed_from_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "tidemill"
    cloned = subprocess.run(["git", "clone", "--quiet", ROOT, clone], capture_output=True)
    if cloned.returncode != 0:
        pytest.skip("this is not a clone, so that it cannot be cloned")
    said = ""
    for block in blocks():
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block], cwd=clone, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        said += done.stdout
    assert "claims hold: nothing lost, nothing twice" in said
    assert (clone / "tidemill-report.html").exists()
    assert "b'put out the fire'\nb'one second later'\n" in said
    assert said.index('"Oslo"') < said.index('"Lyon"') < said.index("All is well.")
    # Nothing that it made shows up as a change.
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True)
    assert status.stdout == b""
