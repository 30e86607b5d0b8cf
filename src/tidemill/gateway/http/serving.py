"""An HTTP server in a thread of its own, on an address that is known before it serves."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from tidemill.closing import Closing
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.listening import bound
from tidemill.counters.replication.tls import Tls
from tidemill.errors import InvalidInput
from tidemill.gateway.http.missing import missing_http
from tidemill.limits import HTTP_CONNECTIONS_MAX, HTTP_HEAD_BYTES_MAX

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_KEEP_ALIVE_S = 5
_CLOSE_S_MAX = 5  # how long requests that are under way have to finish


class HttpServer(Closing):
    """Serves an application until it is closed."""

    def __init__(self, app: ASGIApp, listen: str, *, tls: Tls | None = None) -> None:
        try:
            import uvicorn  # noqa: PLC0415

            from tidemill.gateway.http.deadline import TimedProtocol  # noqa: PLC0415
        except ImportError as cause:
            raise missing_http() from cause
        address = Address.of(listen)
        if not address.is_loopback and tls is None:
            raise InvalidInput(
                f"HTTP on {address} would show its token to the network: "
                "listen on 127.0.0.1, or give certificates"
            )
        self._socket: socket.socket = bound(address)
        self._socket.listen(HTTP_CONNECTIONS_MAX)
        self.address = str(Address(address.host, self._socket.getsockname()[1]))
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="off",
                http=TimedProtocol,
                ws="none",
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=HTTP_CONNECTIONS_MAX,
                h11_max_incomplete_event_size=HTTP_HEAD_BYTES_MAX,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_CLOSE_S_MAX,
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
            )
        )
        self._thread = threading.Thread(target=self._run, name="tidemill-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish what is under way, and let go of the address."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
