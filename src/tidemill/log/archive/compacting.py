"""Small segments side by side become one: which, what is in it, and how the manifest changes.

    before   │ 1 … 900 │ 901 │ 902 … 905 │ 906 … 970 │ 971 … 2,000 │
    after    │ 1 … 900 │ 901 … 970                   │ 971 … 2,000 │

Rows keep their numbers, and nobody who reads notices: who misses a file looks at the manifest
again. A page whose segments change is written anew; neighbours that do become one, so that pages
do not get small as segments get few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidemill.batch import LogBatch
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.manifest import Manifest, Page, Segment, encode_page, new_page_name
from tidemill.log.archive.segment_writer import READ_BYTES, SegmentWriter, Sizes


class Compaction(NamedTuple):
    """Segments, and the one that takes their place."""

    old: tuple[Segment, ...]
    new: Segment


def small_groups(
    segments: Sequence[Segment],
    sizes: Sizes,
    *,
    least: int,
    most: int | None = None,  # None: as many as fit
) -> Iterator[tuple[Segment, ...]]:
    """Segments side by side that are worth making one of.

    What they take in memory is not known before they are read. Compressed they take less; so they
    are to be small enough together for the rows to stay within the bounds of a segment, nearly
    always.
    """
    found: list[Segment] = []
    for segment in segments:
        rows, size = sum(one.rows for one in found), sum(one.bytes for one in found)
        is_small = segment.bytes < sizes.segment_bytes // 64 and segment.rows < sizes.segment_rows
        fits = (
            rows + segment.rows <= sizes.segment_rows
            and size + segment.bytes <= sizes.segment_bytes // 8
        )
        if not (is_small and fits):
            if len(found) >= least:
                yield tuple(found)
            found = []
        if is_small:
            found.append(segment)
        if len(found) == most:
            yield tuple(found)
            found = []
    if len(found) >= least:
        yield tuple(found)


def rows_of(archive: Archive, group: Sequence[Segment]) -> list[LogBatch]:
    """The rows of a group, in the newest schema version, as the manifest that was read last has it.

    Raises `MissingRows` if they are gone, which may be because they were trimmed.
    """
    batches: list[LogBatch] = []
    at, end = group[0].first, group[-1].next
    while at < end:
        batches += archive.read(
            at, rows_max=end - at, bytes_max=READ_BYTES, versions=archive.known.versions
        )
        at = batches[-1].next_seq
    return batches


def compacted(
    archive: Archive, writer: SegmentWriter, done: Sequence[Compaction], sizes: Sizes
) -> Callable[[Manifest], Manifest]:
    """The change of a manifest that puts segments in the place of others, as far as these are there
    still.
    """
    by_first = {one.old[0].file: one for one in done}

    def change(old: Manifest) -> Manifest:
        writer.current(old)
        segments, gone = _replaced(old.segments, by_first)
        pages: list[Page] = []
        loose: list[Segment] = []  # of pages side by side that are to be written anew

        def write_loose() -> None:
            for start in range(0, len(loose), sizes.manifest_segments):
                some = loose[start : start + sizes.manifest_segments]
                page, data = encode_page(some, new_page_name(some[0].first, writer.epoch))
                writer.put_new(page.file, data)
                pages.append(page)
            loose.clear()

        for page in old.pages:
            inner, outdated = _replaced(archive.segments_of(page), by_first)
            if outdated:
                loose += inner
                gone += [page.file, *outdated]
                continue
            write_loose()
            pages.append(page)
        write_loose()
        if not gone:
            return old  # By a try whose answer was lost, or rows were trimmed.
        return replace(old, pages=tuple(pages), segments=tuple(segments), gone=(*old.gone, *gone))

    return change


def _replaced(
    segments: Sequence[Segment], by_first: dict[str, Compaction]
) -> tuple[list[Segment], list[str]]:
    """The segments as they are to be, and the files that are no longer part of them."""
    found: list[Segment] = []
    gone: list[str] = []
    at = 0
    while at < len(segments):
        one = by_first.get(segments[at].file)
        if one is not None and tuple(segments[at : at + len(one.old)]) == one.old:
            found.append(one.new)
            gone += [old.file for old in one.old]
            at += len(one.old)
        else:
            found.append(segments[at])
            at += 1
    return found, gone
