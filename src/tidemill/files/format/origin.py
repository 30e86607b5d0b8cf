"""Where an adopted segment comes from: another queue, by another number. Pure.

Its records are never rewritten. They say where they stood when they were written, under the number
the segment had then, and their seqs and times are those of the queue they were pushed to. What all
of that means here is a matter of three numbers, which stand in the opening state of each segment
behind it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.batch.header import FrameHeader
from tidemill.errors import Corrupt
from tidemill.files.format.record import Envelope
from tidemill.limits import SEQ_MAX


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
        first, number = header.first_seq + self.shift, header.producer_number
        # A carried frame keeps the greatest of its seqs there.
        greatest = number + self.shift if header.carried else first + header.rows - 1
        if not 0 < first <= greatest <= SEQ_MAX:
            raise Corrupt(f"the rows of an adopted frame would have the seqs {first} to {greatest}")
        return header._replace(
            first_seq=first,
            producer_number=greatest if header.carried else number,
            time_us=self.time_us,
        )
