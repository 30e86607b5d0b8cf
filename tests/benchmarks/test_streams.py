"""The streams that the log is measured against hold and give back what they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.nats import Nats
from tests.services.redis import Redis

BATCH = [b"%d" % number for number in range(1_200)]  # more than one atomic batch holds


@pytest.mark.parametrize("by_script", [False, True])
def test_redis_gives_back_what_was_added(by_script: bool, tmp_path: Path) -> None:
    pytest.importorskip("redis")
    if (reason := Redis.missing()) is not None:
        pytest.skip(reason)
    from benchmarks.peers.redis_streams import RedisStreams

    peer = RedisStreams(tmp_path / "redis", by_script=by_script)
    try:
        for _ in range(2):
            # It compares all of them itself, as in a measurement.
            assert set(peer.measure(2, BATCH)) == {"write", "read"}
    finally:
        peer.close()


@pytest.mark.parametrize("is_atomic", [False, True])
def test_jetstream_gives_back_what_was_published(is_atomic: bool, tmp_path: Path) -> None:
    pytest.importorskip("nats")
    if (reason := Nats.missing()) is not None:
        pytest.skip(reason)
    from benchmarks.peers.jetstream import JetStream

    peer = JetStream(tmp_path / "nats", is_atomic=is_atomic)
    try:
        for _ in range(2):
            assert set(peer.measure(2, BATCH)) == {"write", "read"}
    finally:
        peer.close()
