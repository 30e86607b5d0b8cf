"""Settings that void the promise are told of, in receipts and by the doctor."""

from __future__ import annotations

import pytest

import tidemill as tm
from tests.services.postgres import Postgres
from tidemill.log.postgres.durability import settings_of
from tidemill.log.sql.checkup import verify

_SOUND = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


@pytest.mark.parametrize("name", list(_SOUND))
def test_each_setting_that_voids_the_promise_is_named(name: str) -> None:
    settings = settings_of({**_SOUND, name: "off"})
    assert settings.durability == "buffered"
    assert [problem for problem in settings.problems if f"{name} = off" in problem]


@pytest.mark.parametrize("value", ["on", "local", "remote_write", "remote_apply"])
def test_settings_that_keep_the_promise_are_not_complained_about(value: str) -> None:
    assert settings_of({**_SOUND, "synchronous_commit": value}).durability == "synced"


@pytest.mark.slow
def test_a_role_that_does_not_wait_for_the_disk_gets_receipts_that_say_so(
    postgres: Postgres,
) -> None:
    postgres.execute("CREATE ROLE hasty SUPERUSER LOGIN")
    postgres.execute("ALTER ROLE hasty SET synchronous_commit = off")
    url = postgres.url()
    with tm.Log(url) as log, log.publisher() as out:
        assert out.send([b"a"]).durability == "synced"
    hasty = url.replace("root@", "hasty@")
    with tm.Log(hasty) as log, log.publisher() as out:
        assert out.send([b"b"]).durability == "buffered"
    report = verify(hasty)
    assert [finding.code for finding in report.findings] == ["server-setting"]
    assert "synchronous_commit = off" in str(report)
    assert "All is well." in str(verify(url))
    assert verify(url).server.startswith("18.")
