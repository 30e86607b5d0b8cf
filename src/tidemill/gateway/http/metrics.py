"""The metrics of a node of counters, for Prometheus."""

from __future__ import annotations

from tidemill.counters.counters import Counters
from tidemill.counters.replication.traffic import DURATIONS_S
from tidemill.gateway.http.prometheus import Exposition

_PREFIX = "tidemill_counters_"


def exposition(counters: Counters) -> str:
    """All metrics as text."""
    peers = counters.metrics()
    text = Exposition()
    for name, words, sums in (
        ("sent_rows_total", "Rows sent to a peer.", {p: t.rows_sent for p, t in peers.items()}),
        (
            "got_rows_total",
            "Rows that came from a peer.",
            {p: t.rows_got for p, t in peers.items()},
        ),
        ("sent_bytes_total", "Bytes sent to a peer.", {p: t.bytes_sent for p, t in peers.items()}),
        ("got_bytes_total", "Bytes from a peer.", {p: t.bytes_got for p, t in peers.items()}),
    ):
        samples = [({"peer": peer}, float(number)) for peer, number in sums.items()]
        text.family(_PREFIX + name, "counter", words, samples)
    text.family(
        _PREFIX + "exchanges_total",
        "counter",
        "Exchanges with a peer, by how they ended.",
        [
            ({"peer": peer, "code": code}, float(number))
            for peer, traffic in peers.items()
            for code, number in traffic.rounds.items()
        ],
    )
    text.histogram(
        _PREFIX + "exchange_seconds",
        "How long exchanges with a peer took.",
        DURATIONS_S,
        [({"peer": p}, t.durations, t.duration_s_sum) for p, t in peers.items()],
    )
    text.family(
        _PREFIX + "lag_seconds",
        "gauge",
        "For how long a peer has lacked something that this node holds.",
        [({"peer": peer}, traffic.lag_s) for peer, traffic in peers.items()],
    )
    text.family(
        _PREFIX + "connected",
        "gauge",
        "Whether a peer that this node calls answered last.",
        [
            ({"peer": peer}, float(traffic.is_connected))
            for peer, traffic in peers.items()
            if traffic.is_connected is not None
        ],
    )
    text.family(
        _PREFIX + "live", "gauge", "Counters that live.", [({}, float(len(counters.all()[0])))]
    )
    return text.text()
