"""What a URL may say, whatever it leads to: a scheme, text that servers take, hosts, and times."""

from __future__ import annotations

import re
from os import PathLike
from typing import overload

from tidemill.errors import InvalidInput

# What is no part of a password has to be escaped in one, but is not by everybody.
_LOGIN = re.compile(r"(://[^\s:/@]*):\S*@")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.ASCII | re.IGNORECASE)


def scheme_of(address: str | PathLike[str]) -> str:
    """What kind of place an address names; a path without a scheme is a file's.

    >>> scheme_of("MySQL://host/shop/orders"), scheme_of("file:orders/"), scheme_of("orders/")
    ('mysql', 'file', 'file')
    """
    found = _SCHEME.match(address) if isinstance(address, str) else None
    return found[1].lower() if found else "file"


@overload
def path_of(address: str) -> str: ...
@overload
def path_of(address: PathLike[str]) -> PathLike[str]: ...
def path_of(address: str | PathLike[str]) -> str | PathLike[str]:
    """The path of an address whose scheme is that of a file.

    >>> path_of("file:orders/"), path_of("orders/")
    ('orders/', 'orders/')
    """
    if isinstance(address, str) and _SCHEME.match(address):
        return address[len("file:") :]
    return address


def is_host(host: str) -> bool:
    """Whether a text may be looked up as the name of a host: resolvers and TLS raise errors that
    are none of theirs about empty parts, too long ones, and zeroes.

    >>> is_host("db.example"), is_host("::1"), is_host("bücher.example"), is_host("db..example")
    (True, True, True, False)
    """
    try:
        return bool(host.encode("idna")) and host.isprintable()
    except UnicodeError:
        return False


def is_text(text: str) -> bool:
    """Whether a server can be told it: a zero ends a string for some, and bytes of a command line
    that are no text raise errors that show all of it.

    >>> is_text("café"), is_text("a\\0b"), is_text("\\udcff")
    (True, False, False)
    """
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def without_password(words: str) -> str:
    """Words that may hold URLs, as messages and arguments do.

    >>> without_password("no argument: 'mysql://app:secret@host/shop/orders'")
    "no argument: 'mysql://app@host/shop/orders'"
    """
    return _LOGIN.sub(r"\1@", words)


def seconds_of(text: str, what: str = "timeout_s") -> float:
    """A time that a URL names, as its option `what`.

    >>> seconds_of("0.5")
    0.5
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise InvalidInput(f"{what} must be a number of seconds above 0, not {text!r}")
    return seconds
