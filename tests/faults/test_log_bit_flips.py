"""A bit that flips anywhere in a log's folder: the rows are right, or an error says otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import pytest

from tests.faults.driven_log import ROOT, DrivenLog, open_log
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Image
from tidemill.errors import Corrupt, TidemillError
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.log.on_files.store import FileLog

# Thousands of small logs are opened.
pytestmark = pytest.mark.slow

Tally: TypeAlias = Callable[[str, int], None]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
BITS = range(8) if SOAK else (3,)


@cache
def _log() -> DrivenLog:
    log = DrivenLog()
    log.append(2)
    log.append(1, number=1)
    log.append(3, length=5_000)
    log.ack()
    log.append(2)
    log.note("s3://bucket")
    log.append(1, number=2)
    log.log.close()
    return log


def _image() -> Image:
    return _log().fs.image()


def _files() -> list[str]:
    return sorted(path for path in _image().files() if "readers" not in path)


def _read(log: FileLog) -> dict[int, bytes]:
    """All rows that can be had, by number; whatever is missing was told by an error."""
    found: dict[int, bytes] = {}
    first, next_seq = log.ends()
    at = first
    while at < next_seq:
        try:
            batches = log.read(at, rows_max=100, bytes_max=2**20)
        except Corrupt:
            at += 1
            continue
        assert batches, f"nothing is said about row {at}"
        for batch in batches:
            assert batch.first_seq == at
            found.update(zip(range(at, batch.next_seq), batch.rows(), strict=True))
            at = batch.next_seq
    return found


def _flipped(path: str, offset: int, bit: int) -> MemoryFileSystem:
    fs = MemoryFileSystem(_image())
    fs.boot = _log().fs.boot
    file = fs.open(ROOT / os.path.relpath(path, ROOT), write=True)
    (byte,) = file.pread(1, offset)
    file.pwrite([bytes([byte ^ 1 << bit])], offset)
    file.sync()
    file.close()
    return fs


def _size(path: str) -> int:
    image = _image()
    return len(image.contents[image.files()[path]].data)


@pytest.mark.parametrize("path", _files(), ids=lambda path: os.path.relpath(path, ROOT))
def test_no_bit_changes_a_row_in_silence(path: str, tally: Tally) -> None:
    expected = dict(enumerate(_log().state.rows, 1))
    size = _size(path)
    # Of the large rows every sixteenth byte will do.
    step = 16 if size > 8_000 and not SOAK else 1
    refused = incomplete = flips = 0
    for offset in range(0, size, step):
        for bit in BITS:
            flips += 1
            fs = _flipped(path, offset, bit)
            try:
                with open_log(fs, read_only=True) as log:
                    found = _read(log)
                    next_seq = log.ends().next
            except TidemillError:
                refused += 1
                continue
            wrong = {seq for seq, row in found.items() if expected.get(seq) != row}
            assert not wrong, f"{path}, offset {offset}, bit {bit}: rows {wrong} are wrong"
            assert next_seq == len(expected) + 1, f"{path}, offset {offset}, bit {bit}"
            incomplete += len(found) < len(expected)
    if path.endswith(".segment") and JOURNAL_NAME in path:
        assert incomplete + refused > 0
    tally("bits flipped under a log", flips)
