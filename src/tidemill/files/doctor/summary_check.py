"""Holds the summary of a sealed segment against the frames that the segment really has. Pure."""

from __future__ import annotations

import numpy as np

from tidemill.files.format.frame_table import Entries
from tidemill.files.format.summary import make_directory


def disagreement(
    directory: Entries, entries: Entries, found: Entries, damaged: list[int], *, buckets_known: bool
) -> str | None:
    """What is wrong with a summary whose checksums are right, or None.

    `found` are the entries of the frames that are whole, `damaged` the offsets of records that are
    not: those are taken on trust.
    """
    on_trust = np.isin(entries["offset"], np.array(damaged, np.uint32))
    listed = np.sort(entries[~on_trust], order="offset")
    found = np.sort(found[~np.isin(found["offset"], damaged)], order="offset")
    lacking = np.setdiff1d(found["offset"], listed["offset"])
    if len(lacking):
        return f"it lacks {len(lacking)} frames, the first at offset {int(lacking[0])}"
    surplus = np.setdiff1d(listed["offset"], found["offset"])
    if len(surplus):
        return f"it has {len(surplus)} frames that are not there, as at offset {int(surplus[0])}"
    if not buckets_known:
        found = found.copy()
        found["bucket"] = listed["bucket"]
    differing = np.flatnonzero(listed != found)
    if len(differing):
        return f"it describes the frame at offset {int(listed['offset'][differing[0]])} wrongly"
    expected = make_directory(entries)
    if expected[0].tobytes() != directory.tobytes() or expected[1].tobytes() != entries.tobytes():
        return "its directory does not fit its entries"
    return None
