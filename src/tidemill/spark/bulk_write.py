"""`tidemill.spark.write`: a DataFrame into the archive of a log, by Spark's own Parquet writer.

    archive/staging/<id>/<random>/     Spark writes files there: in the JVM, all executors at once
    archive/segments/…                 what is published is linked there, see `log.archive.bulk`

Rows never pass through Python, which is what makes a sink slow. Files are staged for one try alone.
What is left of tries that died is swept by the next one with the same id, or by anybody after days.
"""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)
from pyspark.sql.types import DataType, DoubleType, FloatType, IntegralType

from tidemill.batch import SchemaVersions
from tidemill.errors import InvalidInput, SchemaMismatch, StagingLost
from tidemill.files.disk.storage import storage_errors
from tidemill.files.queue.receipt import Receipt
from tidemill.limits import ARCHIVE_SEGMENT_ROWS, ROW_GROUP_BYTES, STAGED_S_MAX
from tidemill.log.archive.bulk import load
from tidemill.log.opening import open_store
from tidemill.spark.address import folder_of
from tidemill.spark.schema import spark_schema
from tidemill.spark.sink.columns import Columns, check_names
from tidemill.spark.sink.options import SinkOptions
from tidemill.spark.sink.target import Target

logger = logging.getLogger(__name__)

_STAGING = "staging"
_PART = re.compile(r"part-(\d+)-.*?(?:-c(\d+))?\..*parquet")
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_setting = threading.Lock()


def write_rows(
    rows: DataFrame,
    url: str,
    *,
    txn_app_id: str | None,
    txn_version: int | None,
    merge_schema: bool,
) -> Receipt:
    """What `tidemill.spark.write` does."""
    folder = folder_of(url)
    given = {"path": url if folder is None else str(folder)}
    given |= {} if txn_app_id is None else {"txnAppId": txn_app_id}
    given |= {} if txn_version is None else {"txnVersion": str(txn_version)}
    options = SinkOptions.parse({**given, "mergeSchema": str(merge_schema)}, streaming=False)
    check_names(options, rows.schema)
    place = _archive_of(options.path)  # Before anything is made or changed.
    target = Target.prepare(options, rows.schema)
    with open_store(options.path, schema=None, create=False) as log:
        archive = log.archive()
        if archive is None:
            raise _without_archive(log.place)
        time_us = time.time_ns() // 1000
        name = options.app_id or f".{secrets.token_hex(8)}"
        staged = place / _STAGING / name / secrets.token_hex(8)
        try:
            _stage(_chosen(rows, target.columns, log.versions, time_us), staged)
            outcome = load(
                log.hot,
                archive,
                _files(staged),
                options.transaction,
                payload=log.versions.newest,
                time_us=time_us,
            )
        finally:
            _sweep(staged)
    return Receipt(outcome.first, outcome.last, outcome.rows, "archived")


def _archive_of(path: str) -> Path:
    """The folder of the log's archive, which both this process and Spark can write."""
    with open_store(path, schema=None, create=False) as log:
        archive = log.archive()
        if archive is None:
            raise _without_archive(log.place)
        url = archive.objects.url
    if not url.startswith("/"):
        raise InvalidInput(
            f"the archive of {log.place} is at {url}, and Spark writes into one in a folder alone: "
            'write through the sink, .write.format("tidemill")'
        )
    return Path(url)


def _without_archive(place: str) -> InvalidInput:
    return InvalidInput(
        f"{place} has no archive, which Spark would write into: make one, "
        'log.archive("folder"), or write through the sink, .write.format("tidemill")'
    )


def _chosen(rows: DataFrame, columns: Columns, versions: SchemaVersions, time_us: int) -> DataFrame:
    """What a segment holds of the rows: the time, and the payload's columns."""
    wanted = spark_schema(versions.newest)
    given = {field.name: field.dataType for field in rows.schema if field.name in columns.kept}
    chosen = [F.timestamp_micros(F.lit(time_us)).alias("time")]
    for field in wanted:
        name = field.name.replace("`", "``")
        if field.name not in given:
            chosen.append(F.lit(None).cast(field.dataType).alias(field.name))
            continue
        column = F.col(f"`{name}`")
        chosen.append(_cast(column, given[field.name], field.dataType, field.name))
    return rows.select(*chosen)


def _cast(column: Column, given: DataType, wanted: DataType, name: str) -> Column:
    if given.simpleString() == wanted.simpleString():
        return column.alias(name)
    is_wider = (isinstance(given, IntegralType) and isinstance(wanted, IntegralType)) or (
        isinstance(given, FloatType) and isinstance(wanted, DoubleType)
    )
    if not is_wider or _size(given) > _size(wanted):
        raise SchemaMismatch(
            f"column {name!r} is {given.simpleString()}, and the log has {wanted.simpleString()}: "
            "cast it"
        )
    return column.cast(wanted).alias(name)


def _size(kind: DataType) -> int:
    return {"tinyint": 1, "smallint": 2, "int": 4, "float": 4}.get(kind.simpleString(), 8)


def _stage(rows: DataFrame, folder: Path) -> None:
    """Have Spark write the rows, in files of a size that suits."""
    with storage_errors("staging rows in", folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    options = {
        "compression": "zstd",
        "maxRecordsPerFile": str(ARCHIVE_SEGMENT_ROWS),
        "parquet.block.size": str(ROW_GROUP_BYTES),
        "parquet.page.write-checksum.enabled": "true",
        "datetimeRebaseMode": "CORRECTED",
    }
    with _exact_times(rows):
        rows.write.options(**options).parquet(f"file://{folder}")


@contextmanager
def _exact_times(rows: DataFrame) -> Iterator[None]:
    """Within it Spark writes timestamps as everybody reads them; there is no option for a write."""
    conf = rows.sparkSession.conf
    with _setting:
        before = conf.get(_TIMESTAMPS)
        conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
        try:
            yield
        finally:
            conf.set(_TIMESTAMPS, before or "INT96")


def _files(folder: Path) -> list[Path]:
    """What Spark has written, in the order of its partitions."""
    if not (folder / "_SUCCESS").is_file():
        raise StagingLost(
            f"Spark has written rows that are not in {folder}: this process has to see the folder "
            "of the archive as Spark does; nothing was published"
        )
    found = [
        (int(part[1]), int(part[2] or 0), path)
        for path in folder.iterdir()
        if (part := _PART.fullmatch(path.name))
    ]
    return [path for _, _, path in sorted(found)]


def _sweep(staged: Path) -> None:
    """Remove what was staged under this id, and what others left long ago."""
    shutil.rmtree(staged.parent, ignore_errors=True)
    for folder in staged.parent.parent.glob("*"):
        try:
            if folder.stat().st_mtime < time.time() - STAGED_S_MAX:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError as error:
            logger.warning("rows staged in %s were not swept away: %s", folder, error)
