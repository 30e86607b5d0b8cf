"""What a pipeline reads and writes: its sources and its sinks. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tidemill.errors import InvalidInput, InvalidPipeline
from tidemill.log.sql import address as server
from tidemill.log.sql.address import SCHEMES
from tidemill.spark.address import folder_of
from tidemill.urls import without_password

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

TIDEMILL, PARQUET = "tidemill", "parquet"
# What the pipeline itself says to Spark, because exactly once hangs on it.
_OURS_TO_READ = ("path", "consumer")
_OURS_TO_WRITE = ("path", "checkpointlocation", "txnappid", "txnversion")

Url: TypeAlias = str | os.PathLike[str]


class Source:
    """A queue or a log that a pipeline reads, with options of `format("tidemill")`.

    >>> Source("clicks/", rules={"no user": "user IS NOT NULL"}, maxOffsetsPerTrigger=1000)
    Source('clicks/')

    `rules` say what a row has to be, as conditions in SQL or as columns; one that breaks a rule, or
    for which it is unknown, goes to the dead letters of the pipeline with the rule's name.
    """

    def __init__(
        self,
        url: Url,
        *,
        rules: Mapping[str, str | Column] | None = None,  # the reason, if it does not hold
        format: str = TIDEMILL,  # noqa: A002  Or another that Spark reads as a stream, as files.
        schema: str | StructType | None = None,  # of another format that needs one
        **options: Any,
    ) -> None:
        self.url = _url(url)
        self.rules = dict(rules or {})
        self.format = format
        self.schema = schema
        self.options = _options(options, _OURS_TO_READ, "source", self.shown)

    @property
    def shown(self) -> str:
        """Its address in messages: without a password."""
        return without_password(self.url)

    @property
    def place(self) -> str:
        """Where it is, so that the same place has the same name."""
        return _place(self.url)

    def __repr__(self) -> str:
        return f"Source({self.shown!r})"


class Sink:
    """A queue or a log that a pipeline writes, or a folder of Parquet files.

    >>> Sink("by-shop/", kind="queue", key="shop")
    Sink('by-shop/')
    >>> Sink("s3a://lake/orders", format="parquet", partition_by=["day"])
    Sink('s3a://lake/orders')
    """

    def __init__(
        self,
        url: Url,
        *,
        format: str = TIDEMILL,  # noqa: A002  Or "parquet".
        partition_by: Sequence[str] = (),  # of Parquet: columns that become folders
        # Those of `format("tidemill")`, or Spark's own for Parquet; there `mode="overwrite"` lets a
        # batch replace what the batch before wrote.
        **options: Any,
    ) -> None:
        self.url = _url(url)
        if format not in (TIDEMILL, PARQUET):
            raise InvalidPipeline(
                f"the sink {self.shown} has the format {format!r}: a pipeline writes {TIDEMILL} "
                f"and {PARQUET}, to which each row comes once"
            )
        if partition_by and format != PARQUET:
            raise InvalidPipeline(f"partition_by is for Parquet, and the sink {self.shown} is none")
        self.format = format
        self.partition_by = [partition_by] if isinstance(partition_by, str) else [*partition_by]
        self.options = _options(options, _OURS_TO_WRITE, "sink", self.shown)

    @property
    def shown(self) -> str:
        """Its address in messages: without a password."""
        return without_password(self.url)

    @property
    def place(self) -> str:
        """Where it is, so that the same place has the same name."""
        return _place(self.url)

    @property
    def folder(self) -> str | None:
        """Its folder, in full, or its place if Spark knows it; None if it is on a server."""
        try:
            folder = folder_of(self.url)
        except InvalidInput:
            return self.place
        return None if folder is None else str(folder)

    def __repr__(self) -> str:
        return f"Sink({self.shown!r})"


def _url(url: Url) -> str:
    text = os.fspath(url)
    if not isinstance(text, str) or not text:
        raise InvalidPipeline(f"a source or a sink is at a folder or a URL, not at {url!r}")
    return text


def _options(
    given: Mapping[str, Any], ours: tuple[str, ...], what: str, url: str
) -> dict[str, str]:
    """Options as Spark takes them."""
    for name in given:
        if name.lower() in ours:
            raise InvalidPipeline(f"{name} of the {what} {url} is what the pipeline itself says")
    texts = {name: value for name, value in given.items() if value is not None}
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in texts.items()
    }


def _place(url: str) -> str:
    try:
        folder = folder_of(url)
    except InvalidInput:
        return url.rstrip("/")  # A place that Spark knows: s3a://, hdfs://.
    if folder is not None:
        return os.path.realpath(folder)
    scheme, _, rest = url.partition(":")
    if scheme.lower() in SCHEMES:
        try:
            at = server.Address.parse(url)
        except InvalidInput:
            return url  # What is wrong with it is told by whoever opens it.
        # As whom one asks, and whether a port is said, makes no difference.
        home = at.unix_socket or f"{at.host.lower()}:{at.port}"
        return f"{home}/{at.database}/{at.name}"
    return f"{scheme.lower()}:{rest.rstrip('/')}"
