"""Objects that no manifest names: which of them never will be, and may go.

A crash or a newer archiver leaves segments and pages that were put and not named. Names of objects
carry the epoch under which they were put, and a manifest takes up objects of its own epoch alone.
So what has an older epoch and no name in the manifest can be removed without asking a clock; what
has the present epoch may be on its way in, and stays until another archiver takes over.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.log.archive.archive import Archive
from tidemill.log.archive.manifest import PAGES, SEGMENTS, Manifest, epoch_of

_PAGES_SWEPT_MAX = 16  # of an archive that each new archiver lists as a whole


class Unnamed(NamedTuple):
    """Names of objects that the manifest does not list."""

    orphans: list[str]  # which never will be listed
    under_way: list[str]  # which may be yet
    foreign: list[str]  # which are none of ours


def find_unnamed(archive: Archive, manifest: Manifest, *, everywhere: bool = True) -> Unnamed:
    """What lies in the archive beside that which the manifest names; it was read before.

    Not everywhere, of a large archive: only among the newest segments, where a crash leaves its
    own.
    """
    named = {segment.file for segment in manifest.segments}
    after = ""
    if everywhere or len(manifest.pages) <= _PAGES_SWEPT_MAX:
        named |= {segment.file for segment in archive.segments(manifest)}
    else:
        after = f"{SEGMENTS}/{manifest.pages[-1].next:020}"
    named |= {page.file for page in manifest.pages}
    gone = set(manifest.gone)
    found = Unnamed([], [], [])
    for name in (*archive.objects.names(SEGMENTS, after=after), *archive.objects.names(PAGES)):
        if name in named:
            continue
        epoch = epoch_of(name)
        if epoch is None:
            found.foreign.append(name)
        elif epoch < manifest.epoch or name in gone:
            found.orphans.append(name)
        else:
            found.under_way.append(name)
    return found
