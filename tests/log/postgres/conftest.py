"""A log on the server that the tests share."""

from __future__ import annotations

import pytest

from tests.services.postgres import Postgres


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.url()
