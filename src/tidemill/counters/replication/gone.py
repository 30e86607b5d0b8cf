"""What takes the place of a ledger that must not be used any more."""

from __future__ import annotations

from typing import NoReturn

from tidemill.errors import TidemillError


class Gone:
    """Raises the same error whatever is asked of it.

    A handle that swaps its ledger for this one has nothing to check in every call.

    >>> Gone(TidemillError("closed")).upsert
    Traceback (most recent call last):
    tidemill.errors.TidemillError: closed
    """

    def __init__(self, error: TidemillError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error.with_traceback(None)
