"""Objects that no manifest names: which of them never will be, and may go.

A crash or a newer archiver leaves segments and pages that were put and not named. Names of objects
carry the epoch under which they were put, and a manifest takes up objects of its own epoch alone.
So what has an older epoch and no name in the manifest can be removed without asking a clock; what
has the present epoch may be on its way in, and stays until another archiver takes over.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.errors import Corrupt
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.manifest import PAGES, SEGMENTS, Manifest, epoch_of, segment_folder
from tidemill.log.archive.objects import Absent

_PAGES_SWEPT_MAX = 16  # of an archive that each new archiver lists as a whole


class Unnamed(NamedTuple):
    """Names of objects that the manifest does not list."""

    orphans: list[str]  # which never will be listed
    under_way: list[str]  # which may be yet
    foreign: list[str]  # which are none of ours


def find_unnamed(archive: Archive, manifest: Manifest, *, everywhere: bool = True) -> Unnamed:
    """What lies in the archive beside that which the manifest names.

    Not everywhere, of a large archive: only among the newest segments, where a crash leaves its
    own.
    """
    while True:
        try:
            named, after = _named(archive, manifest, everywhere=everywhere)
            break
        except Absent as absence:
            # Somebody trims, and has written a page anew. The next manifest names that.
            manifest, old = archive.look(), manifest
            if manifest == old:
                raise Corrupt(f"{absence} is gone from the archive {archive.place}") from absence
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


def _named(archive: Archive, manifest: Manifest, *, everywhere: bool) -> tuple[set[str], str]:
    """The names that a manifest lists, and behind which of them they are all there is."""
    named = {part.file for part in manifest.parts}
    if manifest.pending is not None:
        named |= {segment.file for segment in manifest.pending.segments}
    if everywhere or len(manifest.pages) <= _PAGES_SWEPT_MAX:
        return named | {segment.file for segment in archive.segments(manifest)}, ""
    # A server may take the name of a folder for all that is in it; so it is one within the last.
    return named, f"{segment_folder(manifest.pages[-1].next - 1)}/~"
