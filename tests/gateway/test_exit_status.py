from __future__ import annotations

import re
from pathlib import Path

import tidemill as tm
from tidemill.gateway import exit_status
from tidemill.gateway.refusal import Declined, NotFound, Stopped

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def test_every_status_is_its_own_and_the_reference_has_them_all() -> None:
    numbers = [status.number for status in exit_status.ALL]
    assert len(set(numbers)) == len(numbers)
    rows = re.findall(r"^\| ([0-9]+) \| `([a-z-]+)` \| (.+) \|$", REFERENCE.read_text(), re.M)
    assert rows == [(str(number), kind, meaning) for number, kind, meaning in exit_status.ALL]


def test_every_error_has_the_status_of_its_kind() -> None:
    expected = {
        tm.InvalidKey: 3,
        tm.SchemaMismatch: 3,
        tm.BucketMismatch: 3,
        tm.ForkRemoved: 3,
        tm.NotAQueue: 4,
        NotFound: 4,
        tm.Locked: 5,
        tm.QueueFull: 6,
        tm.DiskFull: 6,
        tm.NoAccess: 7,
        tm.StorageFailed: 8,
        tm.Corrupt: 9,
        tm.UnknownFormat: 10,
        tm.OldFormat: 10,
        tm.MissingExtra: 11,
        tm.Unavailable: 15,
        Declined: 12,
        KeyboardInterrupt: 130,
        BrokenPipeError: 141,
        tm.Bug: 1,
        RuntimeError: 1,
    }
    for kind, number in expected.items():
        assert exit_status.status_of(kind("why")).number == number
        assert exit_status.status_of(Stopped(kind("why"), "so far", {})).number == number


def test_no_error_of_ours_is_taken_for_a_fault_of_ours() -> None:
    leaves = [
        error
        for name in tm.__all__
        if isinstance(error := getattr(tm, name), type)
        and issubclass(error, tm.TidemillError)
        and not error.__subclasses__()
    ]
    failed = {e.__name__ for e in leaves if exit_status.status_of(e("why")).number == 1}
    assert failed == {"Bug"}
