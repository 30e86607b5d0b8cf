"""Which frames of a folder hold the rows of a range of seqs."""

from __future__ import annotations

import numpy as np

from tidemill.batch import Layout
from tidemill.files.folder.view import View


def layout_of(view: View, start: int, end: int) -> Layout:
    """The frames with rows from `start` up to `end`, by their first seqs."""
    if start >= end:
        return Layout.of([])
    with view.guard:
        segments = [view.segments[number] for number in view.index.segments()]
        hold = view.holds.hold(segments)
    try:
        parts = []
        for segment in segments:
            rows = segment.entries
            rows = rows[(rows["seq_max"] >= start) & (rows["seq_min"] < end)]
            columns = (rows["seq_min"], rows["rows"], rows["length"])
            parts.append(Layout(*(column.astype(np.int64) for column in columns)))
    finally:
        hold.release()
    found = Layout.joined(parts)
    order = np.argsort(found.firsts, kind="stable")
    return Layout(*(column[order] for column in found))
