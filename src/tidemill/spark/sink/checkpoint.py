"""What the checkpoint of a streaming query tells: its id, and whether it has written anything."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa

from tidemill.errors import InvalidInput
from tidemill.names import check_name

_FILE = "metadata"
_COMMITS = "commits"


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
    """Whether the query of a checkpoint has finished a batch.

    >>> has_written(None)
    False
    """
    if location is None:
        return False
    folder = _local(location)
    if folder is not None:
        names = [path.name for path in (folder / _COMMITS).glob("*")]
    else:
        from pyarrow import fs  # noqa: PLC0415

        system, path = fs.FileSystem.from_uri(location)
        found = fs.FileSelector(f"{path.rstrip('/')}/{_COMMITS}", allow_not_found=True)
        names = [info.base_name for info in system.get_file_info(found)]
    return any(name.isdigit() for name in names)


def _read(location: str) -> bytes:
    folder = _local(location)
    if folder is not None:
        return (folder / _FILE).read_bytes()
    # It takes as long to load as all the rest, and a commit starts anew each time.
    from pyarrow import fs  # noqa: PLC0415

    system, path = fs.FileSystem.from_uri(location)
    with system.open_input_stream(f"{path.rstrip('/')}/{_FILE}") as stream:
        return bytes(stream.read())


def _local(location: str) -> Path | None:
    """The folder, unless it is on some server."""
    scheme = urlsplit(location).scheme
    if scheme not in ("", "file"):
        return None
    # Spark takes what follows literally: %20 is no blank, and # no end.
    return Path(re.sub(r"^file:(//[^/]*)?", "", location) if scheme else location)
