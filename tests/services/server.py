"""A real server that a test or a benchmark starts: a free loopback port, a folder of its own, and
an end by process id.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

import pytest

_START_S_MAX = 300.0  # on any machine; one that cannot start ends, which is noticed at once
# Where a system keeps its servers, and where wheels put theirs.
_PATH = os.pathsep.join(
    [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]
)


class Server(ABC):
    """One server, its data in `folder`; it can be killed, and started again."""

    programs: ClassVar[tuple[str, ...]]  # what has to be installed
    installed_by: ClassVar[str] = "make services"
    environment: Mapping[str, str] = {}  # added to that of the tests

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Why no server can be started here; None if one can."""
        for program in cls.programs:
            if shutil.which(program, path=_PATH) is None:
                return f"{program} is not installed: {cls.installed_by}"
        return None

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it is up."""

    def install(self) -> None:  # noqa: B027 (most need nothing)
        """Make what it needs before its first start."""

    def __enter__(self) -> Self:
        self.install()
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, *, wait: bool = True) -> None:
        """Start the server, and wait until it answers, unless that takes another."""
        assert self._process is None
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.environment},
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        deadline = time.monotonic() + _START_S_MAX
        while not self.answers():
            # There is no event to wait for: the server does not tell when it listens.
            assert self._process.poll() is None, (self.folder / "output").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it the server stands still; then it goes on as if nothing had been."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)  # until the last of its threads has stopped
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


_PORTS = range(16_000, 32_000)  # below those that the system gives away itself


def free_port() -> int:
    """A port that nobody listens on now, and that is this process's own until it ends: no other
    worker, run or program of the tests takes it before a server is started, or is started again.
    """
    while True:
        port = random.choice(_PORTS)
        # Of UDP, which no server here speaks, the same number says that it is taken.
        with socket.socket(type=socket.SOCK_DGRAM) as claim, socket.socket() as probe:
            try:
                claim.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            claim.detach()
            return port


def found(program: str) -> str:
    path = shutil.which(program, path=_PATH)
    assert path is not None, f"{program} is not installed"
    return path


def greeting(port: int, sent: bytes) -> bytes:
    """What a server says first, or to what was sent; nothing if it does not listen."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(sent)
            return connection.recv(1024)
    except OSError:
        return b""


def skip_or_fail(reason: str) -> None:
    """A missing server skips a test on a developer's machine, and fails it where all must run."""
    if os.environ.get("TIDEMILL_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
