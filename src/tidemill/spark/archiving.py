"""Makes the archive of Spark's classes, in a process of its own: see `class_archive`.

    python -m tidemill.spark.archiving [~/.cache/tidemill/classes-…]

It runs a session that does a little of everything, behind whatever else the machine has to do, and
has Java write its classes down at the end. Who makes one at the same time gives way.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tidemill as tm
from tidemill.spark.class_archive import BASE, FAILED, LOCK, TOP, archive_folder, publish, quiet
from tidemill.spark.java import Java, find_java
from tidemill.spark.session import java_options, session

logger = logging.getLogger(__name__)

_ROOM_BYTES = 1 << 30
_KEPT_MAX = 3  # archives, of different releases of Java and Spark
_EXIT_S_MAX = 3600


def main(folder: Path) -> None:
    """Make the archive, unless another process does, or has."""
    os.nice(10)
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < _ROOM_BYTES:
        return
    with open(folder / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if any(folder.glob(f"{TOP}-*.jsa")):
            return
        # Stays if this process dies: what killed it may do so again.
        (folder / FAILED).touch()
        _forget_others(folder)
        for left in folder.glob("draft-*"):
            shutil.rmtree(left, ignore_errors=True)
        for left in folder.glob(f"{BASE}-*.jsa"):
            left.unlink()
        drafts = Path(tempfile.mkdtemp(prefix="draft-", dir=folder))
        # That of whoever started this may go with him, and a Spark that starts would wait for ever
        # for what its Java writes there.
        os.environ["TMPDIR"] = tempfile.tempdir = str(drafts)
        try:
            if _make(find_java(), folder, drafts):
                (folder / FAILED).unlink()
        finally:
            shutil.rmtree(drafts, ignore_errors=True)


def _make(java: Java, folder: Path, drafts: Path) -> bool:
    layers = []
    if not _runs(java, "-Xshare:on", "-version"):
        # It came without an archive of its own classes, which ours would stand on, and which it
        # looks for by this name.
        base = drafts / "base.jsa"
        if not _runs(java, "-Xshare:dump", f"-XX:SharedArchiveFile={base}"):
            return False
        layers.append(publish(base, folder, BASE))
    top = drafts / "top.jsa"
    options = [f"-XX:ArchiveClassesAtExit={top}", quiet(java)]
    _work([*options, *(f"-XX:SharedArchiveFile={base}" for base in layers)], drafts)
    # One that Java cannot read at all, it does not pass over, but ends.
    archive = os.pathsep.join(str(layer) for layer in (*layers, top))
    if not top.is_file() or not _runs(java, f"-XX:SharedArchiveFile={archive}", "-version"):
        return False
    publish(top, folder, TOP)
    return True


def _runs(java: Java, *arguments: str) -> bool:
    done = subprocess.run([java.program, *arguments], capture_output=True, check=False)
    return done.returncode == 0


def _work(options: list[str], folder: Path) -> None:
    """A session that does a little of everything, and the end of its Java."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 (a thin client for Spark Connect has none)
    from pyspark import SparkContext  # noqa: PLC0415

    os.chdir(folder)  # Spark leaves things where it runs.
    config = {"spark.driver.extraJavaOptions": java_options(options)}
    spark = session("archiving", master="local[2]", config=config, progress=False)
    try:
        _read_write_and_stream(spark, folder)
    except (PySparkException, Py4JError) as error:
        # Something is amiss with Spark here; what was loaded until then is worth keeping.
        logger.warning("the archive will lack classes: %r", error)
    finally:
        spark.stop()
        gateway = SparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            # Java ends when nobody can say anything to it any more, and writes down its classes.
            gateway.proc.stdin.close()
            gateway.proc.wait(_EXIT_S_MAX)


def _read_write_and_stream(spark: SparkSession, folder: Path) -> None:
    queue, log, checkpoint = (str(folder / name) for name in ("queue", "log", "checkpoint"))
    with tm.PriorityQueue(queue) as out:
        out.push([(3, b"c"), (1, b"a")])
    read = spark.read.format("tidemill").load(queue)
    read.groupBy("key").count().orderBy("key").collect()
    read.mapInArrow(lambda batches: batches, read.schema).toPandas()
    read.select("value").write.format("tidemill").mode("append").save(log)
    stream = spark.readStream.format("tidemill").option("consumer", "archiving").load(queue)
    writer = stream.select("value").writeStream.format("tidemill")
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(log).awaitTermination()


def _forget_others(folder: Path) -> None:
    """Remove archives for a Java or a Spark that is no longer in use, by when they were made."""
    others = [path for path in folder.parent.glob("classes-*") if path != folder]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[_KEPT_MAX - 1 :]:
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else archive_folder(find_java()))
