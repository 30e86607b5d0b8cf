"""What the checkpoint of a streaming query tells: its id, and whether it has written anything; and
how that lasts.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

from tidemill.errors import InvalidInput, NotAQueue
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.names import check_name

if TYPE_CHECKING:
    from pyarrow import fs

logger = logging.getLogger(__name__)

_FILE = "metadata"
_COMMITS = "commits"
_OFFSETS = "offsets"
_PARENTS = 3  # folders that are made along with a checkpoint, such as the state of a pipeline


def query_id(location: str | None) -> str:
    """The id in a checkpoint; it names the transaction of a query that was given no other.

    >>> query_id(None)
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: a streaming query is known by its checkpoint or by an id: give \
the option checkpointLocation, or txnAppId
    """
    if location is None:
        raise InvalidInput(
            "a streaming query is known by its checkpoint or by an id: give the option "
            "checkpointLocation, or txnAppId"
        )
    try:
        found = json.loads(_read(location))
        return check_name(found["id"], what="query")
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise InvalidInput(
            f"the checkpoint {location} does not tell the id of its query ({error}); give the "
            "option txnAppId"
        ) from error


def has_written(location: str | None) -> bool:
    """Whether the query of a checkpoint has finished a batch. Raises `NotAQueue` if that cannot be
    told: who asks has found no queue, and is about to make one.

    >>> has_written(None)
    False
    """
    if location is None:
        return False
    folder = _local(location)
    if folder is not None:
        return any(path.name.isdigit() for path in (folder / _COMMITS).glob("*"))
    try:
        names = _names_elsewhere(location)
    except (OSError, pa.ArrowException) as error:
        raise NotAQueue(
            f"nothing is there to be written to, and whether the query of the checkpoint "
            f"{location} has written before cannot be told ({error}): bring back what is gone, or "
            "make an empty queue or log, with the columns that are written"
        ) from error
    return any(name.isdigit() for name in names)


def sync_batch(location: str | None, number: int) -> None:
    """Make last which rows a batch has, before they count. Spark syncs nothing: after a power cut
    it might give the number to other rows, which the sink would take for these.
    """
    folder = None if location is None else _local(location)
    if folder is None:
        return
    fs = LocalFileSystem()
    own = [folder / _OFFSETS, folder]
    parents = folder.parents[:_PARENTS] if number == 0 else ()
    with storage_errors("syncing", folder):
        for name in (_FILE, f"{_OFFSETS}/{number}"):
            try:
                with closing(fs.open(folder / name)) as file:
                    file.sync()
            except FileNotFoundError as error:
                logger.debug("a checkpoint of another form: %s", error)
        for one in (*own, *parents):
            try:
                fs.sync_folder(one)
            except FileNotFoundError as error:
                logger.debug("a checkpoint of another form: %s", error)
            except PermissionError as error:
                if one in own:
                    raise
                logger.debug("it was there before, and is not ours to sync: %s", error)


def _names_elsewhere(location: str) -> list[str]:
    from pyarrow import fs  # noqa: PLC0415

    # What Hadoop calls by the name of its own client is a bucket like any other. It is asked for
    # where nothing was found to write to, and not with each batch: it may take long to fail.
    system, path = _opened(re.sub(r"^s3[an]:", "s3:", location))
    found = fs.FileSelector(f"{path}/{_COMMITS}", allow_not_found=True)
    return [info.base_name for info in system.get_file_info(found)]


def _read(location: str) -> bytes:
    folder = _local(location)
    if folder is not None:
        return (folder / _FILE).read_bytes()
    system, path = _opened(location)
    with system.open_input_stream(f"{path}/{_FILE}") as stream:
        return bytes(stream.read())


def _opened(location: str) -> tuple[fs.FileSystem, str]:
    """The file system on some server, and the folder in it."""
    # It takes as long to load as all the rest, and a commit starts anew each time.
    from pyarrow import fs  # noqa: PLC0415

    system, path = fs.FileSystem.from_uri(location)
    return system, path.rstrip("/")


def _local(location: str) -> Path | None:
    """The folder, unless it is on some server."""
    scheme = urlsplit(location).scheme
    if scheme not in ("", "file"):
        return None
    # Spark takes what follows literally: %20 is no blank, and # no end.
    return Path(re.sub(r"^file:(//[^/]*)?", "", location) if scheme else location)
