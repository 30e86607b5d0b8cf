"""Verifies a whole folder, without changing a byte and without its lock.

    1. survey    names, settings, lock, access, room
    2. look      what opening would lead to: the state, the segments, where the data ends
    3. segments  every record of each, one segment after the other
    4. census    what each fork has left, counted anew and held against the state
    5. wards     the copies of records that were set aside

Beside a running owner all of it is about the moment of the look. Segments that the owner gives back
meanwhile are left out, and with them the census, since their items have moved.
"""

from __future__ import annotations

from pathlib import Path

from tidemill.batch import SchemaVersions
from tidemill.errors import BucketMismatch, Corrupt, StorageFailed, UnknownFormat
from tidemill.files import advice
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.shadow import Vanished
from tidemill.files.disk.storage import storage_errors
from tidemill.files.doctor.census import Census
from tidemill.files.doctor.look import Look, summary_problem, take_look
from tidemill.files.doctor.segment_check import Checked, Known, SegmentCheck, Thread
from tidemill.files.doctor.survey import Survey
from tidemill.files.folder.quarantine import check_copies
from tidemill.files.format.record import split_place
from tidemill.files.format.settings import LOG
from tidemill.files.format.settings import NAME as SETTINGS_NAME
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.journal.scan import Damage
from tidemill.files.journal.segment import Segment, segment_path
from tidemill.files.journal.spine import ENTRY_BYTES, unpack_entries
from tidemill.files.report import Findings, OnProgress, Progress, Report
from tidemill.files.state.bucket import BucketFunction, choose
from tidemill.files.state.state import State
from tidemill.shown import counted


class Examination:
    """One verification of one folder."""

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        *,
        bucket: BucketFunction | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._fs = fs
        self._path = path
        self._journal = path / JOURNAL_NAME
        self._given_bucket = bucket
        self.is_log = False
        self._on_progress = on_progress
        self._findings = Findings()
        self._thread = Thread()
        self._records = self._frames = self._items = self._bytes = self._bytes_total = 0
        self.damages: list[Damage] = []  # that have to be set aside
        self.rewrites: list[int] = []  # segments with damage that is not missed
        self.summaries_wrong: list[int] = []  # segments whose summary says something else
        self.summaries_made: list[int] = []  # segments that opening makes a summary for
        self.is_spine_damaged = False
        self.tail_bytes = 0  # of an operation that was never finished
        self.quarantined = 0  # records that are set aside already
        self.report = self._run()

    def _run(self) -> Report:
        with storage_errors("verifying", self._path):
            survey = Survey(self._fs, self._path, self._findings)
            survey.run()
            settings = survey.settings
            versions = None if settings is None else settings.versions
            self.is_log = settings is not None and settings.kind == LOG
            recorded = None if settings is None or self.is_log else settings.bucket
            bucket = self._bucket(recorded)
            if JOURNAL_NAME not in survey.names:
                self._findings.damage(
                    "journal", self._journal, "the journal is missing", advice.RESTORE
                )
                return self._report(survey, None, [])
            look = take_look(
                self._fs,
                self._journal,
                (lambda _: 0) if bucket is None else bucket.of,
                is_in_use=survey.is_in_use,
            )
            try:
                return self._verify(survey, look, versions, bucket)
            finally:
                look.close()

    def _verify(
        self,
        survey: Survey,
        look: Look,
        versions: SchemaVersions | None,
        bucket: BucketFunction | None,
    ) -> Report:
        state = None if look.recovered is None else look.recovered.state
        segments = {segment.number: segment for segment in look.segments}
        self.quarantined = 0 if state is None else len(state.quarantined)
        self.tail_bytes = 0 if look.recovered is None else look.recovered.torn_bytes
        self._tell_of_opening(survey, look, state)
        # Nobody consumes the rows of a log, so that there is nothing to count.
        census = None
        if state is not None and versions is not None and not self.is_log:
            census = Census(segments, state, versions)
        last = max(segments, default=0)
        known = Known(versions, bucket, state, census, look.read_whole, last, self.is_log)
        self._bytes_total = sum(segment.end for segment in segments.values())
        vanished = [
            number
            for number, segment in sorted(segments.items())
            if not self._check_segment(segment, look, known)
        ]
        if vanished:
            self._tell_of_vanished(vanished, bucket)
        self._tell_of_complaints(look)
        self._tell_of_derived(survey, look, segments)
        if self.is_log and state is not None and not vanished:
            self._look_for_gaps(state, segments)
        if census is not None and state is not None:
            self._count(census, state, is_moving=bool(vanished))
        if state is not None:
            check_copies(self._fs, self._path, state.quarantined, self._findings)
        return self._report(survey, state, list(segments))

    def _bucket(self, recorded: str | None) -> BucketFunction | None:
        if recorded is None:
            return None
        if self._given_bucket is not None:
            return choose(recorded, self._given_bucket)
        try:
            return choose(recorded, None)
        except BucketMismatch:
            self._findings.note(
                "bucket",
                self._path / SETTINGS_NAME,
                f"the bucket function {recorded} was not given, so that it was not verified "
                "whether frames keep to their buckets",
            )
            return None

    def _check_segment(self, segment: Segment, look: Look, known: Known) -> bool:
        """Verify a segment; False if it vanished meanwhile."""
        before = self._records, self._frames, self._items
        try:
            check = SegmentCheck(
                segment, look.spine_of(segment), known, self._thread, self._findings
            )
            checked = check.run(self._tick)
        except Vanished:
            self._records, self._frames, self._items = before
            return False
        except (OSError, StorageFailed) as error:
            self._findings.damage(
                "unreadable", segment.path, f"the disk reports an error: {error}", advice.RESTORE
            )
            self._thread.state = None
            return True
        self._note(segment, checked)
        return True

    def _note(self, segment: Segment, checked: Checked) -> None:
        self._frames += checked.frames
        self._items += checked.items
        self.damages += checked.damages
        if checked.needs_rewrite:
            self.rewrites.append(segment.number)
        if checked.needs_summary:
            self.summaries_wrong.append(segment.number)

    def _tick(self, records: int, step_bytes: int) -> None:
        self._records += records
        self._bytes += step_bytes
        if self._on_progress is not None:
            self._on_progress(Progress(self._records, self._bytes, self._bytes_total))

    def _tell_of_opening(self, survey: Survey, look: Look, state: State | None) -> None:
        if look.failure is not None:
            if isinstance(look.failure, UnknownFormat):
                raise look.failure
            self._findings.damage(
                "journal",
                look.failure.path or self._journal,
                f"{look.failure.reason}; the queue cannot be opened",
                advice.RESTORE,
                offset=look.failure.offset,
            )
        elif look.recovered is None:
            if survey.settings is not None:
                self._findings.damage(
                    "journal", self._journal, "the journal is empty", advice.RESTORE
                )
        elif look.recovered.torn_bytes and not survey.is_in_use:
            self._findings.note(
                "tail",
                look.recovered.segments[-1].path,
                "an operation was being written when a process died; nobody was promised it, and "
                "opening cuts it off",
                offset=look.recovered.segments[-1].end,
            )
        if survey.settings is None and SETTINGS_NAME not in survey.names:
            if state is not None and (state.next_seq > 1 or len(state.forks) > 1):
                self._findings.damage(
                    "settings",
                    self._path / SETTINGS_NAME,
                    "the settings are missing; without them nobody knows the schema of the items",
                    advice.RESTORE_SETTINGS,
                )
            else:
                self._findings.note(
                    "creation",
                    self._path,
                    "the queue was being made when a process died; opening it makes it anew",
                )

    @property
    def _advice(self) -> str:
        """What to do about records that are lost; those of a log are never set aside."""
        return advice.RESTORE if self.is_log else advice.set_aside(self._path)

    def _tell_of_complaints(self, look: Look) -> None:
        told = {damage.place for damage in self.damages}
        for place, reason in sorted(look.complaints.items()):
            if place not in told:
                number, offset = split_place(place)
                path = segment_path(self._journal, number)
                self._findings.damage("record", path, reason, self._advice, offset=offset)

    def _tell_of_vanished(self, numbers: list[int], bucket: BucketFunction | None) -> None:
        again = take_look(
            self._fs, self._journal, (lambda _: 0) if bucket is None else bucket.of, is_in_use=True
        )
        missing = {split_place(place)[0] for place in again.complaints}
        again.close()
        for number in sorted(missing.intersection(numbers)):
            path = segment_path(self._journal, number)
            self._findings.damage("record", path, "the segment is missing", self._advice)
        given_back = len(set(numbers) - missing)
        if given_back:
            self._findings.note(
                "moving",
                self._journal,
                f"{counted(given_back, 'segment')} went while this ran, since no item is needed "
                "there any more; what forks have left was not counted",
                "close the queue and verify again, to be sure of that too",
            )

    def _tell_of_derived(self, survey: Survey, look: Look, segments: dict[int, Segment]) -> None:
        for number, reason in sorted(look.summaries_bad.items()):
            path = segment_path(self._journal, number).with_suffix(".summary")
            if survey.is_in_use and summary_problem(self._fs, self._journal, number) is None:
                continue  # It was being written.
            self._findings.warn(
                "summary",
                path,
                f"{reason}; it is derived, so nothing is lost",
                advice.rebuild(self._path),
            )
        last = max(segments, default=0)
        if last and not survey.is_in_use:
            self._tell_of_spine(segments[last], look)
        for name in sorted(look.names):
            number = int(name[:16])
            if number not in segments and not survey.is_in_use:
                self._findings.note(
                    "leftover", self._journal / name, "its segment is gone; opening removes it"
                )
        self.summaries_made = [
            number
            for number, segment in segments.items()
            if number != last and (segment.summary is None or number in self.summaries_wrong)
        ]
        for number, segment in segments.items():
            has_summary = segment.summary is not None or number in look.summaries_bad
            if number != last and not has_summary and not survey.is_in_use:
                self._findings.note(
                    "summary",
                    segment.summary_path,
                    "there is none yet; opening reads the segment whole and makes it",
                )

    def _tell_of_spine(self, segment: Segment, look: Look) -> None:
        path = segment.spine_path
        if path.name not in look.names:
            self._findings.note(
                "spine",
                path,
                "there is none; it helps to find records behind a damaged one, and opening makes "
                "it again",
            )
            return
        try:
            file = self._fs.open(path)
        except FileNotFoundError:
            return  # An owner has come meanwhile, and has sealed the segment.
        try:
            data = file.pread(file.size(), 0)
        finally:
            file.close()
        whole = len(unpack_entries(data))
        damaged = -(-len(data) // ENTRY_BYTES) - whole
        if damaged:
            self.is_spine_damaged = True
            # The last ones may be half written where a power cut ended them.
            is_torn = len(unpack_entries(data[: whole * ENTRY_BYTES])) == whole
            tell = self._findings.note if is_torn else self._findings.warn
            words = f"{damaged} of its {whole + damaged} entries are damaged"
            tell(
                "spine",
                path,
                f"{words}; it is derived, so nothing is lost",
                advice.rebuild(self._path),
            )

    def _count(self, census: Census, state: State, *, is_moving: bool) -> None:
        if is_moving:
            return
        if self.damages:
            self._findings.note(
                "count",
                self._path,
                "what forks have left was not counted, because of the damage; setting records "
                "aside counts anew",
            )
            return
        if self._thread.seq >= state.next_seq:
            self._findings.damage(
                "seq",
                self._path,
                f"the next seq is {state.next_seq}, but {self._thread.seq} was given already",
                advice.REPORT_BUG,
            )
        try:
            left = census.count()
        except (Corrupt, StorageFailed) as error:
            self._findings.note("count", self._path, f"what forks have left is not known: {error}")
            return
        for id, fork in state.forks.items():
            if fork.live != left[id]:
                name = f"fork {fork.name!r}" if fork.name else "the queue"
                self._findings.damage(
                    "count",
                    self._path,
                    f"{name} says that it has {counted(fork.live, 'item')} left, but it has "
                    f"{left[id]:,}",
                    advice.REPORT_BUG,
                )

    def _look_for_gaps(self, state: State, segments: dict[int, Segment]) -> None:
        """The rows of a log follow each other without a gap, from the first to the last. If it has
        an archive, the oldest may be there alone.
        """
        expected = state.log.first
        is_archived = "archive" in state.log.notes
        gaps: list[str] = []
        missing = 0
        for number in sorted(segments):
            entries = segments[number].entries
            for low, high in zip(
                entries["seq_min"].tolist(), entries["seq_max"].tolist(), strict=True
            ):
                if low > expected and not is_archived and state.log.was_here(expected, low):
                    missing += low - expected
                    gaps.append(f"{expected} to {low - 1}")
                is_archived = False
                expected = max(expected, high + 1)
        is_short = expected < state.next_seq and state.log.was_here(expected, state.next_seq)
        if is_short and not is_archived:
            missing += state.next_seq - expected
            gaps.append(f"{expected} to {state.next_seq - 1}")
        if missing:
            shown = ", ".join(gaps[:5]) + (" …" if len(gaps) > 5 else "")
            self._findings.damage(
                "rows", self._journal, f"rows {shown} are missing", advice.RESTORE, items=missing
            )

    def _report(self, survey: Survey, state: State | None, segments: list[int]) -> Report:
        ends = [] if state is None or self.is_log else state.forks.values()
        forks = {fork.name: fork.live for fork in ends}
        return Report(
            path=self._path,
            findings=tuple(self._findings.all),
            findings_left_out=self._findings.left_out,
            format=None if survey.settings is None else survey.settings.format,
            is_in_use=survey.is_in_use,
            owner_pid=survey.owner_pid,
            segments=len(segments),
            records=self._records,
            frames=self._frames,
            items=self._items,
            bytes=self._bytes,
            forks=forks,
        )
