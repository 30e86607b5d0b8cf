"""The connection fails at every packet of a send, an ack, a takeover and a read: nothing that was
acknowledged is lost, and nothing is there twice.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.log.contract.writing import append, frames_of, read_all
from tests.log.sent import Sent
from tests.log.sql.packet_faults import PacketFaults
from tidemill.errors import Fenced
from tidemill.log.contract import Mark
from tidemill.log.sql.connection import Lost
from tidemill.log.sql.rows import pack_rows
from tidemill.log.sql.writer import ServerWriter


def _send(sent: Sent, writer: ServerWriter, count: int = 2, marks: tuple[Mark, ...] = ()) -> None:
    send, rows = sent.attempt(count)
    sent.confirmed(send, append(writer, rows, marks).first)


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("is_numbered", [True, False])
def test_a_send_is_there_once_wherever_the_connection_fails(
    faults: PacketFaults, is_numbered: bool, is_warm: bool
) -> None:
    store = faults.open(1)
    writer = store.claim()
    sent = Sent()
    number = 0

    def before() -> None:
        if is_warm:
            _send(sent, writer)
        else:
            writer._connections.drop(0)

    def step() -> None:
        nonlocal number
        if not is_numbered:
            _send(sent, writer, 3)  # all its statements are sent at once
            return
        number += 1
        _send(sent, writer, 3, (Mark("loader", number, 0, 0),))
        mark = writer.mark("loader")
        assert mark is not None
        assert mark.number == number

    faults.at_every_packet("a send", step, before=before)
    sent.check(read_all(store))


@pytest.mark.slow
def test_sends_side_by_side_are_there_once_each(faults: PacketFaults) -> None:
    """Three lanes: rows written before those with lower numbers, then shown by somebody else."""
    store = faults.open(3)
    writer = store.claim()
    sent = Sent()
    number = 0

    def step() -> None:
        nonlocal number
        sends = [sent.attempt(2) for _ in range(3)]
        numbers = [writer.reserve(2) for _ in sends]
        number += 1
        marks = [Mark("loader", number, 0, 0)]
        with ThreadPoolExecutor(3) as threads:
            for lane in (2, 1, 0):
                rows = frames_of(sends[lane][1])
                threads.submit(
                    writer.append, lane, numbers[lane], rows, marks if lane == 2 else ()
                ).add_done_callback(lambda done: done.result())
        for (send, _), reservation in zip(sends, numbers, strict=True):
            assert reservation.is_shown
            sent.confirmed(send, reservation.first)
        mark = writer.mark("loader")
        assert mark is not None
        assert mark.number == number

    faults.at_every_packet("sends side by side", step, before=step)
    sent.check(read_all(store))


@pytest.mark.slow
def test_a_takeover_happens_once_and_fences_the_older(faults: PacketFaults) -> None:
    store = faults.open(2)
    sent = Sent()
    old = new = store.claim()

    def before() -> None:
        nonlocal old
        old = store.claim()
        _send(sent, old)
        # A row behind a hole, as a publisher leaves it that is killed between row and pointer.
        old.reserve(1)
        beyond = old.reserve(2)
        rows = pack_rows(frames_of([b"x", b"y"]), beyond.first, 1, bytes_max=10**6)
        with suppress(Lost):  # A server that is busy may be silent for too long.
            old._write(1, beyond, rows, old.epoch)

    def step() -> None:
        nonlocal new
        new = store.claim()

    def after() -> None:
        assert new.epoch > old.epoch
        send, rows = sent.attempt(1)
        with pytest.raises(Fenced):
            append(old, rows)
        sent.refused(send)
        _send(sent, new)
        new.close()
        old.close()

    faults.at_every_packet("a takeover", step, before=before, after=after)
    sent.check(read_all(store))


def test_an_ack_is_kept_wherever_the_connection_fails(faults: PacketFaults) -> None:
    store = faults.open(2)
    writer = store.claim()
    append(writer, [b"%d" % number for number in range(200)])
    pointer = 0

    def step() -> None:
        nonlocal pointer
        claim = store.claim_consumer("billing", start=1)
        assert claim.pointer == pointer
        pointer += 1
        store.move_pointer(claim, pointer)
        state = store.consumers()["billing"]
        assert (state.pointer, state.token) == (pointer, claim.token)

    faults.at_every_packet("an ack", step, before=step)


def test_a_read_gives_every_row_once_wherever_the_connection_fails(faults: PacketFaults) -> None:
    store = faults.open(2)
    writer = store.claim()
    sent = Sent()
    for lane in (0, 1, 0, 1):
        send, rows = sent.attempt(2)
        sent.confirmed(send, append(writer, rows, lane=lane).first)

    def step() -> None:
        sent.check(read_all(store))

    faults.at_every_packet("a read", step, before=step)


def test_a_note_is_set_once_wherever_the_connection_fails(faults: PacketFaults) -> None:
    """Who set it must not be told that somebody else did."""
    store = faults.open(1)
    value: str | None = None

    def step() -> None:
        nonlocal value
        new = f"{value}+"[-50:] if value else "archive"
        assert store.set_note("place", new, expected=value)
        assert not store.set_note("place", "other", expected="something else")
        value = new
        assert store.notes() == {"place": new}

    faults.at_every_packet("a note", step, before=lambda: None)
