"""Drivers that are processes of their own, and are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.spark.sink import killed_source
from tests.spark.sink.outputs import Output, expected

ROOT = Path(__file__).resolve().parents[3]


class Driver:
    """A driver that ran, and what it said."""

    errors = ""


class Killed:
    """Starts drivers whose query is killed, or waits, at a labelled point of a batch."""

    def __init__(self, folder: Path, checkpoint: str) -> None:
        self._folder = folder
        self._checkpoint = Path(checkpoint)
        self._programs = folder / "bin"
        self._programs.mkdir()
        readlink = self._programs / "readlink"
        readlink.write_text(killed_source.READLINK)
        readlink.chmod(0o755)

    def at(self, point: str, output: Output, *, batch: int, master: str = "local[2]") -> None:
        """Run a driver until it was killed at a point: the batch is done or not, as the point says,
        and Spark had noted what it is made of, and not that it was done.
        """
        with self._started(point, output, batch, master) as process:
            _, errors = process.communicate(timeout=600)
        assert process.returncode != 0
        assert self._file("reached").read_text() == point, errors
        assert self._file("driver.status").read_text() == str(-signal.SIGKILL)
        assert (self._checkpoint / "offsets" / str(batch)).is_file()
        assert not (self._checkpoint / "commits" / str(batch)).exists()
        is_published = point in killed_source.PUBLISHED
        assert output.numbers() == expected(batch + 1 if is_published else batch)
        for name in ("reached", "driver.status", "driver.pid"):
            self._file(name).unlink()

    @contextmanager
    def waiting(self, output: Output, *, batch: int, master: str = "local[2]") -> Iterator[Driver]:
        """A driver that hangs before it commits a batch; with the end of the block it goes on, and
        fails.
        """
        driver = Driver()
        with self._started(killed_source.WAITING, output, batch, master) as process:
            try:
                deadline = time.monotonic() + 600
                while not self._file("reached").exists():
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
                yield driver
            finally:
                self._file("go").touch()
                _, driver.errors = process.communicate(timeout=600)
        assert process.returncode != 0

    def _started(
        self, point: str, output: Output, batch: int, master: str
    ) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(self._programs), os.environ["PATH"]]),
            "TIDEMILL_TEST_POINT": point,
            "TIDEMILL_TEST_BATCH": str(batch),
            "TIDEMILL_TEST_FOLDER": str(self._folder),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        arguments = [
            master,
            output.kind,
            output.address,
            str(self._checkpoint),
            str(self._file("in")),
        ]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sink.killed_driver", *arguments],
            env=environment,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _file(self, name: str) -> Path:
        return self._folder / name


@pytest.fixture
def killed(tmp_path: Path, checkpoint: str) -> Killed:
    return Killed(tmp_path, checkpoint)
