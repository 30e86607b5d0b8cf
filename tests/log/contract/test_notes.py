"""Notes: small facts that belong to the log, changed only by who knows what they were."""

from __future__ import annotations

from tests.log.contract.implementations import Bench
from tidemill.log.contract import LogStore


def test_a_note_is_changed_only_by_who_knows_what_it_was(bench: Bench, store: LogStore) -> None:
    store.claim()
    assert store.notes() == {}
    assert store.set_note("archive", "s3://bucket/orders", expected=None)
    assert not store.set_note("archive", "s3://other", expected=None)
    assert not store.set_note("archive", "s3://other", expected="s3://wrong")
    assert store.set_note("archive", "s3://other/ö", expected="s3://bucket/orders")
    assert bench.open().notes() == {"archive": "s3://other/ö"}
    store.close()
    assert bench.open().notes() == {"archive": "s3://other/ö"}
