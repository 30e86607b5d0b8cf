"""The server of a node: who calls, how much at a time, and answers or errors of ours.

Messages are actions of Arrow Flight whose bodies are JSON or Arrow's own messages, and not streams
of batches: Arrow would unpack a batch of a stream, however much it claims to become, before anybody
could look at it. A body is bounded and checked first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tidemill.closing import Closing
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.forking import leave, outlives_fork
from tidemill.counters.replication.listening import bound
from tidemill.counters.replication.refusals import packed
from tidemill.counters.replication.tls import Credentials
from tidemill.errors import InvalidInput, TidemillError, TooLarge, Unavailable
from tidemill.limits import CALLS_MAX, MESSAGE_BYTES_MAX
from tidemill.shown import printable

logger = logging.getLogger(__name__)

_WORDS_MAX = 200  # of an error, for whoever knows none of ours
_CLOSE_S_MAX = 2.0  # for which clients are waited for that do not move


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a peer or a client."""

    action: str
    body: pa.Buffer
    caller: str | None  # the first name in its certificate, which may have none; None without TLS


class Server(Closing):
    """Answers calls until it is closed; `answer` runs in many threads at once."""

    def __init__(
        self,
        listen: Address,
        credentials: Credentials | None,
        answer: Callable[[Call], Iterator[bytes | pa.Buffer]],
    ) -> None:
        # Arrow only says that it failed; this says why.
        bound(listen).close()
        ours: dict[str, Any] = {}
        if credentials is not None:
            ours = {
                "tls_certificates": [(credentials.certificate, credentials.key)],
                "verify_client": True,
                "root_certificates": credentials.authority,
            }
        try:
            self._flight = _Flight(listen.url(is_secure=credentials is not None), answer, **ours)
        except (pa.ArrowException, OSError) as error:
            raise InvalidInput(
                f"cannot listen on {listen}: {error}; do certificate and key belong together?"
            ) from error
        outlives_fork(self._flight)
        self._ending: threading.Thread | None = None
        self.address = Address(listen.host, self._flight.port)

    def close(self) -> None:
        """Let go of the address, and finish the calls that are under way.

        gRPC waits 20 s for a client that is connected and does not move, even between two calls.
        That is left to a thread, for which the end of the process does not wait either.
        """
        if self._ending is None:
            ending = threading.Thread(
                target=self._flight.shutdown, name="tidemill-server-end", daemon=True
            )
            ending.start()
            self._ending = ending
        self._ending.join(_CLOSE_S_MAX)
        if self._ending.is_alive():
            leave(self._flight)


class _Flight(flight.FlightServerBase):  # type: ignore[misc]  # Arrow has no types.
    def __init__(
        self, url: str, answer: Callable[[Call], Iterator[bytes | pa.Buffer]], **options: Any
    ) -> None:
        super().__init__(url, **options)
        self._answer = answer
        self._is_secure = "tls_certificates" in options
        self._room = threading.BoundedSemaphore(CALLS_MAX)

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Answer one call; errors of ours reach the caller as what they are."""
        if not self._room.acquire(blocking=False):
            raise _refused(Unavailable(f"more than {CALLS_MAX} calls at once; try again"))
        try:
            if len(action.body) > MESSAGE_BYTES_MAX:
                raise TooLarge(f"a message has at most {MESSAGE_BYTES_MAX:,} bytes")
            name = context.peer_identity().decode("utf-8", "replace")
            # One without a name is nobody's, and not that of whoever it claims to be.
            call = Call(action.type, action.body, name if self._is_secure else None)
            yield from map(flight.Result, map(pa.py_buffer, self._answer(call)))
        except TidemillError as error:
            raise _refused(error) from error
        except Exception as error:
            # Whoever called is no reader of our traceback.
            logger.exception("a call of %s failed", context.peer())
            raise flight.FlightServerError("a fault of ours, which its log tells of") from error
        finally:
            self._room.release()


def _refused(error: TidemillError) -> Exception:
    # Flight says the words in two ways more, and all of it has to fit into the head of an answer.
    words = printable(str(error)[:_WORDS_MAX])
    return flight.FlightServerError(words, extra_info=packed(error))
