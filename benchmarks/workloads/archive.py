"""The archive of a log, in a folder and in a bucket: how fast rows move there and are read again,
and what they take.

Ours gathers rows from the log, writes Parquet, reads every file back and compares it, swaps the
manifest and lets the log forget. Plain Parquet is pyarrow writing the same rows, which it has in
memory, to files of the same kind, on disk before the clock stops. The raw upload is of files that
are made already.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import S3Store

import tidemill as tm
from benchmarks.result import Result
from benchmarks.rounds import Contestant, Medians, interleave
from benchmarks.settings import Settings
from tests.services.seaweedfs import ACCESS_KEY, BUCKET, ENVIRONMENT, SECRET_KEY, SeaweedFS
from tidemill.limits import ROW_GROUP_ROWS

ROWS_PER_SEND = 2_000
SEGMENT_BYTES = 2**20  # of the log: rows are hot until a segment has none that is not archived
SAMPLE_ROWS = 100_000  # as JSON, which is slow to make
_NOUNS = ("pump", "valve", "meter", "fan")
_SCHEMA = pa.schema(
    [("device", pa.utf8()), ("reading", pa.float64()), ("count", pa.int64()), ("state", pa.utf8())]
)


def run(settings: Settings) -> list[Result]:
    rows = 100_000 if settings.quick else 2_000_000
    table = _telemetry(rows)
    results = []
    with tempfile.TemporaryDirectory(dir=settings.folder) as name:
        folder = Path(name)
        disk = Disk(folder / "places")
        medians = interleave(
            "archive in a folder",
            [OurArchive(folder / "logs", table, disk), PlainParquet(table, disk)],
            settings.rounds,
        )
        results += _judge("in a folder", medians, table)
        results += _sizes(folder / "sizes", table)
    if (reason := SeaweedFS.missing()) is not None:
        return [*results, Result("archive on S3", None, "rows/s", note=reason)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=settings.folder)))
        bucket = stack.enter_context(_bucket(folder / "server"))
        contestants: list[Contestant] = [
            OurArchive(folder / "logs", table, bucket),
            PlainParquet(table, bucket),
            RawUpload(table, bucket),
        ]
        medians = interleave("archive on S3", contestants, settings.rounds)
        results += _judge("on S3 (SeaweedFS)", medians, table)
    return results


def _telemetry(rows: int) -> pa.Table:
    """Readings of a thousand devices: some columns repeat themselves, one is random."""
    random = np.random.default_rng(7)
    numbers = random.integers(0, 1_000, rows)
    return pa.table(
        {
            "device": pa.array([f"{_NOUNS[n % 4]}-{n:04}" for n in range(1_000)]).take(numbers),
            "reading": random.normal(20.0, 5.0, rows),
            "count": np.arange(rows),
            "state": pa.array(["ok", "ok", "ok", "warm"]).take(numbers % 4),
        },
        schema=_SCHEMA,
    )


class Disk:
    """Places in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def url(self, name: str) -> str:
        return str(self._folder / name)

    def put(self, name: str, data: pa.Buffer) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def read(self, name: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self._folder / name, page_checksum_verification=True) as file:
            yield from file.iter_batches(ROW_GROUP_ROWS)

    def remove(self, name: str) -> None:
        shutil.rmtree(self._folder / name)


class Bucket:
    """Places in a bucket of a server."""

    def __init__(self, server: SeaweedFS) -> None:
        self._server = server
        self._store = S3Store(
            BUCKET,
            endpoint=server.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
        )

    def url(self, name: str) -> str:
        return self._server.url(name)

    def put(self, name: str, data: pa.Buffer) -> None:
        obstore.put(
            self._store, name, obstore.Bytes(memoryview(data).cast("B")), use_multipart=False
        )

    def read(self, name: str) -> Iterator[pa.RecordBatch]:
        found = pa.py_buffer(obstore.get(self._store, name).bytes())
        with pq.ParquetFile(pa.BufferReader(found), page_checksum_verification=True) as file:
            yield from file.iter_batches(ROW_GROUP_ROWS)

    def remove(self, name: str) -> None:
        for page in obstore.list(self._store, name):
            obstore.delete(self._store, [one["path"] for one in page])


@contextmanager
def _bucket(folder: Path) -> Iterator[Bucket]:
    """A server of the run's own, with its data on the disk that is measured."""
    folder.mkdir()
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        with SeaweedFS(folder) as server:
            yield Bucket(server)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class OurArchive:
    """A fresh log and archive for each turn."""

    name = "tidemill"

    def __init__(self, folder: Path, table: pa.Table, place: Disk | Bucket) -> None:
        self._folder = folder
        self._table = table
        self._place = place
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        rows, name = self._table.num_rows, f"ours/{next(self._turns)}"
        path = self._folder / name
        with filled(path, self._table) as log:
            start = time.perf_counter()
            done = log.archive(self._place.url(name))
            archived_s = time.perf_counter() - start
            if done.rows != rows:
                raise RuntimeError(f"{done.rows} rows were archived, of {rows}")
            hot = int(log._store.hot.layout(1, rows + 1).rows.sum())
            if hot > rows / 2:
                raise RuntimeError(f"{hot} of {rows} rows are still hot: reading them says nothing")
            tiered_s = _read(log, rows)
        with tm.Log(self._place.url(name)) as archive:
            read_s = _read(archive, rows)
        shutil.rmtree(path)
        self._place.remove(name)
        return {"archive": archived_s / rows, "read": read_s / rows, "tiered": tiered_s / rows}

    def close(self) -> None:
        pass


def _read(log: tm.Log, rows: int) -> float:
    """Seconds for all rows of a log, in order."""
    start = time.perf_counter()
    at = 1
    while at <= rows:
        batch = log.read(at, rows_max=ROW_GROUP_ROWS)
        if not len(batch):
            raise RuntimeError(f"{at - 1} rows were read, of {rows}")
        at = batch.next_seq
    return time.perf_counter() - start


@contextmanager
def filled(path: Path, table: pa.Table) -> Iterator[tm.Log]:
    """A log with the rows of a table."""
    options = {"sync": "none", "segment_bytes": SEGMENT_BYTES}
    with tm.Log(path, schema=table.schema, **options) as log, log.publisher() as out:
        for batch in table.to_batches(ROWS_PER_SEND):
            out.send_soon(batch)
        out.flush()
        yield log


class PlainParquet:
    """The same rows from memory to a file, and back."""

    name = "pyarrow"

    def __init__(self, table: pa.Table, place: Disk | Bucket) -> None:
        times = pa.array(
            np.full(table.num_rows, time.time_ns() // 1_000), pa.timestamp("us", "UTC")
        )
        self._table = table.add_column(0, "time", times)
        self._place = place
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        rows, folder = self._table.num_rows, f"plain/{next(self._turns)}"
        name = f"{folder}/rows.parquet"
        start = time.perf_counter()
        self._place.put(name, encoded(self._table))
        written_s = time.perf_counter() - start
        start = time.perf_counter()
        found = sum(batch.num_rows for batch in self._place.read(name))
        read_s = time.perf_counter() - start
        if found != rows:
            raise RuntimeError(f"{found} rows were read, of {rows}")
        self._place.remove(folder)
        return {"archive": written_s / rows, "read": read_s / rows}

    def close(self) -> None:
        pass


class RawUpload:
    """The file that pyarrow made, put once more: what the server takes at most."""

    name = "obstore"

    def __init__(self, table: pa.Table, place: Disk | Bucket) -> None:
        self._data = encoded(table)
        self._rows = table.num_rows
        self._place = place
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        folder = f"raw/{next(self._turns)}"
        start = time.perf_counter()
        self._place.put(f"{folder}/rows.parquet", self._data)
        put_s = time.perf_counter() - start
        self._place.remove(folder)
        return {"archive": put_s / self._rows}

    def close(self) -> None:
        pass


def encoded(table: pa.Table) -> pa.Buffer:
    """Rows as Parquet, with the settings that the archive has."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        version="2.6",
        compression="zstd",
        compression_level=3,
        row_group_size=ROW_GROUP_ROWS,
        write_page_checksum=True,
    )
    return sink.getvalue()


def _judge(where: str, medians: Medians, table: pa.Table) -> list[Result]:
    rows, size_mb = table.num_rows, table.nbytes / 1e6
    conditions = {
        "operation": f"{rows:,} rows of telemetry, {size_mb:,.0f} MB in memory, sent "
        f"{ROWS_PER_SEND:,} at a time; archiving reads every file back and compares it; of the "
        f"log with its archive the last {SEGMENT_BYTES // 2**20} MiB of rows at most are hot",
    }
    ours, plain = medians["tidemill"], medians["pyarrow"]
    mb_per_row = size_mb / rows
    plain_name = "pyarrow: plain Parquet from memory, not read back"
    results = [
        Result(
            f"archive rows {where}",
            1 / ours["archive"],
            "rows/s",
            1 / plain["archive"],
            plain_name,
            conditions=conditions,
        ),
        Result(
            f"archive rows {where}, by size in memory",
            mb_per_row / ours["archive"],
            "MB/s",
            mb_per_row / plain["archive"],
            plain_name,
            conditions=conditions,
        ),
        *(
            Result(
                f"read {what} {where}, in order",
                1 / ours[metric],
                "rows/s",
                1 / plain["read"],
                "pyarrow: plain Parquet, batches of a row group",
                conditions=conditions,
            )
            for metric, what in (("tiered", "a log with its archive"), ("read", "an archive alone"))
        ),
    ]
    if "obstore" in medians:
        results.append(
            Result(
                f"archive rows {where}, against the upload alone",
                1 / ours["archive"],
                "rows/s",
                1 / medians["obstore"]["archive"],
                "obstore: the finished file put",
                conditions=conditions,
            )
        )
    return results


def _sizes(folder: Path, table: pa.Table) -> list[Result]:
    """Bytes of each row, archived, hot, and as JSON lines under gzip."""
    rows = table.num_rows
    with filled(folder / "log", table) as log:
        hot = float(log._store.layout(1, rows + 1).sizes.sum()) / rows
        archived = log.archive(folder / "archive").bytes / rows
        sample = log.read(1, rows_max=min(rows, SAMPLE_ROWS))
    text = io.BytesIO()
    with gzip.GzipFile(fileobj=text, mode="wb", compresslevel=6) as file:
        for row, moment in zip(sample.rows(), sample.times.to_pylist(), strict=True):
            file.write(json.dumps({"time": moment.isoformat(), **row}).encode() + b"\n")
    lines = len(text.getvalue()) / len(sample)
    conditions = {
        "operation": f"{rows:,} rows of telemetry sent {ROWS_PER_SEND:,} at a time; JSON of the "
        f"first {len(sample):,}, gzip level 6"
    }
    what = "size of archived rows"
    return [
        Result(what, archived, "bytes/row", hot, "the hot rows in a folder", conditions=conditions),
        Result(what, archived, "bytes/row", lines, "gzip'd JSON lines", conditions=conditions),
    ]
