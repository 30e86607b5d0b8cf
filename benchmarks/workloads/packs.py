"""Nerve's own workload: many senders with packs of 200 four-byte messages, and a reader beside.

Nerve's benchmark has 1,000 senders and 4 tables, each sender with one pack on its way; here they
are threads. On MariaDB, at full durability and with the relaxed flush that Nerve asks for.

The peer is a row per message, in multi-row inserts by the same driver on the same server, in two
ways (`peers.message_rows`). The plain one is what an application does that has no such layer: each
sender inserts its pack and commits. The target is against that. The other joins all packs that
wait into one statement, which is made by hand: it is most of a layer such as ours, and shows what
is left of the difference when only the rows differ.

Few senders cannot fill a group, and wait for one commit after another: 16 are shown as well.
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
from benchmarks.peers.message_rows import EachSenderTable, JoinedTable, MessageRows
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import Settings
from benchmarks.together import together
from tests.services.mariadb import MariaDB

SHARDS = 4
PACK = [b"test"] * 200
_PLAIN = "a row per message"
_JOINED = "rows, joined by hand"
_TARGET = Target("at least", 10.0)


def timed(
    senders: int, packs: int, send: Callable[[int], None], receive: Callable[[int], None]
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
    reading.start()
    write_s = together(work, senders)
    written = time.perf_counter()
    reading.join()
    read_s = write_s + time.perf_counter() - written
    if failures:
        raise failures[0]
    return {"write": write_s / total, "read": read_s / total}


class Ours:
    """A log with four shards; a fresh one each turn."""

    name = "tidemill"

    def __init__(self, server: MariaDB, senders: int, packs: int) -> None:
        self._server = server
        self._senders = senders
        self._packs = packs
        self._turns = count()

    def turn(self) -> dict[str, float]:
        url = self._server.url("bench", f"ours{self._senders}_{next(self._turns)}")
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

            return timed(self._senders, self._packs, send, receive)

    def close(self) -> None:
        pass


class RowPerMessage:
    """A row for each message, written one way or the other."""

    def __init__(self, name: str, rows: MessageRows, senders: int, packs: int) -> None:
        self.name = name
        self._rows = rows
        self._senders = senders
        self._packs = packs

    def turn(self) -> dict[str, float]:
        self._rows.start(PACK)
        found = timed(self._senders, self._packs, self._rows.send, self._rows.receive)
        self._rows.close()
        return found

    def close(self) -> None:
        self._rows.close()


@contextmanager
def server(settings: Settings, *options: str) -> Iterator[MariaDB]:
    """A server of the run's own, with its data on the disk that is measured."""
    with (
        tempfile.TemporaryDirectory(dir=settings.folder, prefix="mariadb-") as folder,
        MariaDB(
            Path(folder),
            "--innodb-buffer-pool-size=1G",
            "--innodb-log-file-size=512M",
            *options,
        ) as started,
    ):
        started.execute("CREATE DATABASE bench")
        yield started


def run(settings: Settings) -> list[Result]:
    if (reason := MariaDB.missing()) is not None:
        return [Result("packs on MariaDB", None, "messages/s", target=_TARGET, note=reason)]
    results: list[Result] = []
    for words, flush in (("full durability", 1), ("relaxed flush", 2)):
        with server(settings, f"--innodb-flush-log-at-trx-commit={flush}") as started:
            for senders in (1_000, 16):
                results += _measure(settings, started, senders, words)
    return results


def _measure(settings: Settings, started: MariaDB, senders: int, words: str) -> list[Result]:
    # Several packs of each sender, and about as long for all.
    ours, rows = (10_000, 2_000) if senders > 100 else (3_000, 1_000)
    if settings.quick:
        ours, rows = 100, 40
    what = f"{senders:,} senders of packs of {len(PACK)} on MariaDB, {words}"
    contestants: list[Contestant] = [Ours(started, senders, ours)]
    for name, kind in ((_PLAIN, EachSenderTable), (_JOINED, JoinedTable)):
        peer = MessageRows(started, f"{kind.__name__}_{senders}", kind, SHARDS)
        contestants.append(RowPerMessage(name, peer, senders, rows))
    medians = interleave(what, contestants, settings.rounds)
    conditions = {"packs in a turn": f"{ours:,}, the peers' {rows:,}"}
    return [
        Result(
            f"{what}: {metric}",
            1 / medians["tidemill"][metric],
            "messages/s",
            1 / medians[name][metric],
            name,
            _TARGET if name == _PLAIN and senders > 100 else None,
            conditions=conditions,
        )
        for name in (_PLAIN, _JOINED)
        for metric in ("write", "read")
    ]
