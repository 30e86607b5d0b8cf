"""What the doctor finds in a folder, and what it makes good, on a real disk."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import tidemill as tm
from tests.files.golden_folders import STATES, contents, unpack
from tests.files.interfering_fs import InterferingFileSystem
from tests.files.small_segments import files_of
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.doctor import Progress, Report, Severity
from tidemill.files.format.record import ENVELOPE_BYTES
from tidemill.files.format.summary import make_directory
from tidemill.files.journal.segment import segment_path
from tidemill.files.sharing.pointers import lock_pointer, make_pointer

SEGMENT_BYTES = 16 * 1024


def queue_at(path: Path, **options: object) -> tm.PriorityQueue:
    given = {"segment_bytes": SEGMENT_BYTES, "maintain_in_background": False, **options}
    return tm.PriorityQueue(path, bucket=tm.Width(100), **given)  # type: ignore[arg-type]


def codes(report: Report, least: Severity = Severity.NOTE) -> set[str]:
    """The codes of the findings that are at least so bad."""
    order = list(Severity)
    return {one.code for one in report.findings if order.index(one.severity) >= order.index(least)}


def scribble(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed queue of several segments, with a fork that lags."""
    path = tmp_path / "queue"
    with queue_at(path) as queue:
        fork = queue.fork("audit")
        for start in range(0, 400, 10):
            queue.push([(key % 300, b"value %d" % key * 9) for key in range(start, start + 10)])
        queue.pop(100)
        fork.pop(30)
        fork.delete(40, 60)
        queue._core.maintenance.run_round()
        assert queue.stats().segments > 2
    return path


def frame_in_a_sealed_segment(folder: Path) -> tuple[Path, int, int]:
    """(segment, offset, length of the payload) of a frame that forks still need."""
    with queue_at(folder) as queue:
        inner = queue._core.folder
        frames = inner.index.frames_of_segment(min(inner.journal.segments))
        entry = list(inner.cursors[0].live_frames(frames))[-1]
    return segment_path(folder / "journal", entry.segment), entry.offset, entry.length


def test_a_healthy_folder_has_no_findings(folder: Path) -> None:
    before = files_of(folder)
    report = tm.doctor.verify(folder)
    assert report.findings == ()
    assert report.is_healthy
    assert report.forks == {"": 300, "audit": 400 - 30 - len(_deleted())}
    assert report.segments == len(list(folder.glob("journal/*.segment")))
    assert report.records > report.frames > 0
    assert not report.is_in_use
    assert str(report).endswith("All is well.")
    assert files_of(folder) == before


def _deleted() -> list[int]:
    left = sorted(key % 300 for key in range(400))[30:]
    return [key for key in left if 40 <= key <= 60]


def test_a_report_is_plain_data_for_json(folder: Path) -> None:
    scribble(folder / "lock", 0)
    found = json.loads(json.dumps(tm.doctor.verify(folder).to_json()))
    assert found["healthy"] is True
    assert found["findings"][0]["code"] == "lock"
    assert found["forks"][""] == 300
    assert found["path"] == str(folder)


@pytest.mark.parametrize("state", STATES)
def test_a_folder_with_every_kind_of_record_is_healthy(state: str, tmp_path: Path) -> None:
    unpack(2, tmp_path)
    report = tm.doctor.verify(tmp_path / state)
    assert codes(report, Severity.WARNING) == set()
    assert "quarantine" in codes(report)


def test_a_folder_of_an_older_format_is_verified_all_the_same(tmp_path: Path) -> None:
    unpack(1, tmp_path)
    report = tm.doctor.verify(tmp_path / "closed")
    assert codes(report, Severity.WARNING) == {"old-format"}
    assert report.format == 1
    assert report.items > 200


def test_progress_is_told(folder: Path) -> None:
    seen: list[Progress] = []
    report = tm.doctor.verify(folder, on_progress=seen.append)
    assert [one.records for one in seen] == list(range(1, report.records + 1))
    assert seen[-1].bytes_done == seen[-1].bytes_total == report.bytes
    assert all(one.bytes_done < other.bytes_done for one, other in pairwise(seen))


def test_what_is_no_queue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear reader")
    for name in ("file", "other", "nowhere"):
        for ask in (tm.doctor.verify, tm.doctor.repair, tm.doctor.quarantined):
            with pytest.raises(tm.NotAQueue, match=name):
                ask(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "letter.txt", "other"]


def test_a_frame_that_is_damaged_is_damage_and_says_where(folder: Path) -> None:
    segment, offset, length = frame_in_a_sealed_segment(folder)
    scribble(segment, offset + ENVELOPE_BYTES + length - 3)
    report = tm.doctor.verify(folder)
    (finding,) = [one for one in report.findings if one.severity is Severity.DAMAGE]
    assert (finding.path, finding.offset, finding.code) == (segment, offset, "record")
    assert finding.items is not None
    assert finding.items > 0
    assert "--set-aside" in finding.advice
    assert "damaged" in str(report)


def test_damage_stays_until_one_is_told_to_set_it_aside(folder: Path) -> None:
    segment, offset, length = frame_in_a_sealed_segment(folder)
    scribble(segment, offset + ENVELOPE_BYTES + length - 3)
    damaged = segment.read_bytes()
    report = tm.doctor.repair(folder)
    assert report.worst is Severity.DAMAGE
    assert segment.read_bytes() == damaged
    report = tm.doctor.repair(folder, set_aside=True)
    assert report.done == ("set 1 damaged record aside",)
    assert codes(report) == {"quarantine"}
    with queue_at(folder) as queue:
        assert len(queue.pop(-1)) == report.forks[""] < 300


def test_a_damaged_envelope_of_a_sealed_segment_costs_nothing(folder: Path) -> None:
    with queue_at(folder) as queue:
        expected = queue.peek(-1).rows()
    segment, offset, _ = frame_in_a_sealed_segment(folder)
    scribble(segment, offset + 20)
    report = tm.doctor.verify(folder)
    assert codes(report) == {"record-spare"}
    report = tm.doctor.repair(folder, set_aside=True)
    assert len(report.done) == 1
    assert "rewrote segment" in report.done[0]
    assert report.findings == ()
    with queue_at(folder) as queue:
        assert queue.peek(-1).rows() == expected


def test_derived_files_are_made_again(folder: Path) -> None:
    summaries = sorted(folder.glob("journal/*.summary"))
    (spine,) = folder.glob("journal/*.spine")
    scribble(summaries[0], 100)
    summaries[1].unlink()
    scribble(spine, 40)
    report = tm.doctor.verify(folder)
    assert codes(report, Severity.WARNING) == {"summary", "spine"}
    report = tm.doctor.repair(folder)
    assert report.done == ("made 2 summary files again", "made the spine again")
    assert report.findings == ()


def test_a_summary_that_lies_is_made_again(folder: Path) -> None:
    """One with good checksums that belongs to other frames, as a bug would leave it."""
    segments = sorted(folder.glob("journal/*.segment"))
    with queue_at(folder) as queue:
        inner = queue._core.folder.journal.segments
        first = inner[int(segments[0].stem)]
        entries = first.entries[:-1]
        first.directory, first._entries = make_directory(entries)
        first.write_summary(1)
        expected = queue._core.folder.state.forks[0].live
    report = tm.doctor.verify(folder)
    assert "summary-wrong" in codes(report, Severity.DAMAGE)
    report = tm.doctor.repair(folder)
    assert report.findings == ()
    with queue_at(folder) as queue:
        assert len(queue.pop(-1)) == expected


def test_missing_truth_is_damage(folder: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("settings.json", "journal", "0000000000000002.segment")):
        copy = tmp_path / f"copy {number}"
        shutil.copytree(folder, copy)
        (path,) = [one for one in copy.rglob("*") if one.name == name]
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        report = tm.doctor.verify(copy)
        assert report.worst is Severity.DAMAGE, name
        assert any(name in str(one.path) for one in report.findings), str(report)


def test_leftovers_strangers_and_open_doors_are_told(folder: Path) -> None:
    (folder / "settings.json.new").write_text("{")
    (folder / "notes.txt").write_text("mine")
    (folder / "journal" / "0000000000000099.summary").write_text("")
    (folder / "settings.json").chmod(0o644)
    os.chmod(folder / "settings.json.new", 0o600)
    report = tm.doctor.verify(folder)
    assert {"leftover", "stranger"} <= codes(report)
    access = [one for one in report.findings if one.code == "access"]
    assert any(one.path.name == "settings.json" and "0644" in one.what for one in access)
    report = tm.doctor.repair(folder)
    assert "leftover" not in codes(report)
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / "settings.json.new").exists()
    # Whom the owner lets in is the owner's business.
    assert stat.S_IMODE((folder / "settings.json").stat().st_mode) == 0o644


def test_a_link_is_told(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "settings.json", tmp_path / "elsewhere.json")
    (folder / "settings.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(tm.NoAccess):
        tm.doctor.verify(folder)
    shutil.move(tmp_path / "elsewhere.json", folder / "settings.json")
    (folder / "consumers").symlink_to(tmp_path)
    assert "kind" in codes(tm.doctor.verify(folder), Severity.DAMAGE)


def test_an_unfinished_operation_is_no_damage(tmp_path: Path) -> None:
    expected = unpack(2, tmp_path)
    folder = tmp_path / "crashed"
    last = max(folder.glob("journal/*.segment"))
    (folder / "journal" / last.with_suffix(".spine").name).unlink()
    with tm.PriorityQueue(folder) as queue:
        before = queue._core.folder.journal.active.end
        queue.push([(1, {"place": "torn", "height": 1})])
        data = last.read_bytes()
    last.write_bytes(data[: before + 200].ljust(len(data), b"\0"))
    last.with_suffix(".spine").unlink()
    report = tm.doctor.verify(folder)
    assert codes(report, Severity.WARNING) == set()
    assert "tail" in codes(report)
    report = tm.doctor.repair(folder)
    assert report.done[0] == "cut off an operation that was never finished"
    with tm.PriorityQueue(folder) as queue:
        assert contents(queue) == expected


def test_a_bucket_function_of_ones_own_can_be_given(tmp_path: Path) -> None:
    tens = tm.Custom("tens", lambda keys: keys // 10)
    with tm.PriorityQueue(tmp_path, bucket=tens) as queue:
        queue.push([(key, b"") for key in range(50)])
        queue._core.folder.journal.roll()
        queue._core.maintenance.run_round()
    assert codes(tm.doctor.verify(tmp_path)) == {"bucket"}
    assert codes(tm.doctor.verify(tmp_path, bucket=tens)) == set()
    fives = tm.Custom("tens", lambda keys: keys // 5)
    assert codes(tm.doctor.verify(tmp_path, bucket=fives), Severity.DAMAGE)
    with pytest.raises(tm.BucketMismatch):
        tm.doctor.verify(tmp_path, bucket=tm.Width(3))


def test_a_folder_in_use_is_verified_and_not_repaired(folder: Path) -> None:
    with queue_at(folder) as queue:
        queue.push([(1, b"new")])
        report = tm.doctor.verify(folder)
        assert report.is_in_use
        assert report.owner_pid == os.getpid()
        assert report.findings == ()
        assert report.forks[""] == len(queue)
        with pytest.raises(tm.Locked):
            tm.doctor.repair(folder)
        queue.push([(1, b"newer")])


def test_beside_a_busy_writer_nothing_is_taken_for_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        draw = random.Random(3)
        try:
            while not stop.is_set():
                queue.push([(draw.randrange(1000), bytes(draw.randrange(200))) for _ in range(40)])
                audit.pop(45)
                queue.pop(draw.randrange(80))
        except BaseException as error:
            failures.append(error)
            raise

    with queue_at(tmp_path / "queue", sync="none", maintain_in_background=True) as queue:
        audit = queue.fork("audit")
        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(40):
                report = tm.doctor.verify(tmp_path / "queue")
                assert codes(report, Severity.WARNING) == set(), str(report)
                assert report.is_in_use
        finally:
            stop.set()
            thread.join()
    assert not failures
    assert tm.doctor.verify(tmp_path / "queue").is_healthy
    # That files come and go beside the doctor is nothing to tell anybody.
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.slow
def test_an_owner_who_comes_and_goes_at_any_moment_is_not_taken_for_damage(tmp_path: Path) -> None:
    with queue_at(tmp_path / "before") as queue:
        queue.consumer("slow")
        for key in range(8):
            queue.push([(key, bytes(3000))])

    def take_a_turn() -> None:
        with queue_at(tmp_path / "queue", sync="none") as queue:
            queue.consumer("slow").remove()
            queue.pop(6)
            for key in range(6):
                queue.push([(key, bytes(3000))])

    at, has_acted = 0, True
    while has_acted:
        at += 1
        shutil.rmtree(tmp_path / "queue", ignore_errors=True)
        shutil.copytree(tmp_path / "before", tmp_path / "queue")
        fs = InterferingFileSystem(at, take_a_turn)
        report = tm.doctor.verify(tmp_path / "queue", file_system=fs)
        assert codes(report, Severity.WARNING) == set(), f"before look {at}: {report}"
        has_acted = fs.looks >= at
    assert at > 50


def test_asking_who_owns_a_folder_never_keeps_an_owner_out(tmp_path: Path) -> None:
    tm.PriorityQueue(tmp_path).close()
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            LocalFileSystem().is_locked(tmp_path / "lock")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            tm.PriorityQueue(tmp_path).close()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


_MEASURE = """
import resource, sys
import tidemill as tm
tm.doctor.verify(sys.argv[1])
report = tm.doctor.verify(sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, report.bytes, len(report.findings))
"""


def test_memory_does_not_grow_with_the_queue(tmp_path: Path) -> None:
    for name, pushes in (("small", 4), ("large", 80)):
        with tm.PriorityQueue(
            tmp_path / name, segment_bytes=4 * 2**20, sync="none", maintain_in_background=False
        ) as queue:
            queue.fork("audit").pop(1)
            for number in range(pushes):
                queue.push([(number, bytes(1000)) for _ in range(2000)])
            queue._core.maintenance.run_round()
    used = []
    for name in ("small", "large"):
        ran = subprocess.run(
            [sys.executable, "-c", _MEASURE, tmp_path / "small", tmp_path / name],
            capture_output=True,
            text=True,
            check=True,
        )
        peak, size, findings = map(int, ran.stdout.split())
        assert findings == 0
        used.append((peak, size))
    assert used[1][1] > 150e6
    assert used[1][0] < used[0][0] + 32 * 2**20


def test_a_disk_full_of_rubbish_does_not_fill_memory(tmp_path: Path) -> None:
    with queue_at(tmp_path, sync="none", segment_bytes=8 * 2**20) as queue:
        queue.fork("audit")
        for key in range(12_000):
            queue.push([(key % 50, b"")])
    (segment,) = tmp_path.glob("journal/*.segment")
    data = bytearray(segment.read_bytes())
    # The last byte of each frame header but the first: its checksum.
    for offset in _frame_offsets(tmp_path):
        data[offset + ENVELOPE_BYTES + 127] ^= 1
    segment.write_bytes(data)
    report = tm.doctor.verify(tmp_path)
    assert len(report.findings) == 10_000
    assert report.findings_left_out > 1_000
    assert "further findings" in str(report)


def _frame_offsets(folder: Path) -> Iterator[int]:
    with queue_at(folder) as queue:
        inner = queue._core.folder
        yield from [entry.offset for entry in inner.index.frames_of_segment(1)]


def test_settings_that_cannot_be_read_do_not_stop_the_rest(folder: Path) -> None:
    segment, offset, length = frame_in_a_sealed_segment(folder)
    scribble(segment, offset + ENVELOPE_BYTES + length - 3)
    scribble(folder / "settings.json", 30)
    report = tm.doctor.verify(folder)
    assert codes(report, Severity.DAMAGE) == {"settings", "record"}
    assert report.records > 10
    before = files_of(folder)
    report = tm.doctor.repair(folder)
    assert report.worst is Severity.DAMAGE
    assert "cannot be opened" in report.done[0]
    assert files_of(folder) == before


def test_readers_that_died_are_told_and_swept_away(folder: Path) -> None:
    with tm.PriorityQueue(folder, read_only=True) as reader:
        child = subprocess.run(
            [sys.executable, "-c", _DYING_READER, folder], capture_output=True, text=True
        )
        assert child.returncode == -9, child.stderr
        assert len(list((folder / "readers").iterdir())) == 2
        report = tm.doctor.verify(folder)
        assert codes(report) == {"readers"}
        assert not report.is_in_use
        report = tm.doctor.repair(folder)
        assert report.done == ("swept 1 dead reader away",)
        assert report.findings == ()
        assert len(reader) == 300
    assert list((folder / "readers").iterdir()) == []


_DYING_READER = """
import os, sys
import tidemill as tm
reader = tm.PriorityQueue(sys.argv[1], read_only=True)
assert len(reader) == 300
os.kill(os.getpid(), 9)
"""


def test_what_processes_left_of_consumers_is_told_and_removed(folder: Path) -> None:
    with queue_at(folder) as queue:
        for name in ("billing", "search"):
            queue.consumer(name).close()
    consumers = folder / "consumers"
    (consumers / ".audit.4711-0").write_bytes(b"TMCP")
    (consumers / ".audit.4711-0").chmod(0o600)
    os.truncate(consumers / "search", 0)
    report = tm.doctor.verify(folder)
    assert codes(report) == {"leftover"}
    assert {one.path.name for one in report.findings} == {".audit.4711-0", "search"}
    assert report.is_healthy
    repaired = tm.doctor.repair(folder)
    assert codes(repaired) == set()
    assert [line for line in repaired.done if "consumers/" in line] == [
        "removed consumers/.audit.4711-0, which a process left behind",
        "removed consumers/search, which a process left behind",
    ]
    assert os.listdir(consumers) == ["billing"]


def test_a_pointer_that_cannot_be_read_is_damage_until_the_consumer_is_asked_for(
    folder: Path,
) -> None:
    with queue_at(folder) as queue:
        queue.consumer("billing").close()
        assert codes(tm.doctor.verify(folder)) == set()
    path = folder / "consumers" / "billing"
    for at in (0, 32):
        scribble(path, at)
    report = tm.doctor.verify(folder)
    assert codes(report, Severity.DAMAGE) == {"consumer"}
    assert "nothing is given back" in report.findings[0].what
    with queue_at(folder) as queue:
        queue.consumer("billing").close()
    assert codes(tm.doctor.verify(folder)) == set()


def test_a_consumer_that_never_began_is_told_unless_somebody_is_at_it(folder: Path) -> None:
    fs = LocalFileSystem()
    make_pointer(fs, folder / "consumers", "billing")
    lock = lock_pointer(fs, folder / "consumers" / "billing")
    assert lock is not None
    assert codes(tm.doctor.verify(folder)) == set()
    lock.release()
    report = tm.doctor.verify(folder)
    assert codes(report, Severity.WARNING) == {"consumer"}
    assert "before it said where" in report.findings[0].what


def test_without_one_summary_the_others_still_lead_past_damage(folder: Path) -> None:
    first, second = sorted((folder / "journal").glob("*.summary"))[:2]
    number = int(second.name[:16])
    with queue_at(folder) as queue:
        before = queue.peek(-1).rows()
        entry = next(iter(queue._core.folder.index.frames_of_segment(number)))
    scribble(segment_path(folder / "journal", number), entry.offset + 10)
    with queue_at(folder) as queue:
        assert queue.peek(-1).rows() == before
    first.unlink()
    with queue_at(folder) as queue:
        assert queue.peek(-1).rows() == before
    report = tm.doctor.verify(folder)
    assert report.worst is Severity.WARNING


def test_what_is_no_pointer_among_the_consumers_is_told(folder: Path) -> None:
    with queue_at(folder) as queue:
        queue.consumer("billing").close()
    (folder / "consumers" / "billing").unlink()
    (folder / "consumers" / "billing").mkdir()
    report = tm.doctor.verify(folder)
    assert codes(report, Severity.DAMAGE) == {"consumer", "kind"}
    with pytest.raises(tm.NoAccess, match="billing: it is no regular file"):
        queue_at(folder)
