"""A row of a table for each message: multi-row inserts into as many tables as the log has shards.

Two ways to write it. In the plain one each sender inserts its pack and commits, on one of a few
connections, so that the server commits several at once. In the other a writer for each table takes
all packs that wait, as a log does, and puts the statement together by hand, which takes a tenth of
what the driver's `executemany` takes: as well as it can be done.

Numbers are dense within a table. The reader of each follows them up to the first that is missing,
since transactions do not commit in the order of their numbers. Neither way keeps a pointer, of the
writer or of a consumer, which spares it commits.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count
from queue import SimpleQueue

import pymysql

from tests.services.mariadb import MariaDB

CONNECTIONS_PER_TABLE = 4  # of senders that write by themselves
_READ_ROWS_MAX = 100_000


class _Table:
    """One table, and who writes to it."""

    def __init__(self, server: MariaDB, name: str, pack: Sequence[bytes]) -> None:
        server.execute(
            f"CREATE TABLE bench.{name} (id BIGINT PRIMARY KEY, data BLOB NOT NULL) ENGINE=InnoDB"
        )
        self._server = server
        self._select = (
            f"SELECT id, data FROM {name} WHERE id > %s ORDER BY id LIMIT {_READ_ROWS_MAX}"
        )
        self.insert = f"INSERT INTO {name} (id, data) VALUES "
        self.pack = pack
        self.next = 1
        self.mutex = threading.Lock()
        self._last_read = 0

    def send(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def connect(self) -> pymysql.cursors.Cursor:
        return self._server.connect("bench").cursor()

    def reserve(self, messages: int) -> int:
        """The first of so many numbers. Called under the lock."""
        first, self.next = self.next, self.next + messages
        return first

    def read(self, cursor: pymysql.cursors.Cursor) -> int:
        """How many messages come next."""
        cursor.execute(self._select, (self._last_read,))
        rows = cursor.fetchall()
        found = _dense([row[0] for row in rows], self._last_read)
        self._last_read += found
        return found


def _dense(ids: Sequence[int], last: int) -> int:
    """How many of the ascending numbers behind `last` come without a gap, found by halving."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high + 1) // 2
        if ids[middle - 1] == last + middle:
            low = middle
        else:
            high = middle - 1
    return low


class EachSenderTable(_Table):
    """Each sender inserts its own pack, with the driver's `executemany`, and commits."""

    def __init__(self, server: MariaDB, name: str, pack: Sequence[bytes]) -> None:
        super().__init__(server, name, pack)
        self._cursors: SimpleQueue[pymysql.cursors.Cursor] = SimpleQueue()
        for _ in range(CONNECTIONS_PER_TABLE):
            self._cursors.put(self.connect())

    def send(self) -> None:
        cursor = self._cursors.get()
        with self.mutex:
            first = self.reserve(len(self.pack))
        cursor.executemany(self.insert + "(%s, %s)", list(enumerate(self.pack, first)))
        self._cursors.put(cursor)

    def close(self) -> None:
        for _ in range(CONNECTIONS_PER_TABLE):
            _close(self._cursors.get())


class JoinedTable(_Table):
    """Senders take turns, and each writes all that waits, in one statement made by hand."""

    def __init__(self, server: MariaDB, name: str, pack: Sequence[bytes]) -> None:
        super().__init__(server, name, pack)
        self._cursor = self.connect()
        self._turn = threading.Lock()
        self._waiting: list[list[bool]] = []  # a pack each: whether it is written

    def send(self) -> None:
        mine = [False]
        with self.mutex:
            self._waiting.append(mine)
        with self._turn:
            if mine[0]:
                return
            with self.mutex:
                packs, self._waiting = self._waiting, []
                first = self.reserve(len(packs) * len(self.pack))
            messages = enumerate([*self.pack] * len(packs), first)
            rows = ",".join([f"({number},x'{data.hex()}')" for number, data in messages])
            self._cursor.execute(self.insert + rows)
            for one in packs:
                one[0] = True

    def close(self) -> None:
        _close(self._cursor)


def _close(cursor: pymysql.cursors.Cursor) -> None:
    connection = cursor.connection
    cursor.close()
    connection.close()


class MessageRows:
    """So many tables of one kind, fresh for each turn."""

    def __init__(self, server: MariaDB, label: str, kind: type[_Table], tables: int) -> None:
        """`label` begins the names of the tables."""
        self._server = server
        self._label = label
        self._kind = kind
        self._tables = tables
        self._turns = count()
        self._open: list[_Table] = []

    def start(self, pack: Sequence[bytes]) -> None:
        """Make the tables to which `pack` is sent again and again."""
        name = f"{self._label}_{next(self._turns)}"
        self._open = [
            self._kind(self._server, f"{name}_{table}", pack) for table in range(self._tables)
        ]

    def send(self, sender: int) -> None:
        """Send a pack, as the sender with that number."""
        self._open[sender % self._tables].send()

    def receive(self, messages: int) -> None:
        """Read so many messages of those that are there and that come."""
        connection = self._server.connect("bench")
        with connection, connection.cursor() as cursor:
            while messages:
                for table in self._open:
                    messages -= table.read(cursor)

    def close(self) -> None:
        """Close what `start` has opened."""
        for table in self._open:
            table.close()
        self._open = []
