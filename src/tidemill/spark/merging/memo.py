"""How far a merge has come: a note of the log, written before each step that it tells of.

    written     then
    ─────────────────────────────────────────────────────────────────────────────
    sources     …, each with its last arrival: what is pushed later is not merged
    upto        a transaction with `number` commits the items up to that key
    done        the queues gave up the items up to that key
    finished    nothing is left to do

After a crash, the mark of the transaction tells whether the round that was under way is in the log.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from tidemill.errors import Corrupt, Fenced, InvalidInput
from tidemill.limits import NOTE_BYTES_MAX
from tidemill.log.contract import LogStore


@dataclass(frozen=True, slots=True)
class Memo:
    """The state of one merge."""

    sources: tuple[tuple[str, int], ...] = ()  # (folder, last arrival)
    key: str | None = None  # the columns that take key and origin
    origin: str | None = None
    number: int = -1  # of the last transaction that was begun
    upto: int | None = None  # the greatest key of it
    done: int | None = None  # the greatest key that the queues have given up; None: none yet
    finished: bool = True


class Memory:
    """The note, which only one merge of a name may change."""

    def __init__(self, store: LogStore, name: str) -> None:
        self._store = store
        self._note = f"{name}.state"
        self._text = store.notes().get(self._note)
        self.memo = _parsed(self._text, store.place)

    def write(self, **changes: object) -> Memo:
        """Change some of it, durably."""
        memo = replace(self.memo, **changes)  # type: ignore[arg-type]
        text = json.dumps(asdict(memo), separators=(",", ":"))
        if len(text.encode()) > NOTE_BYTES_MAX:
            raise InvalidInput(
                f"{len(memo.sources)} queues are too many to merge at once: their names take "
                f"{len(text.encode())} bytes, and {NOTE_BYTES_MAX} are written down; merge some "
                "of them, then the others"
            )
        if not self._store.set_note(self._note, text, expected=self._text):
            raise Fenced(
                f"another merge of the same name is writing to {self._store.place}; give this one "
                "another name, or wait for that one"
            )
        self._text, self.memo = text, memo
        return memo


def _parsed(text: str | None, place: str) -> Memo:
    if text is None:
        return Memo()
    try:
        found = json.loads(text)
        sources = tuple((str(path), int(last)) for path, last in found.pop("sources"))
        return Memo(sources=sources, **found)
    except (ValueError, TypeError, KeyError) as error:
        raise Corrupt(f"the state of a merge in {place} cannot be read: {error}") from error
