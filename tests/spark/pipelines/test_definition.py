"""What is checked when a pipeline is written down; no Spark runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.spark import Pipeline, Sink, Source, pipeline
from tidemill.spark.pipelines import frames


def one(rows: Any) -> Any:
    return rows


def two(left: Any, right: Any) -> Any:
    return left.union(right)


def test_a_pipeline_is_still_the_function() -> None:
    made = pipeline(source="in/", sink="out/")(one)
    assert isinstance(made, Pipeline)
    assert made(7) == 7
    assert (made.name, list(made.sources), list(made.sinks)) == ("one", ["rows"], ["output"])
    assert repr(made) == "<pipeline one: rows -> output>"


def test_several_sources_and_sinks_go_by_name() -> None:
    made = pipeline(
        source={"left": "l/", "right": Source("r/", maxOffsetsPerTrigger=5, failOnDataLoss=False)},
        sink={"even": Sink("e/", kind="queue"), "odd": Path("o")},
        dead_letters="bad/",
        name="split",
    )(two)
    assert list(made.sources) == ["left", "right"]
    assert made.sources["right"].options == {"maxOffsetsPerTrigger": "5", "failOnDataLoss": "false"}
    assert list(made.sinks) == ["even", "odd", "dead_letters"]


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (two, {"source": "in/", "sink": "out/"}, "has one source, and its function the param"),
        (two, {"source": {"left": "l/"}, "sink": "out/"}, "have to have the same names"),
        (one, {"source": {"row": "l/"}, "sink": "out/"}, "have to have the same names"),
        (one, {"source": "in/", "sink": {}}, "has no sink"),
        (one, {"source": "in/", "sink": "./in"}, "its sink output is also its source rows"),
        (one, {"source": "in/", "sink": "o/", "dead_letters": "in"}, "is also its source rows"),
        (one, {"source": "in/", "sink": {"a": "o/", "b": "./o"}}, "sinks a and b are one"),
        (one, {"source": "in/", "sink": "o", "rules": {"bad": "x > 0"}}, "no place for rows that"),
        (one, {"source": "in/", "sink": {"dead_letters": "o"}}, "by itself, dead_letters"),
        (one, {"source": "in/", "sink": "out/", "name": "p" * 60}, "shorten a name"),
        (one, {"source": "in/", "sink": ""}, "at a folder or a URL"),
        (
            one,
            {"source": Source("i", rules={"a": "b"}), "rules": {"a": "b"}, "sink": "o"},
            "said twice",
        ),
        (
            two,
            {"source": {"left": "l", "right": "r"}, "rules": {"a": "b"}, "sink": "o"},
            "at each",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_when_it_is_written_down(
    function: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(tm.InvalidPipeline, match=message):
        pipeline(**options)(function)


def test_a_password_stays_out_of_what_is_shown() -> None:
    url = "mysql://app:hush@db/shop/orders"
    with pytest.raises(tm.InvalidPipeline, match="mysql://app@db/shop/orders") as caught:
        pipeline(source=url, sink=url)(one)
    shown = [str(caught.value), repr(Source(url)), repr(Sink(url))]
    for refused in (lambda: Source(url, consumer="me"), lambda: Sink(url, format="csv")):
        with pytest.raises(tm.InvalidPipeline) as caught:
            refused()
        shown.append(str(caught.value))
    assert [text for text in shown if "hush" in text] == []


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("mysql://app@db/shop/orders", "mysql://root:hush@db:3306/shop/orders?timeout_s=5"),
        ("mysql://app@db/shop/orders", "mariadb://app@DB/shop/orders"),
        ("postgresql://app@db/shop/orders", "postgresql://root@db:5432/shop/orders"),
    ],
)
def test_a_log_on_a_server_is_one_however_it_is_addressed(source: str, sink: str) -> None:
    with pytest.raises(tm.InvalidPipeline, match="is also its source"):
        pipeline(source=source, sink=sink)(one)
    pipeline(source=source, sink=sink.replace("orders", "others"))(one)


def test_a_link_to_the_source_is_the_source(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(tm.InvalidPipeline, match="is also its source"):
        pipeline(source=tmp_path / "in", sink=tmp_path / "link")(one)


def test_names_are_those_of_everything_else() -> None:
    with pytest.raises(tm.InvalidName, match="pipeline name"):
        pipeline(source="in/", sink="out/", name="a/b")(one)
    with pytest.raises(tm.InvalidName, match="sink name"):
        pipeline(source="in/", sink={"a b": "out/"})(one)
    with pytest.raises(tm.InvalidName, match="by case alone"):
        pipeline(source="in/", sink={"a": "out/", "A": "other/"})(one)


def test_what_the_pipeline_says_itself_is_no_option() -> None:
    with pytest.raises(tm.InvalidPipeline, match="consumer of the source in/"):
        Source("in/", consumer="me")
    with pytest.raises(tm.InvalidPipeline, match="checkpointLocation of the sink out/"):
        Sink("out/", checkpointLocation="here")
    with pytest.raises(tm.InvalidPipeline, match="the format 'json'"):
        Sink("out/", format="json")
    with pytest.raises(tm.InvalidPipeline, match="partition_by is for Parquet"):
        Sink("out/", partition_by=["day"])


def test_an_option_for_batches_or_for_streams_is_given_to_those_alone() -> None:
    source = Source("in/", snapshotSeconds=60, maxTriggerDelay="5m", minPartitions=2)
    assert frames._options(source, None) == {"snapshotSeconds": "60", "minPartitions": "2"}
    assert frames._options(source, "me") == {
        "maxTriggerDelay": "5m",
        "minPartitions": "2",
        "startingOffsets": "earliest",
        "consumer": "me",
    }
