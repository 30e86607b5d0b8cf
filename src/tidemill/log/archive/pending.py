"""Segments that are pending: whether the log has published them, and what becomes of them.

Who finds something pending that the log has not published cannot know whether somebody is about to.
So it changes the note first, which the commit needs to be as it was: either of the two comes first,
and the other finds out.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.log.archive.archive import Archive
from tidemill.log.archive.manifest import Manifest
from tidemill.log.archive.notes import BULK_NOTE
from tidemill.log.contract import LogStore


def published_in(log: LogStore) -> Callable[[], str | None]:
    """What tells an archive which token the log has published last."""
    return lambda: log.notes().get(BULK_NOTE)


def settle(log: LogStore, archive: Archive) -> None:
    """Leave nothing pending that the log has not published, as of the manifest that was read last.

    What it has published is a segment like any other, and written down as such by the next swap.
    """
    while (pending := archive.known.pending) is not None:
        token = pending.token
        log.set_note(BULK_NOTE, f"dropped-{token}", expected=pending.before or None)
        if log.notes().get(BULK_NOTE) == token:
            archive.look()  # Published in this moment, which it sees.
            continue

        def drop(old: Manifest, token: str = token) -> Manifest:
            return old.dropped() if old.pending and old.pending.token == token else old

        gone = archive.swap(drop).gone
        archive.objects.delete(gone)
