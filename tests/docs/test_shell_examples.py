"""Every `sh` block of the page about the command line runs, in order, in one real shell each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.gateway.shell import Shell

# Every line of the page starts a Python of its own.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "use-the-command-line.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_shell_blocks_of_the_page_run(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    outs = [shell.good(f"set -e; {block}").out for block in blocks]
    push, broken, look, _, raw, forks, scripts, _ = outs
    assert push.splitlines()[-1] == "3"
    assert broken == "--skip-rows 1\n"
    assert '2,"Gent"\n3,"Oslo"\n' in look
    assert raw.splitlines()[1] == "--binary base64"
    assert raw.splitlines()[-1].split() == ["ff", "01", "0a"]
    assert "audit      5" in forks
    assert '"kind": "cut"' in forks.splitlines()[-1]
    assert scripts.splitlines()[0] == '{"items": 2}'
    assert scripts.splitlines()[-1] == '"kind": "not-found"'
