"""What a pipeline is: a function between sources and sinks, checked when it is written down."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tidemill.errors import InvalidPipeline
from tidemill.limits import NAME_LENGTH_MAX
from tidemill.names import check_name, check_unique
from tidemill.spark.pipelines.ends import Sink, Source, Url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.spark.pipelines.run import Run, SinkProgress

OUTPUT = "output"  # the name of the one sink that was given none
DEAD_LETTERS = "dead_letters"
_ID_LENGTH = 9  # of what is added to the names of a pipeline and a sink, for a transaction

Sources: TypeAlias = Url | Source | Mapping[str, Url | Source]
Sinks: TypeAlias = Url | Sink | Mapping[str, Url | Sink]
Function: TypeAlias = Callable[..., Any]


class Pipeline:
    """A function from DataFrames to DataFrames, with queues at its ends; `pipeline` makes one.

    Called, it is the function that it was made of.
    """

    def __init__(
        self,
        function: Function,
        *,
        name: str,
        sources: dict[str, Source],
        sinks: dict[str, Sink],
        state: str | None,
    ) -> None:
        self.function = function
        self.name = name
        self.sources = sources
        self.sinks = sinks  # the dead letters among them
        self.state = state  # the folder for states, where the pipeline gets one by its name
        self.__doc__ = function.__doc__
        self.__name__ = name

    def __call__(self, *frames: Any, **named: Any) -> Any:
        return self.function(*frames, **named)

    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {', '.join(self.sources)} -> {', '.join(self.sinks)}>"

    def start(
        self,
        spark: SparkSession | None = None,  # None: `tidemill.spark.session()`
        *,
        once: bool = False,  # end when everything that is there now is done
        every_s: float = 0.0,  # else: how long from one batch to the next; 0: as soon as may be
        state: Url | None = None,  # in place of the pipeline's own
    ) -> Run:
        """Run it beside the program, as one streaming query for each sink, from where it was."""
        from tidemill.spark.pipelines.run import start  # noqa: PLC0415 (most only define it)

        return start(self, spark, once=once, every_s=every_s, state=_text(state))

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        once: bool = False,
        every_s: float = 0.0,
        batch: bool = False,  # everything from the start, as a batch
        state: Url | None = None,
    ) -> dict[str, SinkProgress]:
        """Run it until it ends, and tell for each sink what came of it.

        With neither `once` nor `batch` it ends when it is stopped, or fails.
        """
        if batch:
            from tidemill.spark.pipelines.batch import run_batch  # noqa: PLC0415

            if once or every_s:
                raise InvalidPipeline("a batch is run by itself: without once and every_s")
            return run_batch(self, spark, state=_text(state))
        with self.start(spark, once=once, every_s=every_s, state=state) as run:
            run.wait()
            return run.progress()


def pipeline(
    *,
    source: Sources,  # one, or several by the names of the function's parameters
    sink: Sinks,  # one, or several by the names under which the function returns them
    dead_letters: Url | Sink | None = None,  # where rows go that cannot be taken
    rules: Mapping[str, Any] | None = None,  # of the one source, see `Source`
    name: str | None = None,  # None: the function's
    state: Url | None = None,  # the folder for checkpoints; None: beside the first sink
) -> Callable[[Function], Pipeline]:
    """A pipeline of a function from DataFrames to a DataFrame, or to several by name.

    >>> from tidemill.spark import pipeline
    >>> @pipeline(source="clicks/", sink="clicks_per_user/", dead_letters="bad_clicks/",
    ...           rules={"no user": "user IS NOT NULL"})
    ... def per_user(clicks):
    ...     return clicks.groupBy("user").count()
    >>> per_user
    <pipeline per_user: clicks -> output, dead_letters>

    `tidemill pipeline run FILE` runs the pipelines of a file, and `per_user.run()` does the same.
    """

    def decorate(function: Function) -> Pipeline:
        known = check_name(function.__name__ if name is None else name, what="pipeline")
        sources = _sources(function, known, source, rules)
        sinks = _sinks(known, sink, dead_letters, has_rules=any(s.rules for s in sources.values()))
        _check_apart(known, sources, sinks)
        return Pipeline(function, name=known, sources=sources, sinks=sinks, state=_text(state))

    return decorate


def _sources(
    function: Function, name: str, given: Sources, rules: Mapping[str, Any] | None
) -> dict[str, Source]:
    parameters = inspect.signature(function).parameters.values()
    wanted = [one.name for one in parameters if one.default is one.empty]
    if isinstance(given, Mapping):
        if rules:
            raise InvalidPipeline(f"pipeline {name}: say the rules of several sources at each")
        sources = {key: _source(one) for key, one in given.items()}
        known = {one.name for one in parameters}
        if not sources or not set(wanted) <= set(sources) <= known:
            raise InvalidPipeline(
                f"pipeline {name}: its sources are {_listed(sources)}, and the parameters of its "
                f"function {_listed(wanted)}; both have to have the same names"
            )
        return sources
    if len(wanted) != 1:
        raise InvalidPipeline(
            f"pipeline {name} has one source, and its function the parameters {_listed(wanted)}: "
            "give it one, or name a source for each"
        )
    source = _source(given)
    if rules:
        if source.rules:
            raise InvalidPipeline(f"pipeline {name}: the rules of its source are said twice")
        source.rules = dict(rules)
    return {wanted[0]: source}


def _sinks(
    name: str, given: Sinks, dead_letters: Url | Sink | None, *, has_rules: bool
) -> dict[str, Sink]:
    named = given if isinstance(given, Mapping) else {OUTPUT: given}
    if not named:
        raise InvalidPipeline(f"pipeline {name} has no sink")
    if DEAD_LETTERS in named:
        raise InvalidPipeline(
            f"pipeline {name}: give the sink of dead letters by itself, dead_letters=…"
        )
    if has_rules and dead_letters is None:
        raise InvalidPipeline(
            f"pipeline {name} has rules and no place for rows that break them: give "
            'dead_letters="bad/"'
        )
    sinks = {key: _sink(one) for key, one in named.items()}
    if dead_letters is not None:
        sinks[DEAD_LETTERS] = _sink(dead_letters)
    for key in sinks:
        check_unique(check_name(key, what="sink"), sinks, what="sink")
        if len(name) + 1 + len(key) + _ID_LENGTH > NAME_LENGTH_MAX:
            raise InvalidPipeline(
                f"pipeline {name} and its sink {key} have more than "
                f"{NAME_LENGTH_MAX - _ID_LENGTH - 1} characters together: shorten a name"
            )
    return sinks


def _check_apart(name: str, sources: dict[str, Source], sinks: dict[str, Sink]) -> None:
    """Refuse a pipeline that would feed itself, or two sinks that wait for one another's folder."""
    places: dict[str, str] = {}
    for key, sink in sinks.items():
        for source_key, source in sources.items():
            if source.place == sink.place:
                raise InvalidPipeline(
                    f"pipeline {name}: its sink {key} is also its source {source_key}, "
                    f"{source.shown}: it would read what it writes for ever"
                )
        if sink.place in places:
            raise InvalidPipeline(
                f"pipeline {name}: its sinks {places[sink.place]} and {key} are one, {sink.shown}: "
                "give each its own, or unite their rows in the function"
            )
        places[sink.place] = key


def _source(given: Url | Source) -> Source:
    return given if isinstance(given, Source) else Source(given)


def _sink(given: Url | Sink) -> Sink:
    return given if isinstance(given, Sink) else Sink(given)


def _text(path: Url | None) -> str | None:
    return None if path is None else os.fspath(path)


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"
