"""PostgreSQL, for whoever opens a log there."""

from __future__ import annotations

from tidemill.log.postgres.connection import PostgresConnection
from tidemill.log.postgres.statements import PostgresStatements
from tidemill.log.sql.dialect import Dialect

POSTGRES = Dialect(PostgresConnection, PostgresStatements)
