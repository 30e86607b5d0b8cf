"""How far readers beside the owner may go: what the head says, and what the spine has added since.

The owner writes an entry of the spine after each sync anyhow; to write the head as well would cost
each of them another call.
"""

from __future__ import annotations

from pathlib import Path

from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.journal.head import Head, read_head
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.journal.segment import segment_path
from tidemill.files.journal.spine import read_synced, spine_path

_TRIES = 16  # each time the owner has begun a segment meanwhile


def read_reach(fs: FileSystem, folder: Path) -> Head | None:
    """The head, moved on to where the spine says, or None if there is none that says anything."""
    head = read_head(fs, folder)
    for _ in range(_TRIES):
        if head is None:
            return None
        number = head.place >> 32
        synced = read_synced(fs, spine_path(segment_path(folder / JOURNAL_NAME, number)))
        if synced is not None:
            # It may begin with the end of the segment before.
            return head._replace(place=max(head.place, synced)) if synced >> 32 == number else head
        # A spine goes once its segment is sealed, and by then the head has moved on.
        before, head = head, read_head(fs, folder)
        if head == before:
            break
    return head


def identity_of(head: Head | None) -> tuple[int, int] | None:
    """What stays the same as long as the journal only grows."""
    return None if head is None else head.identity
