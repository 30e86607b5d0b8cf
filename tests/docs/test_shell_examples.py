"""Every `sh` block of these pages runs, in order, in one real shell each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill as tm
from tests.docs.pages import BLOCK, ROOT
from tests.gateway.shell import Shell

# Every line of a page starts a Python of its own.
pytestmark = pytest.mark.slow

PAGES = ROOT / "docs" / "how-to"
WATCHING = "watch-over-it.md"
SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(name: str, shell: Shell) -> list[str]:
    """What each `sh` block of a page writes."""
    blocks = SHELL_BLOCK.findall((PAGES / name).read_text())
    return [shell.good(f"set -e; {block}").out for block in blocks]


def test_the_shell_blocks_about_the_command_line_run(tmp_path: Path) -> None:
    outs = run("use-the-command-line.md", Shell(tmp_path))
    push, nested, broken, look, _, raw, turns, forks, scripts, _ = outs
    assert nested.splitlines()[1] == "columns  city: string, tags: list<item: string>"
    assert push.splitlines()[-1] == "3"
    assert broken == "--skip-rows 1\n"
    assert '2,"Gent"\n3,"Oslo"\n' in look
    assert raw.splitlines()[1] == "--binary base64"
    assert raw.splitlines()[-1].split() == ["ff", "01", "0a"]
    assert turns.splitlines()[-1] == "6"
    assert "audit      5" in forks
    assert '"kind": "cut"' in forks.splitlines()[-1]
    assert scripts.splitlines()[0] == '{"items": 2}'
    assert scripts.splitlines()[-1] == '"kind": "not-found"'


def test_the_shell_blocks_about_watching_run(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    (tmp_path / "page.py").write_text("\n".join(BLOCK.findall((PAGES / WATCHING).read_text())))
    subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=shell.environment, check=True)
    waiting, doctor = run(WATCHING, shell)
    assert waiting.splitlines()[:2] == ["100", "billing 3"]
    assert json.loads(waiting.splitlines()[2])["forks"] == {"audit": 100}
    assert json.loads((tmp_path / "report.json").read_text())["healthy"]
    assert "All is well." in doctor


def test_the_certificates_that_a_page_makes_are_good_for_nodes(tmp_path: Path) -> None:
    run("count-across-workers.md", Shell(tmp_path))

    def tls(node: str) -> tm.Tls:
        files = (tmp_path / name for name in (f"{node}.pem", f"{node}.key", "ca.pem"))
        return tm.Tls(*files)

    with (
        tm.Counters("worker-1", listen="127.0.0.1:0", tls=tls("worker-1")) as one,
        tm.Counters("worker-2", peers=[one.address], tls=tls("worker-2")) as two,
    ):
        two.upsert("visits", 70)
        assert two.sync() == {one.address: "ok"}
        assert one.get("visits") == 70
