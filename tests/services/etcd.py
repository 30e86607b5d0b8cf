"""A real etcd server on free loopback ports, in a temporary folder; it can be killed, and started
again.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from tests.services.server import Server, found, free_port


class Etcd(Server):
    """One member of a cluster: `join` names the others before it is started.

    `options` are added to its command line, such as "--max-request-bytes=100000".
    """

    programs = ("etcd",)

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self.options = options
        self.peer_url = f"http://127.0.0.1:{free_port()}"
        self.members = {"alone": self.peer_url}
        self.name = "alone"

    def join(self, name: str, members: dict[str, str]) -> None:
        """Make it the one of this name, among all by the URL at which the others find it."""
        self.name, self.members = name, members

    def command(self) -> list[str]:
        url = f"http://127.0.0.1:{self.port}"
        cluster = ",".join(f"{name}={peer_url}" for name, peer_url in self.members.items())
        return [
            found("etcd"),
            *("--name", self.name),
            *("--data-dir", str(self.folder / "data")),
            *("--listen-client-urls", url),
            *("--advertise-client-urls", url),
            *("--listen-peer-urls", self.peer_url),
            *("--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", cluster),
            *("--logger", "zap"),
            *("--log-level", "error"),
            *self.options,
        ]

    def answers(self) -> bool:
        try:
            return bool(self.ask("/v3/kv/range", {"key": "AA=="}))
        except (OSError, http.client.HTTPException):
            return False

    def ask(self, path: str, asked: dict[str, Any], token: str = "") -> dict[str, Any]:
        """What it answers a request of the tests' own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {"Authorization": token} if token else {}
            connection.request("POST", path, json.dumps(asked), headers)
            answer = connection.getresponse()
            said = json.loads(answer.read())
            if answer.status != http.client.OK:
                raise http.client.HTTPException(said)
            assert isinstance(said, dict)
            return said
        finally:
            connection.close()

    def url_of(self, name: str) -> str:
        """That of a ring."""
        return f"etcd://127.0.0.1:{self.port}/{name}"
