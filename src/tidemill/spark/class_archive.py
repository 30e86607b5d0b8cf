"""Spark's classes as Java has them in memory, kept in a file, so that sessions start faster.

Half of what a session does until it is there is to find, read and verify some 15,000 classes. Java
can write down what came of it and begin with that the next time. Such an archive fits one release
of Java and one set of jars:

    ~/.cache/tidemill/classes-<of Java and the jars>/
        top-<digest>.jsa     what Spark uses
        base-<digest>.jsa    ... on top of Java's own classes, if its release came without those
        failed               nothing came of the last try, and none is made for a while
        lock                 held by whoever makes one

A process that found none starts `archiving` when it ends, which makes one in the background.
Whatever is missing, damaged or foreign only costs the time that it would have saved: Java itself
passes over what was made for another release or other jars, but believes the bytes, or ends over
them. So one is used only if they agree with the digest in its name.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pyspark
import xxhash

from tidemill.environment import is_set
from tidemill.spark.cache import cache_place, lasting_folder
from tidemill.spark.java import Java

logger = logging.getLogger(__name__)

SWITCH = "TIDEMILL_NO_CLASS_ARCHIVE"  # is set: neither use one nor make one
FAILED, LOCK, TOP, BASE = "failed", "lock", "top", "base"

_RETRY_S = 7 * 24 * 3600
_PIECE_BYTES = 1 << 20
_begun = False  # whether this process makes one when it ends


def archive_options(java: Java) -> list[str]:
    """What to tell Java, so that it uses the archive; nothing if there is none.

    The first time, one is made when this process ends.
    """
    if not _is_wanted(java):
        return []
    folder = archive_folder(java)
    if os.pathsep in str(folder):
        return []  # Java would take it for two.
    top, base = (_verified(folder, layer) for layer in (TOP, BASE))
    if top is None:
        _make_in_the_end(folder)
        return []
    layers = os.pathsep.join(str(layer) for layer in (base, top) if layer is not None)
    return [f"-XX:SharedArchiveFile={layers}", "-Xshare:auto", quiet(java)]


def quiet(java: Java) -> str:
    """What keeps Java from telling why it passes over an archive, or leaves a class out of one."""
    return "-Xlog:cds*=off,class+path=off" + (",aot*=off" if java.version >= 25 else "")


def archive_folder(java: Java) -> Path:
    """Where the archive is for a Java and the Spark of this process, whether there or not."""
    known = xxhash.xxh3_64(f"{java.program}\n{java.build}\n{pyspark.__version__}\n".encode())
    jars = spark_home() / "jars"
    for entry in sorted(_entries(jars), key=lambda entry: entry.name):
        seen = entry.stat()
        known.update(f"{entry.path} {seen.st_size} {seen.st_mtime_ns}\n".encode())
    return cache_place() / f"classes-{known.hexdigest()}"


def spark_home() -> Path:
    """The folder of Spark itself."""
    return Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0])


def publish(draft: Path, folder: Path, layer: str) -> Path:
    """Give an archive that is complete the name under which it is found."""
    path = folder / f"{layer}-{_digest(draft)}.jsa"
    os.replace(draft, path)
    return path


def _is_wanted(java: Java) -> bool:
    if is_set(SWITCH):
        return False
    # Other makes of Java have other means, and warn of these.
    given = os.environ.get("JAVA_TOOL_OPTIONS", "") + os.environ.get("JDK_JAVA_OPTIONS", "")
    return "Server VM" in java.build and "SharedArchiveFile" not in given


def _verified(folder: Path, layer: str) -> Path | None:
    """The archive of that layer, if one is whole and ours. One that is not, is removed."""
    for entry in _entries(folder):
        if entry.name.startswith(f"{layer}-") and entry.name.endswith(".jsa"):
            path = Path(entry.path)
            try:
                is_ours = entry.stat(follow_symlinks=False).st_uid in (0, os.geteuid())
                if is_ours and entry.name == f"{layer}-{_digest(path)}.jsa":
                    return path
                path.unlink()
            except OSError as error:
                logger.debug("%s is passed over: %s", path, error)
    return None


def _digest(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _make_in_the_end(folder: Path) -> None:
    global _begun  # noqa: PLW0603 (a process has one end)
    if _begun or lasting_folder() is None:
        return
    try:
        if time.time() - (folder / FAILED).stat().st_mtime < _RETRY_S:
            return
    except OSError:
        pass  # Nobody has failed.
    _begun = True
    atexit.register(_start_making, folder, os.getpid())


def _start_making(folder: Path, pid: int) -> None:
    """Start a process that outlives this one, and that nobody hears of."""
    if os.getpid() != pid:
        return
    command = [sys.executable, "-m", "tidemill.spark.archiving", str(folder)]
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        subprocess.Popen(
            command,
            env={**os.environ, SWITCH: "1", "PYTHONPATH": paths},
            cwd=cache_place(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        logger.debug("no archive of classes is made: %s", error)


def _entries(folder: Path) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []
