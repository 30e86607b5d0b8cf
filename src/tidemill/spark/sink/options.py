"""What a write may be told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.errors import InvalidInput
from tidemill.files.staging.transaction import Transaction, run_of
from tidemill.names import check_name

_NAMES = {
    name.lower(): name
    for name in (
        "path",
        "kind",
        "key",
        "bucket",
        "mergeSchema",
        "txnAppId",
        "txnVersion",
        "txnRun",
        "checkpointLocation",
    )
}
# What Spark adds of its own accord to the options of a sink: the name of a streaming query.
_SPARKS = {"queryname"}
KINDS = ("log", "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of a write, checked.

    >>> SinkOptions.parse({"path": "orders/", "txnAppId": "daily"}, streaming=True).app_id
    'daily'
    >>> SinkOptions.parse({"path": "orders/", "keys": "at"}, streaming=False)
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: unknown option 'keys': there are bucket, checkpointLocation, \
key, kind, mergeSchema, path, txnAppId, txnRun, txnVersion
    """

    path: str
    kind: str | None = None  # of what is made if nothing is there: "log" (None) or "queue"
    key: str | None = None  # of a queue: the column to order by; None: `key`
    bucket: str | None = None  # of a queue that is made, as its settings have it: "shift:37"
    merge_schema: bool = False  # whether columns that the queue lacks are added to it
    app_id: str | None = None  # of the transaction
    version: int | None = None  # of a batch write: the transaction's number
    run: str | None = None  # of a batch write: the same version of another run is refused
    checkpoint: str | None = None  # of a streaming query

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """Check what Spark hands over; names count in any case."""
        found = {name.lower(): value for name, value in given.items()}
        for name in given:
            if name.lower() not in _NAMES and name.lower() not in _SPARKS:
                raise InvalidInput(
                    f"unknown option {name!r}: there are {', '.join(sorted(_NAMES.values()))}"
                )
        if not found.get("path"):
            raise InvalidInput('say where to write to: .save("orders/"), .start("orders/")')
        options = cls(
            path=found["path"],
            kind=_one_of(found, "kind", KINDS),
            key=found.get("key"),
            bucket=found.get("bucket"),
            merge_schema=_one_of(found, "mergeSchema", ("true", "false")) == "true",
            app_id=found.get("txnappid"),
            version=_number(found, "txnVersion"),
            run=found.get("txnrun"),
            checkpoint=found.get("checkpointlocation"),
        )
        options._check_transaction(streaming=streaming)
        return options

    @property
    def transaction(self) -> Transaction | None:
        """The transaction of a batch write; None if it has none."""
        if self.app_id is None or self.version is None:
            return None
        return Transaction(self.app_id, self.version, run=run_of(self.run))

    def _check_transaction(self, *, streaming: bool) -> None:
        if self.app_id is not None:
            check_name(self.app_id, what="transaction")
        if streaming and (self.version is not None or self.run is not None):
            raise InvalidInput(
                "txnVersion and txnRun are for batch writes: a streaming query has the number of "
                "the batch, and its checkpoint"
            )
        if self.run is not None and self.app_id is None:
            raise InvalidInput("txnRun tells runs of a transaction apart: give a txnAppId with it")
        if not streaming and (self.app_id is None) != (self.version is None):
            raise InvalidInput(
                "a write that is to be there once has both txnAppId and txnVersion: an id, and a "
                "number that grows from write to write"
            )


def _one_of(found: dict[str, str], name: str, choices: tuple[str, ...]) -> str | None:
    text = found.get(name.lower())
    if text is not None and text.lower() not in choices:
        raise InvalidInput(f"{name} is {' or '.join(choices)}, not {text!r}")
    return None if text is None else text.lower()


def _number(found: dict[str, str], name: str) -> int | None:
    text = found.get(name.lower())
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63:
        return int(text)
    raise InvalidInput(f"{name} is a whole number from 0 on, not {text!r}")
