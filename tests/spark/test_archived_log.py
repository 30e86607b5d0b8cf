"""The rows of a log that Spark plans and reads, where most of them are in an archive."""

from __future__ import annotations

from pathlib import Path

import tidemill as tm
from tidemill.spark.address import find
from tidemill.spark.source.log_rows import LogRows


def test_spark_does_not_notice_where_rows_are(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log", segment_bytes=16_384) as log, log.publisher() as out:
        for _ in range(40):
            out.send([b"%d" % number * 50 for number in range(100)])
        log.archive(tmp_path / "archive")
        out.send([b"hot"] * 5)
        assert int(log._store.hot.layout(1, 5_000).firsts[0]) > 1, "nothing was released"
    rows = LogRows(find(str(tmp_path / "log")))
    layout = rows.layout(1, 4_006)
    assert layout.firsts[0] == 1
    assert (layout.firsts[1:] == (layout.firsts + layout.rows)[:-1]).all()
    assert layout.rows.sum() == 4_005
    read = [seq for batch in rows.read(1, 4_006, fail_on_loss=True) for seq in batch["seq"]]
    assert [seq.as_py() for seq in read] == list(range(1, 4_006))
    assert rows.seq_at(0) == 1
    rows.close()
