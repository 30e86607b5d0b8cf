"""A socket bound to an address, or why that cannot be."""

from __future__ import annotations

import errno
import socket

from tidemill.counters.replication.address import Address
from tidemill.errors import InvalidInput, Locked, NoAccess, TidemillError


def bound(address: Address) -> socket.socket:
    """A TCP socket that nobody shares.

    >>> with bound(Address.of("127.0.0.1:0")) as one:
    ...     one.getsockname()[1] > 0
    True
    """
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM
        )[0]
    except (OSError, UnicodeError) as error:  # the latter of what is no name
        raise InvalidInput(f"there is no host {address.host} to listen on: {error}") from error
    made = socket.socket(family, kind, protocol)
    try:
        # A port whose last connections are only just closed is free.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(1)
    except OSError as error:
        made.close()
        raise _typed(error, address) from error
    return made


def _typed(error: OSError, address: Address) -> TidemillError:
    if error.errno == errno.EADDRINUSE:
        return Locked(f"somebody listens on {address} already; end them, or choose another port")
    if error.errno in (errno.EACCES, errno.EPERM):
        return NoAccess(
            f"no access to port {address.port}: {error.strerror}; choose one above 1023"
        )
    return InvalidInput(f"cannot listen on {address}: {error.strerror}")
