"""The summary of a sealed segment: its frames by bucket, derived and checksummed. Pure.

    header (64 bytes) │ directory: a row for each bucket │ entries: a row for each frame, by bucket

Opening a queue reads headers and directories only; the entries of a bucket are read when the bucket
is first used. A summary is written after its segment was synced. A damaged or missing one is made
again from the segment.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import xxhash

from tidemill.errors import Corrupt
from tidemill.files.format.frame_table import ENTRY, Entries

MAGIC = b"TMSM"
VERSION = 1
HEADER = struct.Struct(
    "<4sHHQQIIQQQ"
)  # magic, version, –, segment, end, buckets, frames, check × 2, epoch
HEADER_BYTES = 64
DIRECTORY = np.dtype(
    [
        ("bucket", "<i8"),
        ("key_min", "<i8"),
        ("key_max", "<i8"),
        ("seq_min", "<i8"),
        ("seq_max", "<i8"),
        ("items", "<u8"),
        ("start", "<u4"),
        ("frames", "<u4"),
    ]
)
_digest = xxhash.xxh3_64_intdigest


class Summary(NamedTuple):
    """What opening needs to know of a sealed segment."""

    segment: int
    end: int  # where its data ends
    directory: Entries
    frames: int
    entries_check: int
    epoch: int


def make_directory(entries: Entries) -> tuple[Entries, Entries]:
    """(directory, the entries sorted by bucket, then by least key and seq)."""
    order = np.lexsort((entries["seq_min"], entries["key_min"], entries["bucket"]))
    entries = entries[order]
    buckets, starts = np.unique(entries["bucket"], return_index=True)
    directory = np.zeros(len(buckets), DIRECTORY)
    if len(buckets):
        directory["bucket"] = buckets
        directory["start"] = starts
        directory["frames"] = np.diff(np.append(starts, len(entries)))
        directory["key_min"] = np.minimum.reduceat(entries["key_min"], starts)
        directory["key_max"] = np.maximum.reduceat(entries["key_max"], starts)
        directory["seq_min"] = np.minimum.reduceat(entries["seq_min"], starts)
        directory["seq_max"] = np.maximum.reduceat(entries["seq_max"], starts)
        directory["items"] = np.add.reduceat(entries["rows"].astype(np.uint64), starts)
    return directory, entries


def pack_summary(segment: int, end: int, epoch: int, directory: Entries, entries: Entries) -> bytes:
    directory_bytes = directory.tobytes()
    entries_bytes = entries.tobytes()
    fields = HEADER.pack(
        MAGIC,
        VERSION,
        0,
        segment,
        end,
        len(directory),
        len(entries),
        _digest(directory_bytes),
        _digest(entries_bytes),
        epoch,
    )
    return fields + struct.pack("<Q", _digest(fields)) + directory_bytes + entries_bytes


def unpack_header(data: bytes, segment: int) -> tuple[int, int, int, int, int, int]:
    """(end, buckets, frames, check of the directory, check of the entries, epoch)."""
    if len(data) < HEADER_BYTES:
        raise Corrupt("the summary is cut off")
    fields = data[: HEADER.size]
    if struct.unpack_from("<Q", data, HEADER.size)[0] != _digest(fields):
        raise Corrupt("the header of the summary does not match its checksum")
    magic, version, _, number, end, buckets, frames, check, entries_check, epoch = HEADER.unpack(
        fields
    )
    if magic != MAGIC or version != VERSION or number != segment:
        raise Corrupt("the summary belongs to another segment or version")
    return end, buckets, frames, check, entries_check, epoch


def unpack_directory(data: bytes, buckets: int, check: int) -> Entries:
    if len(data) != buckets * DIRECTORY.itemsize or _digest(data) != check:
        raise Corrupt("the directory of the summary does not match its checksum")
    return np.frombuffer(data, DIRECTORY)


def unpack_entries(data: bytes, frames: int, check: int) -> Entries:
    if len(data) != frames * ENTRY.itemsize or _digest(data) != check:
        raise Corrupt("the entries of the summary do not match their checksum")
    return np.frombuffer(data, ENTRY)
