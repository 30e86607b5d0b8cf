"""The errors that every store of a log raises, in the same words."""

from __future__ import annotations

from tidemill.errors import Fenced, InvalidInput, Trimmed
from tidemill.log.contract import NoteChange


def trimmed(start: int, first: int) -> Trimmed:
    """The error for rows that a log no longer has."""
    return Trimmed(
        f"row {start} was trimmed; the first that is left is {first}: start there, or 'earliest'",
        first=first,
    )


def passed_over(consumer: str, at: int, loss: Trimmed) -> Trimmed:
    """The error for a consumer that was to have rows from `at` on, which were given up."""
    failure = Trimmed(
        f"rows {at} to {loss.first - 1} were trimmed before consumer {consumer!r} had them: remove "
        f"it, and it begins anew with row {loss.first} (log.remove_consumer({consumer!r}), or "
        f"`tidemill consumers LOG --remove {consumer}`)",
        first=loss.first,
    )
    failure.__cause__ = loss
    return failure


def publisher_fenced(mine: int, newest: int) -> Fenced:
    """The error for a publisher that was overtaken."""
    return Fenced(
        f"a newer publisher took over (its epoch is {newest}, this one's {mine}); nothing of this "
        "one is written any more"
    )


def consumer_fenced(name: str) -> Fenced:
    """The error for a receiver that was overtaken."""
    return Fenced(
        f"a newer receiver took over consumer {name!r}, or it was removed; acks of this one no "
        "longer count"
    )


def not_there_yet(pointer: int, next_seq: int) -> InvalidInput:
    """The error for an ack of rows that do not exist."""
    return InvalidInput(f"row {pointer} cannot be acked: the last one is {next_seq - 1}")


def check_unused(ends: tuple[int, int], first: int, place: str) -> None:
    """Refuse to let a log begin elsewhere that has rows, or had some."""
    if first < 1:
        raise InvalidInput(f"rows are numbered from 1 on, not from {first}")
    if tuple(ends) not in ((1, 1), (first, first)):
        raise InvalidInput(
            f"{place} has rows, or had some (it goes on with row {ends[1]}), and cannot begin with "
            f"row {first}: take a new log"
        )


def note_changed(note: NoteChange) -> Fenced:
    """The error for a change of a note that says something else by now."""
    return Fenced(
        f"the note {note.name!r} of the log was changed by another; nothing of this is written"
    )
