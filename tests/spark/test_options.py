"""What a reader may be told, and what it says to the rest; offsets; how far a micro-batch goes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from tidemill.errors import InvalidInput, InvalidName
from tidemill.spark.reading import time_options
from tidemill.spark.source.admission import Admission
from tidemill.spark.source.offsets import next_seq, offset
from tidemill.spark.source.options import SourceOptions


def parsed(**options: str) -> SourceOptions:
    return SourceOptions.parse({"path": "orders/", **options})


def test_names_count_in_any_case() -> None:
    assert parsed(STARTINGOFFSETS="5", minpartitions="3").partitions_min == 3


def test_defaults() -> None:
    options = parsed()
    assert (options.start, options.end, options.fail_on_loss) == (None, None, True)


@pytest.mark.parametrize(
    ("text", "where"),
    [("earliest", "earliest"), (" Latest ", "latest"), ("7", 7), ('{"next": 7}', 7)],
)
def test_offsets_are_words_numbers_or_json(text: str, where: object) -> None:
    assert parsed(startingOffsets=text).start == where
    assert parsed(endingOffsets=text).end == where


@pytest.mark.parametrize(
    "text", ["0", "-1", "1.5", "soon", '{"seq": 7}', "true", "[1]", "1" * 30, "[" * 9999]
)
def test_other_offsets_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="startingOffsets is earliest, latest"):
        parsed(startingOffsets=text)


def test_the_kind_may_be_written_as_the_sink_takes_it() -> None:
    assert (parsed().kind, parsed(kind="Ring").kind, parsed(kind="log").kind) == (
        None,
        "ring",
        "log",
    )
    with pytest.raises(InvalidInput, match="kind is queue, log or ring, not 'table'"):
        parsed(kind="table")


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1000", 1_000_000),
        ("1970-01-01T00:00:01+00:00", 1_000_000),
        ("1970-01-01T01:00:01+01:00", 1_000_000),
    ],
)
def test_times_are_milliseconds_or_have_a_zone(text: str, micros: int) -> None:
    assert parsed(startingTimestamp=text).start_us == micros


@pytest.mark.parametrize("text", ["1970-01-01T00:00:01", "noon", "-1", "9" * 20, "9" * 5000])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="a time with its zone"):
        parsed(endingTimestamp=text)


@pytest.mark.parametrize("minute", [29, 59])
@pytest.mark.parametrize("fold", [0, 1])
def test_the_last_time_is_included_also_in_the_hour_that_is_there_twice(
    fold: int, minute: int
) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    until = datetime(2026, 10, 25, 2, minute, 59, 999_999, berlin, fold=fold)
    seconds = 1_792_886_400 + 3600 * fold + 60 * (minute + 1)
    assert parsed(**time_options((None, until))).end_us == seconds * 10**6


def test_a_last_time_behind_all_others_leaves_out_none() -> None:
    assert time_options((None, datetime.max.replace(tzinfo=UTC))) == {}


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("30s", 30), ("5m", 300), ("2 hours", 7200)]
)
def test_a_delay_has_a_unit(text: str, seconds: float) -> None:
    assert parsed(maxTriggerDelay=text).trigger_delay_s_max == seconds


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("maxTriggerDelay", "5", "a duration such as 30s"),
        ("minPartitions", "0", "a whole number from 1 on"),
        ("maxRecordsPerPartition", "1e3", "a whole number from 1 on"),
        ("failOnDataLoss", "no", "true or false"),
        ("minKey", "low", "a whole number of 64 bits"),
        ("minKey", "-" + "9" * 5000, "a whole number of 64 bits"),
        ("minPartitions", "9" * 5000, "a whole number from 1 on"),
        ("minPartitions", " 3", "a whole number from 1 on"),
        ("maxTriggerDelay", "9" * 400 + "s", "a duration such as 30s"),
        ("s", "7", "there are buffers, consumer, endingOffsets"),
        ("startingOffset", "7", "did you mean startingOffsets"),
        ("kafka.bootstrap.servers", "x", "there are buffers, consumer, endingOffsets"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parsed(**{name: text})


def test_a_start_is_said_once() -> None:
    with pytest.raises(InvalidInput, match="the same thing twice"):
        parsed(startingOffsets="1", startingTimestamp="1")


def test_options_do_not_contradict_one_another() -> None:
    with pytest.raises(InvalidInput, match="is 9, above maxOffsetsPerTrigger, which is 8"):
        parsed(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8")
    with pytest.raises(InvalidInput, match="is 9, behind endingOffsets, which is 8"):
        parsed(startingOffsets="9", endingOffsets="8")


def test_names_of_consumers_and_forks_keep_the_grammar() -> None:
    with pytest.raises(InvalidName):
        parsed(consumer="../x")
    with pytest.raises(InvalidName):
        parsed(fork="")


@given(st.integers(1, 2**63 - 1))
def test_an_offset_comes_back_and_has_one_text(seq: int) -> None:
    text = json.dumps(offset(seq))
    assert next_seq(json.loads(text)) == seq
    assert text == json.dumps(offset(seq), sort_keys=True)


@pytest.mark.parametrize("stored", [{}, {"seq": 1}, {"next": "1"}, {"next": 1, "more": 2}])
def test_an_offset_of_another_source_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="no Tidemill source wrote"):
        next_seq(stored)


def test_a_micro_batch_is_bounded_waits_for_enough_and_takes_all_if_told() -> None:
    bounds = Admission(most=100, least=10, delay_s_max=60)
    assert bounds.default_limit() == ReadMaxRows(100)
    assert bounds.end(5, 1_000, ReadMaxRows(100), 0) == 105
    assert bounds.end(5, 10, ReadMaxRows(100), 0) == 5
    assert bounds.end(5, 10, ReadMaxRows(100), 60) == 10
    assert bounds.end(5, 10, ReadAllAvailable(), 0) == 10
    assert bounds.end(5, 5, ReadAllAvailable(), 0) == 5
    only_least = Admission(most=None, least=10, delay_s_max=60)
    assert only_least.default_limit() == ReadMinRows(10)
    assert only_least.end(5, 15, ReadMinRows(10), 0) == 15
    assert only_least.end(5, 14, ReadMinRows(10), 0) == 5
    assert Admission(None, None, 60).default_limit() == ReadAllAvailable()
