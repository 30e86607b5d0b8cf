"""What is used in `with`, or closed by hand."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Closed at the end of a `with` block, however that ends.

    >>> class Door(Closing):
    ...     def close(self):
    ...         print("closed")
    >>> with Door():
    ...     print("open")
    open
    closed
    """

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing:
    """The same for `async with`."""

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
