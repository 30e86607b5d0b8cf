"""Whatever a provider does, whoever was a peer stays one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

import pytest

from tidemill.counters.replication.provider import Provider


def interrupted() -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "peers",
    [
        lambda: sys.exit("no list today"),
        interrupted,
        lambda: 1 / 0,
        lambda: None,
        lambda: 7801,
        lambda: [7801],
        lambda: [b"127.0.0.1:7801"],
        lambda: "127.0.0.1:7801",
        lambda: ["127.0.0.1:0"],
        lambda: [f"127.0.0.1:{port}" for port in range(1, 1_000)],
    ],
)
def test_a_provider_that_fails_changes_nothing_and_is_told_of_once(
    peers: Callable[[], Iterable[str]], caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider(peers)
    assert provider.look() is None
    assert provider.look() is None
    assert caplog.text.count("the peers stay as they were") == 1
