"""`tidemill push` through a real shell: what it takes, what it refuses, and how it goes on."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tests.gateway.shell import Shell

# Every push starts a Python of its own.
pytestmark = pytest.mark.slow

EVENTS = pa.table(
    {
        "ts": pa.array(
            [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (3, 1, 2)],
            pa.timestamp("us", tz="UTC"),
        ),
        "city": ["Oslo", None, "Lyon"],
        "n": [30, 10, 20],
    }
)


def test_rows_of_parquet_come_out_by_the_column_that_is_named(shell: Shell) -> None:
    pq.write_table(EVENTS, shell.folder / "events.parquet")
    done = shell.good("tidemill push spool/ --from events.parquet --key ts --json").json()
    assert done == {
        "queue": "spool/",
        "pushed": 3,
        "first": 1,
        "last": 3,
        "durability": "synced",
    }
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        assert queue.schema.types == EVENTS.schema.types
        assert queue.pop(3).payload.column("n").to_pylist() == [10, 20, 30]


def test_parquet_comes_through_a_pipe_and_from_a_redirected_file(shell: Shell) -> None:
    pq.write_table(EVENTS, shell.folder / "events.parquet")
    shell.good("cat events.parquet | tidemill push spool/ - --format parquet --key ts")
    shell.good("tidemill push spool/ --format parquet --key ts < events.parquet")
    assert shell.good("tidemill len spool/").out == "6\n"


def test_json_lines_come_through_a_pipe(shell: Shell) -> None:
    rows = '{"key": 2, "value": "b"}\\n\\n{"key": 1, "value": "a"}'
    words = shell.good(f"printf '{rows}' | tidemill push spool/ -").out
    assert words == "pushed 2 rows with the arrival numbers 1 to 2, synced\n"
    assert [row["value"] for row in shell.good("tidemill pop spool/ 5").lines()] == ["a", "b"]


def test_plain_lines_are_values(shell: Shell) -> None:
    shell.good("printf 'one\\n\\nthree' | tidemill push spool/ - --format lines")
    assert shell.good("tidemill pop spool/ 9 --format lines").out == "one\n\nthree\n"
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        assert queue.schema.types == [pa.binary()]


def test_csv_keeps_nulls_empty_text_and_line_ends_apart(shell: Shell) -> None:
    csv = 'key,note\n1,\n2,""\n3,"two\nlines"\n'
    shell.good("tidemill push spool/ --format csv", stdin=csv.encode())
    notes = [row["note"] for row in shell.good("tidemill peek spool/ 3 --json").lines()]
    assert notes == [None, "", "two\nlines"]
    again = "tidemill pop spool/ 3 --format csv | tidemill push other/ --format csv"
    shell.good(f"set -o pipefail; {again}")
    assert [row["note"] for row in shell.good("tidemill pop other/ 3").lines()] == notes


@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet"])
def test_what_a_queue_gave_another_takes_as_it_is(shell: Shell, form: str) -> None:
    schema = "at: timestamp[us, UTC], day: date32, took: duration[us], price: decimal(9, 2)"
    schema += ", b: binary, x: float64, ok: bool"
    row = '{"key": 5, "at": "2026-01-31T12:00:00.000001Z", "day": "2026-01-31", "took": 7'
    row += ', "price": "1.20", "b": "AP8=", "x": 1.0, "ok": true}\\n'
    shell.good(f"printf '{row}' | tidemill push a/ - --schema '{schema}' --binary base64")
    shell.good(
        f"tidemill peek a/ --format {form} --binary base64"
        f" | tidemill push b/ - --format {form} --binary base64 --schema '{schema}'"
    )
    with tm.PriorityQueue(shell.folder / "a") as a, tm.PriorityQueue(shell.folder / "b") as b:
        assert b.schema == a.schema
        assert b.peek(1).rows() == a.peek(1).rows()
        assert a.peek(1).rows()[0][1]["b"] == b"\x00\xff"


def test_nested_values_go_in_and_out_as_json(shell: Shell) -> None:
    row = '{"key": 1, "tags": ["a", null], "where": {"city": "Gent", "at": [1.5]}}'
    shell.good(f"echo '{row}' | tidemill push spool/ -")
    (found,) = shell.good("tidemill pop spool/").lines()
    assert (found["tags"], found["where"]) == (["a", None], {"city": "Gent", "at": [1.5]})


def test_a_key_in_text_is_an_instant_and_other_times_stay_text(shell: Shell) -> None:
    rows = '{"ts": "2026-01-01T00:00:01Z", "due": "2026-01-02"}\\n'
    rows += '{"ts": "2026-01-01T01:00:00+01:00", "due": "later"}\\n'
    shell.good(f"printf '{rows}' | tidemill push spool/ - --key ts")
    found = shell.good("tidemill pop spool/ 2").lines()
    assert [row["due"] for row in found] == ["later", "2026-01-02"]
    assert found[0]["key"] == 1_767_225_600_000_000_000
    assert found[0]["ts"] == "2026-01-01T00:00:00.000000Z"


def test_a_schema_may_come_from_a_file_and_gain_columns(shell: Shell) -> None:
    (shell.folder / "schema.json").write_text(
        '[{"name": "tags", "type": {"list": "utf8"}, "nullable": true}]'
    )
    shell.good("""echo '{"tags": ["a"]}' | tidemill push spool/ - --schema schema.json""")
    wider = '[{"name": "tags", "type": {"list": "utf8"}, "nullable": true}'
    wider += ', {"name": "n", "type": "int64", "nullable": true}]'
    shell.good(f"""echo '{{"n": 5}}' | tidemill push spool/ - --schema '{wider}'""")
    assert [row["n"] for row in shell.good("tidemill pop spool/ 2").lines()] == [None, 5]


def test_nothing_to_push_is_no_error(shell: Shell) -> None:
    assert shell.good("tidemill push spool/ - < /dev/null").out == "no rows to push\n"
    assert shell.good("tidemill push spool/ --format csv < /dev/null --json").json()["pushed"] == 0


def test_the_bucket_function_and_the_bound_are_those_of_the_options(shell: Shell) -> None:
    shell.good("""echo '{"key": 1, "v": 1}' | tidemill push spool/ - --bucket width:10""")
    with tm.PriorityQueue(shell.folder / "spool", bucket=tm.Width(10)) as queue:
        assert len(queue) == 1
    shell.refused("seq 1 | tidemill push spool/ - --bucket shift:3", 3, "invalid-input")
    big = "head -c 400000 /dev/zero | tr '\\0' x | fold -w 1000 | tidemill push small/ -"
    shell.refused(f"{big} --format lines --bytes-max 150kB", 6, "full")


@pytest.mark.parametrize(
    ("script", "status", "kind", "words"),
    [
        ("echo '{\"key\":' | tidemill push q/ -", 3, "invalid-input", "not ndjson"),
        ("echo nonsense | tidemill push q/ -", 3, "invalid-input", "lines need --format lines"),
        ('echo \'{"key":"1","v":1}\' | tidemill push q/ -', 3, "invalid-input", "without quotes"),
        ("seq 3 | tidemill push q/ --format lines --bytes-max 1kB", 3, "invalid-input", "not 1000"),
        ("tidemill push q/ --bytes-max many", 2, "usage", "no size such as"),
        ("echo '{\"key\":1.5}' | tidemill push q/ -", 3, "invalid-input", "keys are integers"),
        ('echo \'{"key":null,"v":1}\' | tidemill push q/ -', 3, "invalid-input", "null"),
        ("echo '{\"v\":1}' | tidemill push q/ - --key ts", 3, "invalid-input", "'ts'"),
        ("echo '{\"v\":null}' | tidemill push q/ -", 3, "invalid-input", "declare the type"),
        (
            'echo \'{"ts":"2026-01-01 00:00:00","v":1}\' | tidemill push q/ - --key ts',
            3,
            "invalid-input",
            "need a zone",
        ),
        ("printf 'a,b\\n1\\n' | tidemill push q/ --format csv", 3, "invalid-input", "not csv"),
        (
            "printf 'k,v\\n1,caf\\xe9\\n' | tidemill push q/ --format csv",
            3,
            "invalid-input",
            "iconv",
        ),
        ('printf \'{"v":"\\xe9"}\\n\' | tidemill push q/', 3, "invalid-input", "column 'v' is not"),
        ("echo x | tidemill push q/ --format parquet", 3, "invalid-input", "not parquet"),
        (
            "printf '\\xff\\n' | tidemill push q/ --format lines --schema 'v: utf8'",
            3,
            "invalid-input",
            "UTF",
        ),
        (
            "echo '{\"v\":\"A\"}' | tidemill push q/ --schema 'v: binary' --binary base64",
            3,
            "invalid-input",
            "no base64",
        ),
        (
            "echo '{\"v\":\"A*==\"}' | tidemill push q/ --schema 'v: binary' --binary base64",
            3,
            "invalid-input",
            "no base64",
        ),
        ("echo '{\"v\":1}' | tidemill push q/ --schema 'v: number'", 3, "invalid-input", "schema"),
        ("echo '{\"v\":1}' | tidemill push q/ --schema 'v'", 3, "invalid-input", "NAME: TYPE"),
        ("tidemill push q/ --from missing.csv", 4, "not-found", "missing.csv"),
        ("tidemill push q/ --from bin --format csv", 3, "invalid-input", "is a folder"),
        ("tidemill push q/ --from data.xyz", 3, "invalid-input", "--format"),
        ("tidemill push q/ --schema no.json < /dev/null", 4, "not-found", "no.json"),
        ("touch q; seq 3 | tidemill push q --format lines", 4, "not-found", "is a file"),
        ("tidemill push q/ - --from x.csv", 2, "usage", "either"),
        ("tidemill push q/ input.csv", 2, "usage", "--from"),
        ("tidemill push q/ - --sync sometimes", 2, "usage", "none of full"),
        ("TIDEMILL_SYNC=sometimes tidemill push q/ -", 2, "usage", "none of full"),
        ("tidemill push q/ - --bucket thirds", 2, "usage", "shift:BITS"),
        ("tidemill push q/ - --bucket shift:64", 2, "usage", "0 to 63"),
        ("tidemill push q/ - --skip-rows -1", 2, "usage", "below 0"),
    ],
)
def test_wrong_input_is_refused_and_leaves_no_trace(
    shell: Shell, script: str, status: int, kind: str, words: str
) -> None:
    assert words in shell.refused(script, status, kind)["message"]
    assert not (shell.folder / "q").is_dir()


def test_input_that_does_not_fit_the_queue_is_refused(shell: Shell) -> None:
    shell.good("""echo '{"key": 1, "n": 1}' | tidemill push spool/ -""")
    for row, words in (
        ('{"n": "text"}', "not ndjson"),
        ('{"n": 1, "m": 2}', "no column 'm'"),
        ('{"m": 2}', "no column 'm'"),
        ('{"n": 99999999999999999999}', "not ndjson"),
    ):
        message = shell.refused(f"echo '{row}' | tidemill push spool/ -", 3, "invalid-input")
        assert words in message["message"]
    assert shell.good("tidemill len spool/").out == "1\n"


def test_input_that_breaks_off_says_how_far_it_came_and_how_to_go_on(shell: Shell) -> None:
    rows = "".join(f'{{"key": {number}}}\n'.replace("}", ', "v": 1}') for number in range(10))
    good, bad = rows.encode(), rows.replace('"key": 7', '"key": null').encode()
    push = "tidemill push spool/ - --batch-rows 3"
    done = shell.run(f"{push} --json", stdin=bad)
    assert done.status == 3
    error = done.error()
    assert (error["pushed"], error["first"], error["last"]) == (6, 1, 6)
    assert error["go_on"] == "--skip-rows 6"
    assert "row 1 is null" in error["message"]
    shell.good(f"{push} {error['go_on']}", stdin=good)
    assert [row["key"] for row in shell.good("tidemill pop spool/ 99").lines()] == list(range(10))


DEEP = 100_000


@pytest.mark.parametrize(
    "rows",
    [
        b"null\n",
        b" \nnull\n",
        b"\xef\xbb\xbfnull\n",
        b'{"key":1,"a":' + b"[" * 9_000,
        b'{"key":1,"a":' + b"[" * DEEP + b"]" * DEEP + b"}" + b"\n" * DEEP,
        b'{"key":1,"a":' + b"[\n" * DEEP + b"]\n" * DEEP + b"}\n",
        b'{"a":\n' * DEEP + b"1" + b"}\n" * DEEP,
        b'{"key":1,"a":"} {","b":' + b"[" * DEEP + b"\n",
        b'{"key":1,"a":' + b"[" * DEEP + b'"' + b'\\"' * DEEP,
    ],
    ids=[
        *("null", "null later", "null behind a mark", "deep", "deep, and empty lines"),
        *("deep in many lines", "objects in many lines", "deep behind text"),
        "deep in front of text that does not end",
    ],
)
def test_json_that_arrow_cannot_stand_is_refused(shell: Shell, rows: bytes) -> None:
    done = shell.run("tidemill push spool/ -", stdin=rows)
    assert done.status == 3
    assert "standard input" in done.err
    assert not (shell.folder / "spool").exists()


def test_brackets_within_text_are_not_counted(shell: Shell) -> None:
    row = b'{"key":1,"a":"' + b'[\\"{' * 9_000 + b'"}\n'
    shell.good("tidemill push spool/ -", stdin=row)
    assert shell.good("tidemill pop spool/").json()["a"] == '[\\"{'.replace("\\", "") * 9_000


@pytest.mark.parametrize("digits", ["18446744073709551615", "-9223372036854775809", "9" * 5_000])
@pytest.mark.parametrize("row", ['{"key":1,"id":%s}', '{"key":1,"a":[{"id": %s }]}'])
def test_a_whole_number_that_would_lose_digits_is_refused(
    shell: Shell, digits: str, row: str
) -> None:
    done = shell.run("tidemill push spool/ -", stdin=(row % digits).encode())
    assert done.status == 3
    assert "put it in quotes" in done.err
    assert not (shell.folder / "spool").exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709552000", 2.0**64),
        ('", 18446744073709551615 ,"', ", 18446744073709551615 ,"),
        ("[1.5, 9223372036854775807]", [1.5, 2.0**63]),
    ],
)
def test_numbers_that_keep_their_digits_are_taken(shell: Shell, text: str, value: object) -> None:
    row = f'{{"key":1,"id":{text},"x":0.5}}\n'
    shell.good("tidemill push spool/ -", stdin=row.encode())
    assert shell.good("tidemill pop spool/").json()["id"] == value


def test_times_within_lists_and_structs_stay_text(shell: Shell) -> None:
    row = '{"key":1,"a":["2026-01-31"],"s":{"at":"2026-01-31T10:00:00+02:00"}}\n'
    shell.good("tidemill push spool/ -", stdin=row.encode())
    found = shell.good("tidemill pop spool/").json()
    assert (found["a"], found["s"]) == (["2026-01-31"], {"at": "2026-01-31T10:00:00+02:00"})


def test_damaged_parquet_names_the_file_and_how_to_go_on(shell: Shell) -> None:
    table = pa.table({"key": range(600_000), "n": [at * 7919 % 1_000_003 for at in range(600_000)]})
    path = shell.folder / "rows.parquet"
    pq.write_table(table, path, row_group_size=300_000)
    start = pq.ParquetFile(path).metadata.row_group(1).column(1).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 100] = b"\xff" * 100  # the header of a page
    path.write_bytes(data)
    done = shell.run("tidemill push spool/ --from rows.parquet --json")
    assert done.status == 3
    error = done.error()
    assert "rows.parquet" in error["message"]
    rows = int(shell.good("tidemill len spool/").out)
    assert f"--skip-rows {rows}" in done.err


def test_a_push_of_no_rows_makes_no_queue_unless_its_columns_are_known(shell: Shell) -> None:
    assert shell.good("tidemill push spool/ -").out == "no rows to push\n"
    assert not (shell.folder / "spool").exists()
    shell.good("tidemill push spool/ -", stdin=b'{"key":1,"city":"Lyon"}\n')
    shell.good("tidemill push typed/ - --schema 'city: utf8'")
    shell.good("tidemill push typed/ -", stdin=b'{"key":1,"city":"Lyon"}\n')


def test_numbers_of_rows_beyond_all_bounds_mean_all(shell: Shell) -> None:
    many = 10**20
    shell.good(f"seq 3 | tidemill push spool/ - --format lines --batch-rows {many}")
    assert len(shell.good(f"tidemill peek spool/ {many}").lines()) == 3
    assert len(shell.good(f"tidemill scan spool/ --limit {many}").lines()) == 3
    assert len(shell.good(f"tidemill pop spool/ {many}").lines()) == 3


def test_nested_columns_are_declared_in_json(shell: Shell) -> None:
    rows = b'{"key": 1, "tags": null, "at": {"x": 1}}\n'
    schema = """'[{"name": "tags", "type": {"list": "utf8"}}, """
    schema += """{"name": "at", "type": {"struct": [["x", "int64"]]}, "nullable": false}]'"""
    shell.good(f"tidemill push spool/ - --schema {schema}", stdin=rows)
    shown = shell.good("tidemill stats spool/ --json").json()["schema"]
    (shell.folder / "columns.json").write_text(json.dumps(shown))
    shell.good("tidemill push same/ - --schema columns.json", stdin=rows)
    assert shell.good("tidemill stats same/ --json").json()["schema"] == shown
    with tm.PriorityQueue(shell.folder / "same") as queue:
        assert queue.pop(1).rows() == [(1, {"tags": None, "at": {"x": 1}})]
    (shell.folder / "object.json").write_text('{"tags": "utf8"}')
    for wrong in ("'tags: list<utf8>'", "object.json"):
        error = shell.refused(
            f"echo '{{}}' | tidemill push q/ - --schema {wrong}", 3, "invalid-input"
        )
        assert "in JSON: [{" in error["message"]


def test_a_schema_file_that_makes_no_sense_is_refused(shell: Shell) -> None:
    (shell.folder / "bytes.json").write_bytes(b"[\xff]")
    (shell.folder / "deep.json").write_text("[" * 200_000)
    for name in ("bytes", "deep"):
        done = shell.run(f"echo x | tidemill push spool/ - --schema {name}.json")
        assert done.status == 3
        assert "Traceback" not in done.err
