"""Messages as Arrow: what goes in comes out, and what no node would send is refused."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.counters.nodes import meet, node
from tidemill.counters import SCHEMA, Message, Node, decode, encode
from tidemill.counters.table import NEVER
from tidemill.counters.ttl import EARLIEST_US, LATEST_US
from tidemill.limits import INT64_MIN


def busy() -> tuple[Node, Node]:
    """Two nodes that did all there is to do."""
    a, b, c = node("a"), node("b"), node("c")
    for one in (a, b, c):
        one.upsert_many([f"c{number}" for number in range(6)], [1, -2, 3, 4, 5, 6])
    meet(a, b, c)
    a.delete("c0")
    b.update_ttl("c1", 2_000 * 10**6)
    a.remove_node("c")
    meet(a, b)
    a.delete("c5")
    meet(a, b)
    a.collect()
    a.upsert("c0", 5)
    a.seal()
    return a, b


def same(one: Message, other: Message) -> bool:
    return all(_equal(getattr(one, name), getattr(other, name)) for name in Message._fields)


def _equal(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)  # type: ignore[arg-type]
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(_equal(*pair) for pair in zip(one, other, strict=True))
    return one == other


def test_what_goes_in_comes_out() -> None:
    a, b = busy()
    delta = a.delta(b.replica)
    assert delta is not None
    assert a.snapshot().forgotten
    for message in (a.hello(), a.snapshot(), delta):
        batch = encode(message)
        assert batch.schema == SCHEMA
        assert same(decode(batch), message)


def test_other_columns_are_refused() -> None:
    batch = encode(busy()[0].snapshot())
    for bad in (
        batch.select(["kind", "name"]),
        batch.rename_columns([*batch.schema.names[:-1], "more"]),
        batch.slice(0, 0),
        batch.slice(1),
        pa.record_batch({"kind": pa.array([0])}),
    ):
        with pytest.raises(tm.BadMessage):
            decode(bad)


def test_a_message_with_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = encode(busy()[0].snapshot())
    monkeypatch.setattr("tidemill.counters.wire.MESSAGE_ROWS_MAX", batch.num_rows - 1)
    with pytest.raises(tm.BadMessage, match="rows"):
        decode(batch)


def test_an_expiry_that_no_calendar_has_is_refused() -> None:
    one = node("a")
    one.upsert("x")
    one.update_ttl("x", LATEST_US)
    one.seal()
    rows = encode(one.snapshot()).to_pylist()
    for time_us in (LATEST_US + 1, EARLIEST_US - 1, NEVER - 1, INT64_MIN):
        rows[-1]["value"] = time_us
        with pytest.raises(tm.BadMessage, match="out of its range"):
            decode(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    for time_us in (LATEST_US, EARLIEST_US, NEVER):
        rows[-1]["value"] = time_us
        assert decode(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)).expiries.time_us == time_us


BATCH = encode(busy()[0].snapshot())


@given(
    st.lists(
        st.tuples(
            st.integers(0, BATCH.num_rows - 1),
            st.sampled_from(SCHEMA.names),
            st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 5, 127, 2**31 - 1, 2**63 - 1]),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_changed_rows_are_refused_or_harmless(changes: list[tuple[int, str, int]]) -> None:
    """Whatever is changed: a typed error and no trace, or a message that a node can take."""
    rows = BATCH.to_pylist()
    for row, name, value in changes:
        bits = {"kind": 8, "owner": 32, "by": 32}.get(name, 64)
        fitted = max(-(2 ** (bits - 1)), min(value, 2 ** (bits - 1) - 1))
        rows[row][name] = "\x00ä" * (value % 7) if name == "name" else fitted
    receiver = node("z")
    try:
        message = decode(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    except tm.BadMessage:
        return
    try:
        receiver.receive(message)
    except tm.TidemillError:
        pass
    receiver.fold()
    receiver.seal()
    receiver.all()
    receiver.collect()
