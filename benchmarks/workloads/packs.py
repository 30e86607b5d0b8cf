"""Nerve's own workload: many senders with packs of 200 four-byte messages, and a reader beside.

On MariaDB, at full durability and with the relaxed flush that Nerve asks for. The peer is the
row-per-message way: the same packs as multi-row inserts, by the same driver, into as many tables on
the same server, with a writer for each that takes all packs that wait, and a reader that follows
each table by number. It keeps no pointer that would cover all tables without a hole, which spares
it a commit.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import tidemill as tm
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import Settings
from benchmarks.together import together
from tests.services.mariadb import MariaDB

SHARDS = 4
SENDERS = 16
PACK = [b"test"] * 200
_TARGET = Target("at least", 10.0)


def timed(
    packs: int, send: Callable[[int], None], receive: Callable[[int], None]
) -> dict[str, float]:
    """Seconds per message until all is written, and until a reader beside the writers has it.

    `send` sends one pack, as the sender with the number given; `receive` so many messages.
    """
    total = packs * len(PACK)
    turns = iter(range(packs))
    mutex = threading.Lock()
    failures: list[BaseException] = []

    def work(sender: int) -> None:
        while True:
            with mutex:
                if next(turns, None) is None:
                    return
            send(sender)

    def read_all() -> None:
        try:
            receive(total)
        except BaseException as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)

    # A daemon, since it waits in vain if a sender fails.
    reading = threading.Thread(target=read_all, daemon=True)
    start = time.perf_counter()
    reading.start()
    together(work, SENDERS)
    written = time.perf_counter()
    reading.join()
    read = time.perf_counter()
    if failures:
        raise failures[0]
    return {"write": (written - start) / total, "read": (read - start) / total}


class Ours:
    """A log with four shards; a fresh one each turn."""

    name = "tidemill"

    def __init__(self, server: MariaDB, packs: int) -> None:
        self._server = server
        self._packs = packs
        self._turns = count()

    def turn(self) -> dict[str, float]:
        url = self._server.url("bench", f"ours{next(self._turns)}")
        with tm.Log(url, parallelism=SHARDS) as log:
            out = log.publisher()
            receiver = log.receiver("reader")

            def receive(total: int) -> None:
                while total:
                    batch = receiver.receive()
                    if batch is None:
                        raise RuntimeError("the log ended")
                    batch.ack()
                    total -= len(batch)

            def send(_: int) -> None:
                out.send(PACK)

            return timed(self._packs, send, receive)

    def close(self) -> None:
        pass


class _Table:
    """A shard with a row per message. Its senders take turns, and each writes all that waits."""

    def __init__(self, server: MariaDB, name: str) -> None:
        server.execute(
            f"CREATE TABLE bench.{name} (id BIGINT PRIMARY KEY, data BLOB NOT NULL) ENGINE=InnoDB"
        )
        self._insert = f"INSERT INTO {name} (id, data) VALUES (%s, %s)"
        self.select = f"SELECT id, data FROM {name} WHERE id > %s ORDER BY id LIMIT 100000"
        self._cursor = server.connect("bench").cursor()
        self._turn = threading.Lock()
        self._joining = threading.Lock()
        self._pending: list[list[bool]] = []  # a pack each: whether it is written
        self._next = 1

    def send(self) -> None:
        pack = [False]
        with self._joining:
            self._pending.append(pack)
        with self._turn:
            if pack[0]:
                return
            with self._joining:
                packs, self._pending = self._pending, []
            messages = PACK * len(packs)
            self._cursor.executemany(self._insert, list(enumerate(messages, self._next)))
            self._next += len(messages)
            for one in packs:
                one[0] = True

    def close(self) -> None:
        connection = self._cursor.connection
        self._cursor.close()
        connection.close()


class RowPerMessage:
    """A row for each message, in multi-row inserts; fresh tables each turn."""

    name = "a row per message"

    def __init__(self, server: MariaDB, packs: int) -> None:
        self._server = server
        self._packs = packs
        self._turns = count()

    def turn(self) -> dict[str, float]:
        turn = next(self._turns)
        tables = [_Table(self._server, f"rows_{turn}_{shard}") for shard in range(SHARDS)]

        def receive(total: int) -> None:
            connection = self._server.connect("bench")
            last = [0] * SHARDS
            with connection, connection.cursor() as cursor:
                while total:
                    for shard, table in enumerate(tables):
                        cursor.execute(table.select, (last[shard],))
                        rows = cursor.fetchall()
                        if rows:
                            last[shard] = rows[-1][0]
                            total -= len(rows)

        found = timed(self._packs, lambda sender: tables[sender % SHARDS].send(), receive)
        for table in tables:
            table.close()
        return found

    def close(self) -> None:
        pass


@contextmanager
def server(settings: Settings, *options: str) -> Iterator[MariaDB]:
    """A server of the run's own, with its data on the disk that is measured."""
    with (
        tempfile.TemporaryDirectory(dir=settings.folder, prefix="mariadb-") as folder,
        # The path of a socket has to be short: this one is within the data.
        MariaDB(Path(folder), "--socket=socket", *options) as started,
    ):
        started.execute("CREATE DATABASE bench")
        yield started


def run(settings: Settings) -> list[Result]:
    results: list[Result] = []
    packs = 40 if settings.quick else 2_000
    if (reason := MariaDB.missing()) is not None:
        return [Result("packs on MariaDB", None, "messages/s", target=_TARGET, note=reason)]
    for words, flush in (("full durability", 1), ("relaxed flush", 2)):
        with server(settings, f"--innodb-flush-log-at-trx-commit={flush}") as started:
            what = f"{SENDERS} senders of packs of {len(PACK)} on MariaDB, {words}"
            contestants: list[Contestant] = [Ours(started, packs), RowPerMessage(started, packs)]
            medians = interleave(what, contestants, settings.rounds)
        ours, peer = medians["tidemill"], medians[RowPerMessage.name]
        results += [
            Result(
                f"{what}: {metric}",
                1 / ours[metric],
                "messages/s",
                1 / peer[metric],
                RowPerMessage.name,
                _TARGET,
            )
            for metric in ("write", "read")
        ]
    return results
