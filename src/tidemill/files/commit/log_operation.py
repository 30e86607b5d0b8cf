"""The operations of a log: rows with marks, numbers without rows, a trim, a note."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.errors import Bug
from tidemill.files.commit.operation import Operation, Retire
from tidemill.files.format.record import Kind
from tidemill.files.journal.draft import Draft, PreparedFrame
from tidemill.files.state.log_state import Mark, pack_mark, pack_note, pack_skip, pack_trim
from tidemill.files.state.state import State


class AppendRows(Operation):
    """Rows with the numbers from `first` on, and the marks of their producers."""

    leaves_bytes = None

    def __init__(
        self, first: int, frames: Sequence[PreparedFrame], marks: Sequence[Mark], *, sync: bool
    ) -> None:
        closing = [(Kind.MARK, pack_mark(mark)) for mark in marks]
        super().__init__(sync=sync, frames=frames, closing=closing)
        self.first = first
        self.marks = marks

    def draft(self, draft: Draft) -> None:
        if draft.next_seq != self.first:
            raise Bug(f"rows numbered from {self.first} on would begin at {draft.next_seq}")
        super().draft(draft)
        self.note_late_bodies(draft)

    def apply(self, state: State) -> None:
        super().apply(state)
        for mark in self.marks:
            state.log.mark(mark)


class SkipRows(Operation):
    """Numbers from `first` on whose rows are in the archive, with a mark and a note."""

    def __init__(
        self, first: int, rows: int, time_us: int, marks: Sequence[Mark], note: tuple[str, str]
    ) -> None:
        # Each twice, like everything that is rare and that much hangs on.
        closing = [(Kind.SKIP, pack_skip(first + rows, time_us))] * 2
        closing += [(Kind.MARK, pack_mark(mark)) for mark in marks for _ in range(2)]
        closing += [(Kind.NOTE, pack_note(*note))] * 2
        super().__init__(sync=True, closing=closing)
        self.first = first
        self.rows = rows
        self.time_us = time_us
        self.marks = marks
        self.note = note

    def draft(self, draft: Draft) -> None:
        if draft.next_seq != self.first:
            raise Bug(f"numbers from {self.first} on would begin at {draft.next_seq}")
        super().draft(draft)
        draft.next_seq += self.rows
        draft.time_us = max(draft.time_us, self.time_us)

    def apply(self, state: State) -> None:
        state.skip(self.first + self.rows, self.time_us)
        for mark in self.marks:
            state.log.mark(mark)
        state.log.note(*self.note)


class TrimRows(Retire):
    """The end of the rows below `first`, and of the segments that held nothing else."""

    def __init__(self, first: int, segments: list[int]) -> None:
        super().__init__(segments)
        self.first = first
        # Written twice, like everything that is rare and that much hangs on.
        self.closing = [(Kind.TRIM, pack_trim(first))] * 2 + list(self.closing)

    def apply(self, state: State) -> None:
        super().apply(state)
        state.begin_rows(self.first)


class BeginRows(Operation):
    """The number of the first row of a log that has none yet."""

    def __init__(self, first: int) -> None:
        super().__init__(sync=True, closing=[(Kind.TRIM, pack_trim(first))] * 2)
        self.first = first

    def apply(self, state: State) -> None:
        state.begin_rows(self.first)


class WriteNote(Operation):
    """A small fact that belongs to the log."""

    def __init__(self, name: str, value: str) -> None:
        super().__init__(sync=True, closing=[(Kind.NOTE, pack_note(name, value))] * 2)
        self.name = name
        self.value = value

    def apply(self, state: State) -> None:
        state.log.note(self.name, self.value)
