"""Rows of a table that are taken with `SELECT … FOR UPDATE SKIP LOCKED`: the usual queue in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from tests.services.mariadb import MariaDB


class LockedRows:
    """A queue without a bound; each call is a transaction."""

    name = "SELECT … FOR UPDATE SKIP LOCKED"

    def __init__(self, server: MariaDB) -> None:
        self._connection = server.connect("bench")
        with self._connection.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS jobs (id BIGINT AUTO_INCREMENT PRIMARY KEY, "
                "value BLOB NOT NULL) ENGINE=InnoDB"
            )

    def put(self, values: Sequence[bytes]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany("INSERT INTO jobs (value) VALUES (%s)", [(one,) for one in values])

    def take(self, count: int) -> int:
        self._connection.begin()
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, value FROM jobs ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED", (count,)
            )
            rows = cursor.fetchall()
            cursor.execute("DELETE FROM jobs WHERE id IN %s", ([row[0] for row in rows],))
        self._connection.commit()
        return len(rows)

    def close(self) -> None:
        self._connection.close()
