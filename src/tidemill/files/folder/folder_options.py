"""How a folder is opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from tidemill.files.format.settings import LOG, QUEUE, Settings
from tidemill.files.state.bucket import BucketFunction, choose
from tidemill.limits import BUCKETS_OPEN_MAX, SEGMENT_BYTES

SyncMode: TypeAlias = Literal["none", "data", "index", "full"]
CorruptionMode: TypeAlias = Literal["abort", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """What the caller said, or what is meant otherwise."""

    kind: str = QUEUE
    bucket: BucketFunction | None = None  # None: what the folder records, or Shift(37) if it is new
    schema: pa.Schema | None = (
        None  # None: what the folder records, or `value: binary` if it is new
    )
    sync: SyncMode = "full"
    on_corruption: CorruptionMode = "abort"
    buckets_open_max: int = BUCKETS_OPEN_MAX
    segment_bytes: int = SEGMENT_BYTES  # for a new folder; an old one keeps its own
    lock_wait_s: float = 0.0  # for the owner before to let go

    @property
    def syncs_pushes(self) -> bool:
        return self.sync in ("data", "full")

    @property
    def syncs_takes(self) -> bool:
        return self.sync in ("index", "full")


def choose_of(found: Settings | None, options: FolderOptions) -> BucketFunction:
    """The bucket function of a folder; that of a log serves its machinery alone, for all of its
    rows have the key 0.
    """
    if options.kind == LOG:
        return choose(None, None)
    return choose(found.bucket if found else None, options.bucket)
