"""Where an adopted segment comes from: another queue, by another number. Pure.

Its records are never rewritten. They say where they stood when they were written, under the number
the segment had then, and their seqs and times are those of the queue they were pushed to. What all
of that means here is a matter of three numbers, which stand in the opening state of each segment
behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.batch.header import FrameHeader
from tidemill.files.record import Envelope


class Origin(NamedTuple):
    """What turns the records of an adopted segment into records of this journal."""

    number: int  # of the segment when its records were written; never the one it has now
    shift: int  # what its seqs grow by
    time_us: int  # when it was adopted: to this queue, all of its rows were pushed then

    def envelope(self, envelope: Envelope, place: int) -> Envelope:
        """The envelope as it would stand at `place`. What it calls synced, another disk may be."""
        return envelope._replace(place=place, synced=0)

    def header(self, header: FrameHeader) -> FrameHeader:
        """The header of a frame with the seqs and the time that its rows have here."""
        number = header.producer_number
        return header._replace(
            first_seq=header.first_seq + self.shift,
            # A carried frame keeps the greatest of its seqs there.
            producer_number=number + self.shift if header.carried else number,
            time_us=self.time_us,
        )
