"""Sessions that end when the visitor logs out, or is idle; see the README beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from tidemill.spark import pipeline

IDLE_MS = 30 * 60_000  # A session is over when nothing came for so long.
OPEN = "first_ms BIGINT, last_ms BIGINT, pages INT"
ENDED = "user STRING, start_ms BIGINT, seconds DOUBLE, pages INT, reason STRING"


class Visitor(StatefulProcessor):
    """One visitor, and the session that is open, if one is. Spark has one object for all of them,
    and says whose turn it is by the key.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getValueState("open", OPEN)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803, ARG002
    ) -> Iterator[Row]:
        """The visits of a micro-batch. Each call of the state is a message to Spark: one to get it,
        one to put it.
        """
        session = self._open.get()
        for row in sorted(rows, key=lambda row: row.seq):  # as they stand in the log
            if session is not None and row.at_ms - session[1] >= IDLE_MS:
                yield ended(key, session, "idle")
                session = None
            first_ms, last_ms, pages = session or (row.at_ms, row.at_ms, 0)
            session = (min(first_ms, row.at_ms), max(last_ms, row.at_ms), pages + 1)
            if row.page == "/logout":
                yield ended(key, session, "logout")
                session = None
        if session is None:
            self._open.clear()
        else:
            self._open.update(session)
            self._handle.registerTimer(session[1] + IDLE_MS)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803, ARG002
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        """No visit can come any more that is older than the timer; a newer one may have come."""
        session = self._open.get()
        if session is not None and session[1] + IDLE_MS <= expiredTimerInfo.getExpiryTimeInMs():
            self._open.clear()
            yield ended(key, session, "idle")


def ended(key: Any, session: Any, reason: str) -> Row:
    first_ms, last_ms, pages = session
    seconds = (last_ms - first_ms) / 1000
    return Row(user=key[0], start_ms=first_ms, seconds=seconds, pages=pages, reason=reason)


@pipeline(source="visits/", sink="logouts/")
def logouts(visits: DataFrame) -> DataFrame:
    """A row for each session that is over."""
    # The one store that Spark has for such states.
    visits.sparkSession.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    timed = visits.withColumn("at", f.timestamp_millis("at_ms")).withWatermark("at", "2 minutes")
    return timed.groupBy("user").transformWithState(
        Visitor(), outputStructType=ENDED, outputMode="Append", timeMode="EventTime"
    )


if __name__ == "__main__":
    logouts.run(every_s=5)  # For spark-submit.
