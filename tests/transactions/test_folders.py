"""Transactions into folders: what becomes of the mark, how large they may be, who stands in the
way.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.transactions.targets import FileLogTarget, QueueTarget
from tests.transactions.test_transactions import rows_of
from tidemill.errors import Corrupt, Locked, NotAQueue, StagingLost, TooLarge
from tidemill.files.disk.filesystem import File, LocalFileSystem
from tidemill.files.format import record
from tidemill.files.queue.queue_staging import QueueStaging
from tidemill.files.staging import staging
from tidemill.files.staging.transaction import Outcome, Transaction
from tidemill.limits import STAGED_PIECE_BYTES
from tidemill.log.on_files.store import FileLog

SMALL = 16 * 1024


@pytest.fixture(params=[QueueTarget, FileLogTarget])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> QueueTarget:
    made: QueueTarget = request.param(tmp_path / "it", segment_bytes=SMALL)
    return made


def test_the_mark_outlives_the_segment_that_it_was_written_to(target: QueueTarget) -> None:
    target.staging().commit(Transaction("load", 5), [target.stage(0, rows_of(0, 0))])
    mark = target.mark()
    for number in range(5):
        target.write([f"{number}" * 9_000])
    if type(target) is QueueTarget:
        with tm.PriorityQueue(target.path, maintain_in_background=False) as queue:
            queue.pop(-1)
            queue._core.maintenance.run_round()
    else:
        with FileLog(target.path) as log:
            log.trim(1_000)
    first = min(target.path.glob("journal/*.segment"))
    assert first.name != "0000000000000001.segment"
    assert target.mark() == mark
    again = target.staging().commit(Transaction("load", 5), [target.stage(0, rows_of(0, 0))])
    assert again == Outcome(1, 5, is_new=False)
    assert target.rows() == []


def test_a_damaged_mark_has_a_twin(target: QueueTarget) -> None:
    target.staging().commit(Transaction("load", 5), [target.stage(0, rows_of(0, 0))])
    segment = target.path / "journal" / "0000000000000001.segment"
    data = bytearray(segment.read_bytes())
    at = data.index(b'["load",5,')
    data[at] ^= 1
    segment.write_bytes(data)
    if type(target) is QueueTarget:
        queue = tm.PriorityQueue(target.path, on_corruption="continue")
        mark = queue._core.folder.state.log.marks["load"]
        queue.close()
    else:
        with FileLog(target.path, on_corruption="continue") as log:
            found = log.claim().mark("load")
            assert found is not None
            mark = found
    assert mark.number == 5


def test_a_transaction_may_be_larger_than_a_segment(target: QueueTarget) -> None:
    parts = [
        target.stage(partition, [f"{partition}.{row:05}" + "x" * 500 for row in range(200)])
        for partition in range(4)
    ]
    assert sum(part.total_bytes for part in parts) > 20 * SMALL
    target.staging().commit(Transaction("load", 0), parts)
    rows = target.rows()
    expected = [f"{partition}.{row:05}" for partition in range(4) for row in range(200)]
    assert [row[:7] for row in rows] == expected
    target.write(["and on"])
    assert target.rows() == [*rows, "and on"]


def test_one_that_no_segment_can_hold_is_refused_and_leaves_nothing(
    target: QueueTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is 4 GiB, which takes too long to write here."""
    parts = [target.stage(0, ["x" * 100_000])]
    with monkeypatch.context() as patch:
        patch.setattr(record, "OFFSET_MAX", 60_000)
        with pytest.raises(TooLarge, match="one operation may take 60000 bytes"):
            target.staging().commit(Transaction("load", 0), parts)
    assert target.rows() == []
    target.staging().commit(Transaction("load", 0), parts)
    assert len(target.rows()) == 1


@pytest.mark.slow
def test_committing_takes_no_more_memory_than_a_piece(target: QueueTarget) -> None:
    row = pa.array([bytes(1_000)] * 1_000, pa.binary())
    payload = {} if type(target) is FileLogTarget else {"key": [1] * 1_000}
    batch = pa.record_batch({**payload, "value": row})
    parts = []
    for partition in range(3):
        attempt = target.staging().attempt(partition)
        for _ in range(80):
            attempt.write(batch)
        parts.append(attempt.finish())
    total = sum(part.total_bytes for part in parts)
    assert total > 200 << 20
    tracemalloc.start()
    try:
        target.staging().commit(Transaction("load", 0), parts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A piece ends with the frame that makes it large enough, which a task staged as one chunk.
    assert peak < 4 * STAGED_PIECE_BYTES < total / 3
    assert target.mark() is not None


def test_a_folder_that_another_process_owns_is_named_with_it(target: QueueTarget) -> None:
    opens = (
        "queue = tm.PriorityQueue(sys.argv[1])"
        if type(target) is QueueTarget
        else "log = tm.Log(sys.argv[1]); out = log.publisher()"
    )
    code = f"import sys, tidemill as tm; {opens}; print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(target.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        # Staging needs no owner.
        part = target.stage(0, rows_of(0, 0))
        with pytest.raises(Locked) as refusal:
            target.staging().commit(Transaction("load", 0), [part])
        assert refusal.value.pid == owner.pid
        owner.communicate(b"")
    target.staging().commit(Transaction("load", 0), [part])
    assert target.rows() == rows_of(0, 0)


def test_a_commit_waits_for_an_owner_who_goes_soon(tmp_path: Path) -> None:
    target = QueueTarget(tmp_path / "queue")
    part = target.stage(0, rows_of(0, 0))
    code = "import sys, time, tidemill as tm; queue = tm.PriorityQueue(sys.argv[1]); print('open', "
    code += "flush=True); time.sleep(0.3)"
    command = [sys.executable, "-c", code, str(target.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        QueueStaging(target.path, "load", wait_s=30).commit(Transaction("load", 0), [part])
    assert target.rows() == rows_of(0, 0)


def test_nothing_is_made_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(NotAQueue, match="make it first"):
        QueueStaging(tmp_path / "none", "load").attempt(0)
    with pytest.raises(NotAQueue):
        QueueStaging(tmp_path / "none", "load").commit(Transaction("load", 0), [])
    assert not (tmp_path / "none").exists()


def test_what_others_staged_long_ago_is_swept(
    target: QueueTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    target.stage(0, ["of one that died"], "other")
    target.staging().commit(Transaction("load", 0), [target.stage(0, ["a"])])
    assert target.staged() == 1
    monkeypatch.setattr(staging, "STAGED_S_MAX", -10)
    target.staging().commit(Transaction("load", 1), [target.stage(0, ["b"])])
    assert target.staged() == 0
    assert list(target.path.glob("staging/*")) == []


class BusyFolder(LocalFileSystem):
    """Others make and remove folders at the same time."""

    def __init__(self, refusal: OSError | None = None) -> None:
        super().__init__()
        self._refusal = refusal
        self._has_swept = False

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        super().make_folder(path)

    def open(self, path: Path, **options: Any) -> File:
        if path.suffix == ".frames" and not self._has_swept:
            self._has_swept = True
            super().remove_folder(path.parent)
        return super().open(path, **options)

    def remove_folder(self, path: Path) -> None:
        if self._refusal is not None:
            raise self._refusal
        super().remove_folder(path)


def test_the_folder_may_be_made_and_swept_by_others_while_a_task_makes_it(tmp_path: Path) -> None:
    target = QueueTarget(tmp_path / "queue")
    attempt = QueueStaging(target.path, "load", file_system=BusyFolder()).attempt(0)
    attempt.write(target.batch(rows_of(0, 0)))
    target.staging().commit(Transaction("load", 0), [attempt.finish()])
    assert target.rows() == rows_of(0, 0)


def test_a_folder_that_cannot_be_removed_is_told_of_unless_others_use_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = QueueTarget(tmp_path / "queue")
    for code, is_told in ((errno.ENOTEMPTY, False), (errno.ENOENT, False), (errno.EACCES, True)):
        target.stage(0, ["left"])
        busy = BusyFolder(OSError(code, os.strerror(code)))
        QueueStaging(target.path, "load", file_system=busy).sweep()
        assert target.staged() == 0
        assert ("were not swept away" in caplog.text) == is_told


def test_parts_are_taken_from_their_own_folder_and_as_they_were_reported(
    target: QueueTarget,
) -> None:
    part = target.stage(0, rows_of(0, 0))
    theirs = target.stage(0, ["of another"], "other")
    for wrong in (part._replace(frames=2), theirs._replace(name=f"../other/{theirs.name}")):
        with pytest.raises(StagingLost, match="nothing was committed"):
            target.staging().commit(Transaction("load", 0), [wrong])
    with open(target.path / "staging" / "load" / part.name, "ab") as file:
        file.write(b"more")
    with pytest.raises(StagingLost, match=f"not {part.total_bytes}"):
        target.staging().commit(Transaction("load", 0), [part])
    assert target.rows() == []


def test_frames_that_were_split_for_other_buckets_are_refused(tmp_path: Path) -> None:
    wide = QueueTarget(tmp_path / "wide")
    narrow = QueueTarget(tmp_path / "narrow", bucket=tm.Width(1))
    part = wide.stage(0, ["a", "bb"])
    shutil.copytree(wide.path / "staging", narrow.path / "staging")
    with pytest.raises(Corrupt, match="reaches over two buckets"):
        narrow.staging().commit(Transaction("load", 0), [part])
    assert narrow.rows() == []


def test_segments_that_are_handed_over_leave_the_marks_of_both_alone(tmp_path: Path) -> None:
    source, goal = (QueueTarget(tmp_path / name, segment_bytes=SMALL) for name in ("a", "b"))
    for number, target in enumerate((source, goal)):
        target.staging().commit(Transaction("load", 5 + number), [target.stage(0, ["x" * 9_000])])
    with tm.PriorityQueue(goal.path) as theirs, tm.PriorityQueue(source.path) as ours:
        theirs.pop(-1)
        assert ours.shovel(theirs) == 1
        assert theirs._core.folder.state.adopted
    marks = [target.mark() for target in (source, goal)]
    assert [mark and mark.number for mark in marks] == [5, 6]


def test_staged_rows_that_turn_out_damaged_leave_a_log_that_can_be_used(
    tmp_path: Path,
) -> None:
    """The first body is written to the journal by the time the second is read."""
    target = FileLogTarget(tmp_path / "log")
    with FileLog(target.path) as log:
        log.claim()
        parts = [target.stage(0, ["x" * (17 << 20)]), target.stage(1, ["y" * (17 << 20)])]
        target.damage(parts[1])
        with pytest.raises(Corrupt, match="a staged frame"):
            target.staging().commit(Transaction("load", 0), parts)
        assert log.ends().next == 1
    target.write(["fine"])
    assert target.rows() == ["fine"]


def test_the_doctor_knows_marks_and_tells_of_what_is_staged(target: QueueTarget) -> None:
    target.staging().commit(Transaction("load", 5), [target.stage(0, rows_of(0, 0))])
    assert not tm.doctor.verify(target.path).findings
    target.stage(0, ["left"])
    (target.path / "staging" / "letter.txt").write_text("dear reader")
    (finding,) = tm.doctor.verify(target.path).findings
    assert (finding.code, finding.severity.value) == ("staging", "note")
    assert "1 file" in finding.what
