"""A real Redis server on a free loopback port, in a temporary folder."""

from __future__ import annotations

from tests.services.server import Server, found, greeting


class Redis(Server):
    """One server that has synced its file before it answers, as a durable log has to."""

    programs = ("redis-server",)

    def command(self) -> list[str]:
        return [
            found("redis-server"),
            *("--bind", "127.0.0.1"),
            *("--port", str(self.port)),
            *("--dir", str(self.folder)),
            *("--appendonly", "yes"),
            *("--appendfsync", "always"),
            *("--save", ""),  # The file is enough; no snapshots on top.
        ]

    def answers(self) -> bool:
        return greeting(self.port, b"PING\r\n").startswith(b"+PONG")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"
