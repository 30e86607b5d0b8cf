"""What stands in front of every HTTP service: a token, bounds, and headers that browsers heed.

    request ──▶ bounded body? ──▶ token? ──▶ the service ──▶ answer + security headers

A token in the header `Authorization` is also what keeps a foreign page in the same browser from
acting for its user: no cookie is ever looked at, and no foreign origin is allowed to read.
"""

from __future__ import annotations

import hmac
import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.errors import InvalidInput
from tidemill.gateway.http.token import TOKEN_WORDS, is_token
from tidemill.limits import HTTP_BODY_BYTES_MAX, KIB

_PIECE_BYTES = 64 * KIB  # of an answer
_TOO_LARGE = f"a body has at most {HTTP_BODY_BYTES_MAX:,} bytes"
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """Lets through what may pass; `token` None lets everybody through."""

    def __init__(
        self, app: ASGIApp, *, token: str | None, open_paths: frozenset[str] = frozenset()
    ) -> None:
        if token is not None and not is_token(token):
            raise InvalidInput(f"a token is {TOKEN_WORDS}")
        self._app = app
        self._expected = None if token is None else b"Bearer " + token.encode()
        self._open_paths = open_paths  # that need no token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        headers = dict(scope["headers"])
        if not self._is_allowed(scope, headers.get(b"authorization", b"")):
            words = "a token is missing or wrong: send it as `Authorization: Bearer TOKEN`"
            more = [(b"www-authenticate", b"Bearer")]
            await _refuse(answer, 401, "no-access", words, more)
        elif _declared(headers) > HTTP_BODY_BYTES_MAX:
            await _refuse_body(answer)
        else:
            await self._app(scope, _Body(receive), answer)

    def _is_allowed(self, scope: Scope, given: bytes) -> bool:
        if self._expected is None or scope["path"] in self._open_paths:
            return True
        return hmac.compare_digest(given, self._expected)


class _Body:
    """The body of a request, which ends where it gets too large."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._bytes = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._bytes += len(message.get("body", b""))
        if self._bytes > HTTP_BODY_BYTES_MAX:
            # More than the head of the request declared, if it declared anything.
            raise HTTPException(413, _TOO_LARGE)
        return message


class _Answer:
    """The answer, with the headers that all of them have."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        body = message.get("body", b"")
        last = max(0, len(body) - 1) // _PIECE_BYTES * _PIECE_BYTES
        for start in range(0, last, _PIECE_BYTES):
            # One after the other, as the client takes them: it shall not look as if it had all.
            piece = body[start : start + _PIECE_BYTES]
            await self._send({**message, "body": piece, "more_body": True})
        await self._send({**message, "body": body[last:]} if last else message)


def _declared(headers: dict[bytes, bytes]) -> int:
    text = headers.get(b"content-length", b"0")
    return int(text) if text.isdigit() and len(text) <= 18 else HTTP_BODY_BYTES_MAX + 1


async def _refuse_body(answer: _Answer) -> None:
    await _refuse(answer, 413, "too-large", _TOO_LARGE)


async def _refuse(
    answer: _Answer,
    status: int,
    kind: str,
    words: str,
    more: list[tuple[bytes, bytes]] | None = None,
) -> None:
    body = json.dumps(problem(kind, words)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start = {"type": "http.response.start", "status": status, "headers": headers + (more or [])}
    await answer(start)
    await answer({"type": "http.response.body", "body": body})


def problem(kind: str, words: str) -> dict[str, Any]:
    """An error as the command line says it in JSON."""
    return {"error": {"kind": kind, "message": words}}
