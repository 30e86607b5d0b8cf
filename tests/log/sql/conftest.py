"""A log on each server, behind a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.log.sql.packet_faults import PacketFaults
from tests.services.tcp_proxy import Kind, TcpProxy

_FAULTS: list[tuple[str, Kind]] = [
    ("mysql", "cut"),
    ("mysql", "tear"),
    ("mysql", "blackhole"),
    # A blackhole takes seconds to notice where the driver connects, which it does at every fault.
    ("postgres", "cut"),
    ("postgres", "tear"),
]


def _parameter(server: str, kind: Kind) -> object:
    marks = [pytest.mark.slow] if server == "postgres" or kind == "blackhole" else []
    if (server, kind) == ("postgres", "tear"):
        marks.append(pytest.mark.soak)
    return pytest.param((server, kind), marks=marks, id=f"{server}-{kind}")


@pytest.fixture(params=[_parameter(*fault) for fault in _FAULTS])
def faults(
    request: pytest.FixtureRequest, tally: Callable[[str, int], None]
) -> Iterator[PacketFaults]:
    """The log behind the proxy, with one kind of fault."""
    speech, kind = request.param
    if speech == "mysql":
        server = request.getfixturevalue("mariadb")
        database = request.getfixturevalue("database")
        proxy = TcpProxy(server.port)
        url = server.url(database, "log", port=proxy.port)
    else:
        server = request.getfixturevalue("postgres")
        proxy = TcpProxy(server.port, "postgres")
        url = server.url(port=proxy.port)
    with proxy:
        faults = PacketFaults(proxy, kind, url, tally)
        yield faults
        faults.close()
