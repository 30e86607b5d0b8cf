"""A real shell in an empty folder, with the command `tidemill` on its path."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidemill

# Long enough for any machine, however much else it does; nothing waits for it when all is well.
WITHIN_S = 500


@dataclass(frozen=True)
class Done:
    """What a script left behind."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def error(self) -> dict[str, Any]:
        """The error that was reported as JSON, alone on standard error."""
        document = json.loads(self.err)
        assert document["error"]["status"] == self.status
        found: dict[str, Any] = document["error"]
        return found


class Shell:
    """Runs scripts; a pipeline fails if any part of it does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "bin"
        self._bin.mkdir()
        command = self._bin / "tidemill"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidemill "$@"\n')
        command.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if "TIDEMILL_" not in name}
        return {
            **clean,
            "PATH": f"{self._bin}:{clean['PATH']}",
            # The same copy of the package as the tests themselves, wherever the shell stands.
            "PYTHONPATH": str(Path(tidemill.__path__[0]).resolve().parent),
            "COLUMNS": "100",
            "TERM": "xterm",
        }

    def run(self, script: str, *, shell: str = "bash", stdin: bytes = b"") -> Done:
        """Run a script to its end."""
        options = ["-o", "pipefail"] if shell == "bash" else []
        done = subprocess.run(
            [shell, *options, "-c", script],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=WITHIN_S,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def good(self, script: str, **options: Any) -> Done:
        """Run a script that has to succeed."""
        done = self.run(script, **options)
        assert done.status == 0, done.err
        return done

    def on_terminal(self, script: str, **variables: str) -> str:
        """Run a script that has to succeed with a terminal for its output; returns what is seen."""
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        seen = b""
        try:
            while piece := os.read(leader, 1000):
                seen += piece
        except OSError:
            pass  # What a terminal says when everybody has left it.
        os.close(leader)
        assert process.wait(timeout=WITHIN_S) == 0, seen
        return seen.decode()

    def asked(self, script: str, answer: str, *, question: bytes = b"[y/N]") -> tuple[str, int]:
        """What a script asks on a terminal, and its status after this answer."""
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdin=follower,
            stdout=subprocess.PIPE,
            stderr=follower,
        )
        os.close(follower)
        asked = b""
        while question not in asked:
            asked += os.read(leader, 1000)
        os.write(leader, f"{answer}\n".encode())
        process.communicate(timeout=WITHIN_S)
        os.close(leader)
        return asked.decode(), process.returncode

    def refused(self, script: str, status: int, kind: str) -> dict[str, Any]:
        """Run a script that has to fail like this; returns the error as reported in JSON."""
        done = self.run(f"export TIDEMILL_JSON=1; {script}")
        assert done.status == status, (done.out, done.err)
        error = done.error()
        assert error["kind"] == kind
        return error


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
