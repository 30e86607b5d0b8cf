"""The code of Tidemill, for executors and servers that have none.

Spark starts a Python where the work is done, and tells it the name of the data source; the code has
to be found there. A session can be given a zip of it, which Spark hands to each of those Pythons,
in front of what is installed. A source that Spark finds by itself is not told of that zip, so that
it is registered by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash
from pyspark.sql import SparkSession

from tidemill.spark.cache import cache_folder, keep

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession as RemoteSession


def ship(spark: SparkSession | RemoteSession) -> None:
    """Give a session the code of this Tidemill, for executors or a Connect server that lack it.

    >>> import tempfile, tidemill as tm
    >>> from tidemill.spark import read, session, ship
    >>> spark = session(master="local[1]")  # or a cluster, or remote="sc://…"
    >>> ship(spark)
    >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
    ...     receipt = queue.push([(3, b"c"), (1, b"a")])
    ...     read(spark, queue.path).count()
    2
    >>> spark.stop()

    Their Python has to have NumPy, PyArrow and xxhash; for a log on MySQL, PyMySQL as well,
    for one on PostgreSQL psycopg.
    """
    # Every executor imports this module, and none ships anything.
    from tidemill.spark.data_source import TidemillDataSource  # noqa: PLC0415

    archive = str(_archive())
    if isinstance(spark, SparkSession):
        spark.sparkContext.addPyFile(archive)
    else:
        spark.addArtifacts(archive, pyfile=True)
    spark.dataSource.register(TidemillDataSource)


def _archive() -> Path:
    """A zip of the package. The same code has the same name, and other code another one, because
    Spark refuses two files of one name.
    """
    import io  # noqa: PLC0415
    import zipfile  # noqa: PLC0415

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(_sources()):
            # With no time of its own, so that the bytes depend on the code alone.
            archive.writestr(zipfile.ZipInfo(name), source, zipfile.ZIP_DEFLATED)
    data = content.getvalue()
    path = cache_folder() / f"tidemill-{xxhash.xxh3_64_hexdigest(data)}.zip"
    if not path.is_file() or path.read_bytes() != data:
        keep(path, data, mode=0o644)
    return path


def _sources() -> Iterator[tuple[str, bytes]]:
    """The modules of the package, which may be in a zip itself."""
    from importlib.resources import files  # noqa: PLC0415

    folders = [("tidemill", files("tidemill"))]
    while folders:
        place, folder = folders.pop()
        for entry in folder.iterdir():
            name = f"{place}/{entry.name}"
            if entry.is_dir():
                folders.append((name, entry))
            elif name.endswith(".py"):
                yield name, entry.read_bytes()
