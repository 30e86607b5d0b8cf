"""Taking over: who was overtaken changes nothing, and nobody is hit who should not be."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.log.contract.writing import append, read_all
from tidemill.errors import Fenced
from tidemill.log.sql import badges, takeover
from tidemill.log.sql.connection import Connection
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
