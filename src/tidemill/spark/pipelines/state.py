"""Where a pipeline keeps its checkpoints, and who may run it.

    <state>/<pipeline>/<sink>/     the checkpoint of the query that writes the sink; Spark's own
                      /identity    tells the transactions of this state from those of another one
                      /lock        held by the process that runs the pipeline
                      /lock.java   ... and by its Java, which may outlive it by moments
                      /batch       the number of the last batch run, and how far it came

Unless it is named, `<state>` is `<sink>.state` beside the first sink that is in a folder. Locks and
notes are for folders that this machine sees; elsewhere, and on a Spark Connect server, the fences
of consumers and transactions have to do, which end one of two runs with an error.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash
from pyspark.sql import SparkSession

from tidemill.errors import InvalidPipeline, Locked
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.sharing.lock import NAME as LOCK
from tidemill.files.sharing.lock import OwnerLock, read_owner
from tidemill.limits import DRIVER_WAIT_S
from tidemill.spark.address import folder_of
from tidemill.spark.cache import keep
from tidemill.spark.pipelines.definition import Pipeline

VARIABLE = "TIDEMILL_STATE"
_IDENTITY = "identity"
_IDENTITY_FORM = re.compile(r"[0-9a-f]{8}", re.ASCII)
_BATCH = "batch"
_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class BatchRun:
    """A run of a pipeline as a batch."""

    number: int
    begun: tuple[str, ...] = ()  # sinks that it has begun to write
    done: tuple[str, ...] = ()  # ... and that are written
    name: str = ""  # of all runs of this state; another state's are not taken for them


class State:
    """The state of one pipeline."""

    def __init__(self, location: str, pipeline: str, *, is_remote: bool) -> None:
        self.location = location
        self.pipeline = pipeline
        # Where this process sees it; None if only Spark does.
        self.folder = None if is_remote else _local(location)

    @classmethod
    def of(cls, pipeline: Pipeline, named: str | None, *, is_remote: bool) -> State:
        """The state of a pipeline, whether there or not."""
        base = named or pipeline.state or os.environ.get(VARIABLE) or _beside(pipeline, is_remote)
        if not is_remote and _local(base) is not None:
            base = str(_local(base))
        return cls(f"{base.rstrip('/')}/{pipeline.name}", pipeline.name, is_remote=is_remote)

    def checkpoint(self, sink: str) -> str:
        return f"{self.location}/{sink}"

    def consumer(self, sink: str) -> str:
        """As whom the query of a sink reads its sources."""
        return f"{self.pipeline}.{sink}"

    def transaction(self, sink: str, *, kind: str = "") -> str:
        """Under which id rows are written. It hangs on the place of the state: if that is deleted,
        the sink notices that batches begin again, and refuses to take them a second time.
        """
        return f"{self.pipeline}.{sink}.{_digest(self._identity() + kind)}"

    def prepare(self) -> None:
        """Make the folder, and note who it is for good."""
        if self.folder is None:
            return
        with storage_errors("making", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / _IDENTITY
            if not path.exists():
                keep(path, self._identity().encode(), mode=0o600, sync=True)

    def batch(self) -> BatchRun:
        """The last batch run; where nothing can be noted, one that began now."""
        if self.folder is None:
            return BatchRun(time.time_ns() // 1_000)
        try:
            found = json.loads((self.folder / _BATCH).read_bytes())
            name = str(found.get("name", ""))  # An older release noted none.
            return BatchRun(int(found["number"]), tuple(found["begun"]), tuple(found["done"]), name)
        except FileNotFoundError:
            return BatchRun(0, name=secrets.token_hex(8))
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidPipeline(
                f"{self.folder / _BATCH} does not tell the number of the last batch run: {error}"
            ) from error

    def note_batch(self, run: BatchRun) -> None:
        """Write down how far a run is. It lasts: a later run must not get a number that a sink has,
        or its rows would be taken for those.
        """
        if self.folder is not None:
            note = json.dumps(asdict(run)).encode()
            with storage_errors("writing", self.folder):
                keep(self.folder / _BATCH, note, mode=0o600, sync=True)

    def runner(self) -> int | None:
        """The process that runs the pipeline now; 0 if it does not tell; None if nobody does."""
        if self.folder is None:
            return None
        fs = LocalFileSystem()
        try:
            file = fs.open(self.folder / LOCK)
        except FileNotFoundError:
            return None
        try:
            return (read_owner(file)[0] or 0) if fs.is_locked(self.folder / LOCK) else None
        finally:
            file.close()

    def check_free(self) -> None:
        """Raise if the pipeline is run by somebody: whoever is to start Spark first need not."""
        pid = self.runner()
        if pid is not None:
            runner = f"process {pid}" if pid else "another process"
            raise Locked(
                f"pipeline {self.pipeline} is run by {runner}, which holds {self.folder}; stop it "
                "there, or wait until it has ended",
                pid=pid or None,
            )

    def _identity(self) -> str:
        if self.folder is not None:
            try:
                text = (self.folder / _IDENTITY).read_text()
                if _IDENTITY_FORM.fullmatch(text):
                    return text
            except FileNotFoundError:
                pass  # It is new, or was deleted: then it is who it was, by its place.
        return _digest(self.location)


class Hold:
    """The right to run a pipeline, until it is released or its processes end."""

    def __init__(self, state: State, spark: SparkSession) -> None:
        self._lock: OwnerLock | None = None
        self._java: Any = None
        if state.folder is None:
            return
        state.prepare()
        with storage_errors("locking", state.folder):
            self._lock = OwnerLock.acquire(LocalFileSystem(), state.folder)
            self._lock.claim(self._lock.last_epoch + 1)
        try:
            self._java = _hold_by_java(spark, state.folder / f"{LOCK}.java")
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        java, self._java = self._java, None
        if java is not None:
            from py4j.protocol import Py4JError  # noqa: PLC0415 (a thin client has none)

            try:
                java.close()
            except (Py4JError, OSError):
                pass  # Its Java is gone, and the lock with it.
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _hold_by_java(spark: SparkSession, path: Path) -> Any:
    """A lock of the Java that runs the queries: when a driver is killed, that goes on for moments,
    and the next one waits for it instead of running beside it.
    """
    file = spark._jvm.java.io.RandomAccessFile(str(path), "rw")  # type: ignore[union-attr]
    deadline_s = time.monotonic() + DRIVER_WAIT_S
    while file.getChannel().tryLock() is None:
        if time.monotonic() > deadline_s:
            file.close()
            raise Locked(
                f"the Java of an earlier run still works on {path.parent}; end it, or wait"
            )
        time.sleep(_EVERY_S)
    return file


def _beside(pipeline: Pipeline, is_remote: bool) -> str:
    for sink in pipeline.sinks.values():
        if sink.folder is not None:
            return f"{(sink.url if is_remote else sink.folder).rstrip('/')}.state"
    raise InvalidPipeline(
        f"pipeline {pipeline.name} writes to servers alone, so that its state has no place beside "
        f"a sink: name a folder, state=…, --state, or {VARIABLE}"
    )


def _local(location: str) -> Path | None:
    if "://" in location and not location.startswith("file:"):
        return None
    return folder_of(location)


def _digest(text: str) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode())[:8]
