"""Rows that a pipeline cannot take, with the reason, as rows of a log of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame

COLUMNS = ("source", "source_seq", "reason", "row")
# All that a row has: Spark's own formats end at milliseconds.
_AS_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class Divided(NamedTuple):
    """Rows that keep the rules, and letters about those that do not."""

    good: DataFrame
    letters: DataFrame


def reject(frame: DataFrame, reason: str | Column, *, source: str | None = None) -> DataFrame:
    """Dead letters about all rows of a DataFrame: what a pipeline returns as its `dead_letters`.

    A letter has the reason, the row as JSON, where it came from (`source`, and the row's own `seq`
    there as `source_seq`, if it has one still), and the name of the pipeline.

        bad = orders.where("amount < 0")
        return {"output": orders.where("amount >= 0"), "dead_letters": reject(bad, "below 0")}
    """
    # Every executor imports the package above, and few reject anything.
    from pyspark.sql import functions as f  # noqa: PLC0415

    seq = f.col("seq") if "seq" in frame.columns else f.lit(None)
    whole = f.struct(*(f.col(_quoted(name)) for name in frame.columns))
    return frame.select(
        f.lit(source).cast("string").alias("source"),
        seq.cast("long").alias("source_seq"),
        (f.lit(reason) if isinstance(reason, str) else reason).cast("string").alias("reason"),
        f.to_json(whole, _AS_JSON).alias("row"),
    )


def divide(frame: DataFrame, rules: Mapping[str, str | Column], *, source: str) -> Divided:
    """Hold rows against rules; a rule that is unknown for a row, because of a null, is broken."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    kept = {
        reason: f.coalesce(f.expr(rule) if isinstance(rule, str) else rule, f.lit(False))
        for reason, rule in rules.items()
    }
    all_kept = reduce(lambda one, other: one & other, kept.values())
    reasons = f.concat_ws("; ", *(f.when(~holds, f.lit(name)) for name, holds in kept.items()))
    return Divided(
        frame.where(all_kept),
        reject(frame.where(~all_kept), reasons, source=source),
    )


def signed(letters: DataFrame, pipeline: str) -> DataFrame:
    """Letters as they are written, with the name of the pipeline in front."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return letters.select(f.lit(pipeline).alias("pipeline"), *COLUMNS)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
