"""Where records are kept, as a URL: ``scheme://user:password@host:port/…/name?option=value``.

memory:alerts                                   this process, for tests
redis://host:6379/alerts                        Redis; `rediss://` with TLS
redis://host/2/alerts                           ... its database number 2
mysql://user@host:3306/database/alerts          MySQL or MariaDB; `mariadb://` is the same
etcd://host1:2379,host2:2379/alerts             etcd; `etcds://` with TLS
aerospike://host:3000/namespace/alerts          Aerospike
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemill.errors import InvalidInput
from tidemill.names import check_name
from tidemill.urls import is_host, is_text, scheme_of, seconds_of

_TIMEOUT_S = "5"


class _Kind(NamedTuple):
    scheme: str  # by which messages name it
    port: int
    home: str  # what stands in front of the name: nothing, or what the server calls it
    options: tuple[str, ...]
    is_home_needed: bool = False
    has_many_hosts: bool = False


_TLS = ("ssl_ca", "ssl_cert", "ssl_key")
_KINDS = {
    "redis": _Kind("redis", 6379, "database number", ("timeout_s",)),
    "rediss": _Kind("rediss", 6379, "database number", ("timeout_s", *_TLS)),
    "mysql": _Kind("mysql", 3306, "database", ("timeout_s", "unix_socket", "ssl_ca"), True),
    "etcd": _Kind("etcd", 2379, "", ("timeout_s",), has_many_hosts=True),
    "etcds": _Kind("etcds", 2379, "", ("timeout_s", *_TLS), has_many_hosts=True),
    "aerospike": _Kind("aerospike", 3000, "namespace", ("timeout_s",), True, True),
}
_KINDS["mariadb"] = _KINDS["mysql"]
SCHEMES = frozenset({"memory", *_KINDS})
_ADVICE = "give memory:, redis://, mysql://, etcd:// or aerospike://"


@dataclass(frozen=True, slots=True)
class RecordAddress:
    """A server or several, and the name that the records have in common.

    >>> address = RecordAddress.parse("redis://app:secret@cache.example/alerts")
    >>> address.hosts, address.home, address.name, address.place
    ((('cache.example', 6379),), '', 'alerts', 'redis://app@cache.example:6379')
    """

    scheme: str  # mysql for mariadb
    hosts: tuple[tuple[str, int], ...]
    user: str
    password: str = field(repr=False)
    home: str  # the database or namespace; empty for the server's own choice
    name: str
    timeout_s: float = 5.0  # how long a call may take, with its tries
    unix_socket: str | None = None
    ssl_ca: str | None = None  # a file of certificates; the server must show one they vouch for
    ssl_cert: str | None = None  # ours, which the server may ask for
    ssl_key: str | None = None

    @classmethod
    def parse(cls, url: str) -> RecordAddress:
        """Read a URL; anything that is wrong with it is `InvalidInput`, without its password.

        >>> RecordAddress.parse("gopher://host/alerts")
        Traceback (most recent call last):
        tidemill.errors.InvalidInput: records cannot be kept at gopher: give memory:, redis://, \
mysql://, etcd:// or aerospike://
        """
        scheme = scheme_of(url)
        if scheme == "memory":
            return cls("memory", (), "", "", "", check_name(url[len("memory:") :], what="ring"))
        kind = _KINDS.get(scheme)
        if kind is None:
            what = "in a folder" if scheme == "file" else f"at {scheme}"
            raise InvalidInput(f"records cannot be kept {what}: {_ADVICE}")
        try:
            parts = urlsplit(url)
        except ValueError:
            # Its words may hold the password, as may its cause.
            raise _no_url(kind) from None
        login, _, hosts = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        path = [unquote(part) for part in parts.path.split("/")[1:]]
        lengths = (2,) if kind.is_home_needed else (1, 2) if kind.home else (1,)
        is_told = is_text(unquote(url))
        if len(path) not in lengths or not all(path) or parts.fragment or not is_told:
            raise _no_url(kind)
        home = path[0] if len(path) == 2 else ""
        if kind.home == "database number" and home and not (home.isascii() and home.isdigit()):
            raise _no_url(kind)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(options.keys() - set(kind.options)):
            raise InvalidInput(
                f"unknown option {unknown[0]!r} in a URL of {kind.scheme}: "
                f"use {', '.join(kind.options)}"
            )
        if "ssl_key" in options and "ssl_cert" not in options:
            raise InvalidInput(
                f"a URL of {kind.scheme} has ssl_key without ssl_cert: name the certificate that "
                "the key belongs to as well"
            )
        return cls(
            scheme=kind.scheme,
            hosts=_hosts(hosts, kind),
            user=unquote(user),
            password=unquote(password),
            home=home,
            name=check_name(path[-1], what="ring"),
            timeout_s=seconds_of(options.pop("timeout_s", _TIMEOUT_S)),
            **options,
        )

    @property
    def place(self) -> str:
        """Where the server is, for messages: without password, options and the name."""
        login = f"{self.user}@" if self.user else ""
        hosts = ",".join(f"{_bracketed(host)}:{port}" for host, port in self.hosts)
        home = f"/{self.home}" if self.home else ""
        return f"{self.scheme}://{login}{hosts}{home}"


def _hosts(text: str, kind: _Kind) -> tuple[tuple[str, int], ...]:
    found = []
    for part in text.split(","):
        host = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]@/]+)(?::(\d{1,5}))?", part)
        if host is None or not 0 < int(host[2] or kind.port) < 65_536:
            raise _no_url(kind)
        if not is_host(host[1].strip("[]")):
            raise _no_url(kind)
        found.append((host[1].strip("[]"), int(host[2] or kind.port)))
    if len(found) > 1 and not kind.has_many_hosts:
        raise _no_url(kind)
    return tuple(found)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _no_url(kind: _Kind) -> InvalidInput:
    home = f"{kind.home.replace(' ', '-')}/" if kind.is_home_needed else ""
    more = f" (or …/{kind.home}/name)" if kind.home and not kind.is_home_needed else ""
    return InvalidInput(
        f"this is no URL of records: use {kind.scheme}://user:password@host:{kind.port}/{home}name"
        f"{more}, and write special characters in a password as %2F for / and the like"
    )
