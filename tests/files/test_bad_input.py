"""What is refused is refused with a typed error, and changes nothing: not a byte of the folder."""

from __future__ import annotations

import errno
import json
import math
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xxhash

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem
from tests.temporary import FOLDER
from tidemill.files.commit.operation import Consume
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.queue.pushes import push_operation
from tidemill.limits import ITEM_BYTES_MAX, LAST_ROOM_BYTES

_NOBODY = 65534  # a user who owns nothing


def listing(path: Path) -> dict[str, bytes]:
    """Every file of a folder, byte for byte."""
    return {
        str(file.relative_to(path)): file.read_bytes() if file.is_file() else b"a folder"
        for file in sorted(path.rglob("*"))
    }


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[tm.PriorityQueue]:
    with tm.PriorityQueue(tmp_path / "queue", segment_bytes=64 * 1024) as queue:
        queue.push([(1, b"a"), (2, b"b")])
        queue.fork("audit").pop()
        yield queue


def refuses(
    queue: tm.PriorityQueue, error: type[tm.TidemillError], use: Callable[[], object]
) -> str:
    """The message of the error, once nothing is known to have changed."""
    before, stats = listing(queue.path), queue.stats()
    with pytest.raises(error) as found:
        use()
    assert listing(queue.path) == before
    assert queue.stats() == stats
    assert len(queue) == 2
    # It works on as if nothing had been.
    assert queue.push([(3, b"c")]).first == stats.next_seq
    return str(found.value)


class PathOfBytes(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"queue"


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


KEYS = {
    "over int64": 2**63,
    "under int64": -(2**63) - 1,
    "more digits than Python shows": 10**5_000,
    "null": None,
    "NaN": math.nan,
    "a float": 1.0,
    "a boolean": True,
    "a numpy boolean": np.True_,
    "a string": "1",
    "bytes": b"1",
    "NaT": pd.NaT,
    "a naive time": pd.Timestamp("2026-01-01"),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_a_key_that_is_no_int64_is_refused(queue: tm.PriorityQueue, key: object) -> None:
    message = refuses(queue, tm.InvalidKey, lambda: queue.push([(5, b"x"), (key, b"y")]))
    assert "row 1" in message


COLUMNS = {
    "over int64": pa.array([1, 2**63], pa.uint64()),
    "null": pa.array([1, None], pa.int64()),
    "floats": pa.array([1.0, 2.0]),
    "NaN": pa.array([1.0, math.nan]),
    "booleans": pa.array([True, False]),
    "strings": pa.array(["1", "2"]),
    "naive times": pa.array([1, 2], pa.timestamp("us")),
    "times beyond int64 in ns": pa.array([0, 2**62], pa.timestamp("s", "UTC")),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_a_column_of_keys_that_are_no_int64_is_refused(
    queue: tm.PriorityQueue, column: pa.Array
) -> None:
    table = pa.table({"key": column, "value": [b"a", b"b"]})
    refuses(queue, tm.InvalidKey, lambda: queue.push(table))
    refuses_again = pa.table({"rank": column, "value": [b"a", b"b"]})
    with pytest.raises(tm.InvalidKey):
        queue.push(refuses_again, key="rank")


def test_a_payload_over_the_limit_is_refused(queue: tm.PriorityQueue) -> None:
    message = refuses(
        queue, tm.TooLarge, lambda: queue.push([(1, b"small"), (2, bytes(ITEM_BYTES_MAX + 1))])
    )
    assert "64 MiB" in message


def test_a_payload_at_the_limit_goes_through(tmp_path: Path) -> None:
    payload = os.urandom(1024) * (ITEM_BYTES_MAX // 1024)
    with tm.PriorityQueue(tmp_path, sync="none") as queue:
        queue.push([(1, payload)])
        assert queue.pop().values[0].as_py() == payload


FORMS = {
    "a number": 5,
    "nothing": None,
    "bytes": b"not a batch",
    "a string": "not a batch",
    "a mapping": {"key": [1]},
    "numbers": [1, 2],
    "strings": ["a"],
    "a string payload": [(1, "a")],
    "a number payload": [(1, 5)],
    "no payload": [(1,)],
    "three to a row": [(1, b"a", b"b")],
    "mixed rows": [(1, b"a"), b"b"],
    "dicts and pairs": [{"value": b"a"}, (1, b"b")],
    "unknown columns": [{"key": 1, "town": b"a"}],
    "a table of others": pa.table({"key": [1], "town": [b"a"]}),
    "a table of numbers": pa.table({"key": [1], "value": [5]}),
    "a null payload": pa.table({"key": [1], "value": pa.array([None], pa.binary())}),
    "a reserved column": pa.table({"key": [1], "value": [b"a"], "seq": [1]}),
    "another reserved column": pa.table({"time": [1], "value": [b"a"]}),
    "a number of NumPy": [(1, np.int64(5))],
    "a string of NumPy": [(1, np.str_("a"))],
    "numbers of NumPy": [(1, np.zeros(3))],
    "a scalar of Arrow": [(1, pa.scalar(b"a"))],
    "two columns of one name": pd.DataFrame([[b"a", b"b"]], columns=["value", "value"]),
    "a list that holds itself": [{"value": ENDLESS}],
    "a dict that holds itself": [{"value": {"in": ENDLESS}}],
    "a list in a tuple that holds itself": [{"value": (ENDLESS, ENDLESS)}],
}


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS.keys())
def test_rows_that_do_not_fit_are_refused(queue: tm.PriorityQueue, data: object) -> None:
    refuses(queue, tm.InvalidInput, lambda: queue.push(data))


@pytest.mark.parametrize("key", [5, b"value", ["value"]])
def test_a_key_column_is_named_by_a_string(queue: tm.PriorityQueue, key: Any) -> None:
    forms: list[object] = [pa.table({"value": [b"a"]}), [{"value": b"a"}], [(1, b"a")]]

    def push_all() -> None:
        for data in forms:
            with pytest.raises(tm.InvalidKey, match="named by a string"):
                queue.push(data, key=key)
        queue.push(forms[0], key=key)

    refuses(queue, tm.InvalidKey, push_all)


def test_a_key_column_that_is_not_there_is_refused(queue: tm.PriorityQueue) -> None:
    table = pa.table({"rank": [1], "value": [b"a"]})
    assert "'score'" in refuses(queue, tm.InvalidKey, lambda: queue.push(table, key="score"))


NAMES = ["", ".", "..", "../up", "a/b", "/etc", "a\\b", "a b", "a\0b", "-a", ".a", "a.", "ü"]


@pytest.mark.parametrize("name", [*NAMES, "x" * 65, None, 5, b"a"])
def test_a_name_outside_the_grammar_is_refused(queue: tm.PriorityQueue, name: object) -> None:
    refuses(queue, tm.InvalidName, lambda: queue.fork(name))  # type: ignore[arg-type]


def test_what_a_read_cannot_push_pops_nothing(queue: tm.PriorityQueue) -> None:
    def use() -> None:
        with queue.read(2) as read:
            read.push([(None, b"a")])

    refuses(queue, tm.InvalidKey, use)


@pytest.mark.parametrize(
    "bucket", [5, "shift:37", lambda keys: keys], ids=["number", "text", "bare"]
)
def test_an_unknown_bucket_function_is_refused(tmp_path: Path, bucket: object) -> None:
    with tm.PriorityQueue(tmp_path / "old"):
        pass
    before = listing(tmp_path)
    for path in (tmp_path / "old", tmp_path / "new"):
        with pytest.raises(tm.InvalidInput, match="bucket function"):
            tm.PriorityQueue(path, bucket=bucket)  # type: ignore[arg-type]
    assert listing(tmp_path) == before


def test_the_wrong_schema_is_refused(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a")])
    before = listing(tmp_path)
    with pytest.raises(tm.SchemaMismatch):
        tm.PriorityQueue(tmp_path, schema=pa.schema([("city", pa.string())]))
    assert listing(tmp_path) == before


STRANGERS: dict[str, dict[str, bytes]] = {
    "papers": {"thesis.txt": b"years of work"},
    "hidden": {".git": b"x"},
    "somebody's lock": {"lock": b"x", "data.db": b"y"},
    "somebody's lock alone": {"lock": b"4711\n"},
    "somebody's settings": {"settings.json": b'{"theme": "dark"}'},
    "somebody's journal": {"journal/2026-11-16.txt": b"dear diary"},
    "somebody's journal as a file": {"journal": b"dear diary"},
}


@pytest.mark.parametrize("files", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_folder_that_holds_something_else_is_left_alone(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    before = listing(tmp_path)
    with pytest.raises(tm.NotAQueue):
        tm.PriorityQueue(tmp_path)
    assert listing(tmp_path) == before


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for path in (tmp_path / "file", tmp_path / "file" / "queue"):
        with pytest.raises(tm.NotAQueue, match="is a file"):
            tm.PriorityQueue(path)
    assert listing(tmp_path) == {"file": b"x"}


def test_a_link_to_nowhere_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(tm.NotAQueue, match="link to nowhere"):
        tm.PriorityQueue(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        *(("", "is empty"), ("a\0b", "zero byte"), (7, "string or a pathlib.Path")),
        (PathOfBytes(), "string or a pathlib.Path"),
        ("\ud800", "cannot be the name"),
    ],
)
def test_a_path_that_names_nothing_is_refused(path: Any, words: str) -> None:
    with pytest.raises(tm.InvalidInput, match=words):
        tm.PriorityQueue(path)


def test_numbers_that_cannot_be_shown_are_refused_by_name(
    queue: tm.PriorityQueue, tmp_path: Path
) -> None:
    beyond = 10**5_000
    consumer = queue.consumer("one")
    calls: list[Callable[[], object]] = [
        lambda: queue.delete(0, beyond),
        lambda: queue.pop(key_max=beyond),
        lambda: queue.pop(wait_s=-beyond),
        lambda: queue.scan(keys=(0, beyond)),
        lambda: consumer.ack(beyond),
        lambda: consumer.read(-beyond),
        lambda: queue.consumer("two", start=-beyond),
        lambda: tm.Width(beyond),
        lambda: tm.PriorityQueue(tmp_path / "new", segment_bytes=beyond),
        lambda: tm.PriorityQueue(tmp_path / "new", bytes_max=-beyond),
    ]
    array: Any = np.array([1, 2])
    calls += [
        lambda: queue.consumer("two", start=array),
        lambda: tm.PriorityQueue(tmp_path / "new", sync=array),
    ]

    def call_all() -> None:
        for call in calls[:-1]:
            with pytest.raises(tm.InvalidInput):
                call()
        calls[-1]()

    refuses(queue, tm.InvalidInput, call_all)
    assert not (tmp_path / "new").exists()
    # What can be a number is taken for one.
    with queue.consumer("two", start=cast("Any", np.int64(1))) as two:
        assert queue.pop(0, wait_s=cast("Any", np.int64(0))).rows() == []
        assert two.read().seqs.to_pylist()[0] == 1


def test_one_pair_is_no_batch_and_the_error_says_what_is(queue: tm.PriorityQueue) -> None:
    with pytest.raises(tm.InvalidInput, match=r"push\(\[\(key, payload\)\]\)"):
        queue.push((3, b"c"))
    assert len(queue) == 2


def test_links_inside_a_queue_are_not_followed(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        queue.push([(1, b"a")])
    settings = tmp_path / "queue" / "settings.json"
    settings.rename(tmp_path / "elsewhere.json")
    settings.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(tm.NoAccess):
        tm.PriorityQueue(tmp_path / "queue")


@pytest.mark.parametrize("name", ["settings.json", "lock", "head"])
def test_a_pipe_inside_a_queue_is_not_waited_for(tmp_path: Path, name: str) -> None:
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        queue.push([(1, b"a")])
    (tmp_path / "queue" / name).unlink()
    os.mkfifo(tmp_path / "queue" / name)
    with pytest.raises(tm.NoAccess, match="no regular file"):
        tm.PriorityQueue(tmp_path / "queue")


@pytest.mark.parametrize("name", ["journal", "quarantine", "readers", "consumers", "staging"])
@pytest.mark.parametrize("read_only", [False, True])
def test_folders_inside_a_queue_that_are_links_are_not_followed(
    tmp_path: Path, name: str, read_only: bool
) -> None:
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        queue.push([(1, b"a")])
        queue.consumer("one")
    inside, elsewhere = tmp_path / "queue" / name, tmp_path / "elsewhere"
    if inside.exists():
        inside.rename(elsewhere)
    else:
        elsewhere.mkdir()
    inside.symlink_to(elsewhere)
    before = listing(elsewhere)
    with pytest.raises(tm.NoAccess, match=f"{name} is a link"):
        tm.PriorityQueue(tmp_path / "queue", read_only=read_only, on_corruption="continue")
    assert listing(elsewhere) == before


def test_a_newer_format_version_is_left_alone(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a")])
    path = tmp_path / "settings.json"
    document = json.loads(path.read_bytes())
    del document["check"]
    document["format"] = 99
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    document["check"] = xxhash.xxh3_64_hexdigest(canonical)
    path.write_text(json.dumps(document))
    before = listing(tmp_path)
    with pytest.raises(tm.UnknownFormat, match="version 99"):
        tm.PriorityQueue(tmp_path)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("name", ["notes.segment", "12.segment", "0000000000000001.backup"])
def test_a_stray_file_in_the_journal_is_left_alone(tmp_path: Path, name: str) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a")])
    (tmp_path / "journal" / name).write_bytes(b"what is this?")
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.pop().rows() == [(1, b"a")]
    assert (tmp_path / "journal" / name).read_bytes() == b"what is this?"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_refuses_a_push_and_loses_nothing(tmp_path: Path, error: int) -> None:
    fs = FailingFileSystem(LocalFileSystem(), error=error)
    with tm.PriorityQueue(tmp_path, file_system=fs, segment_bytes=16 * 1024) as queue:
        queue.push([(1, b"a")])
        full = FailingFileSystem(
            LocalFileSystem(),
            fail_at=1,
            error=error,
            sticky="kind",
            kinds=frozenset({"allocate", "create", "pwrite"}),
        )
        fs.__dict__.update(full.__dict__)
        for _ in range(3):
            with pytest.raises(tm.DiskFull, match="free some space"):
                queue.push([(2, bytes(50_000))])
        assert fs.fired
        assert len(queue) == 1
        fs.heal()
        queue.push([(0, b"room again")])
        assert queue.pop(-1).rows() == [(0, b"room again"), (1, b"a")]
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue) == 0


@pytest.fixture
def mounted() -> Iterator[Callable[[str], Path]]:
    """Mounts a small file system of its own, where that is allowed."""
    places: list[Path] = []

    def mount(options: str) -> Path:
        # Not in pytest's folder, which another run of it may sweep while this one is mounted.
        place = Path(tempfile.mkdtemp(prefix="tidemill-mount-"))
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError:
            place.rmdir()
            pytest.skip("there is no mount command")
        if done.returncode:
            place.rmdir()
            pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
        places.append(place)
        return place

    yield mount
    for place in places:
        # Lazily, because whoever else looks at it, as an indexer does, keeps it busy for a moment.
        subprocess.run(["umount", "--lazy", str(place)], check=True)
        place.rmdir()


def test_a_really_full_disk_refuses_and_works_again_with_room(
    mounted: Callable[[str], Path],
) -> None:
    place = mounted("size=1m")
    count = 0
    with tm.PriorityQueue(place / "queue", segment_bytes=64 * 1024) as queue:
        while True:
            try:
                queue.push([(count, bytes(5_000))])
            except tm.DiskFull:
                break
            count += 1
        assert len(queue) == count > 100
        with pytest.raises(tm.DiskFull):
            queue.push([(count, bytes(400_000))])
        # Popping needs little room, and gives much back.
        assert queue.pop(count // 2).keys.to_pylist() == list(range(count // 2))
        queue._core.maintenance.run_round()
        queue.push([(count, bytes(5_000))])
    with tm.PriorityQueue(place / "queue") as queue:
        assert queue.pop(-1).keys.to_pylist() == list(range(count // 2, count + 1))


def fill_disk(place: Path, queue: tm.PriorityQueue, *, items: int, size: int, step: int = 1) -> int:
    """Push until not a byte is left, so many items at a time; returns how many there are. Keys go
    round in steps.
    """
    count = 0
    while True:
        numbers = range(count, count + items)
        try:
            queue.push([(number * step % 100_003, bytes(size)) for number in numbers])
        except tm.DiskFull:
            break
        count += items
    free = os.statvfs(place)
    (place / "other").write_bytes(bytes(free.f_bavail * free.f_frsize))
    return count


def test_a_segment_that_has_all_its_records_can_be_emptied_on_a_full_disk(
    mounted: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.files.journal.journal.RECORDS_PER_SEGMENT_MAX", 100)
    place = mounted("size=1m")
    with tm.PriorityQueue(
        place / "queue", segment_bytes=512 * 1024, sync="none", maintain_in_background=False
    ) as queue:
        (place / "half").write_bytes(bytes(480 * 1024))
        count = fill_disk(place, queue, items=1, size=10)
        assert 90 < count < 110
        popped = [queue.pop().keys[0].as_py() for _ in range(count // 2)]
        assert popped == list(range(count // 2))
        last = count - 1
        assert queue.delete(last, last) == 1
        assert queue.clear() == count - count // 2 - 1
    with tm.PriorityQueue(place / "queue") as queue:
        assert len(queue) == 0


def test_a_full_disk_comes_back_however_many_segments_there_are(
    mounted: Callable[[str], Path],
) -> None:
    place = mounted("size=6m")
    with tm.PriorityQueue(
        place / "queue",
        segment_bytes=16 * 1024,
        sync="none",
        bucket=tm.Shift(63),
        maintain_in_background=False,
    ) as queue:
        # Each segment has some of the first items and some of the last.
        fill_disk(place, queue, items=10, size=300, step=7_919)
        segments = queue.stats().segments
        assert segments > 200
        # One by one, until no room is left but for a delete of all.
        cleared = 0
        try:
            while len(queue):
                queue.pop()
        except tm.DiskFull:
            cleared = queue.clear()
        assert cleared > 0
        queue._core.maintenance.run_round()
        assert queue.stats().segments < 5
        queue.push([(1, b"room again")])
        assert queue.pop().rows() == [(1, b"room again")]


def test_a_queue_can_be_popped_on_a_disk_without_room_for_a_segment(
    mounted: Callable[[str], Path],
) -> None:
    place = mounted("size=1m")
    with tm.PriorityQueue(place / "queue", segment_bytes=512 * 1024) as queue:
        queue.push([(key, bytes(100)) for key in range(1_000)])
    free = os.statvfs(place)
    (place / "other").write_bytes(bytes(free.f_bavail * free.f_frsize - 32 * 1024))
    with tm.PriorityQueue(place / "queue") as queue:
        assert queue.pop(10).keys.to_pylist() == list(range(10))
        with pytest.raises(tm.DiskFull):
            queue.push([(0, bytes(64 * 1024))])
    with tm.PriorityQueue(place / "queue") as queue:
        assert queue.pop(-1).keys.to_pylist() == list(range(10, 1_000))


def test_a_queue_that_filled_its_disk_can_be_emptied(mounted: Callable[[str], Path]) -> None:
    """Also where the segment is full to the last byte, and there is no room for another."""
    place = mounted("size=4500k")
    with tm.PriorityQueue(
        place / "queue", segment_bytes=1024 * 1024, maintain_in_background=False
    ) as queue:
        audit = queue.fork("audit")
        count = 0
        for size in (20_000, 1_000, 10):
            try:
                while True:
                    queue.push([(count, os.urandom(size))])
                    count += 1
            except tm.DiskFull:
                continue
        for key in range(19):
            assert queue.pop().keys.to_pylist() == [key]
        # Also in the company of a push.
        folder, cursor = queue._core.folder, queue._cursor
        pushed = push_operation(folder, folder.preparation.given([(0, bytes(900_000))]))
        chosen = cursor.select(1, 2**63 - 1)
        taken = Consume(cursor.fork.id, chosen.cut, 1, True, chosen)
        assert (pushed.leaves_bytes, taken.leaves_bytes) == (None, LAST_ROOM_BYTES)
        with pytest.raises(tm.DiskFull):
            folder.commit_all([pushed, taken])
        assert (type(pushed.failure), taken.failure) == (tm.DiskFull, None)
        assert queue.delete(19, 29) == 10
    with tm.PriorityQueue(place / "queue") as queue:
        audit = queue.fork("audit")
        assert (queue.clear(), audit.pop(5).keys.to_pylist()) == (count - 30, [0, 1, 2, 3, 4])
        audit.remove()
        queue._core.maintenance.run_round()
        queue.push([(1, bytes(1_000_000))])


@pytest.mark.parametrize("kib", [2048, 2060, 2112])
def test_a_disk_without_a_byte_has_room_for_pops_and_a_clear(
    mounted: Callable[[str], Path], kib: int
) -> None:
    """Keys in any order, so that no segment is used up and nothing comes back."""
    place, draw = mounted(f"size={kib}k"), random.Random(kib)
    queue = tm.PriorityQueue(place / "queue", segment_bytes=64 * 1024)
    try:
        while True:
            queue.push([(draw.randrange(10**6), bytes(200)) for _ in range(50)])
    except tm.DiskFull:
        pass
    popped = 0
    try:
        while len(queue):
            popped += len(queue.pop())
    except tm.DiskFull:
        assert popped > 10
        assert queue.clear() > 0
    assert len(queue) == 0
    queue._core.maintenance.run_round()
    queue.push([(1, bytes(60_000))])
    queue.close()


def test_a_read_only_file_system_gives_no_access(mounted: Callable[[str], Path]) -> None:
    place = mounted("size=1m")
    with tm.PriorityQueue(place / "queue", segment_bytes=64 * 1024) as queue:
        queue.push([(1, b"a")])
    before = listing(place)
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    for path in (place / "queue", place / "new"):
        with pytest.raises(tm.NoAccess, match="check owner, mode and mount"):
            tm.PriorityQueue(path)
    assert listing(place) == before


@contextmanager
def powerless() -> Iterator[None]:
    """Root, who may write anywhere, is somebody else meanwhile."""
    user = os.geteuid()
    os.seteuid(user or _NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_folder_that_others_own_gives_no_access() -> None:
    # Not where tests keep their folders, which nobody else may even look into.
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as folder:
        path = Path(folder, "queue")
        with tm.PriorityQueue(path) as queue:
            queue.push([(1, b"a")])
        before = listing(path)
        places = [Path(folder), path, *path.rglob("*")]
        for place in places:
            place.chmod(0o555 if place.is_dir() else 0o444)
        with powerless():
            for refused in (path, path.with_name("new")):
                with pytest.raises(tm.NoAccess, match="check owner, mode and mount"):
                    tm.PriorityQueue(refused)
        for place in places:
            place.chmod(0o755)
        assert listing(path) == before
        assert not path.with_name("new").exists()


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_that_may_not_be_written_gives_no_access(tmp_path: Path, error: int) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a")])
    before = listing(tmp_path)
    fs = FailingFileSystem(
        LocalFileSystem(), fail_at=1, error=error, sticky="all", kinds=frozenset({"open", "create"})
    )
    with pytest.raises(tm.NoAccess):
        tm.PriorityQueue(tmp_path, file_system=fs)
    assert fs.fired
    assert listing(tmp_path) == before
