"""The shards merged by number: first where the rows lie, then the rows themselves.

    shard 0   │1–3│        │10–12│
    shard 1        │4–6│                     1–3, 4–6, 7–9, 10–12: nothing may be missing
    shard 2            │7–9│

One statement finds the ends of the log and the places of the next rows, in one snapshot; so what
is missing there is missing, and no row that is being written can be seen. It gives their sizes as
well, so that no more is fetched than was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.batch import Layout, LogBatch, SchemaVersions
from tidemill.errors import Corrupt
from tidemill.log.contract import Ends
from tidemill.log.frames import missing
from tidemill.log.refusals import trimmed
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.rows import unpack_row
from tidemill.log.sql.statements import Statements

PLACES_MAX = 256  # of each shard, in one statement
LAYOUT_PLACES_MAX = 8_192  # ... where the places are all that is asked for


class Place(NamedTuple):
    """A row of a shard, without its frames."""

    shard: int
    first: int
    last: int
    size: int


def find_places(
    connection: Connection, statements: Statements, start: int
) -> tuple[Ends, list[Place]]:
    """The ends of the log, and where its rows from `start` on lie, by number and without a hole.

    Raises `Trimmed` or `MissingRows`. The places are some of the next, at least one unless `start`
    is at the end.
    """
    arguments = [argument for _ in statements.shards for argument in (start, start, PLACES_MAX)]
    found = connection.query(statements.find, *arguments)
    ends, places = _parted(found)
    if start < ends.first:
        raise trimmed(start, ends.first)
    if start >= ends.next:
        return ends, []
    following = follow(places, start)
    if not following:
        above = [place.first for place in places if place.first > start]
        raise missing(start, min(above, default=ends.next) - 1)
    return ends, following


def find_ends(connection: Connection, statements: Statements) -> Ends:
    """The ends of the log as they are now."""
    return _ends(*connection.query_row(statements.ends))


def _parted(found: Sequence[tuple[int, ...]]) -> tuple[Ends, list[Place]]:
    ends = next(_ends(first, last) for shard, first, last, _ in found if shard == -1)
    places = [Place(*map(int, row)) for row in found if row[0] != -1]
    return ends, places


def _ends(first: int | None, last: int | None) -> Ends:
    if first is None or last is None:
        raise Corrupt("the row of the writer pointer or of the first row is missing")
    return Ends(int(first), int(last) + 1)


def follow(places: Sequence[Place], start: int) -> list[Place]:
    """The places from that of `start` on, for as long as each follows the one before.

    Of a shard with more places than were asked for the rest is missing here; it ends there as well.

    >>> one, two, four = Place(0, 1, 3, 9), Place(1, 4, 6, 9), Place(0, 10, 12, 9)
    >>> [place.first for place in follow([one, four, two], 2)]
    [1, 4]
    >>> follow([four], 2)
    []
    """
    found: list[Place] = []
    for place in sorted(places, key=lambda place: place.first):
        if place.last < start:
            continue  # The last row before `start`, of a shard that does not hold it.
        if place.first > start or (found and place.first < start):
            break
        found.append(place)
        start = place.last + 1
    return found


def within(places: Sequence[Place], start: int, rows_max: int, bytes_max: int) -> list[Place]:
    """As many of the places as hold `rows_max` rows from `start` on, or `bytes_max` bytes.

    >>> places = [Place(0, 1, 3, 100), Place(1, 4, 6, 100), Place(0, 7, 9, 100)]
    >>> [len(within(places, 2, rows, size)) for rows, size in [(3, 1000), (9, 150), (9, 0)]]
    [2, 1, 1]
    """
    found: list[Place] = []
    size = 0
    for place in places:
        size += place.size
        if found and (place.first >= start + rows_max or size > bytes_max):
            break
        found.append(place)
    return found


def fetch(
    connection: Connection, statements: Statements, places: Sequence[Place]
) -> list[bytes] | None:
    """The frames in those places; None if some have gone, as a trim may remove them meanwhile."""
    found: dict[int, bytes] = {}
    for shard in {place.shard for place in places}:
        wanted = [place.first for place in places if place.shard == shard]
        rows = connection.query(statements.frames[shard], wanted[0], wanted[-1])
        found.update((int(first), frames) for first, frames in rows)
    if any(place.first not in found for place in places):
        return None
    return [found[place.first] for place in places]


def decode_places(
    places: Sequence[Place],
    data: Sequence[bytes],
    start: int,
    *,
    rows_max: int,
    versions: SchemaVersions,
    statements: Statements,
) -> list[LogBatch]:
    """The rows from `start` on; damage behind the first of them is left to a later call."""
    batches: list[LogBatch] = []
    for place, frames in zip(places, data, strict=True):
        try:
            found = unpack_row(frames, place.first, place.last, versions)
        except Corrupt as damage:
            if batches:
                return batches
            table = statements.shards[place.shard].strip(statements.quote)
            raise Corrupt(
                f"the frames with rows {place.first} to {place.last} are damaged (table {table}, "
                f"first = {place.first}): {damage.reason}"
            ) from damage
        for batch in found:
            if batch.next_seq <= start:
                continue
            part = batch.slice(max(0, start - batch.first_seq), rows_max)
            batches.append(part)
            start = part.next_seq
            rows_max -= len(part)
            if rows_max <= 0:
                return batches
    return batches


def layout(connection: Connection, statements: Statements, start: int, end: int) -> Layout:
    """Where the rows from `start` up to `end` lie, as far as they are there."""
    parts: list[Layout] = []
    while start < end:
        arguments = [start, start, LAYOUT_PLACES_MAX] * len(statements.shards)
        ends, places = _parted(connection.query(statements.find, *arguments))
        end = min(end, ends.next)
        following = follow(places, start)
        if start < ends.first:
            start = ends.first
        elif following:
            sizes = [(one.first, one.last - one.first + 1, one.size) for one in following]
            parts.append(Layout.of(one for one in sizes if one[0] < end))
            start = following[-1].last + 1
        else:
            # Rows are missing; what lies behind them is there all the same.
            start = min((one.first for one in places if one.first > start), default=end)
    return Layout.joined(parts)


def seq_at(connection: Connection, statements: Statements, time_us: int) -> int:
    """The first row written at `time_us` or later, by halving: times never decrease."""
    # The row sought is at `low` or above, at most at `high`.
    low, high = find_ends(connection, statements)
    while low < high:
        middle = (low + high) // 2
        rows = connection.query(statements.time_before, *[middle] * len(statements.shards))
        found = max(rows, default=None)
        if found is None or found[1] < middle:
            # Trimmed since, or lost: what is below cannot be the answer.
            low = middle + 1
        elif found[2] >= time_us:
            high = max(low, int(found[0]))
        else:
            low = int(found[1]) + 1
    return low
