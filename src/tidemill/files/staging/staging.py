"""Staged frames in a folder: written by tasks of other processes, copied into the journal later.

    staging/<name>/00003-1760000000000-9f2c61a07be411c2.frames     partition, ms since 1970, token

A file holds frames one behind the other, whose headers lack numbers and time. Nobody has to own the
folder to write one, and none is ever written by two. Nothing of the folder refers to it: it may be
deleted at any time, at the price of the transaction that it was staged for.

Who commits knows from the attempt's report how long the file is and what it holds, so that a file
which is torn, replaced or damaged does not pass.
"""

from __future__ import annotations

import errno
import logging
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from xxhash import xxh3_64_intdigest, xxh3_128

from tidemill.batch import HEADER_BYTES, EncodedBody, FrameHeader, pack_header, unpack_header
from tidemill.clock import Clock
from tidemill.errors import Bug, Corrupt
from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.staging.transaction import StagedPart, lost
from tidemill.limits import STAGED_S_MAX

logger = logging.getLogger(__name__)

FOLDER = "staging"
_TRIES_MAX = 10
_NAME = re.compile(r"(\d{5,})-(\d{13,})-[0-9a-f]{16}\.frames")


class StagingFolder:
    """The files that are staged under one name in the folder of a queue or a log."""

    def __init__(self, fs: FileSystem, clock: Clock, path: Path, name: str) -> None:
        self._fs = fs
        self._clock = clock
        self._folder = path / FOLDER / name
        self._open: tuple[str, File] | None = None  # the file that was read last

    def create(self, partition: int) -> StagedFile:
        """A new file for an attempt at a partition."""
        now_ms = self._clock.time_ns() // 1_000_000
        name = f"{partition:05}-{now_ms:013}-{secrets.token_hex(8)}.frames"
        with storage_errors("staging rows in", self._folder):
            file = self._create(name)
        return StagedFile(self._fs, self._folder / name, file, partition)

    def _create(self, name: str) -> File:
        for _ in range(_TRIES_MAX):
            for folder in (self._folder.parent, self._folder):
                try:
                    if folder.name not in self._fs.list_folder(folder.parent):
                        self._fs.make_folder(folder)
                        self._fs.sync_folder(folder.parent)
                except FileExistsError:
                    pass  # Another task was faster.
            try:
                return self._fs.open(self._folder / name, create=True)
            except FileNotFoundError as error:
                # Whoever sweeps has taken the empty folder away just now.
                logger.debug("%s is gone again: %s", self._folder, error)
        raise FileNotFoundError(f"{self._folder} is removed as soon as it is made")

    def frames(self, part: StagedPart) -> list[tuple[FrameHeader, StagedBody]]:
        """The frames of a part, checked against what was reported; bodies are read when they are
        copied, and checked then.
        """
        if not part.frames:
            return []
        if _NAME.fullmatch(part.name) is None:
            raise lost(part, str(self._folder), "cannot be there: that is no name of a file")
        digest = xxh3_128()
        found = []
        with storage_errors("reading staged rows in", self._folder):
            try:
                file = self._file(part.name)
            except FileNotFoundError as error:
                raise lost(part, str(self._folder), "are gone") from error
            if file.size() != part.total_bytes:
                why = f"take {file.size()} bytes, not {part.total_bytes}"
                raise lost(part, str(self._folder), why)
            at = 0
            while at < part.total_bytes:
                data = file.pread(HEADER_BYTES, at)
                digest.update(data)
                try:
                    header = unpack_header(data)
                except Corrupt as damage:
                    raise damage.at(self._folder / part.name, at) from damage
                at += HEADER_BYTES
                found.append((header, StagedBody(self, part.name, header, at)))
                at += header.body_bytes
        if digest.digest() != part.digest or len(found) != part.frames:
            raise lost(part, str(self._folder), "are others than those reported")
        return found

    def load(self, name: str, header: FrameHeader, at: int) -> pa.Buffer:
        """The body of a frame, as long as its file is there."""
        path = self._folder / name
        with storage_errors("reading", path):
            [body] = self._file(name).pread_buffers([header.body_bytes], at)
        if len(body) != header.body_bytes or xxh3_64_intdigest(body) != header.body_check:
            raise Corrupt("the checksum of a staged frame does not match", path=path, offset=at)
        return body

    def close(self) -> None:
        """Let go of the file that was read last."""
        held, self._open = self._open, None
        if held is not None:
            held[1].close()

    def sweep(self) -> None:
        """Remove all that is staged under this name, and what others staged long ago. Whatever
        cannot be removed does no harm but take room.
        """
        self.close()
        try:
            self._sweep_folder(self._folder, older_than_ms=None)
            until_ms = self._clock.time_ns() // 1_000_000 - STAGED_S_MAX * 1000
            for name in self._fs.list_folder(self._folder.parent):
                self._sweep_folder(self._folder.parent / name, older_than_ms=until_ms)
        except FileNotFoundError:
            pass  # Nothing was staged, or another sweeps as well.
        except OSError as error:
            logger.warning("staged rows in %s were not swept away: %s", self._folder, error)

    def _sweep_folder(self, folder: Path, *, older_than_ms: int | None) -> None:
        left = 0
        for name in self._fs.list_folder(folder):
            found = _NAME.fullmatch(name)
            if found and (older_than_ms is None or int(found[2]) < older_than_ms):
                try:
                    self._fs.unlink(folder / name)
                except FileNotFoundError:
                    pass  # Another sweeps as well.
            else:
                left += 1
        if not left and older_than_ms is not None:
            try:
                self._fs.remove_folder(folder)
            except FileNotFoundError:
                pass  # Another sweeps as well.
            except OSError as error:
                # A task may have staged something there in this moment.
                if error.errno != errno.ENOTEMPTY:
                    raise

    def _file(self, name: str) -> File:
        if self._open is None or self._open[0] != name:
            self.close()
            self._open = name, self._fs.open(self._folder / name)
        return self._open[1]


class StagedBody:
    """The body of a staged frame, which stays on disk until it is copied."""

    __slots__ = ("_at", "_folder", "_header", "_name")

    def __init__(self, folder: StagingFolder, name: str, header: FrameHeader, at: int) -> None:
        self._folder = folder
        self._name = name
        self._header = header
        self._at = at

    def __len__(self) -> int:
        return self._header.body_bytes

    def load(self) -> pa.Buffer:
        """The bytes, verified."""
        return self._folder.load(self._name, self._header, self._at)

    def encoded(self) -> EncodedBody:
        """The body as frames know it."""
        header = self._header
        return EncodedBody(self, header.body_bytes, header.body_check, header.codec, header.rows)


class StagedFile:
    """A file that one attempt writes."""

    def __init__(self, fs: FileSystem, path: Path, file: File, partition: int) -> None:
        self._fs = fs
        self._path = path
        self._file: File | None = file
        self._partition = partition
        self._digest = xxh3_128()
        self._frames = self._rows = self._end = 0

    def add(self, frames: Sequence[PreparedFrame]) -> None:
        """Write frames behind those before."""
        if self._file is None:
            raise Bug(f"{self._path} is finished, and gets more frames")
        parts: list[object] = []
        size = 0
        for frame in frames:
            body = frame.body
            header = pack_header(
                body.rows,
                0,
                frame.key_min,
                frame.key_max,
                0,
                frame.fingerprint,
                body.body_bytes,
                body.check,
                body.codec,
            )
            self._digest.update(header)
            self._frames += 1
            self._rows += body.rows
            parts += (header, body.buffer)
            size += HEADER_BYTES + body.body_bytes
        with storage_errors("staging rows in", self._path):
            self._file.pwrite(parts, self._end)
        self._end += size

    def finish(self) -> StagedPart:
        """Say what is in the file.

        Nothing is synced: who commits checks every byte while copying it, so that what a crash
        takes away fails the transaction, which is run again.
        """
        with storage_errors("staging rows in", self._path):
            self._close()
        return StagedPart(
            self._partition,
            self._path.name,
            self._frames,
            self._rows,
            self._end,
            self._digest.digest(),
        )

    def discard(self) -> None:
        """Remove the file; what cannot be, is swept later."""
        try:
            self._close()
            self._fs.unlink(self._path)
        except OSError as error:
            logger.warning("%s is left to be swept: %s", self._path, error)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def staged_files(fs: FileSystem, path: Path) -> Iterator[str]:
    """All that is staged in a folder, as `name/file`."""
    if FOLDER not in fs.list_folder(path):
        return
    for name in fs.list_folder(path / FOLDER):
        try:
            found = fs.list_folder(path / FOLDER / name)
        except (FileNotFoundError, NotADirectoryError):
            continue  # Swept in this moment, or a stranger.
        yield from (f"{name}/{one}" for one in found if _NAME.fullmatch(one))
