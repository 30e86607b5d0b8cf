"""The file system in memory behaves as the real one, and its faults happen."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.bit_flips import flipped_bits, swapped_blocks, truncations, wiped_blocks
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Image
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem


@pytest.fixture(params=["memory", "local", "failing"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    """A file system and an empty folder in it: what holds for the real one must hold for ours."""
    if request.param == "local":
        return LocalFileSystem(), tmp_path
    memory = MemoryFileSystem()
    memory.make_folder(Path("/q"))
    return (memory if request.param == "memory" else FailingFileSystem(memory)), Path("/q")


def test_what_is_written_is_read_back_with_zeroes_in_the_gaps(
    place: tuple[FileSystem, Path],
) -> None:
    fs, folder = place
    file = fs.open(folder / "a", create=True)
    file.pwrite([b"one", memoryview(b"two")], 4)
    assert file.size() == 10
    assert file.pread(100, 0) == b"\0\0\0\0onetwo"
    assert file.pread(3, 4) == b"one"
    assert file.pread(3, 99) == b""
    file.allocate(20)
    file.allocate(5)
    assert file.pread(100, 8) == b"wo" + bytes(10)
    file.truncate(6)
    assert file.pread(100, 0) == b"\0\0\0\0on"
    file.truncate(8)
    assert file.pread(100, 0) == b"\0\0\0\0on\0\0"
    file.pwrite([b"x"], 7)
    assert file.pread(100, 0) == b"\0\0\0\0on\0x"
    file.sync()
    file.close()
    assert fs.list_folder(folder) == ["a"]


def test_names_are_made_moved_and_taken_away(place: tuple[FileSystem, Path]) -> None:
    fs, folder = place
    fs.make_folder(folder / "sub")
    for name in ("b", "a"):
        file = fs.open(folder / name, create=True)
        file.pwrite([name.encode()], 0)
        file.close()
    old = fs.open(folder / "b")
    fs.rename(folder / "a", folder / "b")
    fs.rename(folder / "b", folder / "sub" / "c")
    fs.sync_folder(folder)
    assert fs.list_folder(folder) == ["sub"]
    moved = fs.open(folder / "sub" / "c")
    assert (moved.pread(9, 0), old.pread(9, 0)) == (b"a", b"b")
    fs.unlink(folder / "sub" / "c")
    assert moved.pread(9, 0) == b"a"
    assert fs.list_folder(folder / "sub") == []
    old.close()
    moved.close()


@pytest.mark.parametrize(
    ("number", "call"),
    [
        (errno.ENOENT, lambda fs, q: fs.open(q / "none")),
        (errno.ENOENT, lambda fs, q: fs.open(q / "none" / "a", create=True)),
        (errno.ENOENT, lambda fs, q: fs.unlink(q / "none")),
        (errno.ENOENT, lambda fs, q: fs.rename(q / "none", q / "b")),
        (errno.ENOENT, lambda fs, q: fs.list_folder(q / "none")),
        (errno.ENOENT, lambda fs, q: fs.sync_folder(q / "none")),
        (errno.EEXIST, lambda fs, q: fs.open(q / "file", create=True)),
        (errno.EEXIST, lambda fs, q: fs.open(q / "folder", create=True)),
        (errno.EEXIST, lambda fs, q: fs.make_folder(q / "folder")),
        (errno.EEXIST, lambda fs, q: fs.make_folder(q / "file")),
        (errno.EISDIR, lambda fs, q: fs.open(q / "folder", write=True)),
        (errno.EISDIR, lambda fs, q: fs.unlink(q / "folder")),
        (errno.EISDIR, lambda fs, q: fs.rename(q / "file", q / "folder")),
        (errno.ENOTDIR, lambda fs, q: fs.open(q / "file" / "a")),
        (errno.ENOTDIR, lambda fs, q: fs.list_folder(q / "file")),
        (errno.ENOTDIR, lambda fs, q: fs.rename(q / "folder", q / "file")),
        (errno.EBADF, lambda fs, q: fs.open(q / "file").pwrite([b"x"], 0)),
    ],
)
def test_a_wrong_call_raises_what_the_operating_system_raises(
    place: tuple[FileSystem, Path], number: int, call: Callable[[FileSystem, Path], object]
) -> None:
    fs, folder = place
    fs.open(folder / "file", create=True).close()
    fs.make_folder(folder / "folder")
    with pytest.raises(OSError) as caught:  # noqa: PT011  the number is what matters
        call(fs, folder)
    assert caught.value.errno == number


def test_a_lock_has_one_holder_until_it_closes(place: tuple[FileSystem, Path]) -> None:
    fs, folder = place
    one = fs.open(folder / "lock", create=True)
    other = fs.open(folder / "lock", write=True)
    assert one.lock()
    assert one.lock()
    assert not other.lock()
    one.close()
    assert other.lock()
    other.close()


def test_a_process_that_dies_releases_its_locks_and_can_write_no_more() -> None:
    fs = MemoryFileSystem()
    file = fs.open(Path("/lock"), create=True)
    assert file.lock()
    fs.die()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite([b"late"], 0)
    assert fs.open(Path("/lock"), write=True).lock()


def test_an_image_is_not_touched_by_later_writes() -> None:
    fs = MemoryFileSystem()
    file = fs.open(Path("/a"), create=True)
    file.allocate(1 << 26)
    file.pwrite([b"before"], 0)
    image = fs.image()
    copy = MemoryFileSystem(image)
    file.pwrite([b"BEHIND"], 0)
    copy.open(Path("/a"), write=True).pwrite([b"x"], 1)
    assert MemoryFileSystem(image).open(Path("/a")).pread(6, 0) == b"before"
    assert copy.open(Path("/a")).pread(6, 0) == b"bxfore"
    assert copy.open(Path("/a")).size() == 1 << 26


def _write_three(fs: FileSystem) -> int:
    done = 0
    file = fs.open(Path("/a"), create=True)
    for index in range(3):
        try:
            file.pwrite([b"abcd"], index * 4)
            done += 1
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    file.sync()
    return done


def test_the_nth_call_fails_once_or_from_then_on() -> None:
    dry = FailingFileSystem(MemoryFileSystem())
    assert _write_three(dry) == 3
    assert (dry.calls, dry.fired) == (5, 0)
    once = FailingFileSystem(MemoryFileSystem(), fail_at=3, error=errno.ENOSPC)
    assert _write_three(once) == 2
    assert (once.fired, once.fired_kind, once.log[2]) == (1, "pwrite", "pwrite /a")
    kind = FailingFileSystem(MemoryFileSystem(), fail_at=3, error=errno.ENOSPC, sticky="kind")
    assert _write_three(kind) == 1
    assert kind.fired == 2
    changes = FailingFileSystem(MemoryFileSystem(), fail_at=3, sticky="changes")
    with pytest.raises(OSError, match="injected into pwrite"):
        _write_three(changes)
    writes = FailingFileSystem(
        MemoryFileSystem(), fail_at=3, error=errno.ENOSPC, kinds=frozenset({"pwrite"})
    )
    assert _write_three(writes) == 2
    assert writes.calls == 3


def test_every_call_can_be_failed() -> None:
    for number in range(1, 6):
        fs = FailingFileSystem(MemoryFileSystem(), fail_at=number, error=errno.EIO)
        with pytest.raises(OSError, match="injected"):
            _write_three(fs)
        assert fs.fired == 1


def test_a_failing_write_may_have_written_a_part() -> None:
    memory = MemoryFileSystem()
    fs = FailingFileSystem(memory, fail_at=2, error=errno.ENOSPC, partial_bytes=99)
    file = fs.open(Path("/a"), create=True)
    with pytest.raises(OSError, match="No space left"):
        file.pwrite([b"ab", b"cd"], 0)
    assert memory.open(Path("/a")).pread(9, 0) == b"abc"


def test_a_healed_disk_works() -> None:
    fs = FailingFileSystem(MemoryFileSystem(), fail_at=1, sticky="all")
    with pytest.raises(OSError, match="injected into create"):
        fs.open(Path("/a"), create=True)
    fs.heal()
    fs.open(Path("/a"), create=True).close()
    assert fs.fired == 1


def _small_image() -> Image:
    fs = MemoryFileSystem()
    file = fs.open(Path("/a"), create=True)
    file.allocate(4096)
    file.pwrite([bytes([1, 2, 3])], 0)
    fs.open(Path("/b"), create=True).pwrite([b"x" * 512, b"y" * 512], 0)
    return fs.image()


def test_every_bit_is_flipped_alone() -> None:
    image = _small_image()
    whole = image.contents[image.files()["/a"]].whole()
    seen = set()
    for damage in flipped_bits(image, tail_bytes=8, chosen=lambda path: path == "/a"):
        data = damage.file_system().open(Path("/a")).pread(9999, 0)
        assert len(data) == len(whole)
        difference = [
            (at, a ^ b) for at, (a, b) in enumerate(zip(data, whole, strict=True)) if a != b
        ]
        assert len(difference) == 1
        seen.add(difference[0])
    assert seen == {(at, 1 << bit) for at in (*range(11), 4095) for bit in range(8)}


def test_files_are_cut_and_blocks_swapped_and_wiped() -> None:
    image = _small_image()
    cut = [damage for damage in truncations(image) if damage.path == "/a"]
    assert [damage.file_system().open(Path("/a")).size() for damage in cut] == [0, 1, 2, 3]
    (swapped,) = swapped_blocks(image)
    assert swapped.file_system().open(Path("/b")).pread(9999, 0) == b"y" * 512 + b"x" * 512
    wiped = [damage for damage in wiped_blocks(image) if damage.path == "/b"]
    contents = [damage.file_system().open(Path("/b")).pread(9999, 0) for damage in wiped]
    assert contents == [bytes(512) + b"y" * 512, b"x" * 512 + bytes(512)]
