"""TLS: with `ssl_ca` the server must prove who it is, and one that does not is refused at once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill as tm
from tests.services.mariadb import MariaDB
from tests.services.server import skip_or_fail

# A server of its own, which is not the one that the tests share.
pytestmark = pytest.mark.slow


def _certificate(folder: Path, name: str) -> Path:
    """A certificate for localhost that vouches for itself, with its key beside it."""
    made = folder / f"{name}.pem"
    run = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -addext".split()
    run += ["subjectAltName=DNS:localhost", "-out", str(made), "-keyout", str(folder / "key.pem")]
    subprocess.run(run, check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[MariaDB]:
    if (reason := MariaDB.missing()) is not None:
        skip_or_fail(reason)
    own = _certificate(folder, "server")
    (folder / "key.pem").rename(folder / "server-key.pem")
    options = (f"--ssl-cert={own}", f"--ssl-key={folder / 'server-key.pem'}")
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
        _certificate(folder, vouching)
    with pytest.raises(tm.NoAccess, match="does not prove with TLS"):
        tm.Log(f"mysql://root@{host}:{server.port}/shop/orders?ssl_ca={authority}")


def test_a_server_without_tls_is_refused_if_it_must_prove_who_it_is(
    mariadb: MariaDB, database: str, folder: Path
) -> None:
    authority = _certificate(folder, "any")
    with pytest.raises(tm.NoAccess, match="does not prove with TLS"):
        tm.Log(f"{mariadb.url(database, 'log')}?ssl_ca={authority}")
