"""What the journal of a log says apart from its rows: where they begin, marks, notes. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidemill.errors import TooLarge
from tidemill.files.format.documents import natural, pack_document, parse_document
from tidemill.limits import DIGEST_BYTES_MAX, NOTE_BYTES_MAX, NOTES_MAX, PRODUCERS_MAX, SKIPS_KEPT
from tidemill.names import check_name


class Mark(NamedTuple):
    """What is known of a producer's last send, for idempotent publishing.

    It is stored in the same atomic step that makes the rows readable. A producer is named by the
    grammar of names; its numbers only grow, and may skip. Spark's transaction markers are marks:
    the application's id is the producer, the version its number, and `digest` says what was in it.
    """

    producer: str
    number: int
    first: int  # the rows that it became; first > last if there were none
    last: int
    digest: bytes = b""  # at most 32 bytes; empty if the caller gave none


class LogState:
    """The part of a folder's state that only logs have."""

    def __init__(self) -> None:
        self.first = 1  # rows below are trimmed
        self.marks: dict[str, Mark] = {}
        self.notes: dict[str, str] = {}
        self.skipped: list[tuple[int, int]] = []  # numbers of rows that were never here: [from, to)

    def mark(self, mark: Mark) -> None:
        self.marks[mark.producer] = mark

    def trim(self, first: int) -> None:
        self.first = max(self.first, first)

    def note(self, name: str, value: str) -> None:
        self.notes[name] = value

    def skip(self, first: int, next_seq: int) -> None:
        # All rows before are archived by then and about to go, so that the last ones are enough.
        if self.skipped and self.skipped[-1][1] == first:
            first = self.skipped.pop()[0]
        self.skipped = [*self.skipped[1 - SKIPS_KEPT :], (first, next_seq)]

    def was_here(self, first: int, next_seq: int) -> bool:
        """Whether rows with these numbers were ever in this log, and not in its archive alone."""
        return not any(low <= first and next_seq <= high for low, high in self.skipped)

    def check_room(self, *, producer: str = "", note: str = "") -> None:
        """Raise if one more producer or note is too many: each segment begins with all of them."""
        if producer and producer not in self.marks and len(self.marks) >= PRODUCERS_MAX:
            raise TooLarge(
                f"a log remembers {PRODUCERS_MAX} producers, and {producer!r} is one more"
            )
        if note and note not in self.notes and len(self.notes) >= NOTES_MAX:
            raise TooLarge(f"a log has at most {NOTES_MAX} notes, and {note!r} is one more")

    def to_json(self) -> dict[str, Any]:
        """The state as plain data; empty if there is nothing to say."""
        if self.first == 1 and not self.marks and not self.notes:
            return {}
        marks = [mark_to_json(mark) for mark in self.marks.values()]
        found: dict[str, Any] = {"first": self.first, "marks": marks, "notes": self.notes}
        if self.skipped:
            found["skipped"] = self.skipped
        return found

    @classmethod
    def from_json(cls, document: Any) -> LogState:
        """What `to_json` gave; raises `ValueError`, `KeyError` or `TypeError` otherwise."""
        state = cls()
        if document:
            state.first = natural(document["first"])
            for item in document["marks"]:
                state.mark(mark_from_json(item))
            for name, value in document["notes"].items():
                state.note(*_checked_note(name, value))
            # Folders that were written before numbers could be skipped do not say.
            for first, next_seq in document.get("skipped", []):
                state.skip(natural(first), natural(next_seq))
        return state


def mark_to_json(mark: Mark) -> list[Any]:
    return [*mark[:4], mark.digest.hex()]


def mark_from_json(item: Any) -> Mark:
    producer, number, first, last, digest = item
    check_name(producer, what="producer")
    found = bytes.fromhex(digest)
    if len(found) > DIGEST_BYTES_MAX:
        raise ValueError("a digest is too long")
    return Mark(producer, natural(number), natural(first), natural(last), found)


def pack_mark(mark: Mark) -> bytes:
    """The record of a mark."""
    return pack_document(mark_to_json(mark))


def unpack_mark(payload: bytes) -> Mark:
    return parse_document(payload, mark_from_json)


def pack_trim(first: int) -> bytes:
    """The record of a trim."""
    return pack_document({"first": first})


def unpack_trim(payload: bytes) -> int:
    return parse_document(payload, lambda found: natural(found["first"]))


def pack_skip(next_seq: int, time_us: int) -> bytes:
    """The record of numbers that were skipped."""
    return pack_document({"next": next_seq, "time_us": time_us})


def unpack_skip(payload: bytes) -> tuple[int, int]:
    """(the next number, the time of those before it)."""
    return parse_document(
        payload, lambda found: (natural(found["next"]), natural(found["time_us"]))
    )


def pack_note(name: str, value: str) -> bytes:
    """The record of a note."""
    return pack_document({"name": name, "value": value})


def unpack_note(payload: bytes) -> tuple[str, str]:
    """(name, value)."""
    return parse_document(payload, lambda found: _checked_note(found["name"], found["value"]))


def _checked_note(name: object, value: object) -> tuple[str, str]:
    check_name(name, what="note")
    if not isinstance(name, str) or not isinstance(value, str):
        raise ValueError("a note is a name and a text")
    if len(value.encode()) > NOTE_BYTES_MAX:
        raise ValueError("a note is too long")
    return name, value
