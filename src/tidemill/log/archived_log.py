"""An archive by itself, read as the log that it is of; for when that is out of reach, or gone."""

from __future__ import annotations

import os
from typing import NoReturn

from tidemill.batch import Layout, LogBatch, SchemaVersions
from tidemill.errors import Closed, MissingRows, ReadOnly
from tidemill.limits import INT64_MAX
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.place import open_objects
from tidemill.log.contract import (
    Capabilities,
    ConsumerClaim,
    ConsumerState,
    Ends,
    LogStore,
    LogWriter,
)
from tidemill.log.home import Home
from tidemill.log.refusals import trimmed


class ArchivedLog(LogStore):
    """The rows of an archive. Nobody publishes to it, and it has no consumers."""

    capabilities = Capabilities(persistent=True, many_processes=True, poll_s=1.0, poll_s_max=30.0)

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._archive = Archive(open_objects(url))
        self.place = self._archive.place
        self._home = Home("the log")
        self._is_closed = False
        self._archive.look()

    def archive(self) -> Archive:
        """The archive itself."""
        return self._opened()

    @property
    def versions(self) -> SchemaVersions:
        return self._opened().known.versions

    def ends(self) -> Ends:
        manifest = self._opened().look()
        return Ends(manifest.first, manifest.next)

    def read(self, start: int, *, rows_max: int, bytes_max: int) -> list[LogBatch]:
        archive = self._opened()
        manifest = archive.known if archive.holds(start) else archive.look()
        if start < manifest.first:
            raise trimmed(start, manifest.first)
        if start >= manifest.next:
            return []
        try:
            return archive.read(
                start, rows_max=rows_max, bytes_max=bytes_max, versions=manifest.versions
            )
        except MissingRows as loss:
            # Rows that were given up while they were looked for are not missed.
            first = archive.look().first
            if start < first:
                raise trimmed(start, first) from loss
            raise

    def seq_at(self, time_us: int) -> int:
        archive = self._opened()
        while True:
            next_seq = archive.look().next
            found = archive.seq_at(time_us)
            if found is not None:
                return max(found, archive.known.first)
            if archive.look().next == next_seq:
                return next_seq
            # Rows came that may be of that time, and were perhaps not looked at.

    def layout(self, start: int, end: int) -> Layout:
        manifest = self._opened().look()
        return self._archive.layout(max(start, manifest.first), end, cut=INT64_MAX)

    def consumers(self) -> dict[str, ConsumerState]:
        self._opened()
        return {}

    def notes(self) -> dict[str, str]:
        self._opened()
        return {}

    def claim(self) -> LogWriter:
        self._refuse()

    def claim_consumer(self, name: str, *, start: int) -> ConsumerClaim:  # noqa: ARG002
        self._refuse()

    def move_pointer(self, claim: ConsumerClaim, pointer: int) -> None:  # noqa: ARG002
        self._refuse()

    def check_claim(self, claim: ConsumerClaim) -> None:  # noqa: ARG002
        self._refuse()

    def remove_consumer(self, name: str) -> None:  # noqa: ARG002
        self._refuse()

    def trim(self, before: int, *, force: bool = False) -> int:  # noqa: ARG002
        self._refuse()

    def begin_at(self, first: int) -> None:  # noqa: ARG002
        self._refuse()

    def release(self, before: int) -> None:  # noqa: ARG002
        self._refuse()

    def set_note(self, name: str, value: str, *, expected: str | None) -> bool:  # noqa: ARG002
        self._refuse()

    def close(self) -> None:
        self._is_closed = True

    def _opened(self) -> Archive:
        if self._is_closed:
            raise Closed(f"the log {self.place} was closed; open it again")
        self._home.check()
        return self._archive

    def _refuse(self) -> NoReturn:
        self._opened()
        raise ReadOnly(f"{self.place} is the archive of a log, which is only read: open the log")
