"""Who a node's peers are, where that changes while it runs: asked again and again.

A provider is a function, or a file with an address on each line. One that fails changes nothing,
nor does a file without any: whoever was a peer stays one. A failure is told once, not every time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from tidemill.counters.replication.address import Address
from tidemill.errors import InvalidInput, TidemillError, TooLarge
from tidemill.files.disk.storage import typed
from tidemill.limits import COUNTER_PEERS_MAX, PEERS_FILE_BYTES_MAX

logger = logging.getLogger(__name__)

Peers: TypeAlias = Iterable[str] | Callable[[], Iterable[str]] | os.PathLike[str]


class Provider:
    """The peers as they should be now.

    >>> provider = Provider(lambda: ["127.0.0.1:7802", "127.0.0.1:7803"])
    >>> sorted(str(address) for address in provider.look() or ())
    ['127.0.0.1:7802', '127.0.0.1:7803']
    """

    def __init__(self, peers: Callable[[], Iterable[str]] | os.PathLike[str]) -> None:
        self._peers = peers
        self._told = ""  # the failure that was told last

    def look(self) -> frozenset[Address] | None:
        """All peers; None if they cannot be known now."""
        try:
            if isinstance(self._peers, os.PathLike):
                found = addresses(_lines(Path(self._peers)))
                if not found:
                    return None  # As a file is for a moment that somebody writes anew.
            else:
                found = addresses(self._peers())
        except BaseException as error:  # noqa: BLE001
            # Whatever a function of the user's may raise: `sys.exit()` in it would end the thread
            # that looks after all else, and say nothing.
            self._tell(error)
            return None
        self._told = ""
        return found

    def _tell(self, error: BaseException) -> None:
        words = str(error) if isinstance(error, TidemillError) else repr(error)
        if words != self._told:
            logger.warning("the peers stay as they were: their provider failed: %s", words)
        self._told = words


def addresses(texts: Iterable[str]) -> frozenset[Address]:
    """The addresses that texts stand for.

    >>> addresses("127.0.0.1:7802")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: peers are a list of addresses, a function, or a path, not ...
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InvalidInput(
            f"peers are a list of addresses, a function, or a path, not {type(texts).__name__}"
        )
    found: set[Address] = set()
    for text in texts:
        address = Address.of(text)
        if not address.port:
            raise InvalidInput(f"{text!r} is no address of a peer: port 0 is none")
        found.add(address)
        if len(found) > COUNTER_PEERS_MAX:
            raise TooLarge(f"a node has at most {COUNTER_PEERS_MAX:,} peers")
    return frozenset(found)


def _lines(path: Path) -> list[str]:
    """A file may have empty lines, and remarks behind `#`."""
    try:
        with path.open("rb") as file:
            text = file.read(PEERS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise typed(error, "reading", path) from error
    if len(text) > PEERS_FILE_BYTES_MAX:
        raise TooLarge(f"{path} has more than {PEERS_FILE_BYTES_MAX:,} bytes; is it a list?")
    lines = text.decode("utf-8", "replace").splitlines()
    return [found for line in lines if (found := line.partition("#")[0].strip())]
