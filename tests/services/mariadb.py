"""A real MariaDB server on a free loopback port, in a temporary folder; it can be killed, and
started again.
"""

from __future__ import annotations

import getpass
import os
import subprocess
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pymysql

from tests.services.server import Server, found


class MariaDB(Server):
    """One server, its data in `folder`; stopped by its process id.

    `options` are added to its command line, such as "--innodb-flush-log-at-trx-commit=2".
    """

    programs = ("mariadbd", "mariadb-install-db")

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self.options = options

    def install(self) -> None:
        """Make the folder of the data."""
        # Not one that others use: a server that starts removes the temporary tables that it finds.
        temporary = self.folder / "temporary"
        temporary.mkdir()
        run = [
            found("mariadb-install-db"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.folder / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        surroundings = {**os.environ, "TMPDIR": str(temporary)}
        done = subprocess.run(run, capture_output=True, check=False, env=surroundings)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def command(self) -> list[str]:
        return [
            found("mariadbd"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.folder / 'data'}",
            f"--tmpdir={self.folder / 'temporary'}",
            "--socket=socket",  # its path has to be short: this one is within the data
            f"--pid-file={self.folder / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            # Small, because a run of the tests has one server per worker.
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
            "--performance-schema=OFF",
            "--skip-name-resolve",
            *self.options,
        ]

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

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

    def until_it_waits_for_a_lock(self, work: Future[Any]) -> None:
        """Return once `work` waits for a row that another transaction has locked."""
        # Of innodb_trx whoever looks again within 100 ms is shown the same as before, for ever.
        while self.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")[0][1] == "0":
            assert not work.done(), "it waited for nobody"
            time.sleep(0.005)

    def url(self, database: str, name: str, *, port: int | None = None) -> str:
        return f"mysql://root@127.0.0.1:{port or self.port}/{database}/{name}"
