"""Completion in real shells: the scripts are loaded, and asked what they would offer."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from tests.gateway.shell import Shell

# Shells that ask Python for each word take their time.
pytestmark = pytest.mark.slow

CASES = [
    ("tidemill fo", {"fork"}),
    ("tidemill fork ", {"list", "create", "remove"}),
    ("tidemill completion ", {"bash", "zsh", "fish"}),
    ("tidemill push spool/ --for", {"--format"}),
    ("tidemill push spool/ --format ", {"ndjson", "csv", "parquet", "lines"}),
    ("tidemill fork create --s", {"--sync"}),
    ("tidemill --json pop spool/ --sync d", {"data"}),
    ("tidemill len sp", {"spool"}),
    ("tidemill push spool/ --from ev", {"events.csv"}),
]


@pytest.fixture
def folder(shell: Shell) -> Shell:
    (shell.folder / "spool").mkdir()
    (shell.folder / "events.csv").touch()
    shell.good("tidemill completion bash > bash.sh; tidemill completion fish > fish.sh")
    return shell


def test_bash_completes(folder: Shell) -> None:
    for line, expected in CASES:
        words = line.split(" ")
        script = f"""
            source bash.sh
            COMP_WORDS=({" ".join(word or "''" for word in words)})
            COMP_CWORD={len(words) - 1}
            _tidemill
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        assert set(folder.good(script).out.split()) == expected, line


def test_an_environment_that_asks_for_json_gets_the_script(folder: Shell) -> None:
    folder.good("TIDEMILL_JSON=1 tidemill completion bash | diff - bash.sh")
    assert folder.good("tidemill completion bash --json").json()["shell"] == "bash"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(folder: Shell) -> None:
    for line, expected in CASES:
        out = folder.good(f"source fish.sh; complete -C '{line}'", shell="fish").out
        found = {offer.split("\t")[0].rstrip("/") for offer in out.splitlines()}
        assert found == expected, line


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(shell: Shell) -> None:
    shell.good("tidemill completion zsh > zsh.sh; mkdir spool; touch events.csv")
    (shell.folder / ".zshrc").write_text(
        "PS1='> '\nautoload -Uz compinit\ncompinit -D -u\nsource ./zsh.sh\n"
    )
    # An only offer is put into the line, which the terminal shows as it grows.
    for line, grown in (
        ("tidemill fo", "tidemill fork "),
        ("tidemill push spool/ --form", "--format "),
        ("tidemill --json pop spool/ --sync d", "--sync data"),
        ("tidemill len sp", "tidemill len spool/"),
        ("tidemill push spool/ --from ev", "--from events.csv"),
        ("tidemill fork cr", "tidemill fork create "),
    ):
        assert grown in _typed(shell, line, grown), line


def _typed(shell: Shell, line: str, awaited: str) -> str:
    """What an interactive zsh shows when this is typed, and the tab key pressed."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        ["zsh", "-i"],
        cwd=shell.folder,
        env={**shell.environment, "ZDOTDIR": str(shell.folder), "TERM": "dumb"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    try:
        _wait_for(leader, "> ")
        os.write(leader, f"{line}\t".encode())
        return _shown_until(leader, awaited)
    finally:
        process.kill()
        process.wait()
        os.close(leader)


def _wait_for(leader: int, text: str) -> None:
    seen = ""
    while text not in seen:
        seen += os.read(leader, 1000).decode(errors="replace")


def _shown_until(leader: int, awaited: str) -> str:
    """What is shown until this is part of it, or there was time enough: the shell does not say when
    it is done.
    """
    seen = shown = ""
    deadline = time.monotonic() + 60
    while awaited not in shown and time.monotonic() < deadline:
        if select.select([leader], [], [], 1)[0]:
            seen += os.read(leader, 1000).decode(errors="replace")
            shown = seen.replace("\r", "").replace("\b", "")
    return shown
