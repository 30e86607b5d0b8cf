"""The counters of a node over HTTP: what another language, or a shell, needs.

| request | answer |
|---|---|
| `GET /get?name=visits` | `{"name": "visits", "value": 7}` |
| `POST /upsert?name=visits&value=3` | the same, with the new value |
| `POST /upsert` with `{"visits": 3, "errors": 1}` | `{"values": {"visits": 10, "errors": 1}}` |
| `POST /delete?name=visits`, `POST /update-ttl?name=visits&ttl=60` | `{"name": "visits"}` |
| `GET /all`, `GET /parts?name=visits` | all of them; what each node counted |
| `GET /metrics`, `GET /health` | for Prometheus; whether the node lives (no token needed) |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tidemill.counters.counters import Counters
from tidemill.errors import (
    CallerError,
    CounterExpired,
    InvalidInput,
    NoSuchCounter,
    ReadOnly,
    TidemillError,
    TooLarge,
)
from tidemill.gateway.exit_status import status_of
from tidemill.gateway.http.guard import Guard, problem
from tidemill.gateway.http.metrics import exposition
from tidemill.gateway.http.prometheus import TYPE
from tidemill.limits import HTTP_TTL_S_MAX, INT64_MAX, INT64_MIN
from tidemill.shown import printable

_WORDS_MAX = 100  # of what was asked for, in an answer
# The first that fits counts.
_STATUSES: tuple[tuple[type[TidemillError], int], ...] = (
    (NoSuchCounter, 404),
    (CounterExpired, 410),
    (ReadOnly, 403),
    (TooLarge, 413),
    (CallerError, 400),
    (TidemillError, 503),
)


def counters_app(counters: Counters, token: str | None) -> ASGIApp:
    """The service of one node; without a token everybody who reaches it may change counters."""
    routes = _Routes(counters)
    app = Starlette(
        routes=[
            Route("/get", routes.get, methods=["GET"]),
            Route("/upsert", routes.upsert, methods=["POST"]),
            Route("/delete", routes.delete, methods=["POST"]),
            Route("/update-ttl", routes.update_ttl, methods=["POST"]),
            Route("/all", routes.all, methods=["GET"]),
            Route("/parts", routes.parts, methods=["GET"]),
            Route("/metrics", routes.metrics, methods=["GET"]),
            Route("/health", routes.health, methods=["GET"]),
        ],
        exception_handlers={
            TidemillError: _tell,
            HTTPException: _tell_http,
            ClientDisconnect: _tell_nobody,
        },
    )
    return Guard(app, token=token, open_paths=frozenset({"/health"}))


class _Routes:
    """What each request does. The ledger may wait for its lock, so that a thread asks it."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    async def get(self, request: Request) -> Response:
        name = _name(request)
        value = await run_in_threadpool(self._counters.get, name)
        return JSONResponse({"name": name, "value": value})

    async def upsert(self, request: Request) -> Response:
        body = await request.body()
        if body and request.query_params:
            raise InvalidInput("say what to count in the body or behind the `?`, not in both")
        if body:
            deltas = _deltas(body)
            values = await run_in_threadpool(
                self._counters.upsert_many, list(deltas), list(deltas.values())
            )
            found = dict(zip(deltas, values.tolist(), strict=True))
            return JSONResponse({"values": found})
        name, delta = _name(request), _whole(request, "value")
        value = await run_in_threadpool(self._counters.upsert, name, delta)
        return JSONResponse({"name": name, "value": value})

    async def delete(self, request: Request) -> Response:
        return await self._done(request, self._counters.delete)

    async def update_ttl(self, request: Request) -> Response:
        ttl_s = _whole(request, "ttl")
        if abs(ttl_s) > HTTP_TTL_S_MAX:
            raise InvalidInput(f"`ttl` is a number of seconds, at most {HTTP_TTL_S_MAX:,}")
        when = datetime.now(UTC) + timedelta(seconds=ttl_s)
        return await self._done(request, lambda name: self._counters.update_ttl(name, when))

    async def all(self, _: Request) -> Response:
        live, expired = await run_in_threadpool(self._counters.all)
        return JSONResponse({"live": live, "expired": expired})

    async def parts(self, request: Request) -> Response:
        name = _name(request)
        parts: dict[str, int] = {}
        for replica, value in (await run_in_threadpool(self._counters.parts, name)).items():
            parts[replica.node] = parts.get(replica.node, 0) + value
        return JSONResponse({"name": name, "parts": parts})

    async def metrics(self, _: Request) -> Response:
        text = await run_in_threadpool(exposition, self._counters)
        return PlainTextResponse(text, media_type=TYPE)

    async def health(self, _: Request) -> Response:
        error = self._counters.halted
        if error is not None:
            return JSONResponse(problem(type(error).__name__, str(error)), 503)
        return JSONResponse({"status": "ok", "node": self._counters.node})

    async def _done(self, request: Request, act: Callable[[str], None]) -> Response:
        name = _name(request)
        await run_in_threadpool(act, name)
        return JSONResponse({"name": name})


def _deltas(body: bytes) -> dict[str, int]:
    try:
        found = json.loads(body, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not found:
        raise InvalidInput('the body is a JSON object of names and numbers, such as {"visits": 1}')
    for name, delta in found.items():
        if not isinstance(delta, int) or isinstance(delta, bool):
            raise InvalidInput(f"the number for {name[:64]!r} is no whole number")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of a name that it has twice, Python would take the last and drop the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidInput("the body has a name twice: add its numbers")
    return found


def _name(request: Request) -> str:
    name = request.query_params.get("name")
    if not name:
        raise InvalidInput("say which counter: ?name=visits")
    return name


def _whole(request: Request, what: str) -> int:
    text = request.query_params.get(what, "")
    try:
        # Python would read a text of any length, in a time that grows with its square.
        number = int(text) if len(text) <= 20 else INT64_MAX + 1
    except ValueError:
        raise InvalidInput(f"`{what}` is missing, or is no whole number") from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise InvalidInput(f"`{what}` is over the range of int64")
    return number


async def _tell(_: Request, error: Exception) -> Response:
    assert isinstance(error, TidemillError)
    status = next(number for kind, number in _STATUSES if isinstance(error, kind))
    return JSONResponse(problem(status_of(error).kind, str(error)), status)


async def _tell_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers: Any = getattr(error, "headers", None)
    kind = "too-large" if error.status_code == 413 else "usage"
    words = error.detail
    if error.status_code in (404, 405):
        asked = printable(f"{request.method} {request.url.path}")
        words = f"there is no {asked[:_WORDS_MAX]} here"
    return JSONResponse(problem(kind, words), error.status_code, headers)


async def _tell_nobody(_: Request, __: Exception) -> Response:
    """Who left before the body was there gets no answer; that is no fault of ours to be logged."""
    return Response(status_code=400)
