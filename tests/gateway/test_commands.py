"""Every other command through a real shell: what it does, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tests.gateway.shell import Shell

# Every command starts a Python of its own, several times over.
pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).resolve().parents[1] / "files" / "golden"


@pytest.fixture
def spool(shell: Shell) -> Shell:
    """A shell beside a queue with the keys 0 to 9 and a fork."""
    with tm.PriorityQueue(
        shell.folder / "spool", schema=pa.schema([("n", pa.int64()), ("city", pa.utf8())])
    ) as queue:
        queue.push([(key, {"n": key * 10, "city": f"c{key}"}) for key in range(10)])
        queue.fork("audit")
    return shell


def keys(shell: Shell, script: str) -> list[int]:
    return [row["key"] for row in shell.good(script).lines()]


def left(shell: Shell) -> int:
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        return len(queue)


def test_pop_gives_the_least_keys_once(spool: Shell) -> None:
    assert keys(spool, "tidemill pop spool/ 3") == [0, 1, 2]
    assert keys(spool, "tidemill pop spool/ --key-max 3 --json") == [3]
    assert keys(spool, "tidemill pop spool/ 5 --key-max -1 --wait-s 0") == []
    assert keys(spool, "tidemill pop spool/ --all --fork audit") == list(range(10))
    assert keys(spool, "TIDEMILL_QUEUE=spool/ TIDEMILL_FORK=audit tidemill pop 3") == []
    assert left(spool) == 6


def test_pop_writes_a_file_and_then_pops(spool: Shell) -> None:
    done = spool.good("tidemill pop spool/ 4 --to out.parquet")
    assert done.out == "popped 4 items to out.parquet\n"
    table = pq.read_table(spool.folder / "out.parquet")
    assert table.schema.names == ["seq", "key", "time", "n", "city"]
    assert table.column("n").to_pylist() == [0, 10, 20, 30]
    assert spool.good("tidemill pop spool/ --to o.csv --json").json() == {
        "popped": 1,
        "to": "o.csv",
    }
    assert '"c4"' in (spool.folder / "o.csv").read_text()
    assert sorted(path.name for path in spool.folder.iterdir()) == [
        "bin",
        "o.csv",
        "out.parquet",
        "spool",
    ]


def test_pop_without_an_output_that_lasts_pops_nothing(spool: Shell) -> None:
    assert "No space" in spool.refused("tidemill pop spool/ > /dev/full", 6, "full")["message"]
    assert spool.run("tidemill pop spool/ 9 --format parquet > /dev/full").status == 6
    assert spool.run("tidemill pop spool/ 9 --format csv > /dev/full").status == 6
    spool.good("touch there.csv; mkdir folder")
    spool.refused("tidemill pop spool/ --to there.csv", 3, "invalid-input")
    spool.refused("tidemill pop spool/ --to folder", 3, "invalid-input")
    spool.refused("tidemill pop spool/ --to none/x.csv", 4, "not-found")
    spool.refused("tidemill pop spool/ --to x.strange", 3, "invalid-input")
    spool.refused("tidemill pop spool/ --format lines", 3, "invalid-input")
    spool.refused("tidemill pop spool/ --fork nobody", 4, "not-found")
    assert left(spool) == 10


def test_a_broken_pipe_pops_nothing_and_is_quiet(spool: Shell) -> None:
    # The reader is gone before the first byte: the descriptor stays open, its other end does not.
    script = "exec 3> >(exec <&-); wait $!; tidemill pop spool/ 5 >&3; echo $?"
    done = spool.run(script)
    assert (done.out, done.err) == ("141\n", "")
    assert left(spool) == 10


def test_large_pops_go_by_pieces_and_clear_all(shell: Shell) -> None:
    shell.good("seq 150000 | tidemill push spool/ - --format lines --bucket shift:0")
    first = shell.good("tidemill pop spool/ 100000 --format lines | tail -1").out
    assert first == "100000\n"
    assert left(shell) == 50_000
    shell.good("tidemill pop spool/ 70000 --to rest.parquet")
    assert pq.read_metadata(shell.folder / "rest.parquet").num_rows == 50_000
    assert left(shell) == 0


def test_peek_and_scan_pop_nothing(spool: Shell) -> None:
    assert keys(spool, "tidemill peek spool/") == [0]
    assert keys(spool, "TIDEMILL_QUEUE=spool/ tidemill peek 2 --key-max 0") == [0]
    assert keys(spool, "tidemill scan spool/") == list(range(10))
    assert keys(spool, "tidemill scan spool/ --keys 2:4 --limit 2 --json") == [2, 3]
    assert keys(spool, "tidemill scan spool/ --keys -3:1") == [0, 1]
    csv = spool.good("tidemill scan spool/ --keys 8: --columns city,n --format csv").out
    assert csv == '"city","n"\n"c8",80\n"c9",90\n'
    spool.good("tidemill scan spool/ --fork audit --to all.ndjson")
    assert len((spool.folder / "all.ndjson").read_text().splitlines()) == 10
    spool.refused("tidemill scan spool/ --columns nope", 3, "invalid-input")
    spool.refused("tidemill scan spool/ --keys 5:1", 2, "usage")
    spool.refused("tidemill scan spool/ --keys a:b", 2, "usage")
    spool.refused("tidemill peek spool/ 1 2", 2, "usage")
    assert left(spool) == 10


def test_len_and_stats_count(spool: Shell) -> None:
    assert spool.good("tidemill len spool/").out == "10\n"
    assert spool.good("tidemill len spool/ --fork audit --json").json() == {"items": 10}
    stats = spool.good("TIDEMILL_QUEUE=spool/ tidemill stats --json").json()
    assert (stats["items"], stats["forks"], stats["next_seq"]) == (10, {"audit": 10}, 11)
    words = spool.good("tidemill stats spool/").out
    assert "items of fork audit" in words
    assert "n: int64, city: string" in words


@pytest.mark.parametrize("command", ["pop", "peek", "len", "scan", "stats", "journal", "fork list"])
def test_a_folder_without_a_queue_stays_without_one(shell: Shell, command: str) -> None:
    shell.refused(f"tidemill {command} nowhere/", 4, "not-found")
    shell.refused(f"tidemill {command} bin/", 4, "not-found")
    assert [path.name for path in shell.folder.iterdir()] == ["bin"]
    assert [path.name for path in (shell.folder / "bin").iterdir()] == ["tidemill"]


def test_delete_and_clear_need_a_yes(spool: Shell) -> None:
    spool.refused("tidemill delete spool/ 0 3", 12, "declined")
    spool.refused("tidemill clear spool/", 12, "declined")
    assert left(spool) == 10
    assert spool.good("tidemill delete spool/ -5 3 --yes").out == "deleted 4 items\n"
    spool.refused("tidemill delete spool/ 3 0 --yes", 3, "invalid-input")
    spool.refused("tidemill delete spool/ 3 --yes", 2, "usage")
    spool.refused("tidemill delete spool/ 3 1e9 --yes", 2, "usage")
    spool.refused(f"tidemill delete spool/ 0 {2**63} --yes", 2, "usage")
    assert spool.good("tidemill clear spool/ --yes --json").json() == {"cleared": 6}
    assert spool.good("tidemill len spool/ --fork audit").out == "10\n"


@pytest.mark.parametrize(("answer", "status", "items"), [("y", 0, 0), ("", 12, 10)])
def test_on_a_terminal_clear_asks(spool: Shell, answer: str, status: int, items: int) -> None:
    asked, found = spool.asked("tidemill clear spool/", answer)
    assert "Remove all 10 items of spool/?" in asked
    assert found == status
    assert left(spool) == items


def test_a_terminal_gets_a_table_and_a_bar(spool: Shell) -> None:
    seen = spool.on_terminal("tidemill peek spool/ 2 && tidemill scan spool/ --to x.csv")
    lines = seen.splitlines()
    assert lines[0].split() == ["seq", "key", "time", "n", "city"]
    assert lines[2].split()[-1] == "c1"
    assert "scanning" in seen


def test_forks_are_listed_made_and_removed(spool: Shell) -> None:
    made = spool.good("tidemill pop spool/ 4 > /dev/null; tidemill fork create spool/ late --json")
    assert made.json() == {"fork": "late", "items": 6, "created": True}
    spool.good("tidemill fork create spool/ early --of audit")
    assert "there already" in spool.good("tidemill fork create spool/ early").out
    words = spool.good("tidemill fork list spool/").out
    assert words == "fork   items\naudit     10\nlate       6\nearly     10\n"
    spool.refused("tidemill fork remove spool/ late", 12, "declined")
    spool.good("tidemill fork remove spool/ late --yes")
    names = spool.good("TIDEMILL_QUEUE=spool/ tidemill fork list --json").json()["forks"]
    assert [fork["name"] for fork in names] == ["audit", "early"]
    spool.refused("tidemill fork remove spool/ late --yes", 4, "not-found")
    spool.refused("tidemill fork create spool/ 'a/b'", 3, "invalid-input")
    spool.refused("tidemill fork create spool/ x --of nobody", 4, "not-found")
    spool.refused("tidemill fork create spool/", 2, "usage")
    spool.refused("tidemill fork", 2, "usage")


def test_shovel_moves_what_is_left(spool: Shell) -> None:
    assert spool.good("tidemill shovel spool/ other/ --json").json()["moved"] == 10
    assert (left(spool), keys(spool, "tidemill scan other/ --columns key")) == (0, [*range(10)])
    words = spool.good("tidemill shovel spool/ other/ --fork audit").out
    assert words == "moved 10 items to other/\n"
    assert spool.good("tidemill len other/").out == "20\n"
    spool.refused("tidemill shovel spool/", 2, "usage")
    spool.refused("tidemill shovel nowhere/ other/", 4, "not-found")
    spool.refused("tidemill shovel spool/ bin/", 4, "not-found")
    spool.good("seq 3 | tidemill push lines/ --format lines")
    spool.refused("tidemill shovel lines/ other/", 3, "invalid-input")


def test_journal_shows_every_record(spool: Shell) -> None:
    spool.good("tidemill pop spool/ 2 > /dev/null")
    records = spool.good("tidemill journal spool/ --json").lines()
    assert [record["kind"] for record in records] == [
        "state",
        "state",
        "frame",
        "fork",
        "fork",
        "cut",
    ]
    assert records[2]["details"]["key_max"] == 9
    assert records[5]["details"]["consumed"] == 2
    assert "name audit" in spool.good("tidemill journal spool/").out


def test_journal_shows_damage_and_others_report_it(spool: Shell) -> None:
    (segment,) = (spool.folder / "spool" / "journal").glob("*.segment")
    segment.write_bytes(segment.read_bytes().replace(b"c7", b"C7"))
    kinds = [record["kind"] for record in spool.good("tidemill journal spool/ --json").lines()]
    assert "damage" in kinds
    error = spool.refused("tidemill pop spool/", 9, "corrupt")
    assert error["path"].endswith(segment.name)
    assert error["offset"] > 0
    assert keys(spool, "TIDEMILL_ON_CORRUPTION=continue tidemill pop spool/ 5 2> /dev/null") == []


def test_the_doctor_verifies_repairs_and_deals_with_what_was_set_aside(spool: Shell) -> None:
    assert "All is well." in spool.good("tidemill doctor spool/").out
    (segment,) = (spool.folder / "spool" / "journal").glob("*.segment")
    segment.write_bytes(segment.read_bytes().replace(b"c7", b"C7"))
    done = spool.run("tidemill doctor spool/ --json")
    assert (done.status, done.json()["worst"]) == (9, "damage")
    assert done.error()["kind"] == "corrupt"
    spool.good("tidemill doctor spool/ --set-aside || test $? = 9")
    (aside,) = spool.good("tidemill quarantine list spool/ --json").json()["quarantined"]
    assert aside["rows"] == 10
    assert aside["name"] in spool.good("tidemill quarantine list spool/").out
    spool.good(f"tidemill quarantine save spool/ {aside['name']} --to rows.parquet")
    assert pq.read_metadata(spool.folder / "rows.parquet").num_rows == 10
    spool.refused(f"tidemill quarantine push-back spool/ {aside['name']}", 3, "invalid-input")
    spool.good(f"tidemill quarantine push-back spool/ {aside['name']} --unverified")
    assert left(spool) == 10
    spool.refused(f"tidemill quarantine drop spool/ {aside['name']}", 12, "declined")
    spool.good(f"tidemill quarantine drop spool/ {aside['name']} --yes")
    assert spool.good("tidemill quarantine list spool/").out == "nothing was set aside\n"
    spool.refused(f"tidemill quarantine drop spool/ {aside['name']} --yes", 3, "invalid-input")
    spool.refused("tidemill doctor", 2, "usage")
    spool.refused("tidemill doctor nowhere/", 4, "not-found")


def test_a_locked_folder_is_reported_with_its_owner(spool: Shell) -> None:
    with tm.PriorityQueue(spool.folder / "spool"):
        error = spool.refused("tidemill pop spool/ --lock-wait-s 0", 5, "locked")
        assert error["pid"] == os.getpid()
        at_once = "export TIDEMILL_LOCK_WAIT_S=0;"
        spool.refused(f"{at_once} seq 3 | tidemill push spool/ --format lines", 5, "locked")
        spool.refused(f"{at_once} tidemill shovel spool/ away/", 5, "locked")
        spool.refused("TIDEMILL_LOCK_WAIT_S=long tidemill pop spool/", 2, "usage")


def test_shovels_in_opposite_directions_wait_for_the_same_queue_first(spool: Shell) -> None:
    spool.good("tidemill shovel spool/ other/")
    with tm.PriorityQueue(spool.folder / "spool"), tm.PriorityQueue(spool.folder / "other"):
        for ends in ("spool/ other/", "other/ spool/"):
            error = spool.refused(f"tidemill shovel {ends} --lock-wait-s 0", 5, "locked")
            assert error["message"].startswith(f"{spool.folder / 'other'} is open")
    spool.good("tidemill shovel other/ spool/")
    assert left(spool) == 10


def test_commands_that_run_at_once_take_turns(shell: Shell) -> None:
    push = "echo {} | tidemill push spool/ --format lines --lock-wait-s 100"
    done = shell.good(f"seq 8 | xargs -P 8 -I {{}} sh -c '{push}'")
    assert done.out.count("pushed 1 row") == 8
    values = {row["value"] for row in shell.good("tidemill pop spool/ --all").lines()}
    assert values == {str(number) for number in range(1, 9)}


def test_a_pop_that_waits_lets_others_push_meanwhile(spool: Shell) -> None:
    pop = "tidemill pop spool/ --fork audit --all --key-max -1 --wait-s 100 --lock-wait-s 100"
    push = """echo '{"key": -5, "n": 1, "city": "Oslo"}' | tidemill push spool/ --lock-wait-s 100"""
    assert keys(spool, f"{pop} & {push} >&2; wait") == [-5]
    assert keys(spool, "tidemill pop spool/ 3 --key-max -6 --wait-s 0.1") == []
    assert left(spool) == 11


def test_commands_that_only_look_work_beside_the_owner(spool: Shell) -> None:
    with tm.PriorityQueue(spool.folder / "spool") as queue:
        queue.pop(2)
        queue.push([(100, {"n": 1, "city": "late"})])
        assert spool.good("tidemill len spool/").out == "9\n"
        assert spool.good("tidemill len spool/ --fork audit").out == "11\n"
        assert keys(spool, "tidemill peek spool/ 2") == [2, 3]
        assert keys(spool, "tidemill scan spool/ --keys 9:") == [9, 100]
        assert spool.good("tidemill stats spool/ --json").json()["items"] == 9
        assert "audit" in spool.good("tidemill fork list spool/").out
        assert "All is well." in spool.good("tidemill doctor spool/").out
        assert len(spool.good("tidemill journal spool/ --json").lines()) > 6
        assert len(queue) == 9


def test_upgrade_brings_an_old_folder_up_to_date(shell: Shell) -> None:
    shell.good(f"tar xzf {GOLDEN / 'format-1.tar.gz'}")
    shell.refused("tidemill len closed/", 10, "other-format")
    done = shell.good("tidemill upgrade closed/ --json").json()
    assert (done["before"], done["upgraded"]) == (1, True)
    assert "already" in shell.good("tidemill upgrade closed/").out
    assert int(shell.good("tidemill len closed/").out) > 0
    shell.refused("tidemill upgrade nowhere/", 4, "not-found")


def test_bench_measures_and_leaves_nothing(shell: Shell) -> None:
    small = "--batch-rows 100 --batches 3"
    found = shell.good(f"tidemill bench . {small} --json").json()
    assert [(rate["what"], rate["sync"]) for rate in found["rates"]] == [
        ("push", "full"),
        ("pop", "full"),
        ("push", "none"),
        ("pop", "none"),
    ]
    for rate in found["rates"]:
        assert rate["ratio"] == pytest.approx(rate["items_per_s"] / rate["floor_items_per_s"])
    assert "floor, items/s" in shell.good(f"mkdir d; tidemill bench d {small}; rmdir d").out
    assert [path.name for path in shell.folder.iterdir()] == ["bin"]
    shell.refused("tidemill bench nowhere/", 4, "not-found")
    shell.refused("tidemill bench --item-bytes 0", 2, "usage")
    shell.refused(f"tidemill bench --item-bytes {2**40}", 2, "usage")


@pytest.mark.parametrize("command", ["", "push", "pop", "fork", "fork list", "scan", "completion"])
def test_help_has_examples(shell: Shell, command: str) -> None:
    out = shell.good(f"tidemill {command} --help").out
    assert "usage: tidemill" in out
    assert ("examples:" in out) == bool(command)


def test_words_are_for_people_and_json_for_programs(shell: Shell) -> None:
    done = shell.run("tidemill len nowhere/")
    assert (done.status, done.out) == (4, "")
    assert done.err.startswith("tidemill: there is no folder nowhere/")
    done = shell.run("tidemill len")
    assert (done.status, "usage: tidemill len QUEUE" in done.err) == (2, True)
    usage = json.loads(shell.run("tidemill len --json").err)["error"]
    assert usage["kind"] == "usage"
    assert "TIDEMILL_QUEUE" in usage["message"]
