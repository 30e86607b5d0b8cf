"""A folder beside its owner: read only, and as of one moment at a time.

    head ──▶ how far to go        journal/ ──hard links──▶ readers/<id>/ ──▶ state, index, cursors

Opening builds what is known from the newest segment's opening state, the records behind it up to
the head, and the summaries of the older segments. Nothing is written to the journal, and no lock of
the owner is taken. Later calls read on from where the last one stopped. All is built anew when the
owner is another one, took something back, or is more than a segment ahead. A file that vanishes in
the middle of it was retired meanwhile: start again.

Locks: one lock of the follower's stands for those of all its cursors, so that nobody chooses items
while what is known changes.
"""

from __future__ import annotations

import threading
from pathlib import Path

from tidemill.clock import Clock
from tidemill.errors import Bug, Corrupt, NotAQueue, SchemaMismatch
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.open_files import OpenFiles
from tidemill.files.disk.storage import storage_errors
from tidemill.files.folder.count import count_left
from tidemill.files.folder.folder_options import FolderOptions, choose_of
from tidemill.files.folder.strangers import refuse_links
from tidemill.files.folder.view import View
from tidemill.files.format.frame_table import FrameList, buckets_of
from tidemill.files.format.record import Kind
from tidemill.files.format.settings import Settings, read_settings
from tidemill.files.index.index import Index
from tidemill.files.journal.head import Head
from tidemill.files.journal.hold import Holds
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.journal.scan import Damage, Finding, opening_state
from tidemill.files.journal.segment import Segment
from tidemill.files.merge.cursor import Cursor
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.files.readers.building import Building, Built
from tidemill.files.readers.links import Links
from tidemill.files.readers.reach import identity_of, read_reach
from tidemill.files.readers.tail import kinds_of, pass_over, read_tail
from tidemill.files.sharing.pin import Pin, try_sweep_readers
from tidemill.files.state.state import read_previous_end

_ATTEMPTS = 200
_POLL_S = 0.02  # how often a call that waits looks for news


class Follower(View):
    """A folder that another process may own."""

    wait_s_max = _POLL_S

    def __init__(self, fs: FileSystem, clock: Clock, path: Path, options: FolderOptions) -> None:
        super().__init__(fs, clock, path)
        self.options = options
        self.buckets_open_max = options.buckets_open_max
        self.tolerates_damage = options.on_corruption == "continue"
        self.syncs_pushes, self.syncs_takes = options.syncs_pushes, options.syncs_takes
        self._journal = path / JOURNAL_NAME
        self._files = OpenFiles(fs, write=False)
        self._lock = threading.RLock()
        self._head: Head | None = None
        self._links: Links | None = None
        self._is_sound = False  # False: build anew before anything is shown
        self._passed_over: dict[int, Damage] = {}  # by place: frames the owner has not set aside
        with storage_errors("opening", path):
            self._read_settings()
            refuse_links(fs, path)
            try_sweep_readers(fs, path)
            self._build()

    @property
    def disk_bytes(self) -> int:
        return sum(segment.end for segment in list(self.segments.values()))

    def check_open(self) -> None:
        """Raise if this handle may not be used; else catch up with the owner."""
        self.check_alive()
        with self._lock, storage_errors("reading", self.path):
            self.check_alive()
            try:
                self._catch_up()
            except BaseException:
                self._is_sound = False
                raise

    def close(self) -> None:
        """Let the segments go. A handle inherited through os.fork() is merely forgotten."""
        if not self.is_here:
            return
        with self._lock, self.guard:
            if not self.is_closed:
                self.is_closed = True
                self.arrivals.notify_all()
                for watcher in self.watchers:
                    watcher()
        # Each of these does no harm twice, so that a call that is interrupted can be repeated.
        with storage_errors("closing", self.path):
            self._files.close()
            for segment in self.segments.values():
                segment.file.close()
            self.holds.close()
            if self._links is not None:
                self._links.pin.remove()

    def lend(self, seconds: float) -> Path:
        """Close, and leave the links to the segments for others to read from for so long."""
        with self._lock, self.guard:
            self.check_alive()
            if self._links is None:
                raise Bug("a reader without links cannot lend them")
            pin, self._links = self._links.pin, None
            with storage_errors("keeping a snapshot of", self.path):
                folder = pin.lend(self.clock.time_ns() / 1e9 + seconds)
        self.close()
        return folder

    def set_aside(self, damage: Damage) -> None:
        """Go on without a damaged frame; the owner is to set it aside for good."""
        with self._lock:
            try:
                self._count_without({damage.place: damage})
            except BaseException:
                self._is_sound = False
                raise

    def read_settings_again(self) -> bool:
        """Learn of schema versions that are newer than this handle; False if there are none."""
        with self._lock, storage_errors("reading", self.path):
            settings = self._read_settings()
            with self.guard:
                if settings == self.settings:
                    return False
                self.settings = settings
                self.reader.versions = settings.versions
        return True

    def _catch_up(self) -> None:
        head = read_reach(self.fs, self.path)
        if not self._is_sound or identity_of(head) != identity_of(self._head):
            self._build()
            return
        if head is None:
            return  # Nobody has owned the folder since the machine was started.
        number = max(self.segments)
        ahead = (head.place >> 32) - number
        if head == self._head and not (head.passes_pushes or head.passes_takes):
            return
        self._head = head
        if self._read_on(number) and (ahead > 1 or (ahead == 1 and not self._enter(number + 1))):
            self._build()

    def _read_on(self, number: int) -> bool:
        """Apply what was appended to the last segment; False if all had to be built anew."""
        if self._links is None:
            raise Bug("a reader reads on before anything is built")
        active, spine = self.segments[number], self._links.spine_of(self.segments[number])
        found = read_tail(active, active.end, head=self._head, spine=spine)
        pass_over(found.findings, self._journal, tolerates_damage=self.tolerates_damage)
        if not found.findings:
            return True
        # What is left has to be counted anew past damage that shows now, and past such as the owner
        # does not know of: it counts those items among what it consumes.
        if any(isinstance(one, Damage) for one in found.findings) or (
            self._passed_over and kinds_of(found.findings) != {Kind.FRAME}
        ):
            self._build()
            return False
        with self.guard:
            known = len(active.entries)
            self._replay.index(active, found.findings, apply=True)
            active.end = found.end
            retired = self._learn(active, found.findings, known)
        self.holds.remove(retired)
        return True

    def _learn(self, active: Segment, findings: list[Finding], known: int) -> list[Segment]:
        """Let index and cursors know of it; returns the segments that went. Under the guard."""
        frames = FrameList.of([(active.number, active.entries[known:])])
        for bucket in buckets_of(frames.rows):
            self.index.hold(bucket, active.number)
        if kinds_of(findings) == {Kind.FRAME}:
            for entry in frames:
                for cursor in self.cursors.values():
                    cursor.note_push(entry)
            return []
        gone = [number for number in self._replay.retired if number in self.segments]
        retired = [self.segments[number] for number in gone]
        for segment in retired:
            self.index.drop_segment(segment)
            del self.segments[segment.number]
        if retired:
            self.drop_moot_cuts()
        self._align_cursors()
        return retired

    def _enter(self, number: int) -> bool:
        """Go on in the next segment; False if it does not follow the last one."""
        if self._links is None:
            return False
        last = self.segments[number - 1]
        try:
            segment = self._links.segment(number)
        except FileNotFoundError:
            return False
        opening = opening_state(segment.file, segment.number)
        if opening is None or read_previous_end(opening.payload) != last.end:
            return False
        for one in self.segments.values():
            if one.summary is None and one is not last:
                self._links.try_summary(one)
        with self.guard:
            last.seal()
            self.segments[number] = segment
        self._read_on(number)
        return True

    def _build(self) -> None:
        """Start from the files, as often as it takes."""
        self._is_sound = False
        for _ in range(_ATTEMPTS):
            pin = Pin.make(self.fs, self.path, self._journal)
            try:
                head = read_reach(self.fs, self.path)
                # After it: an owner stores its schema before its head.
                settings = self._read_settings()
                links = Links(self.fs, self._journal, self._files, pin)
                built = Building(
                    self.fs,
                    self.path,
                    links,
                    bucket_of=self.bucket.of,
                    tolerates_damage=self.tolerates_damage,
                ).run(head)
            except FileNotFoundError as error:
                # Retired meanwhile, so that the head has moved as well.
                pin.remove()
                vanished = error
                continue
            except BaseException:
                pin.remove()
                raise
            self._adopt(built, links, settings, head)
            self._is_sound = True
            return
        raise Corrupt(
            "the segment is missing; restore it from a backup, or let the owner go on without it",
            path=str(vanished.filename or self._journal),
            offset=0,
        ) from vanished

    def _read_settings(self) -> Settings:
        """What the folder is; raises if it is none, or another than this handle was told."""
        try:
            settings = read_settings(self.fs, self.path, kind=self.options.kind)
        except (FileNotFoundError, NotADirectoryError):
            settings = None
        if settings is None:
            raise NotAQueue(f"{self.path} holds no queue, and a reader makes none")
        self.bucket = choose_of(settings, self.options)
        schema = self.options.schema
        if schema is not None and settings.versions.evolve(schema) is not settings.versions:
            raise SchemaMismatch(
                f"{self.path} does not have this schema, and a reader cannot change it; open it "
                "without `schema`"
            )
        return settings

    def _adopt(self, built: Built, links: Links, settings: Settings, head: Head | None) -> None:
        """Let what was built replace what was known."""
        with self.guard:
            before = None if self._links is None else (self._links.pin, self.holds, self.segments)
            self.settings, self._head, self._links = settings, head, links
            self.segments, self.state, self._replay = built.segments, built.state, built.replay
            self.holds = Holds(links.pin.unlink)
            self.index = Index(self.segments, self.state)
            self.reader = FrameReader(self.segments, self.settings.versions, own_from=2**63)
            self._align_cursors()
        if before is not None:
            pin, holds, segments = before
            pin.leave()
            holds.remove(list(segments.values()))
        damages = {damage.place: damage for damage in built.damages} | {
            place: damage
            for place, damage in self._passed_over.items()
            if place >> 32 in self.segments and place not in self.state.quarantined
        }
        self._passed_over.clear()
        if damages:
            self._count_without(damages)

    def _align_cursors(self) -> None:
        """One cursor for each fork there is, which starts from the index. Under the guard."""
        for id, cursor in list(self.cursors.items()):
            fork = self.state.forks.get(id)
            if fork is None:
                self.cursors.pop(id).is_removed = True
            else:
                cursor.rebase(fork, self.state, self.index, self.reader)
        for id in self.state.forks.keys() - self.cursors.keys():
            self._add_cursor(id)

    def _add_cursor(self, fork_id: int) -> Cursor:
        cursor = super()._add_cursor(fork_id)
        cursor.lock = self._lock
        return cursor

    def _count_without(self, damages: dict[int, Damage]) -> None:
        """Leave damaged records out, and count again what each fork has left."""
        arrived = self.arrived
        live = count_left(self, self.cursors.values(), damages, arrived)
        self._passed_over |= damages
        with self.guard:
            self.state.quarantined.update({place: one.rows for place, one in damages.items()})
            self.state.recount(live, arrived)
            self.state.forgiving = False
            self._align_cursors()
