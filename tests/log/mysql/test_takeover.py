"""Taking over: who was overtaken changes nothing, and nobody is hit who should not be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.log.contract.writing import append, read_all
from tidemill.errors import Fenced, OutcomeUnknown
from tidemill.log.sql import appending, badges, takeover, writer
from tidemill.log.sql.connection import Connection, Lost
from tidemill.log.sql.store import ServerLog


def test_a_writer_that_was_overtaken_ends_nobody_elses_connections(
    open_log: Callable[..., ServerLog],
) -> None:
    old = open_log(parallelism=2).claim()
    append(old, [b"a"])
    store = open_log()
    new = store.claim()
    epoch = new.epoch
    append(new, [b"b"])
    with pytest.raises(Fenced):
        append(old, [b"x"])
    append(new, [b"c"])
    assert new.epoch == epoch, "it lost its connection, and took a new epoch to find out"
    assert read_all(store) == [b"a", b"b", b"c"]


def test_a_writer_that_is_overtaken_while_it_recovers_is_fenced(
    open_log: Callable[..., ServerLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer one comes between its look and its transaction."""
    old_store, new_store = open_log(parallelism=1), open_log()
    old = old_store.claim()
    append(old, [b"a"])
    real = badges.end_holders
    newer = []

    def overtake(connection: Connection, held: Iterable[str]) -> None:
        monkeypatch.setattr(takeover, "end_holders", real)
        real(connection, held)
        newer.append(new_store.claim())

    monkeypatch.setattr(takeover, "end_holders", overtake)
    old._connections.drop(0)
    with pytest.raises(Fenced):
        old_store._pool.run(
            lambda connection: takeover.take_over(
                connection, old_store.statements, old._owner, only_from=old.epoch
            )
        )
    (new,) = newer
    append(new, [b"b"])
    with pytest.raises(Fenced):
        append(old, [b"x"])
    assert read_all(new_store) == [b"a", b"b"]


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("given_up", ["nothing", "released", "trimmed"])
def test_what_cannot_be_seen_any_more_is_not_said_to_be_unwritten(
    open_log: Callable[..., ServerLog],
    monkeypatch: pytest.MonkeyPatch,
    is_written: bool,
    given_up: str,
) -> None:
    """The answer to a commit is lost, and another publishes and archives before one can look."""
    old_store, new_store = open_log(parallelism=2), open_log()
    old = old_store.claim()
    append(old, [b"a"])
    real = appending.write_and_show

    def lose_the_answer(*arguments: Any) -> None:
        monkeypatch.setattr(writer, "write_and_show", real)
        if is_written:
            real(*arguments)
        append(new_store.claim(), [b"theirs", b"too"], lane=1)
        if given_up == "released":
            new_store.release(new_store.ends().next)
        elif given_up == "trimmed":
            new_store.trim(new_store.ends().next)
        raise Lost("the answer was lost")

    monkeypatch.setattr(writer, "write_and_show", lose_the_answer)
    if given_up != "nothing":
        with pytest.raises(OutcomeUnknown, match="rows from 2 to 3"):
            append(old, [b"mine", b"too"])
    elif is_written:
        append(old, [b"mine", b"too"])
        assert read_all(new_store) == [b"a", b"mine", b"too", b"theirs", b"too"]
    else:
        with pytest.raises(Fenced):
            append(old, [b"mine", b"too"])
        assert read_all(new_store) == [b"a", b"theirs", b"too"]
    with pytest.raises(Fenced):
        append(old, [b"more"])


def test_numbers_that_nobody_was_given_since_were_not_written(
    open_log: Callable[..., ServerLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    old_store, new_store = open_log(parallelism=1), open_log()
    old = old_store.claim()
    append(old, [b"a"])

    def lose_the_statement(*_: Any) -> None:
        new_store.claim()
        new_store.release(2)
        raise Lost("it did not arrive")

    monkeypatch.setattr(writer, "write_and_show", lose_the_statement)
    with pytest.raises(Fenced):
        append(old, [b"mine"])
    assert new_store.ends().next == 2


@pytest.mark.parametrize("parallelism", [1, 2])
def test_who_slept_through_a_takeover_is_fenced_whatever_was_given_up_since(
    open_log: Callable[..., ServerLog], parallelism: int
) -> None:
    old_store, new_store = open_log(parallelism=parallelism), open_log()
    old = old_store.claim()
    append(old, [b"a"])
    append(new_store.claim(), [b"theirs", b"too"])
    new_store.release(new_store.ends().next)
    with pytest.raises(Fenced):
        append(old, [b"mine"])
