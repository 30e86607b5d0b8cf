"""From DataFrames of the sources to a DataFrame for each sink: the rules, then the function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidemill.errors import InvalidPipeline, TidemillError
from tidemill.spark.pipelines.dead_letters import COLUMNS, divide, signed
from tidemill.spark.pipelines.definition import DEAD_LETTERS, Pipeline
from tidemill.spark.pipelines.failures import failed


def outputs(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """What each sink gets."""
    good, letters = {}, []
    for name, frame in frames.items():
        rules = pipeline.sources[name].rules
        if rules:
            try:
                good[name], letter = divide(frame, rules, source=name)
                # Spark looks at a condition when its columns are asked for.
                letters.append(letter.select(*letter.columns))
            except PySparkException as error:
                raise failed(error, pipeline.name, None, f"the rules of {name}") from error
        else:
            good[name] = frame
    made = _called(pipeline, good)
    if DEAD_LETTERS in made:
        letters.append(_checked_letters(pipeline, made.pop(DEAD_LETTERS)))
    if letters:
        united = reduce(lambda one, other: one.unionByName(other), letters)
        made[DEAD_LETTERS] = signed(united, pipeline.name)
    missing = [name for name in pipeline.sinks if name not in made]
    if missing == [DEAD_LETTERS]:
        raise InvalidPipeline(
            f"pipeline {pipeline.name} has a place for dead letters and writes none: give rules, "
            'or return them by name, {…, "dead_letters": reject(bad, "why")}'
        )
    if missing:
        raise InvalidPipeline(
            f"the function of pipeline {pipeline.name} returned nothing for its sinks "
            f"{', '.join(missing)}"
        )
    return {name: made[name] for name in pipeline.sinks}


def _called(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """What the function returns, by sink."""
    try:
        returned: Any = pipeline.function(**frames)
    except TidemillError:
        raise
    except (Exception, SystemExit) as error:  # It is the user's code, which may raise anything.
        raise failed(error, pipeline.name, None, "its function") from error
    if isinstance(returned, DataFrame):
        expected = [name for name in pipeline.sinks if name != DEAD_LETTERS]
        if len(expected) == 1:
            return {expected[0]: returned}
        raise InvalidPipeline(
            f"the function of pipeline {pipeline.name} returned one DataFrame, and there are the "
            f"sinks {', '.join(expected)}: return a dict of DataFrames by these names"
        )
    if not isinstance(returned, Mapping):
        raise InvalidPipeline(
            f"the function of pipeline {pipeline.name} returned a {type(returned).__name__}, not a "
            "DataFrame, or a dict of DataFrames by the names of sinks"
        )
    named = dict(returned)
    for name, frame in named.items():
        if name not in pipeline.sinks:
            hint = ": give dead_letters=… to the pipeline" if name == DEAD_LETTERS else ""
            raise InvalidPipeline(
                f"the function of pipeline {pipeline.name} returned rows for {name!r}, which is "
                f"none of its sinks {', '.join(pipeline.sinks)}{hint}"
            )
        if not isinstance(frame, DataFrame):
            raise InvalidPipeline(
                f"the function of pipeline {pipeline.name} returned a {type(frame).__name__} for "
                f"{name}, not a DataFrame"
            )
    return named


def _checked_letters(pipeline: Pipeline, letters: DataFrame) -> DataFrame:
    if sorted(letters.columns) != sorted(COLUMNS):
        raise InvalidPipeline(
            f"the function of pipeline {pipeline.name} returned dead letters with the columns "
            f"{', '.join(letters.columns)}: make them with reject(frame, reason)"
        )
    return letters
