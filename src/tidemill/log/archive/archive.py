"""An archive, opened: its manifest, the segments that it names, and how it is changed.

Whoever reads goes by the manifest that was read last. It may be old: then it lacks the newest rows,
or names objects that are gone since. So who misses something reads the manifest again before saying
so. Objects never change, hence what was read of them is kept, within bounds.

Whoever changes the archive reads the manifest, makes a new one of it, and puts that in its place on
condition that nobody else was faster; if somebody was, or the answer was lost, all of it is done
again. So a change says what is to be, and does nothing if it is so already.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from tidemill.batch import Layout, LogBatch, SchemaVersions, project
from tidemill.errors import Corrupt, NotAnArchive, OutcomeUnknown, Unavailable
from tidemill.log.archive import parquet
from tidemill.log.archive.manifest import NAME, Manifest, Page, Segment, parse_page
from tidemill.log.archive.objects import Absent, Changed, ObjectStore, Present
from tidemill.log.frames import missing

_PAGES_KEPT = 64
_FOOTERS_KEPT = 32
_GROUPS_KEPT = 2
_LOST_ANSWERS_MAX = 3
_RACES_MAX = 1_000
_NO_TAG = f'"{"0" * 32}"'  # which no object has

T = TypeVar("T")
Footer = tuple[pq.FileMetaData, list[parquet.Group]]


class Archive:
    """The archive that some objects hold. Any thread may use it."""

    def __init__(
        self,
        objects: ObjectStore,
        published: Callable[[], str | None] = lambda: None,  # the log's token, see `bulk`
    ) -> None:
        self.objects = objects
        self.published = published
        self._lock = threading.Lock()
        self._manifest: Manifest | None = None
        self._pages: _Kept[tuple[Segment, ...]] = _Kept(_PAGES_KEPT)
        self._footers: _Kept[Footer] = _Kept(_FOOTERS_KEPT)
        self._groups: _Kept[LogBatch] = _Kept(_GROUPS_KEPT)

    @property
    def place(self) -> str:
        return self.objects.place

    def look(self) -> Manifest:
        """The manifest as it is now; `NotAnArchive` if there is none."""
        return self._settled(self._read_manifest()[0])

    @property
    def known(self) -> Manifest:
        """The manifest as it was read last."""
        return self._manifest or self.look()

    def create(self, empty: Manifest) -> Manifest:
        """Make the archive if it is not there, and see that the store keeps to conditions."""
        try:
            return self._settled(self._load()[0])
        except Absent:
            data = empty.encode()
        try:
            self.objects.put_new(NAME, data)
        except Present:
            return self.look()
        # Nothing changes if it does not: these are the bytes that are there.
        try:
            self.objects.put_new(NAME, data)
        except Present:
            pass
        else:
            raise self._unfit()
        try:
            self.objects.replace(NAME, data, _NO_TAG)
        except Changed:
            pass
        else:
            raise self._unfit()
        return self.look()

    def swap(self, change: Callable[[Manifest], Manifest]) -> Manifest:
        """Put the manifest that `change` makes of the present one in its place.

        `change` may be called several times, and returns what it was given if there is nothing to
        do. What the manifest gave up before is deleted first.
        """
        lost_answers = 0
        for _ in range(_RACES_MAX):
            stored, tag = self._read_manifest()
            manifest = self._settled(stored)
            try:
                changed = change(manifest)
            except _Gone as absence:
                if self._read_manifest()[0] == stored:
                    raise self._lost(absence) from absence
                continue  # Another has written a page anew since the manifest was read.
            if changed is stored:
                return manifest
            if manifest.gone:
                self.objects.delete(manifest.gone)
                still = set(manifest.gone)
                gone = tuple(name for name in changed.gone if name not in still)
                changed = replace(changed, gone=gone)
            try:
                self.objects.replace(NAME, changed.encode(), tag)
            except Changed:
                continue  # By another, or by a try of ours whose answer was lost.
            except Unavailable as error:
                lost_answers += 1
                if lost_answers == _LOST_ANSWERS_MAX:
                    raise OutcomeUnknown(
                        f"{self.place} did not say whether the manifest was replaced; nothing is "
                        "lost: archive again"
                    ) from error
                continue
            with self._lock:
                self._manifest = changed
            return changed
        raise Unavailable(f"the manifest of {self.place} is changed by others all the time")

    def segments_of(self, page: Page) -> tuple[Segment, ...]:
        """The segments that a page lists."""
        found = self._pages.get(page.file)
        if found is None:
            try:
                found = parse_page(page, self.objects.get(page.file).data)
            except Absent as absence:
                raise _Gone(page) from absence
            except Corrupt as damage:
                raise Corrupt(f"{damage.reason}, in the archive {self.place}") from damage
            self._pages.put(page.file, found)
        return found

    def segments(self, manifest: Manifest) -> Iterator[Segment]:
        """All segments, in order."""
        for page in manifest.pages:
            yield from self.segments_of(page)
        yield from manifest.segments

    def listed(self) -> list[tuple[Segment, ...]]:
        """The segments that there are now: those of each page, and those of the manifest itself."""
        return self._looking_again(
            self.look(), lambda now: [*map(self.segments_of, now.pages), now.segments]
        )

    def holds(self, seq: int) -> bool:
        """Whether a row is in a segment, as far as is known; look again to be sure."""
        return self.known.covered <= seq < self.known.next

    def read(
        self, start: int, *, rows_max: int, bytes_max: int, versions: SchemaVersions
    ) -> list[LogBatch]:
        """Rows from `start` on, which a segment must hold, in the newest of `versions`; the bounds
        are those of the contract.
        """
        found: list[LogBatch] = []
        at, room = start, bytes_max
        if not self.holds(start):
            self.look()
        while rows_max > 0 and (not found or (room > 0 and at < self.known.next)):
            try:
                batch = self._batch_at(at, versions)
            except (Corrupt, Unavailable):
                if found:
                    break  # The next call meets it again, as the first thing.
                raise
            size = max(1, batch.payload.nbytes)
            rows = min(rows_max, len(batch), max(0 if found else 1, len(batch) * room // size))
            if rows == 0:
                break
            found.append(batch if rows == len(batch) else batch.slice(0, rows))
            at += rows
            rows_max -= rows
            room -= size * rows // len(batch)
        return found

    def seq_at(self, time_us: int) -> int | None:
        """The first row written at `time_us` or later; None if no segment has one."""
        return self._looking_again(self.look(), lambda manifest: self._seq_at(manifest, time_us))

    def _seq_at(self, manifest: Manifest, time_us: int) -> int | None:
        part = _first_until(manifest.parts, time_us)
        if isinstance(part, Page):
            part = _first_until(self.segments_of(part), time_us)
        if not isinstance(part, Segment):
            return None
        footer, groups = self._footer(part)
        for group in groups:
            statistics = footer.row_group(group.number).column(0).statistics
            if statistics is not None and statistics.has_min_max and statistics.max_raw < time_us:
                continue
            times = self._group(part, footer, group).times.cast("int64").to_numpy()
            at = int(times.searchsorted(time_us))
            if at < group.rows:
                return part.first + group.at + at
        raise Corrupt(f"{part.file} of {self.place} has no row of {part.time_max}, as it should")

    def layout(self, start: int, end: int, *, cut: int) -> Layout:
        """The segments that hold the rows from `start` up to `end`; rows from `cut` on, which lie
        elsewhere as well, are left out.
        """
        frames = []
        for segment in self.between(start, min(end, cut)):
            rows = min(segment.next, cut) - segment.first
            frames.append((segment.first, rows, max(1, segment.bytes * rows // segment.rows)))
        return Layout.of(frames)

    def newest_within(self, bytes_max: int, end: int) -> int:
        """The first of the segments before row `end` that take at most so much together."""
        return self._looking_again(
            self.known, lambda manifest: self._newest_within(manifest, bytes_max, end)
        )

    def _newest_within(self, manifest: Manifest, bytes_max: int, end: int) -> int:
        for part in reversed(manifest.parts):
            if isinstance(part, Page) and part.bytes <= bytes_max and part.next <= end:
                bytes_max, end = bytes_max - part.bytes, part.first
                continue
            segments = self.segments_of(part) if isinstance(part, Page) else (part,)
            for segment in reversed(segments):
                rows = min(segment.next, end) - segment.first
                if rows <= 0:
                    continue
                size = -(-segment.bytes * rows // segment.rows)
                if size > bytes_max:
                    return end
                bytes_max, end = bytes_max - size, segment.first
        return end

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments, as far as is known, that hold rows from `start` up to `end`."""

        def find(manifest: Manifest) -> list[Segment]:
            found: list[Segment] = []
            for part in manifest.parts:
                if part.next > start and part.first < end:
                    found += self.segments_of(part) if isinstance(part, Page) else (part,)
            return [one for one in found if one.next > start and one.first < end]

        return self._looking_again(self.known, find)

    def _looking_again(self, manifest: Manifest, find: Callable[[Manifest], T], seq: int = 1) -> T:
        """What `find` makes of a manifest, and if objects are gone that this names, of the one that
        is there now: they became part of others, or were trimmed. `seq` is the first row of use.
        """
        while True:
            try:
                return find(manifest)
            except _Gone as absence:
                before, manifest = manifest, self.look()
                if manifest == before:
                    raise self._lost(absence, seq) from absence

    def _lost(self, absence: _Gone, seq: int = 1) -> Corrupt:
        part = absence.part
        hint = f"{part.file} is gone from the archive {self.place}"
        return missing(max(seq, part.first), part.next - 1, hint)

    def _batch_at(self, seq: int, versions: SchemaVersions) -> LogBatch:
        """The rows from a number on that lie in the same row group; looks again if need be."""
        try:
            batch = self._decoded(self._find(self.known, seq), seq)
        except (Absent, Corrupt):
            # The manifest may be old. If it is not, this says what is wrong.
            batch = self._decoded_now(seq)
        if not batch.schema.equals(versions.newest):
            batch = LogBatch(project(batch.payload, versions.newest), batch.first_seq, batch.times)
        return batch

    def _decoded_now(self, seq: int) -> LogBatch:
        return self._looking_again(
            self.look(), lambda manifest: self._decoded(self._find(manifest, seq), seq), seq
        )

    def _decoded(self, segment: Segment, seq: int) -> LogBatch:
        footer, groups = self._footer(segment)
        starts = [group.at for group in groups]
        group = groups[bisect_right(starts, seq - segment.first) - 1]
        batch = self._group(segment, footer, group)
        return batch if batch.first_seq == seq else batch.slice(seq - batch.first_seq)

    def find(self, seq: int) -> Segment:
        """The segment that holds a row, as far as is known; look again to be sure."""
        return self._looking_again(self.known, lambda manifest: self._find(manifest, seq), seq)

    def _find(self, manifest: Manifest, seq: int) -> Segment:
        """The segment that holds a row, which is one of those that the manifest covers."""
        parts = manifest.parts
        if not manifest.covered <= seq < manifest.next:
            raise missing(seq, seq, f"nor is it in the archive {self.place}")
        part = parts[bisect_right(parts, seq, key=lambda part: part.first) - 1]
        if isinstance(part, Page):
            segments = self.segments_of(part)
            part = segments[bisect_right(segments, seq, key=lambda one: one.first) - 1]
        return part

    def _footer(self, segment: Segment) -> Footer:
        found = self._footers.get(segment.file)
        if found is None:
            begin = segment.bytes - segment.footer_bytes
            data = self._fetch(segment, begin, segment.bytes)
            if xxh3_64_hexdigest(data) != segment.footer_digest:
                raise self._damaged(segment, "the checksum of its footer does not match")
            footer = parquet.read_footer(data)
            found = footer, parquet.groups(footer)
            if footer.num_rows != segment.rows:
                raise self._damaged(segment, f"it has {footer.num_rows} rows")
            self._footers.put(segment.file, found)
        return found

    def _group(self, segment: Segment, footer: pq.FileMetaData, group: parquet.Group) -> LogBatch:
        key = f"{segment.file}#{group.number}"
        found = self._groups.get(key)
        if found is None:
            data = self._fetch(segment, group.start, group.end)
            versions = self.known.versions
            try:
                payload = versions.by_fingerprint(int(segment.schema, 16))
                found = parquet.decode(footer, group, data, payload, segment.first + group.at)
            except Corrupt as damage:
                raise self._damaged(segment, damage.reason, group) from damage
            self._groups.put(key, found)
        return found

    def _fetch(self, segment: Segment, start: int, end: int) -> pa.Buffer:
        try:
            return self.objects.get_range(segment.file, start, end)
        except Absent as absence:
            raise _Gone(segment) from absence

    def _damaged(
        self, segment: Segment, reason: str, group: parquet.Group | None = None
    ) -> Corrupt:
        first = segment.first + (group.at if group else 0)
        last = first + (group.rows if group else segment.rows) - 1
        return Corrupt(
            f"rows {first} to {last} are damaged: {reason}; they lie in {segment.file} of the "
            f"archive {self.place}"
        )

    def _read_manifest(self) -> tuple[Manifest, str]:
        try:
            return self._load()
        except Absent as error:
            raise NotAnArchive(f"{self.place} holds no archive: there is no {NAME}") from error

    def _load(self) -> tuple[Manifest, str]:
        data, tag = self.objects.get(NAME)
        try:
            manifest = Manifest.parse(data)
        except Corrupt as damage:
            raise Corrupt(f"{damage.reason}, in the archive {self.place}") from damage
        return manifest, tag

    def _settled(self, manifest: Manifest) -> Manifest:
        """The manifest as it counts: with what is pending, if the log has published that."""
        if manifest.pending is not None and self.published() == manifest.pending.token:
            manifest = manifest.settled()
        with self._lock:
            self._manifest = manifest
        return manifest

    def _unfit(self) -> NotAnArchive:
        return NotAnArchive(
            f"{self.place} puts objects whatever the condition, so that two archivers could "
            "destroy each other's work: use a store that honours If-Match and If-None-Match"
        )


def _first_until(parts: Sequence[Page | Segment], time_us: int) -> Page | Segment | None:
    """The first part whose last row was written at that time or later."""
    lasts = np.fromiter((part.time_max for part in parts), np.int64, len(parts))
    at = int(lasts.searchsorted(time_us))
    return parts[at] if at < len(parts) else None


class _Gone(Absent):
    """An object is not there that a manifest names, or named when it was read."""

    def __init__(self, part: Page | Segment) -> None:
        super().__init__(part.file)
        self.part = part


class _Kept(Generic[T]):
    """What was read last, by name."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._lock = threading.Lock()
        self._found: OrderedDict[str, T] = OrderedDict()

    def get(self, name: str) -> T | None:
        with self._lock:
            if name in self._found:
                self._found.move_to_end(name)
            return self._found.get(name)

    def put(self, name: str, found: T) -> None:
        with self._lock:
            self._found[name] = found
            while len(self._found) > self._count_max:
                self._found.popitem(last=False)
