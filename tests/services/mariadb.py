"""A real MariaDB server on a free loopback port, in a temporary folder; it can be killed, and
started again.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pymysql
import pytest

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_START_S_MAX = 60.0


class MariaDB:
    """One server, its data in `folder`; stopped by its process id.

    `options` are added to its command line, such as "--innodb-flush-log-at-trx-commit=2".
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> str | None:
        """Why no server can be started here; None if one can."""
        for program in ("mariadbd", "mariadb-install-db"):
            if shutil.which(program, path=_PATH) is None:
                return f"{program} is not installed: make services"
        return None

    def __enter__(self) -> Self:
        self.install()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def install(self) -> None:
        """Make the folder of the data."""
        run = [
            _found("mariadb-install-db"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.folder / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        done = subprocess.run(run, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        assert self._process is None
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    _found("mariadbd"),
                    "--no-defaults",
                    f"--user={getpass.getuser()}",
                    f"--datadir={self.folder / 'data'}",
                    f"--socket={self.folder / 'socket'}",
                    f"--pid-file={self.folder / 'pid'}",
                    f"--port={self.port}",
                    "--bind-address=127.0.0.1",
                    # Small, because a run of the tests has one server per worker.
                    "--innodb-buffer-pool-size=64M",
                    "--innodb-log-file-size=32M",
                    "--performance-schema=OFF",
                    "--skip-name-resolve",
                    *self.options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + _START_S_MAX
        while True:
            try:
                self.connect().close()
                return
            except pymysql.err.OperationalError:
                # There is no event to wait for: the server does not tell when it listens.
                assert self._process.poll() is None, (self.folder / "output").read_text()
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.01)

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def connect(self, database: str | None = None) -> pymysql.Connection[pymysql.cursors.Cursor]:
        """A connection of the tests' own, as root, with autocommit."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database,
            autocommit=True,
            connect_timeout=5,
        )

    def execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run one statement on a connection of its own, and give back its rows."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall())

    def url(self, database: str, name: str, *, port: int | None = None) -> str:
        return f"mysql://root@127.0.0.1:{port or self.port}/{database}/{name}"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def skip_or_fail(reason: str) -> None:
    """A missing server skips a test on a developer's machine, and fails it where all must run."""
    if os.environ.get("TIDEMILL_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _found(program: str) -> str:
    path = shutil.which(program, path=_PATH)
    assert path is not None, f"{program} is not installed: make services"
    return path
