"""One connection to Redis, in its own protocol (RESP 2); no package needed.

    *2␍␊$3␍␊GET␍␊$1␍␊a␍␊   a command: how many parts, then each with its length in front
    +OK   -ERR why   :7   $1␍␊a   $-1   *2␍␊…      an answer: done, refused, a number, bytes,
                                                   nothing, or so many answers

Packages for Redis send a command again that had no answer, and so may write twice. Here a command
is sent once, and whoever sent it knows how far it came.
"""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from typing import Any

from tidemill.errors import DiskFull, InvalidInput, NoAccess, StorageFailed, TidemillError
from tidemill.limits import KIB, RECORD_BYTES_MAX
from tidemill.log.sql.sockets import is_readable
from tidemill.records.address import RecordAddress
from tidemill.records.links import Busy, Lost
from tidemill.records.sockets import Arriving, connected
from tidemill.shown import printable

# What an error of Redis starts with. It did nothing, and may if asked again:
_DID_NOTHING = {"LOADING", "BUSY", "TRYAGAIN", "MASTERDOWN", "CLUSTERDOWN"}
_CLUSTER = "; this is a member of a Redis Cluster, name a Redis that is by itself"
_NO_PASSWORD = "; it asks for no password, so leave that out of the URL"
_NO_DATABASE = "; name a lower database in the URL, or raise `databases` of Redis"
_REFUSED: dict[str, tuple[type[TidemillError], str]] = {
    "NOAUTH": (NoAccess, "; put the password into the URL: redis://:password@host/name"),
    "WRONGPASS": (NoAccess, ""),
    "NOPERM": (NoAccess, ""),
    "READONLY": (NoAccess, "; this is a replica, name the primary"),
    "DENIED": (NoAccess, ""),
    "OOM": (DiskFull, "; raise maxmemory of Redis, or remove what is not needed"),
    "MOVED": (InvalidInput, _CLUSTER),
    "ASK": (InvalidInput, _CLUSTER),
    "MISCONF": (StorageFailed, "; its disk is full or fails, see the log of Redis"),
}
# Those that start with nothing but "ERR" are known by their words.
_FULL = "max number of clients"
_REFUSED_WORDS: dict[str, tuple[type[TidemillError], str]] = {
    "without any password configured": (NoAccess, _NO_PASSWORD),
    "no password is set": (NoAccess, _NO_PASSWORD),  # the same of Redis 5 and older
    "DB index": (InvalidInput, _NO_DATABASE),
    "value is not an integer or out of range": (InvalidInput, _NO_DATABASE),
}
_ECHO = ", with args beginning with"
_DEPTH_MAX = 8  # of answers within answers
# Of what an answer may claim before room is made for it; a record is the largest that is asked for.
_BYTES_MAX = RECORD_BYTES_MAX
_LINE_BYTES_MAX = 64 * KIB
_NOTHING = -1  # the length of what is not there
_ITEMS_MAX = KIB  # of one answer, those within others included


class RedisLink:
    """A connection that is logged in, and has its database selected."""

    def __init__(self, address: RecordAddress, within_s: float) -> None:
        [(self._host, self._port)] = address.hosts
        self._is_whole = True
        self._socket = connected(address, 0, "Redis", within_s)
        self._arriving = Arriving(self._socket)
        self._answers = io.BufferedReader(self._arriving, 64 * 1024)
        try:
            if address.password:
                login = (address.user, address.password) if address.user else (address.password,)
                self.call("AUTH", *login, within_s=within_s)
            self._check_alone(within_s)
            # Something answers there, before anything is written to it.
            self.call("SELECT", address.home or "0", within_s=within_s)
        except BaseException:
            self.close()
            raise

    @property
    def is_stale(self) -> bool:
        return not self._is_whole or is_readable(self._socket.fileno())

    def call(self, *command: str | bytes | int, within_s: float) -> Any:
        """Send a command, and wait for the answer; a refusal is raised."""
        [answer] = self.call_many([command], within_s=within_s)
        return answer

    def call_many(
        self, commands: Sequence[Sequence[str | bytes | int]], *, within_s: float
    ) -> list[Any]:
        """Send commands at once, and wait for all answers; the first refusal is raised."""
        self._is_whole = False
        try:
            self._arriving.until_s = time.monotonic() + within_s
            self._socket.settimeout(within_s)
            self._socket.sendall(b"".join(map(packed, commands)))
            answers = [self._read_answer() for _ in commands]
        except (OSError, ValueError) as cause:
            raise Lost(f"Redis at {self._where} did not answer: {cause}") from cause
        self._is_whole = True
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def close(self) -> None:
        self._is_whole = False
        self._answers.close()
        self._socket.close()

    def _check_alone(self, within_s: float) -> None:
        """Refuse a member of a cluster. It takes the keys that happen to be its own, so that a ring
        would fail at some later record only.
        """
        try:
            told = self.call("INFO", "cluster", within_s=within_s)
        except (NoAccess, StorageFailed):
            return  # Not everybody may ask; then a key that belongs elsewhere tells.
        if isinstance(told, bytes) and b"cluster_enabled:1" in told.split():
            raise InvalidInput(f"Redis at {self._where} cannot be used{_CLUSTER}")

    @property
    def _where(self) -> str:
        return f"{self._host}:{self._port}"

    def _read_answer(self) -> Any:
        self._bytes_left, self._items_left = _BYTES_MAX + _LINE_BYTES_MAX, _ITEMS_MAX
        return self._read(_DEPTH_MAX)

    def _read(self, depth: int) -> Any:
        line = self._answers.readline(_LINE_BYTES_MAX)
        if not line.endswith(b"\r\n"):
            too_long = len(line) == _LINE_BYTES_MAX
            raise OSError("a line has no end" if too_long else "it closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"+":
            return text
        if kind == b":":
            return int(text)
        if kind == b"-":
            return self._refusal(text.decode(errors="replace"))
        if kind == b"$":
            return self._read_bytes(int(text))
        if kind == b"*" and depth:
            return self._read_items(int(text), depth)
        raise ValueError(f"what starts with {kind!r} is no answer of Redis")

    def _read_items(self, count: int, depth: int) -> list[Any] | None:
        if count == _NOTHING:
            return None
        self._items_left -= _claimed(count, self._items_left)
        return [self._read(depth - 1) for _ in range(count)]

    def _read_bytes(self, count: int) -> bytes | None:
        if count == _NOTHING:
            return None
        self._bytes_left -= _claimed(count, self._bytes_left)
        data = self._answers.read(count + 2)
        if len(data) != count + 2:
            raise OSError("it closed the connection")
        return data[:-2]

    def _refusal(self, message: str) -> Exception:
        # A server without AUTH or EVAL repeats what came behind it: a password, or a record.
        message = message.partition(_ECHO)[0]
        word = message.partition(" ")[0]
        text = f"Redis at {self._where} refuses: {printable(message)}"
        if word in _DID_NOTHING or _FULL in message:
            return Busy(text)
        kind, advice = _REFUSED.get(word, (StorageFailed, ""))
        if word == "ERR":
            known = [found for words, found in _REFUSED_WORDS.items() if words in message]
            kind, advice = known[0] if known else (kind, advice)
        return kind(text + advice)


def _claimed(count: int, most: int) -> int:
    """A length that an answer claims to have, if it can be."""
    if not 0 <= count <= most:
        raise ValueError(f"a length of {count} is none that was asked for")
    return count


def packed(command: Sequence[str | bytes | int]) -> bytes:
    """A command as it is sent.

    >>> packed(["GET", b"a"])
    b'*2\\r\\n$3\\r\\nGET\\r\\n$1\\r\\na\\r\\n'
    """
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        data = part if isinstance(part, bytes) else str(part).encode()
        parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(parts)
