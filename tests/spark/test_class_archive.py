"""The archive of Spark's classes: made once, used from then on, and never in the way."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.spark import class_archive
from tidemill.spark.class_archive import BASE, FAILED, SWITCH, TOP, archive_folder, archive_options
from tidemill.spark.java import Java, find_java

ASKS = (
    "from tidemill.spark.class_archive import archive_options\n"
    "from tidemill.spark.java import find_java\n"
    "archive_options(find_java())\n"
)
STARTS = """
from pathlib import Path
from pyspark import SparkContext
from tidemill.spark import session
spark = session(master="local[1]")
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps")
print(".jsa" if maps.exists() and "/top-" in maps.read_text() else "-", spark.range(3).count())
spark.stop()
"""

MAKES = """
import subprocess, sys, tempfile
from pathlib import Path
from tidemill.spark import archiving
LOOKS = "import tempfile; print(tempfile.mkdtemp())"
def make(*_):
    print(tempfile.mkdtemp(), flush=True)
    return subprocess.run([sys.executable, "-c", LOOKS], check=True).returncode == 0
archiving._make = make
archiving.main(Path(sys.argv[1]))
"""

Asked = list[Path]


@pytest.fixture
def java() -> Java:
    return find_java()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Java) -> Path:
    """Where the archive would be, in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(SWITCH, raising=False)
    return archive_folder(java)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The archives that this process would have made at its end."""
    asked: Asked = []

    def register(what: Callable[..., None], folder: Path, pid: int) -> None:
        assert what is class_archive._start_making
        asked.append(folder)

    monkeypatch.setattr(class_archive, "_begun", False)
    monkeypatch.setattr(atexit, "register", register)
    return asked


def put(folder: Path, layer: str, content: bytes) -> Path:
    """An archive under its right name."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / "draft"
    draft.write_bytes(content)
    class_archive.publish(draft, folder, layer)
    (path,) = folder.glob(f"{layer}-*.jsa")
    return path


def said(java: Java, options: list[str]) -> tuple[str, str, int]:
    """What Java says when it is started with options and asked for its version."""
    done = subprocess.run([java.program, *options, "-version"], capture_output=True, text=True)
    return done.stdout, done.stderr, done.returncode


@pytest.mark.slow
def test_it_is_made_when_a_process_ends_and_used_by_the_next(java: Java, folder: Path) -> None:
    # Both start a process that makes one; the second to come gives way.
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    deadline = time.monotonic() + 600
    while not (made := list(folder.glob(f"{TOP}-*.jsa"))) or list(folder.glob("draft-*")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(made) == 1
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".jsa") == ["lock"]
    options = archive_options(java)
    assert any(str(made[0]) in option for option in options)
    done = subprocess.run([sys.executable, "-c", STARTS], capture_output=True, text=True)
    wanted = ".jsa 3\n" if Path("/proc/self/maps").exists() else "- 3\n"
    assert (done.stdout, done.stderr, done.returncode) == (wanted, "", 0)
    # Java passes over one that was made for other classes, and says nothing of it.
    assert said(java, ["-cp", "/elsewhere", *options]) == said(java, [])


@pytest.mark.slow
def test_it_is_made_without_the_temporary_folder_of_whoever_started_that(
    folder: Path, tmp_path: Path
) -> None:
    """It goes with a test or a job; a Spark that was starting waited for ever for a file in it."""
    passing = tmp_path / "passing"
    passing.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", MAKES, str(folder)],
        env={**os.environ, "TMPDIR": str(passing)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert [Path(line).parent.parent for line in done.stdout.splitlines()] == [folder, folder]
    assert list(passing.iterdir()) == []


def test_without_one_nothing_is_used_and_one_is_asked_for_once(
    java: Java, folder: Path, asked: Asked
) -> None:
    for _ in range(3):
        assert archive_options(java) == []
    assert asked == [folder]


def test_one_that_is_there_is_used_on_top_of_its_base(
    java: Java, folder: Path, asked: Asked
) -> None:
    top = put(folder, TOP, b"classes of Spark")
    assert archive_options(java)[0] == f"-XX:SharedArchiveFile={top}"
    base = put(folder, BASE, b"classes of Java")
    assert archive_options(java)[0] == f"-XX:SharedArchiveFile={base}:{top}"
    assert not asked


@pytest.mark.parametrize("change", [b"classes of Sparl", b"classes", b"", b"classes of Spark+"])
def test_a_damaged_one_is_removed_and_made_again(
    java: Java, folder: Path, asked: Asked, change: bytes
) -> None:
    top = put(folder, TOP, b"classes of Spark")
    top.write_bytes(change)
    assert archive_options(java) == []
    assert not top.exists()
    assert asked == [folder]


def test_one_of_another_java_or_another_spark_is_not_looked_at(
    java: Java, folder: Path, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, TOP, b"classes of Spark")
    newer = java._replace(build=java.build.replace('"', '"9'))
    assert archive_options(newer) == []
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    before = archive_folder(java)
    assert before != folder
    (tmp_path / "jars" / "more.jar").touch()
    assert archive_folder(java) not in (before, folder)
    assert archive_options(java) == []


def test_a_cache_that_cannot_be_written_is_used_as_it_is(
    java: Java, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert archive_options(java) == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    top = put(archive_folder(java), TOP, b"classes of Spark")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert archive_options(java)[0] == f"-XX:SharedArchiveFile={top}"
    top.unlink()
    assert archive_options(java) == []
    assert not asked


def test_after_a_failure_nobody_tries_for_a_while(java: Java, folder: Path, asked: Asked) -> None:
    folder.mkdir(parents=True)
    (folder / FAILED).touch()
    assert archive_options(java) == []
    assert not asked
    os.utime(folder / FAILED, (1_000_000_000, 1_000_000_000))
    assert archive_options(java) == []
    assert asked == [folder]


def test_it_can_be_switched_off_and_is_for_java_that_knows_it(
    java: Java, folder: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, TOP, b"classes of Spark")
    assert archive_options(java._replace(build="Eclipse OpenJ9 VM")) == []
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:SharedArchiveFile=/mine.jsa")
    assert archive_options(java) == []
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    monkeypatch.setenv(SWITCH, "1")
    assert archive_options(java) == []
    monkeypatch.setenv(SWITCH, "0")
    assert archive_options(java) != []
    assert not asked
