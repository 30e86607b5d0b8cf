"""A message as one Arrow record batch, with a schema that never depends on what is in it.

    kind      name     owner     generation  version    value        by        by_version
    SENDER    ""       flags     0           edition    0            receiver  0
    REPLICA   node     needy     dropped     held by    incarnation  0         held by the
                                             sender                            receiver, or −1
    KNOWN     ""       who       0           held       0            of whom   0
    REMOVED   ""       who       0           0          0            by whom   their turn
    FORGOTTEN ""       who       generation  edition    0            0         turn
    PART      counter  owner     generation  version    value        by whom   their turn
    EXPIRY    counter  0         0           edition    time in µs   by whom   their turn

Kinds come in this order; `who`, `owner` and `by` are places in the list of replicas, which the
rows of that kind are, the sender in front. Most columns of a large message hold one value over and
over, so that compressing it, which is up to the transport, leaves the names.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.counters.message import Drop, Expiries, Ints, Message, Parts, Removal
from tidemill.counters.replica import Replica
from tidemill.counters.table import NEVER
from tidemill.counters.ttl import EARLIEST_US, LATEST_US
from tidemill.errors import BadMessage, InvalidName
from tidemill.limits import MESSAGE_ROWS_MAX, REPLICAS_MAX
from tidemill.names import COUNTER_NAME_PATTERN, check_name

SCHEMA = pa.schema(
    [
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("owner", pa.int32(), nullable=False),
        pa.field("generation", pa.int64(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("by", pa.int32(), nullable=False),
        pa.field("by_version", pa.int64(), nullable=False),
    ]
)

_SENDER, _REPLICA, _KNOWN, _REMOVED, _FORGOTTEN, _PART, _EXPIRY = range(7)
_HELLO, _READER, _FULL = 1, 2, 4
_NUMBERS = ("owner", "generation", "version", "value", "by", "by_version")
_TURN_MAX = 2**62  # far above every turn, and far enough below what would wrap


def encode(message: Message) -> pa.RecordBatch:
    """The message as rows.

    >>> from tidemill.counters.message import Message
    >>> hello = Message(replicas=[Replica("a", 7)], versions=np.array([3]), is_hello=True)
    >>> encode(hello).num_rows, decode(encode(hello)).sender
    (2, Replica(node='a', incarnation=7))
    """
    replicas = len(message.replicas)
    known = [(who, of, turn) for who, row in message.known.items() for of, turn in _held(row)]
    parts, expiries = message.parts, message.expiries
    counts = [1, replicas, len(known), len(message.removed), len(message.forgotten)]
    counts += [len(parts.names), len(expiries.names)]
    rows = sum(counts)
    edges = np.concatenate(([0], np.cumsum(counts))).tolist()
    spans = [slice(start, end) for start, end in pairwise(edges)]
    columns = {name: np.zeros(rows, dtype=np.int64) for name in _NUMBERS}

    def fill(kind: int, **values: Any) -> None:
        for name, value in values.items():
            columns[name][spans[kind]] = value

    since = np.full(replicas, -1) if message.since is None else message.since
    incarnations = [replica.incarnation for replica in message.replicas]
    fill(_REPLICA, version=message.versions, value=incarnations, by_version=since)
    if len(message.needy):
        fill(_REPLICA, owner=message.needy)
    if len(message.dropped):
        fill(_REPLICA, generation=message.dropped)

    flags = _HELLO * message.is_hello | _READER * message.is_reader | _FULL * message.is_full
    fill(_SENDER, owner=flags, version=message.edition, by=message.receiver)
    if known:
        who, of, turns = zip(*known, strict=True)
        fill(_KNOWN, owner=who, by=of, version=turns)
    if message.removed:
        removed, by, by_versions = zip(*message.removed, strict=True)
        fill(_REMOVED, owner=removed, by=by, by_version=by_versions)
    if message.forgotten:
        who, generations, editions, turns = zip(*message.forgotten, strict=True)
        fill(_FORGOTTEN, owner=who, generation=generations, version=editions, by_version=turns)
    fill(_PART, **{name: getattr(parts, name) for name in _NUMBERS})
    fill(
        _EXPIRY,
        value=expiries.time_us,
        version=expiries.edition,
        by=expiries.by,
        by_version=expiries.by_version,
    )
    names = ["", *(replica.node for replica in message.replicas)]
    names += [""] * sum(counts[_KNOWN:_PART])
    names += parts.names
    names += expiries.names
    return pa.record_batch(
        [
            pa.array(np.repeat(np.arange(len(counts), dtype=np.int8), counts)),
            pa.array(names, pa.string()),
            *(pa.array(columns[field.name]).cast(field.type) for field in list(SCHEMA)[2:]),
        ],
        schema=SCHEMA,
    )


def decode(batch: pa.RecordBatch) -> Message:
    """The message that rows are; `BadMessage` if they are none that `encode` could have made."""
    if not batch.schema.equals(SCHEMA):
        raise BadMessage(f"a message has other columns than {batch.schema.names}, or other types")
    if not 1 <= batch.num_rows <= MESSAGE_ROWS_MAX:
        raise BadMessage(f"a message has 1 to {MESSAGE_ROWS_MAX} rows, not {batch.num_rows}")
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BadMessage(f"the columns of a message are damaged: {error}") from error
    if any(column.null_count for column in batch.columns):
        raise BadMessage("a message has no nulls")
    kinds = batch.column("kind").to_numpy()
    if kinds[0] != _SENDER or kinds[-1] > _EXPIRY or (np.diff(kinds) < 0).any():
        raise BadMessage("the rows of a message are of kinds 0 to 6, in that order")
    ends = np.searchsorted(kinds, np.arange(8)).tolist()
    if ends[_REPLICA] != 1 or ends[_KNOWN] == 1:
        raise BadMessage("a message has one sender, which is the first of its replicas")
    spans = [slice(start, end) for start, end in pairwise(ends)]
    columns = {name: batch.column(name).to_numpy().astype(np.int64) for name in _NUMBERS}
    names = batch.column("name")
    replicas = _replicas(names[spans[_REPLICA]], columns["value"][spans[_REPLICA]])
    _check_numbers(columns, spans, len(replicas))
    _check_names(names[ends[_PART] :], columns["owner"][ends[_PART] :], kinds[ends[_PART] :])

    def cut(kind: int, *wanted: str) -> list[Ints]:
        return [columns[name][spans[kind]] for name in wanted]

    known: dict[int, Ints] = {}
    for who, of, turn in zip(*cut(_KNOWN, "owner", "by", "version"), strict=True):
        row = known.setdefault(int(who), np.zeros(len(replicas), dtype=np.int64))
        row[of] = turn
    needy, dropped, versions, since = cut(_REPLICA, "owner", "generation", "version", "by_version")
    flags = columns["owner"].item(0)
    removed = np.column_stack(cut(_REMOVED, "owner", "by", "by_version")).tolist()
    forgotten = zip(*cut(_FORGOTTEN, "owner", "generation", "version", "by_version"), strict=True)
    return Message(
        replicas=replicas,
        versions=versions,
        receiver=columns["by"].item(0),
        is_hello=bool(flags & _HELLO),
        is_reader=bool(flags & _READER),
        is_full=bool(flags & _FULL),
        known=known,
        needy=needy,
        dropped=dropped,
        removed=[Removal(*one) for one in removed],
        forgotten=tuple(Drop(*map(int, one)) for one in forgotten),
        parts=Parts(names[spans[_PART]].to_pylist(), *cut(_PART, *_NUMBERS)),
        expiries=Expiries(
            names[spans[_EXPIRY]].to_pylist(),
            *cut(_EXPIRY, "value", "version", "by", "by_version"),
        ),
        since=None if (since < 0).any() else since,
        edition=columns["version"].item(0),
    )


def starts(rows: pa.Table) -> list[int]:
    """Where messages begin, in rows of several."""
    return np.flatnonzero(rows["kind"].to_numpy() == _SENDER).tolist()


def _held(row: Ints) -> list[tuple[int, int]]:
    return [(of, row.item(of)) for of in np.flatnonzero(row).tolist()]


def _replicas(nodes: pa.Array, incarnations: Ints) -> list[Replica]:
    if len(nodes) > REPLICAS_MAX:
        raise BadMessage(f"a message names {len(nodes)} replicas, {REPLICAS_MAX} may be")
    try:
        names = [check_name(node, what="node") for node in nodes.to_pylist()]
    except InvalidName as error:
        raise BadMessage(str(error)) from error
    replicas = list(map(Replica, names, incarnations.tolist()))
    if len(set(replicas)) < len(replicas) or (incarnations < 1).any():
        raise BadMessage("the replicas of a message differ, and their incarnations are above 0")
    return replicas


def _check_numbers(columns: dict[str, Ints], spans: list[slice], replicas: int) -> None:
    """Every number is in its range, and nobody brings what they do not hold themselves."""
    parts, others = spans[_PART], slice(spans[_KNOWN].start, None)
    owner, by = columns["owner"], columns["by"]
    version, by_version = columns["version"], columns["by_version"]
    versions = version[spans[_REPLICA]]
    fine = 0 <= owner[0] <= _HELLO | _READER | _FULL
    fine &= bool((owner[others] >= 0).all() and (owner[others] < replicas).all())
    fine &= bool((by >= -1).all() and (by < replicas).all())
    fine &= bool((by[spans[_KNOWN]] >= 0).all() and (by[spans[_REMOVED]] >= 0).all())
    fine &= bool((by[spans[_EXPIRY]] >= 0).all() and (version[spans[_EXPIRY]] > 0).all())
    for name in ("generation", "version", "by_version"):
        fine &= bool((columns[name] >= (-1 if name == "by_version" else 0)).all())
        fine &= bool((columns[name] < _TURN_MAX).all())
    fine &= bool(np.isin(owner[spans[_REPLICA]], (0, 1)).all())
    times = columns["value"][spans[_EXPIRY]]
    fine &= bool(((times == NEVER) | ((times >= EARLIEST_US) & (times <= LATEST_US))).all())
    if not fine:
        raise BadMessage("a number of a message is out of its range")
    counted = version[parts] > 0
    begun = by[parts] >= 0
    if (~counted & ~(begun & (columns["value"][parts] == 0))).any():
        raise BadMessage("a part of a message is empty, and nobody emptied it")
    for who, turn in (
        (owner[parts][counted], version[parts][counted]),
        (by[parts][begun], by_version[parts][begun]),
        (by[spans[_EXPIRY]], by_version[spans[_EXPIRY]]),
    ):
        if (turn > versions[who]).any() or (turn < 1).any():
            raise BadMessage("a message brings more than its sender says that it holds")


def _check_names(names: pa.Array, owner: Ints, kinds: np.ndarray) -> None:
    """Names of counters are legal, and each part and each expiry is there once."""
    if not len(names):
        return
    encoded = names.dictionary_encode()
    legal = pc.match_substring_regex(encoded.dictionary, f"^(?:{COUNTER_NAME_PATTERN})$")
    if not pc.all(legal).as_py():
        raise BadMessage("a counter of a message has a name that is not allowed")
    owners = np.where(kinds == _EXPIRY, REPLICAS_MAX, owner)
    keys = encoded.indices.to_numpy().astype(np.int64) * (REPLICAS_MAX + 1) + owners
    keys.sort()  # `np.unique` would hash them, which takes ten times as long
    if (keys[1:] == keys[:-1]).any():
        raise BadMessage("a part or an expiry stands in a message twice")
