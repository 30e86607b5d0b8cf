"""Where a log on a server is: ``mysql://user:password@host:port/database/name?option=value``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemill.errors import InvalidInput, InvalidName
from tidemill.limits import SERVER_NAME_LENGTH_MAX
from tidemill.names import check_name
from tidemill.urls import is_host, is_text, scheme_of, seconds_of


class _Server(NamedTuple):
    scheme: str  # by which messages name it
    port: int


_MYSQL = _Server("mysql", 3306)
_POSTGRES = _Server("postgresql", 5432)
_SERVERS = {
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
}
SCHEMES = frozenset(_SERVERS)
_OPTIONS = ("unix_socket", "ssl_ca", "timeout_s")


@dataclass(frozen=True, slots=True)
class Address:
    """The server, the database and the log's name in it.

    >>> address = Address.parse("mysql://app:secret@db.example/shop/orders")
    >>> address.host, address.port, address.database, address.name, address.place
    ('db.example', 3306, 'shop', 'orders', 'mysql://app@db.example:3306/shop/orders')
    """

    scheme: str  # mysql or postgresql, however the URL writes it
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    name: str
    unix_socket: str | None = None
    ssl_ca: str | None = (
        None  # a file of certificates; the server must show one that they vouch for
    )
    timeout_s: float = 30.0  # how long a connection may be silent before it counts as lost

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a URL; anything that is wrong with it is `InvalidInput`, without its password."""
        try:
            parts = urlsplit(url)
            given_port = parts.port
        except ValueError:
            # Its words may hold the password, as may its cause.
            wanted = _wanted(_SERVERS.get(scheme_of(url), _MYSQL))
            raise InvalidInput(f"this is no URL of a log: {wanted}") from None
        server = _SERVERS.get(parts.scheme)
        if server is None:
            schemes = " or ".join(f"{one.scheme}://" for one in dict.fromkeys(_SERVERS.values()))
            raise InvalidInput(
                f"the URL of a log on a server starts with {schemes}, not {parts.scheme!r}"
            )
        path = [unquote(part) for part in parts.path.split("/")[1:]]
        host = parts.hostname or ""
        if len(path) != 2 or not all(path) or not is_host(host):
            raise InvalidInput(f"this is no URL of a log: {_wanted(server)}")
        if not is_text(unquote(url)):
            raise InvalidInput(f"this is no URL of a log: {_wanted(server)}")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(options.keys() - set(_OPTIONS)):
            raise InvalidInput(
                f"unknown option {unknown[0]!r} in the URL of a log: use {', '.join(_OPTIONS)}"
            )
        return cls(
            scheme=server.scheme,
            host=host,
            port=given_port or server.port,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=path[0],
            name=check_log_name(path[1]),
            unix_socket=options.get("unix_socket"),
            ssl_ca=options.get("ssl_ca"),
            timeout_s=seconds_of(options.get("timeout_s", "30")),
        )

    @property
    def place(self) -> str:
        """The log for messages: its URL without password."""
        return f"{self.scheme}://{self.user}@{self.host}:{self.port}/{self.database}/{self.name}"


def check_log_name(name: str) -> str:
    """Return a name that a log on a server may have, else raise `InvalidName`.

    >>> check_log_name("orders")
    'orders'
    """
    check_name(name, what="log")
    if len(name) > SERVER_NAME_LENGTH_MAX:
        raise InvalidName(
            f"the name of a log on a server has at most {SERVER_NAME_LENGTH_MAX} characters, this "
            f"one has {len(name)}: its tables' names are longer, and the server bounds them"
        )
    return name


def _wanted(server: _Server) -> str:
    return (
        f"use {server.scheme}://user:password@host:{server.port}/database/name, and write special "
        "characters in a password as %2F for / and the like"
    )
