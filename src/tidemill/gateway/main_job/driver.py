"""The pipeline, run by a process of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import tidemill as tm
from tidemill.gateway.main_job.processes import child, kill
from tidemill.spark.pipelines.loading import load
from tidemill.spark.pipelines.status import SinkStatus, status

_LOOK_S = 0.2


class Driver:
    """Runs the pipeline of a folder until it ends, or until it is killed."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "pipeline.py"
        if not self._file.exists():
            found = find_spec("tidemill.gateway.main_job.pipeline")
            if found is None or found.origin is None:
                raise tm.Bug("the pipeline of the main job is not there")
            shutil.copyfile(found.origin, self._file)
        (self._pipeline,) = load(self._file).values()

    def run(self, on_look: Callable[[list[SinkStatus]], bool]) -> bool:
        """Run it; `on_look` is told how far it is now and then, and says whether to kill it.

        Returns whether it was killed.
        """
        arguments = ["-m", "tidemill", "pipeline", "run", str(self._file), "--once"]
        with child(arguments) as process:
            while True:
                try:
                    _, error = process.communicate(timeout=_LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    if on_look(self.look()):
                        kill(process)
                        process.communicate()
                        return True
        if process.returncode:
            raise tm.SurroundingsError(f"the pipeline failed: {error.strip()}")
        on_look(self.look())
        return False

    def look(self) -> list[SinkStatus]:
        """How far each sink is."""
        return status(self._pipeline).sinks
