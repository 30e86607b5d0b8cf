"""What is in a folder as of now, built from its files by a reader: see `follower`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidemill.errors import Corrupt
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.open_files import OpenFiles
from tidemill.files.disk.shadow import ShadowFileSystem
from tidemill.files.journal.head import Head
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.journal.scan import Damage
from tidemill.files.journal.segment import Segment
from tidemill.files.readers.links import Links
from tidemill.files.readers.reach import read_reach
from tidemill.files.readers.tail import end_before, pass_over, read_tail, set_aside_of
from tidemill.files.recovery.recovery import Recovery
from tidemill.files.recovery.replay import Replay
from tidemill.files.state.state import State


class Built(NamedTuple):
    """All that is known."""

    segments: dict[int, Segment]  # by number, the newest last
    state: State
    replay: Replay
    damages: list[Damage]  # that were passed over, and are not set aside


class Building:
    """One attempt; `FileNotFoundError` if a file vanishes meanwhile."""

    def __init__(
        self,
        fs: FileSystem,
        folder: Path,
        links: Links,
        *,
        bucket_of: Callable[[int], int],
        tolerates_damage: bool,
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._journal = folder / JOURNAL_NAME
        self._links = links
        self._bucket_of = bucket_of
        self._tolerates_damage = tolerates_damage

    def run(self, head: Head | None) -> Built:
        """Up to where the owner has published; nobody has since the machine was started: None."""
        return self._recover() if head is None else self._read(head)

    def _read(self, head: Head) -> Built:
        """From the newest segment's opening state, and what lies behind and before it."""
        base, opening = self._links.newest(head)
        try:
            state, older = State.from_json(opening.payload)
        except Corrupt as damage:
            raise damage.at(base.path, 0) from damage
        replay = Replay(state, self._bucket_of)
        tail = read_tail(base, 0, head=head, spine=self._links.spine_of(base))
        pass_over(tail.findings, self._journal, tolerates_damage=self._tolerates_damage)
        replay.index(base, tail.findings, apply=True)
        base.end = tail.end
        left = sorted({*older} - replay.retired)
        segments = {number: self._links.segment(number) for number in left}
        for number, segment in segments.items():
            segment.origin = state.adopted.get(number)
        segments[base.number] = base
        for number in left:
            self._index_sealed(segments[number], segments.get(number + 1), replay, state)
        return Built(segments, state, replay, replay.damages)

    def _index_sealed(
        self, segment: Segment, following: Segment | None, replay: Replay, state: State
    ) -> None:
        """Know the frames of an older segment, by its summary, or read it whole if it has none."""
        if self._links.try_summary(segment):
            return
        known, spine = set_aside_of(segment, state), self._links.spine_of(segment)
        end = end_before(following)
        tail = read_tail(segment, 0, head=None, end=end, spine=spine, set_aside=known)
        pass_over(
            tail.findings,
            self._journal,
            known=state.quarantined,
            tolerates_damage=self._tolerates_damage,
        )
        replay.index(segment, tail.findings, apply=False)
        segment.end = tail.end
        segment.seal()

    def _recover(self) -> Built:
        """Without a head: what opening the folder would lead to, over a shadow of the links."""
        pin = self._links.pin
        for name in self._fs.list_folder(self._journal):
            pin.link(name)
        shadow = ShadowFileSystem(self._fs)
        try:
            recovered = Recovery(
                shadow,
                OpenFiles(shadow, write=False),
                pin.folder,
                bucket_of=self._bucket_of,
                tolerate_damage=self._tolerates_damage,
            ).run()
        except Corrupt as damage:
            if read_reach(self._fs, self._folder) is not None:
                # An owner has come, and does in earnest what was tried here.
                raise FileNotFoundError(damage.reason) from damage
            path = self._journal / (damage.path or self._journal).name
            raise damage.at(path, damage.offset or 0) from damage
        if recovered is None:
            raise Corrupt("the journal is empty", path=self._journal, offset=0)
        segments = {
            segment.number: segment
            for segment in recovered.segments
            if segment.number not in recovered.retired
        }
        pin.keep(segments.values())
        state, damages = recovered.state, recovered.damages
        return Built(segments, state, Replay(state, self._bucket_of), damages)
