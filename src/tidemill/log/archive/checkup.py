"""The doctor of an archive: its manifest, every page and segment, and how it fits its log.

By itself it changes nothing, and works beside an archiver and readers: what is gone from the
manifest when it is missed was given up meanwhile, and is no finding. Of each segment the end is
read, which says where everything else is and what size it has; every byte only if told to.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from tidemill.errors import Corrupt, MissingRows, Trimmed
from tidemill.files.report import Findings, OnProgress, Progress
from tidemill.limits import MIB
from tidemill.log.archive import parquet
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.manifest import NAME, Manifest, Segment
from tidemill.log.archive.notes import LOG_NOTE
from tidemill.log.archive.objects import Absent
from tidemill.log.archive.report import ArchiveReport
from tidemill.log.archive.sweeping import Unnamed, find_unnamed
from tidemill.log.contract import LogStore
from tidemill.shown import counted

_ROWS_PER_LOOK = 1_000_000
_BYTES_PER_LOOK = 16 * MIB
_LOST = "restore it from a copy of the archive"


def verify(
    archive: Archive,
    *,
    log: LogStore | None = None,  # where its rows are hot; None: look at the archive alone
    deep: bool = False,  # read every byte
    repair: bool = False,  # remove what crashes left
    on_progress: OnProgress | None = None,  # called after each segment
) -> ArchiveReport:
    """Verify an archive; `NotAnArchive` if there is none."""
    # What a handle remembers of pages says nothing about what is there now.
    fresh = Archive(archive.objects, archive.published)
    return _Checkup(fresh, log, deep=deep, on_progress=on_progress).run(repair=repair)


class _Checkup:
    def __init__(
        self, archive: Archive, log: LogStore | None, *, deep: bool, on_progress: OnProgress | None
    ) -> None:
        self._archive = archive
        self._log = log
        self._deep = deep
        self._on_progress = on_progress
        self._findings = Findings()
        self._rows = self._segments = self._bytes = self._hot = 0
        self._is_listed = True  # whether all that the manifest names is known

    def run(self, *, repair: bool) -> ArchiveReport:
        try:
            manifest = self._archive.look()
        except Corrupt as damage:
            advice = "put the last good version back; the segments say nothing without it"
            self._findings.damage("manifest", Path(NAME), damage.reason, advice)
            return self._report(None, Unnamed([], [], []), [])
        for segment in self._listed(manifest):
            try:
                self._look_at(segment, manifest)
            except (Absent, Corrupt) as problem:
                if self._is_named(segment):
                    self._tell(segment, problem)
            self._segments += 1
            self._bytes += segment.bytes
            if self._on_progress is not None:
                self._on_progress(Progress(self._rows, self._bytes, manifest.bytes))
        if self._log is not None:
            self._compare(manifest, self._log)
        found = self._look_around()
        done = self._sweep(found) if repair else []
        return self._report(manifest, found, done)

    def _listed(self, manifest: Manifest) -> Iterator[Segment]:
        """All segments of which the manifest and its pages tell."""
        for part in manifest.parts:
            if isinstance(part, Segment):
                yield part
                continue
            try:
                yield from self._archive.segments_of(part)
            except (Absent, Corrupt) as problem:
                if part not in self._archive.look().pages:
                    continue  # Rows were given up meanwhile.
                self._is_listed = False
                reason = "it is gone" if isinstance(problem, Absent) else problem.reason
                self._findings.damage("page", Path(part.file), reason, _LOST, items=part.rows)

    def _look_at(self, segment: Segment, manifest: Manifest) -> None:
        """See that a segment is there, has its size and its digest, and holds its rows."""
        payload = manifest.versions.by_fingerprint(int(segment.schema, 16))
        begin = segment.bytes - segment.footer_bytes
        # One byte more than there should be: so too long an object shows as well.
        data = self._archive.objects.get_range(segment.file, begin, segment.bytes + 1)
        if data.size != segment.footer_bytes:
            problem = "longer" if data.size > segment.footer_bytes else "shorter"
            raise Corrupt(f"it is {problem} than its {segment.bytes:,} bytes")
        if xxh3_64_hexdigest(data) != segment.footer_digest:
            raise Corrupt("the checksum of its footer does not match")
        footer = parquet.read_footer(data)
        if footer.num_rows != segment.rows:
            raise Corrupt(
                f"it has {footer.num_rows:,} rows, and the manifest says {segment.rows:,}"
            )
        if self._deep:
            whole = self._archive.objects.get(segment.file).data
            if xxh3_128_hexdigest(whole) != segment.digest:
                raise Corrupt("its checksum does not match")
            times = []
            for group in parquet.groups(footer):
                piece = whole[group.start : group.end]
                batch = parquet.decode(footer, group, piece, payload, segment.first + group.at)
                times += [_time_us(batch.times[0]), _time_us(batch.times[-1])]
            if times != sorted(times) or (times[0], times[-1]) != segment[5:7]:
                raise Corrupt("its times are not those of the manifest")
        self._rows += segment.rows

    def _tell(self, segment: Segment, problem: Absent | Corrupt) -> None:
        reason = "it is gone" if isinstance(problem, Absent) else problem.reason
        what = f"{reason}; it should hold rows {segment.first} to {segment.next - 1}"
        self._findings.damage("segment", Path(segment.file), what, _LOST, items=segment.rows)

    def _is_named(self, segment: Segment) -> bool:
        """Whether the manifest still names it, now that it was missed."""
        self._archive.look()
        try:
            return segment in self._archive.between(segment.first, segment.next)
        except Corrupt:
            return True  # The page that told of it is lost by now, which is no better.

    def _compare(self, manifest: Manifest, log: LogStore) -> None:
        """How the archive fits the log: whose it is, its ends, its schema, and rows in neither."""
        first, next_seq = log.ends()
        owner = log.notes().get(LOG_NOTE)
        if owner is not None and manifest.log != owner:
            what = "it is the archive of another log"
            self._findings.damage("owner", Path(NAME), what, "give each log a place of its own")
            return
        if manifest.next > next_seq:
            self._findings.damage(
                "older-copy",
                Path(NAME),
                f"it holds rows up to {manifest.next - 1}, and the log ends at {next_seq - 1}",
                "use the log that was archived: this is an older copy of it",
            )
            return
        known = {version.to_string() for version in log.versions_now()}
        if any(version.to_string() not in known for version in manifest.versions):
            what = "it has schema versions that the log does not know"
            self._findings.warn("schema", Path(NAME), what, "open the log with that schema")
        if manifest.first < first:
            rows = first - manifest.first
            what = f"{counted(rows, 'row')} that were trimmed may still be in it"
            self._findings.note("trimmed", Path(NAME), what, "none: the next archiver removes them")
        for start, end in ((first, min(manifest.covered, next_seq)), (manifest.next, next_seq)):
            self._find_holes(log, max(start, first), end)
        self._find_overlap(manifest, log, first)

    def _find_holes(self, log: LogStore, start: int, end: int) -> None:
        """Rows that the archive lacks and the log lacks as well."""
        while start < end:
            stop = min(end, start + _ROWS_PER_LOOK)
            layout = log.layout(start, stop)
            if log.ends().first > start:
                start = min(log.ends().first, end)  # They were trimmed just now.
                continue
            behind = layout.firsts + layout.rows
            edges = [start, *(min(int(one), stop) for one in behind)]
            begins = [*(max(int(one), start) for one in layout.firsts), stop]
            for low, high in zip(edges, begins, strict=True):
                if low < high and (low := self._still_missed(low, log)) < high:
                    what = f"rows {low} to {high - 1} are neither in the log nor in its archive"
                    self._findings.damage(
                        "missing-rows", Path("rows"), what, "restore them", items=high - low
                    )
            start = stop

    def _still_missed(self, seq: int, log: LogStore) -> int:
        """The first row from one on that is still in neither, of those that the log lacks: some
        may have come to the archive since its manifest was read, and others have been trimmed.
        """
        manifest = self._archive.look()
        at = max(seq, log.ends().first)
        return manifest.next if manifest.covered <= at < manifest.next else at

    def _find_overlap(self, manifest: Manifest, log: LogStore, first: int) -> None:
        """Rows in both places, which is as it should be; a deep look compares them.

        Those that the log still has are the last ones, so halving finds the first of them.
        """
        low, high = max(first, manifest.covered), manifest.next
        while low < high:
            middle = (low + high) // 2
            if len(log.layout(middle, middle + 1).firsts):
                high = middle
            else:
                low = middle + 1
        self._hot = manifest.next - low
        at = low
        while self._deep and at < manifest.next:
            try:
                rows = min(_ROWS_PER_LOOK, manifest.next - at)
                mine = log.read(at, rows_max=rows, bytes_max=_BYTES_PER_LOOK)[0]
                copy = self._archive.read(
                    at, rows_max=len(mine), bytes_max=_BYTES_PER_LOOK, versions=log.versions
                )[0]
            except (MissingRows, Trimmed):
                return  # They were given up meanwhile, by the log or by both.
            except Corrupt:
                return  # Whichever it is of the two, its own check has told of it.
            rows = min(len(mine), len(copy))
            one, other = (parquet.with_time(side.slice(0, rows)) for side in (mine, copy))
            same = one.schema.equals(other.schema) and all(
                parquet.are_same(parquet.whole(left), parquet.whole(right))
                for left, right in zip(one.columns, other.columns, strict=True)
            )
            if not same:
                what = f"rows {at} to {at + rows - 1} differ from those that the log has"
                advice = "find out which of the two was changed"
                self._findings.damage("different-rows", Path("rows"), what, advice, items=rows)
            at += rows

    def _look_around(self) -> Unnamed:
        """What lies there beside that which is named."""
        if not self._is_listed:
            return Unnamed([], [], [])  # What a lost page names would be taken for an orphan.
        found = find_unnamed(self._archive, self._archive.look())
        if found.orphans:
            what = f"{counted(len(found.orphans), 'object')} that nothing names, left by a crash"
            advice = "`tidemill doctor --repair` removes them, or the next `archive --sweep`"
            self._findings.note("orphan", Path(found.orphans[0]), what, advice)
        if found.under_way:
            what = f"{counted(len(found.under_way), 'object')} that may be on its way in"
            advice = "none: the next archiver removes what is not"
            self._findings.note("under-way", Path(found.under_way[0]), what, advice)
        if found.foreign:
            what = f"{counted(len(found.foreign), 'object')} that no archiver put there"
            self._findings.note("foreign", Path(found.foreign[0]), what)
        return found

    def _sweep(self, found: Unnamed) -> list[str]:
        if not found.orphans:
            return []
        self._archive.objects.delete(found.orphans)
        return [f"removed {counted(len(found.orphans), 'object')} that nothing names"]

    def _report(self, manifest: Manifest | None, found: Unnamed, done: list[str]) -> ArchiveReport:
        return ArchiveReport(
            place=self._archive.place,
            findings=tuple(self._findings.all),
            findings_left_out=self._findings.left_out,
            is_deep=self._deep,
            log=None if manifest is None else manifest.log,
            epoch=0 if manifest is None else manifest.epoch,
            first=0 if manifest is None else manifest.first,
            next=0 if manifest is None else manifest.next,
            rows=self._rows,
            hot=self._hot,
            segments=self._segments,
            pages=0 if manifest is None else len(manifest.pages),
            bytes=0 if manifest is None else manifest.bytes,
            orphans=len(found.orphans),
            done=tuple(done),
        )


def _time_us(time: object) -> int:
    return int(time.value)  # type: ignore[attr-defined]
