"""TLS: with `ssl_ca` the server must prove who it is, and one that does not is refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill as tm
from tests.services.certificate import certificate
from tests.services.mariadb import MariaDB
from tests.services.server import skip_or_fail

# A server of its own, which is not the one that the tests share.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[MariaDB]:
    if (reason := MariaDB.missing()) is not None:
        skip_or_fail(reason)
    own = certificate(folder, "server")
    options = (f"--ssl-cert={own.path}", f"--ssl-key={own.key_path}")
    (folder / "data").mkdir()
    with MariaDB(folder / "data", *options) as running:
        running.execute("CREATE DATABASE shop")
        yield running


def test_a_server_that_proves_who_it_is_is_used(server: MariaDB, folder: Path) -> None:
    url = f"mysql://root@localhost:{server.port}/shop/orders?ssl_ca={folder / 'server.pem'}"
    with tm.Log(url) as log, log.publisher() as out:
        assert out.send(b"one").first == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_that_does_not_is_refused_at_once(
    server: MariaDB, folder: Path, host: str
) -> None:
    # Another name than the certificate's, or a certificate of somebody else's.
    vouching = "server" if host == "127.0.0.1" else "other"
    authority = folder / f"{vouching}.pem"
    if not authority.exists():
        certificate(folder, vouching)
    with pytest.raises(tm.NoAccess, match="does not prove with TLS"):
        tm.Log(f"mysql://root@{host}:{server.port}/shop/orders?ssl_ca={authority}")


def test_a_server_without_tls_is_refused_if_it_must_prove_who_it_is(
    mariadb: MariaDB, database: str, folder: Path
) -> None:
    authority = certificate(folder, "any").path
    with pytest.raises(tm.NoAccess, match="does not prove with TLS"):
        tm.Log(f"{mariadb.url(database, 'log')}?ssl_ca={authority}")
