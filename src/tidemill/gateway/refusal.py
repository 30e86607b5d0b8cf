"""What the command line itself refuses, beside the errors of the queue."""

from __future__ import annotations

from typing import Any

from tidemill.errors import CallerError, SurroundingsError, TidemillError


def words_of(error: BaseException) -> str:
    """What an error says, with what was noted on its way.

    >>> words_of(KeyboardInterrupt())
    'interrupted'
    """
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


class NotFound(SurroundingsError):
    """A file or a fork that the command names is not there."""


class Declined(CallerError):
    """The user was asked, and said no; or could not be asked."""


class TooFarBehind(TidemillError):
    """A consumer of a log is further behind than the command allows."""


class FoundDamage(TidemillError):
    """The doctor found damage; the report has told what."""


class Stopped(TidemillError):
    """Long work ended in the middle; `done` says how far it came, `cause` why it ended."""

    def __init__(self, cause: BaseException, words: str, done: dict[str, Any]) -> None:
        super().__init__(f"{words_of(cause)}\n{words}")
        self.cause = cause
        self.done = done
