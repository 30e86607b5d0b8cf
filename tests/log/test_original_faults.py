"""The faults of the original: each one is a test, in a folder and on a server.

What only a server can get wrong is tested with the log on MySQL: a rate of 0, an insert above
`max_allowed_packet` and errors of the server (`test_writing`), retries without a pause
(`test_patience`), proxy tables (`test_outbox`).
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tidemill as tm


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture(params=["folder", "server"])
def address(request: pytest.FixtureRequest, path: Path) -> Path | str:
    if request.param == "folder":
        return path
    mariadb, database = (request.getfixturevalue(name) for name in ("mariadb", "database"))
    return str(mariadb.url(database, "log"))


def test_closing_does_not_deadlock(address: Path | str) -> None:
    """The original waits in close for channels that nobody reads any more."""
    log = tm.Log(address)
    out = log.publisher(pending_bytes_max=2_000)
    receiver = log.receiver("one")
    assert receiver.receive(wait_s=0) is None
    senders = [threading.Thread(target=_send_until_closed, args=(out,)) for _ in range(4)]
    for sender in senders:
        sender.start()
    batch = receiver.receive()
    assert batch is not None
    closers = [threading.Thread(target=one) for one in (log.close, out.close, receiver.close)]
    for closer in closers:
        closer.start()
    for thread in [*closers, *senders]:
        thread.join(60)
        assert not thread.is_alive()


def _send_until_closed(out: tm.Publisher) -> None:
    while True:
        try:
            out.send_soon(bytes(500))
        except tm.Closed:
            return


def test_a_double_ack_does_not_wedge_the_pointer(address: Path | str) -> None:
    """The original waits for ever for the number behind one that was acked twice."""
    with tm.Log(address) as log, log.publisher() as out:
        out.send([b"%d" % number for number in range(10)])
        with log.receiver("one") as receiver:
            assert receiver.receive() is not None
            for seq in (2, 2, 1, 1, 2, 3, 3, 1, *range(4, 11), 10):
                receiver.ack(seq)
            receiver.flush()
        assert log.consumers() == {"one": 10}


def test_a_missing_row_does_not_stall_in_silence(path: Path) -> None:
    """The original asks for it again and again."""
    with tm.Log(path) as log, log.publisher() as out:
        for number in range(3):
            out.send(b"row %d" % number)
    segment = path / "journal" / f"{1:016d}.segment"
    sound = segment.read_bytes()

    def meet(place: int, error: type[tm.Corrupt]) -> tm.Corrupt:
        """What a receiver meets behind the first row, if the byte at a place is wrong."""
        segment.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with tm.Log(path) as log, log.receiver("one") as receiver:
            first = receiver.receive()
            assert first is not None
            assert first.rows() == [b"row 0"]
            with pytest.raises(error) as caught:
                receiver.receive()
        return caught.value

    damaged = meet(sound.index(b"row 1"), tm.Corrupt)
    assert "rows 2 to 2 are damaged" in str(damaged)
    assert damaged.offset is not None
    # Without its envelope nothing tells that a record was there at all.
    missing = meet(damaged.offset, tm.MissingRows)
    assert isinstance(missing, tm.MissingRows)
    assert (missing.first, missing.last) == (2, 2)


def test_futures_that_nobody_looks_at_block_no_one(address: Path | str) -> None:
    """In the original one undrained channel holds everybody up."""
    with tm.Log(address) as log, log.publisher(pending_bytes_max=1_000) as out:
        for _ in range(500):
            out.send_soon(b"nobody looks")
        assert out.send(b"looked at").first == 501


def test_a_second_publisher_overwrites_nothing(address: Path | str) -> None:
    """The original lets it write the same numbers again."""
    with tm.Log(address) as log, tm.Log(address) as other:
        old, new = log.publisher(), other.publisher()
        new.send(b"new")
        with pytest.raises(tm.Fenced):
            old.send(b"old")
        assert log.read().rows() == [b"new"]


def test_rows_that_nobody_saw_are_not_delivered_again_after_a_clean_end(
    address: Path | str,
) -> None:
    """Acks of the original are lost at its end: whatever was acked is acked here."""
    with tm.Log(address) as log, log.publisher() as out:
        out.send([b"a", b"b", b"c"])
        receiver = log.receiver("one", follow=False)
        for batch in receiver:
            batch.ack()
        receiver.close()
        with log.receiver("one", follow=False) as again:
            assert list(again) == []


@pytest.mark.parametrize("name", ["", "a b", "../up", "a`; DROP TABLE x", "ä", "x" * 65, ".dot"])
def test_names_are_checked_before_anything_is_made(path: Path, name: str) -> None:
    """The original puts them into SQL as they are."""
    with tm.Log(path) as log:
        with pytest.raises(tm.InvalidName):
            log.receiver(name)
        with pytest.raises(tm.InvalidName):
            log.publisher(producer=name)
        assert log.consumers() == {}


def test_there_is_retention(path: Path) -> None:
    """The original keeps everything for ever, and has no other way."""
    with tm.Log(path, segment_bytes=16_384) as log, log.publisher() as out:
        for _ in range(50):
            out.send(bytes(1_000))
        before = sum(one.stat().st_size for one in (path / "journal").iterdir())
        assert log.trim(before=50) == 50
        after = sum(one.stat().st_size for one in (path / "journal").iterdir())
        assert after < before / 2
