"""Several processes on one log: one writes, any number read, and any of them may be killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.log.on_files.child import ROWS_PER_BATCH, rows_of

ROOT = Path(__file__).resolve().parents[3]
SOAK = os.environ.get("TIDEMILL_SOAK") == "1"


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.log.on_files.child", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    found = process.stdout.readline()
    assert found, "the child ended"
    return found.rstrip("\n")


def test_a_publisher_that_waits_for_its_turn_goes_on_where_the_other_one_ended(
    tmp_path: Path,
) -> None:
    with child("publish", tmp_path / "log", 0) as process:
        assert line(process) == "ready"
        line(process)
        with tm.Log(tmp_path / "log", lock_wait_s=60) as log, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(log.publisher)
            with pytest.raises(TimeoutError):
                waiting.result(0.1)
            process.kill()
            with waiting.result(60) as out:
                receipt = out.send(b"mine")
            assert receipt.first > 1
            assert log.ends().next == receipt.last + 1


def test_a_log_that_is_closed_waits_no_longer_for_another_publisher(tmp_path: Path) -> None:
    with child("publish", tmp_path / "log", 0) as process, ThreadPoolExecutor(2) as pool:
        assert line(process) == "ready"
        log = tm.Log(tmp_path / "log", lock_wait_s=100)
        began_s = time.monotonic()
        waiting: list[Future[Any]] = [pool.submit(log.publisher), pool.submit(log.trim, 1)]
        with pytest.raises(TimeoutError):
            waiting[0].result(0.1)
        log.close()
        for one in waiting:
            with pytest.raises(tm.Closed):
                one.result(60)
        assert time.monotonic() - began_s < 50


def test_who_does_not_wait_is_told_at_once_while_others_of_its_process_wait(
    tmp_path: Path,
) -> None:
    with child("publish", tmp_path / "log", 0) as process, ThreadPoolExecutor(2) as pool:
        assert line(process) == "ready"
        log = tm.Log(tmp_path / "log", lock_wait_s=100)
        publishing, trimming = pool.submit(log.publisher), pool.submit(log.trim, 1)
        with pytest.raises(TimeoutError):
            publishing.result(0.1)
        began_s = time.monotonic()
        with tm.Log(tmp_path / "log") as other:
            with pytest.raises(tm.Locked):
                other.publisher()
            with pytest.raises(tm.Locked):
                other.trim(1)
        assert time.monotonic() - began_s < 50
        process.kill()
        with publishing.result(60):
            assert trimming.result(60) == 1
        log.close()


def test_a_second_process_cannot_publish_but_reads_along(tmp_path: Path) -> None:
    with child("publish", tmp_path / "log", 0) as process:
        assert line(process) == "ready"
        line(process)
        with tm.Log(tmp_path / "log") as log:
            with pytest.raises(tm.Locked) as caught:
                log.publisher()
            assert caught.value.pid == process.pid
            with pytest.raises(tm.Locked):
                log.trim(before=2)
            receiver = log.receiver("here")
            seen = 0
            while seen < 100:
                batch = receiver.receive(wait_s=30)
                assert batch is not None
                assert batch.first_seq == seen + 1
                seen = batch.last_seq
                batch.ack()
            process.kill()
            process.wait()
            # The lock went with the process.
            assert log.publisher().send(b"mine").first == log.ends().next - 1


def test_who_may_not_archive_takes_it_from_nobody(tmp_path: Path) -> None:
    manifest = tmp_path / "archive" / "manifest.json"
    with tm.Log(tmp_path / "log") as log:
        log.archive(tmp_path / "archive")
        before = manifest.read_bytes()
        with child("publish", tmp_path / "log", 0) as process:
            line(process)
            for url in (None, tmp_path / "archive"):
                with tm.Log(tmp_path / "log") as other, pytest.raises(tm.Locked):
                    other.archive(url)
        assert manifest.read_bytes() == before, "the epoch of the archiver is what it was"


def test_consumers_are_fenced_across_processes(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log") as log, log.publisher() as out:
        out.send([b"%d" % number for number in range(100)])
        mine = log.receiver("child", rows_max=7)
        assert mine.receive(wait_s=30) is not None
        with child("receive", tmp_path / "log") as process:
            assert line(process) == "ready 0"
            assert line(process).split()[:3] == ["1", "0", "1"]

            def ack() -> None:
                mine.ack(1, 7)  # It hears of it here, if its reader has looked since.
                mine.flush()

            for _ in range(2):
                with pytest.raises(tm.Fenced):
                    ack()
            with suppress(tm.Fenced):  # It says so again if there is an ack that it cannot store.
                mine.close()
        newer = log.receiver("child", follow=False)
        assert newer.pointer <= 100


@pytest.mark.slow
def test_a_publisher_killed_at_random_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    path = tmp_path / "log"
    confirmed: dict[int, tuple[int, int]] = {}
    number = 0
    for _ in range(1_000 if SOAK else 50):
        with child("publish", path, number) as process:
            assert line(process) == "ready", seed
            # Some die before their first send, most behind one, however slow they are.
            lines = [line(process) for _ in range(draw.randrange(3))]
            time.sleep(draw.random() * 0.03)  # The moment of the kill is what is random here.
            process.kill()
            assert process.stdout is not None
            lines += process.stdout.read().splitlines()
        for words in lines:
            done, first, last = map(int, words.split())
            # A number that was written before the kill is confirmed again, with the same rows.
            assert confirmed.setdefault(done, (first, last)) == (first, last), seed
        # The last one may have been written without being told: it is sent again.
        number = max(confirmed, default=-1) + 1
    with tm.Log(path) as log:
        batch = log.read(rows_max=10**6)
        rows = batch.rows()
        assert batch.first_seq == 1
        assert len(rows) == log.ends().next - 1
        expected = [row for sent in range(number + 1) for row in rows_of(sent)]
        assert rows in (expected[: len(rows)], expected), seed
        assert len(rows) >= sum(len(rows_of(sent)) for sent in range(number)), seed
        for sent, (first, last) in confirmed.items():
            assert rows[first - 1 : last] == rows_of(sent), seed


@pytest.mark.slow
def test_a_receiver_killed_at_random_skips_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    draw = random.Random(seed)
    path = tmp_path / "log"
    rows = [b"%d" % number for number in range(20_000)]
    with tm.Log(path) as log, log.publisher() as out:
        for start in range(0, len(rows), 100):
            out.send_soon(rows[start : start + 100])
    given = 0  # the last row that a receiver had, ever
    for _ in range(1_000 if SOAK else 50):
        with child("receive", path) as process:
            pointer = int(line(process).split()[1])
            assert pointer <= given, seed
            # As long as there are rows for them, most have been given some.
            seen = min(draw.randrange(3), (len(rows) - pointer) // ROWS_PER_BATCH)
            lines = [line(process) for _ in range(seen)]
            time.sleep(draw.random() * 0.03)
            process.kill()
            assert process.stdout is not None
            lines += process.stdout.read().splitlines()
        at = pointer + 1
        for words in lines:
            first, *values = words.split()
            assert int(first) == at, seed
            assert values == [row.decode() for row in rows[at - 1 : at - 1 + len(values)]], seed
            at += len(values)
        given = max(given, at - 1)
    with tm.Log(path) as log:
        assert log.consumers()["child"] <= given
        assert given > 0
