"""MySQL and MariaDB, for whoever opens a log there."""

from __future__ import annotations

from tidemill.log.mysql.connection import MySQLConnection
from tidemill.log.mysql.statements import MySQLStatements
from tidemill.log.sql.dialect import Dialect

MYSQL = Dialect(MySQLConnection, MySQLStatements)
