"""Publishers, receivers and the server are killed under load: what was told is true."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.log.sent import Sent
from tests.log.sql.killed_children import CONSUMER
from tests.services.mariadb import MariaDB
from tests.services.postgres import Postgres
from tests.services.server import skip_or_fail

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
ROUNDS = {"mysql": 2_000 if SOAK else 60, "postgres": 2_000 if SOAK else 15}
KILLS = {"mysql": 50 if SOAK else 4, "postgres": 50 if SOAK else 2}
ROOT = Path(__file__).resolve().parents[3]


class Nursery:
    """Starts the children of one kind, one at a time."""

    def __init__(self, url: str, folder: Path, kind: str) -> None:
        self._kind = kind
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.log.sql.killed_children", url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, number: int, delay_s: float, *words: object, lines_min: int = 1
    ) -> list[list[Any]]:
        """Start a child, kill it so long after it has told so much, and give back what it told."""
        path = self._folder / f"{self._kind}-{number}"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, [self._kind, path, *words])) + "\n")
        self._process.stdin.flush()
        child = int(self._process.stdout.readline())
        deadline = time.monotonic() + 60
        # A few die while they open the log, most in the middle of their work.
        while number % 8 and not _has_lines(path, lines_min):
            assert time.monotonic() < deadline, "the child does not begin"
            time.sleep(0.001)
        time.sleep(delay_s)  # The delay is the fault: it decides where the kill strikes.
        os.kill(child, signal.SIGKILL)
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _has_lines(path: Path, count: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") >= count


def _note_publisher(sent: Sent, told: list[list[Any]]) -> None:
    send = None
    for kind, *words in told:
        if kind == "send":
            send = sent.attempted([row.encode() for row in words[0]])
        elif kind == "sent" and send is not None:
            sent.confirmed(send, words[0])


@pytest.mark.slow
@pytest.mark.parametrize("home", ["mysql", "postgres"])
def test_publishers_and_receivers_killed_at_random_lose_nothing(
    request: pytest.FixtureRequest, home: str, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    url, rounds = request.getfixturevalue(f"{home}_url"), ROUNDS[home]
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 (a failure must replay from what it prints)
    draw = random.Random(seed)
    with tm.Log(url, parallelism=2) as log:
        sent = Sent()
        deliveries: list[tuple[int, list[bytes]]] = []
        starts: list[int] = []

        def kill_publishers() -> None:
            nursery = Nursery(url, tmp_path, "publish")
            for number in range(rounds):
                # One that has opened the log tells of each send twice: before it, and behind it.
                told = nursery.run(
                    number,
                    draw.uniform(0, 0.06),
                    (number + 1) * 100_000,
                    lines_min=1 + 2 * (number % 3),
                )
                _note_publisher(sent, told)
            nursery.close()

        def kill_receivers() -> None:
            nursery = Nursery(url, tmp_path, "receive")
            for number in range(rounds):
                for kind, *words in nursery.run(number, draw.uniform(0, 0.06)):
                    if kind == "opened":
                        starts.append(words[0])
                    else:
                        deliveries.append((words[0], [row.encode() for row in words[1]]))
            nursery.close()

        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(kill_publishers), threads.submit(kill_receivers)]:
                done.result()

        rows = log.read(1, rows_max=10_000_000).rows()
        sent.check(rows)
        assert sent.confirmations >= rounds // 2
        # Each receiver went on behind what is stored, and stored is only what was delivered.
        assert starts == sorted(starts)
        reached = 0
        for first, given in deliveries:
            assert first <= reached + 1, "rows were skipped"
            assert given == rows[first - 1 : first - 1 + len(given)]
            reached = max(reached, first + len(given) - 1)
        pointer = log.consumers()[CONSUMER]
        assert pointer <= reached
        rest = [row for batch in log.receiver(CONSUMER, follow=False) for row in batch.rows()]
        assert rest == rows[pointer:]
    tally(f"publishers and receivers of {home} killed", 2 * rounds)


@pytest.fixture
def mysql_url(mariadb: MariaDB, database: str) -> str:
    return mariadb.url(database, "log")


@pytest.fixture
def postgres_url(postgres: Postgres) -> str:
    return postgres.url()


@contextmanager
def _own_server(home: str, folder: Path) -> Iterator[tuple[MariaDB | Postgres, str]]:
    """A server that may be killed, and a log on it."""
    kind = MariaDB if home == "mysql" else Postgres
    if (reason := kind.missing()) is not None:
        skip_or_fail(reason)
    with kind(folder) as server:
        if isinstance(server, Postgres):
            yield server, server.url()
        else:
            server.execute("CREATE DATABASE shop")
            yield server, server.url("shop", "orders")


@pytest.mark.slow
@pytest.mark.parametrize("home", ["mysql", "postgres"])
def test_a_server_killed_under_load_loses_nothing(
    home: str, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    kills = KILLS[home]
    sent = Sent()
    received: list[bytes] = []
    with _own_server(home, tmp_path) as (server, url), tm.Log(url, parallelism=3) as log:
        out = log.publisher()
        receiver = log.receiver("billing")
        is_over = threading.Event()

        def send(_: int) -> None:
            while not is_over.is_set():
                number, rows = sent.attempt(3)
                sent.confirmed(number, out.send(rows).first)

        def receive() -> None:
            for batch in receiver:
                received.extend(batch.rows())
                batch.ack()
                if received[-1] == b"last":
                    return

        with ThreadPoolExecutor(7) as threads:
            receiving = threads.submit(receive)
            sending = [threads.submit(send, number) for number in range(6)]
            for _ in range(kills):
                before = sent.confirmations
                while sent.confirmations < before + 30:
                    assert not any(task.done() for task in [receiving, *sending])
                    time.sleep(0.005)
                server.kill()
                server.start()
            is_over.set()
            for task in sending:
                task.result()
            sent.confirmed(sent.attempted([b"last"]), out.send([b"last"]).first)
            receiving.result(timeout=60)
        rows = log.read(1, rows_max=10_000_000).rows()
        sent.check(rows)
        assert received == rows
    tally(f"servers of {home} killed under load", kills)
