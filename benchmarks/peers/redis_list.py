"""A list of Redis: RPUSH and LPOP, which take one value or many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

_KEY = "bench"


class RedisList:
    """Redis' own queue, without a bound."""

    name = "Redis RPUSH, LPOP"

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis.from_url(url)

    def put(self, values: Sequence[bytes]) -> None:
        self._client.rpush(_KEY, *values)

    def take(self, count: int) -> int:
        return len(self._client.lpop(_KEY, count) or ())

    def close(self) -> None:
        self._client.close()
