"""A folder of Parquet files as a sink: what Spark does about it, and what it leaves to others.

Spark lists the files of each batch in `_spark_metadata`, and reads those alone, so that to Spark a
row is there once. But it writes them in place: a task that is killed leaves a file behind, which
other tools would read. And it takes a batch whose number is listed for written, whatever is in it.
So files that no batch lists are removed before and after a run, and a folder and a checkpoint that
do not belong together are refused. This is for folders that this machine sees.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tidemill.errors import InvalidPipeline, NotAQueue, TransactionRewound
from tidemill.files.disk.storage import storage_errors
from tidemill.spark.pipelines.ends import PARQUET, Sink
from tidemill.spark.pipelines.offsets_log import done_batches, last_begun

_LISTED = "_spark_metadata"
_PART = re.compile(r"part-\d{5,}-[0-9a-f-]{36}\b.*\.parquet", re.ASCII)


def check_folder(sink: Sink, checkpoint: str) -> None:
    """Raise unless a query may go on writing there."""
    folder = _folder(sink)
    if folder is None:
        return
    with storage_errors("reading", folder):
        listed = max(_batches(folder / _LISTED), default=None)
        begun = last_begun(Path(checkpoint))
    if listed is not None and (begun is None or begun < listed):
        raise TransactionRewound(
            f"batches up to {listed} were written to {folder}, and the checkpoint {checkpoint} "
            f"knows of {'none' if begun is None else f'those up to {begun}'}: bring it back, or "
            "write to another folder"
        )
    if listed is None and done_batches(Path(checkpoint), 1):
        raise NotAQueue(
            f"the query of the checkpoint {checkpoint} has written to {folder}, and now nothing is "
            "there: bring it back, or delete the checkpoint as well"
        )
    if listed is None and any(folder.rglob("*.parquet")):
        raise InvalidPipeline(
            f"{folder} holds Parquet files that no pipeline wrote, which Spark would no longer "
            "read beside those of one: give an empty folder"
        )


def is_seen(sink: Sink) -> bool:
    """Whether it is a folder of Parquet files that this machine sees."""
    return _folder(sink) is not None


def check_empty(sink: Sink) -> None:
    """Raise unless a batch may write there: what others wrote is not replaced unasked."""
    folder = _folder(sink)
    if folder is None or not folder.is_dir():
        return
    with storage_errors("reading", folder):
        has_files = any(folder.iterdir())
        is_streamed = bool(_batches(folder / _LISTED))
    if is_streamed or (has_files and sink.options.get("mode") != "overwrite"):
        why = "those of a stream" if is_streamed else "which are not replaced unasked"
        raise InvalidPipeline(
            f'{folder} holds files, {why}: give a new folder for a batch, or mode="overwrite" for '
            "one that each batch replaces"
        )


def sweep(sink: Sink) -> int:
    """Remove files that no batch lists; nobody may be writing. Returns how many there were."""
    folder = _folder(sink)
    if folder is None or not (folder / _LISTED).is_dir():
        return 0
    with storage_errors("sweeping", folder):
        found = {
            path.name: path for path in folder.rglob("*.parquet") if _PART.fullmatch(path.name)
        }
        for name in _listed(folder / _LISTED):
            found.pop(name, None)
        for path in found.values():
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return len(found)


def _listed(entries: Path) -> Iterator[str]:
    """The names of all files that batches list."""
    for entry in _batches(entries).values():
        with entry.open() as lines:
            for line in lines:
                if line.startswith("{"):
                    yield json.loads(line)["path"].rpartition("/")[2]


def _batches(entries: Path) -> dict[int, Path]:
    """The lists by the number of the batch, some of which hold those of all before: 9.compact."""
    try:
        found = [(entry.name.partition(".")[0], entry) for entry in entries.iterdir()]
    except FileNotFoundError:
        return {}
    return {int(number): entry for number, entry in found if number.isdigit()}


def _folder(sink: Sink) -> Path | None:
    if sink.format != PARQUET or sink.folder is None or "://" in sink.folder:
        return None
    return Path(sink.folder)
