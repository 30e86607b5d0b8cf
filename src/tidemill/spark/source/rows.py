"""Rows by number, as the source sees a log or the arrivals of a queue: what both have in common.

The driver asks for ends, times and layout, executors for rows. Each opens it for itself, and lets
go when it is done; nothing that is open is ever pickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from tidemill.batch import Layout
from tidemill.closing import Closing
from tidemill.log.contract import Ends
from tidemill.spark.address import Address


class Position(Protocol):
    """A consumer's place, held by the one query that may move it."""

    def done(self, next_seq: int) -> None:
        """Everything before it is done. Raises `Fenced` if another query took over."""

    def close(self) -> None: ...


class NumberedRows(Closing, ABC):
    """Rows in the order of their numbers, opened to be read."""

    place: str

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """All columns, as they are now."""

    @abstractmethod
    def ends(self) -> Ends: ...

    @abstractmethod
    def seq_at(self, time_us: int) -> int:
        """The first row of that time or later; the next one to come if there is none."""

    @abstractmethod
    def layout(self, start: int, end: int) -> Layout: ...

    @abstractmethod
    def read(self, start: int, end: int, *, fail_on_loss: bool) -> Iterator[pa.RecordBatch]:
        """The rows from `start` up to `end`, in order, as they lie in frames. What is trimmed,
        missing or damaged raises, or is passed over.
        """

    @abstractmethod
    def consumers(self) -> dict[str, int]:
        """The pointers of all consumers: the last row that is done."""

    @abstractmethod
    def claim(self, consumer: str, start: int) -> Position:
        """Become the one that moves a consumer, which is made at `start` if it is new."""

    @abstractmethod
    def close(self) -> None: ...


def open_rows(address: Address, *, fail_on_loss: bool) -> NumberedRows:
    """The rows at an address; a queue's damage raises, or is passed over."""
    if address.kind == "log":
        from tidemill.spark.source.log_rows import LogRows  # noqa: PLC0415 (it is one of these)

        return LogRows(address)
    from tidemill.spark.source.arrived_rows import ArrivedRows  # noqa: PLC0415

    return ArrivedRows(address, fail_on_loss=fail_on_loss)
