"""Giving up archived rows: the manifest forgets whole segments, then their objects go.

A page of which some segments go is written anew with those that stay; so disk comes back by
segments, not by pages.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tidemill.log.archive.archive import Archive
from tidemill.log.archive.manifest import (
    Manifest,
    Page,
    encode_page,
    new_page_name,
)
from tidemill.log.archive.objects import Present


def drop_below(archive: Archive, first: int) -> Manifest:
    """Let the archive begin at `first`, and remove the segments that hold nothing from there on."""

    def change(manifest: Manifest) -> Manifest:
        return _without(archive, manifest, first)

    manifest = archive.swap(change)
    if manifest.gone:
        # Should it fail here, the next change of the manifest does it.
        archive.objects.delete(manifest.gone)
    return manifest


def _without(archive: Archive, manifest: Manifest, first: int) -> Manifest:
    if first <= manifest.first:
        return manifest
    gone: list[str] = []
    pages: list[Page] = []
    for page in manifest.pages:
        if page.first >= first:
            pages.append(page)
            continue
        segments = archive.segments_of(page)
        kept = [segment for segment in segments if segment.next > first]
        if len(kept) == len(segments):
            pages.append(page)
            continue
        gone += [page.file, *(one.file for one in segments if one.next <= first)]
        if kept:
            name = new_page_name(kept[0].first, manifest.epoch)
            shorter, data = encode_page(kept, name)
            with suppress(Present):  # A try whose answer was lost has put it.
                archive.objects.put_new(name, data)
            pages.append(shorter)
    gone += [segment.file for segment in manifest.segments if segment.next <= first]
    return replace(
        manifest,
        first=first,
        # Rows that were never archived may have been given up as well.
        next=max(manifest.next, first),
        pages=tuple(pages),
        segments=tuple(one for one in manifest.segments if one.next > first),
        gone=(*manifest.gone, *gone),
    )
