"""Reads on where a reader beside the owner has stopped: whole operations that it may show."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from tidemill.errors import Corrupt
from tidemill.files.disk.filesystem import File
from tidemill.files.format.record import Kind, make_place, split_place
from tidemill.files.journal.head import Head
from tidemill.files.journal.scan import (
    Damage,
    Finding,
    Found,
    opening_state,
    promised_behind,
    scan,
)
from tidemill.files.journal.segment import Segment, segment_path
from tidemill.files.journal.spine import SpineEntry
from tidemill.files.recovery.replay import set_aside_in
from tidemill.files.state.state import State, read_previous_end

logger = logging.getLogger(__name__)


class Tail(NamedTuple):
    """What was found."""

    findings: list[Finding]  # of whole operations, and damage where somebody was promised data
    end: int  # the offset behind them


def read_tail(
    segment: Segment,
    start: int,
    *,
    head: Head | None,
    end: int | None = None,
    spine: Callable[[], list[SpineEntry]] = list,
    set_aside: Sequence[SpineEntry] = (),
) -> Tail:
    """The operations of a segment from `start` on, up to the first one that is not whole, or may
    not be shown yet; `end`: where the segment is known to end. `spine` is asked if records are
    missing that were promised; those that are `set_aside` are stepped over anyhow.
    """
    tail = _read(segment, start, head, end, [*set_aside])
    promised = end
    if end is None and head is not None and head.place >> 32 == segment.number:
        promised = split_place(head.place)[1]
    if promised is None or tail.end >= promised:
        return tail
    entries = [entry for entry in spine() if split_place(entry.place)[1] >= start]
    entries += set_aside
    tail = _read(segment, start, head, end, entries)
    if tail.end >= promised:
        return tail
    place = make_place(segment.number, tail.end)
    gap = Damage(place, promised - tail.end, 0, "records that were written cannot be read")
    return Tail([*tail.findings, gap], promised)


def pass_over(
    findings: list[Finding],
    journal: Path,
    *,
    known: Collection[int] = (),
    tolerates_damage: bool,
) -> None:
    """Raise over damage, but for what lies at places that are known, or go on past it, as the
    reader was told.
    """
    for found in findings:
        if isinstance(found, Damage) and found.place not in known:
            number, offset = split_place(found.place)
            damage = Corrupt(found.reason, path=segment_path(journal, number), offset=offset)
            if not tolerates_damage:
                raise damage
            logger.error("%s; read past it", damage)


def kinds_of(findings: list[Finding]) -> set[Kind]:
    """The kinds of the records that were found."""
    return {found.envelope.kind for found in findings if isinstance(found, Found)}


def set_aside_of(segment: Segment, state: State) -> list[SpineEntry]:
    """What the state has set aside in a segment: it leads past records of unreadable length."""
    known = set_aside_in(state).values()
    return [entry for entry in known if entry.place >> 32 == segment.number]


def end_before(following: Segment | None) -> int | None:
    """Where the segment in front of this one ends; None if there is none that can say."""
    if following is None:
        return None
    opening = opening_state(following.file, following.number, following.origin)
    return None if opening is None else read_previous_end(opening.payload)


def _read(
    segment: Segment, start: int, head: Head | None, end: int | None, spine: list[SpineEntry]
) -> Tail:
    file, number = segment.file, segment.number
    kept: list[Finding] = []
    pending: list[Finding] = []
    stop = start
    epoch = 0
    # What the head lets everybody see was written whole: bodies are verified when rows are read, as
    # those of sealed segments are. Reading all of them here would make each opening as slow.
    written_to = split_place(head.place)[1] if head and head.place >> 32 == number else 0
    for found in scan(file, number, spine, segment.origin, start=start, written_to=written_to):
        if isinstance(found, Damage):
            # Up to where a segment is known to end it was whole when the next one began.
            if end is None and not _was_promised(file, number, found, head):
                break
            pending.append(found)
            if not found.length:
                break
            kept += pending
            pending = []
            stop = split_place(found.place)[1] + found.length
        else:
            if found.envelope.epoch < epoch:
                # An earlier owner wrote it, and a later one has cut it off already.
                break
            epoch = found.envelope.epoch
            pending.append(found)
            if found.envelope.commit:
                whole = [one for one in pending if isinstance(one, Found)]
                if head is not None and not head.allows(whole):
                    break
                kept += pending
                pending = []
                stop = split_place(found.envelope.place)[1] + found.envelope.total_bytes
        if end is not None and stop >= end:
            break
    return Tail(kept, stop)


def _was_promised(file: File, number: int, damage: Damage, head: Head | None) -> bool:
    """Whether a record that is not whole is damage; else it is being written, or never was. Of a
    sealed segment, which has no head, its own records tell.
    """
    if head is not None:
        return damage.place < head.place
    offset = split_place(damage.place)[1]
    return promised_behind(file, number, offset) > make_place(number, offset)
