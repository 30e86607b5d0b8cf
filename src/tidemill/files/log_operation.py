"""The operations of a log: rows with marks, a trim, a note."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.errors import Bug
from tidemill.files.draft import Draft, LateBody, PreparedFrame
from tidemill.files.log_state import Mark, pack_mark, pack_note, pack_trim
from tidemill.files.operation import Operation, Retire
from tidemill.files.record import Kind
from tidemill.files.state import State


class AppendRows(Operation):
    """Rows with the numbers from `first` on, and the marks of their producers."""

    __slots__ = ("first", "marks")

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
        draft.has_late_bodies |= bool(self.frames) and isinstance(
            self.frames[0].body.buffer, LateBody
        )

    def apply(self, state: State) -> None:
        super().apply(state)
        for mark in self.marks:
            state.log.mark(mark)


class TrimRows(Retire):
    """The end of the rows below `first`, and of the segments that held nothing else."""

    __slots__ = ("first",)

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

    __slots__ = ("first",)

    def __init__(self, first: int) -> None:
        super().__init__(sync=True, closing=[(Kind.TRIM, pack_trim(first))] * 2)
        self.first = first

    def apply(self, state: State) -> None:
        state.begin_rows(self.first)


class WriteNote(Operation):
    """A small fact that belongs to the log."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: str) -> None:
        super().__init__(sync=True, closing=[(Kind.NOTE, pack_note(name, value))] * 2)
        self.name = name
        self.value = value

    def apply(self, state: State) -> None:
        state.log.note(self.name, self.value)
