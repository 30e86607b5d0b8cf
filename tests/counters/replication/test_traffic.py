"""What nodes tell of their traffic: with whom, and for how long."""

from __future__ import annotations

import pytest

import tidemill as tm
from tests.services.server import free_port
from tidemill.counters.replication import responder as responder_module
from tidemill.gateway.http.metrics import exposition

NEVER_MS = 3_600_000  # in a test that says itself when nodes exchange


def connected(counters: tm.Counters) -> dict[str, bool]:
    """The peers of which a node says whether they are connected."""
    return {
        peer: traffic.is_connected
        for peer, traffic in counters.metrics().items()
        if traffic.is_connected is not None
    }


def test_a_node_is_no_peer_of_its_own() -> None:
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with tm.Counters("a", listen=places[0], peers=places, sync_ms=NEVER_MS) as a:
        # The other one is not there yet, so that its address is all that is known of it.
        a.sync()
        assert connected(a) == {places[1]: False}
        with tm.Counters("b", listen=places[1], sync_ms=NEVER_MS) as b:
            assert a.sync() == dict.fromkeys(sorted(places), "ok")
            assert connected(a) == {"b": True}
            assert set(a.metrics()) == {"b"}
            # It is called only, and cannot tell.
            assert connected(b) == {}
            assert set(b.metrics()) == {"a"}
            assert "tidemill_counters_connected{" not in exposition(b)
            a.remove_peer(places[1])
            assert connected(a) == {}
            assert a.metrics()["b"].rounds["ok"] >= 1


def test_an_address_that_passes_to_another_node_leaves_the_counts_of_the_first() -> None:
    place = f"127.0.0.1:{free_port()}"
    with tm.Counters("x", peers=[place], sync_ms=NEVER_MS) as x:
        with tm.Counters("a", listen=place):
            for number in range(10):
                x.upsert(f"w{number}")
                assert x.sync() == {place: "ok"}
            before = x.metrics()["a"]
        x.sync()
        with tm.Counters("c", listen=place):
            assert x.sync() == {place: "ok"}
            after = x.metrics()
        assert after["a"].rows_sent == before.rows_sent >= 10
        assert after["a"].rounds["ok"] == before.rounds["ok"] >= 10
        assert after["c"].rounds["ok"] == 1
        assert connected(x) == {"c": True}


def test_a_reader_that_is_forgotten_leaves_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    with tm.Counters("hub", listen="127.0.0.1:0", sync_ms=NEVER_MS) as hub:
        for name in ("reader-1", "reader-2"):
            with tm.Counters(name, peers=[hub.address], read_only=True) as reader:
                assert reader.sync() == {hub.address: "ok"}
        with tm.Counters("node-1", peers=[hub.address]) as node:
            assert node.sync() == {hub.address: "ok"}
        assert set(hub.metrics()) == {"reader-1", "reader-2", "node-1"}
        responder = hub._responder
        assert responder is not None
        responder.forget_readers()
        assert len(hub.metrics()) == 3
        monkeypatch.setattr(responder_module, "READER_S_MAX", -1)
        responder.forget_readers()
        assert set(hub.metrics()) == {"node-1"}
