"""The settings of a folder: what it is, and how its journal is to be read.

One small JSON file, replaced as a whole: written under another name, synced, renamed, and the
folder synced. A new schema version is therefore there for good before the first frame that uses it.

    format 1   settings, lock, journal, quarantine
    format 2   also what readers beside the owner need: segments wait for them. A release that knew
               format 1 alone would delete under them, and so has to refuse the folder
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xxhash

from tidemill.batch import SchemaVersions
from tidemill.errors import Corrupt, NotAQueue, OldFormat, UnknownFormat
from tidemill.files import advice
from tidemill.files.disk.filesystem import FileSystem
from tidemill.limits import INT64_MAX, SEGMENT_BYTES_MIN

NAME = "settings.json"
DRAFT_NAME = "settings.json.new"
FORMAT = 2
FORMATS_OLD = (1,)  # that `upgrade` knows how to bring up to date
QUEUE = "priority-queue"
LOG = "log"  # ordered by arrival alone: no keys, and so no bucket function
_KINDS = {
    QUEUE: "a priority queue: open it with tm.PriorityQueue, or `tidemill pop` and the like",
    LOG: "a log: open it with tm.Log, or `tidemill receive` and the like",
}
_BYTES_MAX = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """What a folder records about itself."""

    bucket: str  # the description of the bucket function
    versions: SchemaVersions
    segment_bytes: int
    format: int = FORMAT  # as it was read; what is written is always the newest
    kind: str = QUEUE

    def with_versions(self, versions: SchemaVersions) -> Settings:
        return replace(self, versions=versions)


def write_settings(fs: FileSystem, folder: Path, settings: Settings) -> None:
    document: dict[str, Any] = {
        "format": FORMAT,
        "kind": settings.kind,
        **({"bucket": settings.bucket} if settings.kind == QUEUE else {}),
        "segment_bytes": settings.segment_bytes,
        "schemas": settings.versions.to_json(),
    }
    document["check"] = _check(document)
    if DRAFT_NAME in fs.list_folder(folder):
        fs.unlink(folder / DRAFT_NAME)
    file = fs.open(folder / DRAFT_NAME, create=True)
    try:
        file.pwrite([json.dumps(document, indent=2).encode() + b"\n"], 0)
        file.sync()
    finally:
        file.close()
    fs.rename(folder / DRAFT_NAME, folder / NAME)
    fs.sync_folder(folder)


def read_settings(
    fs: FileSystem, folder: Path, *, accept_old: bool = False, kind: str | None = QUEUE
) -> Settings | None:
    """The settings, or None if there are none; of older formats only if told to accept them, of
    another kind only with None.
    """
    path = folder / NAME
    if NAME not in fs.list_folder(folder):
        return None
    file = fs.open(path)
    try:
        size = file.size()
        if size > _BYTES_MAX:
            raise Corrupt(f"the settings have {size} bytes", path=path, offset=0)
        data = file.pread(size, 0)
    finally:
        file.close()
    try:
        settings = _parse(data, folder, kind)
    except Corrupt as damage:
        reason = f"{damage.reason}; restore {NAME} from a backup"
        raise Corrupt(reason, path=path, offset=0) from damage
    if settings.format != FORMAT and not accept_old:
        raise OldFormat(
            f"{folder} has format version {settings.format}, this release writes {FORMAT}; "
            f"run {advice.upgrade(folder)}, which keeps all items"
        )
    return settings


def _parse(data: bytes, folder: Path, kind: str | None) -> Settings:
    try:
        document = json.loads(data)
        found = document.pop("check")
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, KeyError) and not {"format", "kind"} & document.keys():
            raise NotAQueue(
                f"{folder} has a {NAME} that is not of a queue or a log; name another folder"
            ) from error
        raise Corrupt(f"the settings cannot be read: {error}") from error
    if found != _check(document):
        raise Corrupt("the settings do not match their checksum")
    version = document.get("format")
    if version not in (*FORMATS_OLD, FORMAT):
        raise UnknownFormat(
            f"{folder} has format version {version}; this release knows {FORMAT} and older: "
            "use the release that wrote it, or a newer one"
        )
    found_kind = document.get("kind")
    if not isinstance(found_kind, str):
        raise Corrupt("the settings make no sense: they do not say of what they are")
    if found_kind not in _KINDS or kind not in (None, found_kind):
        raise NotAQueue(f"{folder} holds {_KINDS.get(found_kind, f'a {found_kind}')}")
    try:
        segment_bytes = int(document["segment_bytes"])
        if not SEGMENT_BYTES_MIN <= segment_bytes <= INT64_MAX:
            raise ValueError(f"a segment has no {segment_bytes} bytes")
        return Settings(
            str(document["bucket"]) if found_kind == QUEUE else "",
            SchemaVersions.from_json(document["schemas"]),
            segment_bytes,
            format=int(version),
            kind=found_kind,
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Corrupt(f"the settings make no sense: {error}") from error


def _check(document: dict[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return xxhash.xxh3_64_hexdigest(canonical)
