"""The driver: an extra that is named where it is missing, and handles that a fork copies."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from tests.log.contract.writing import append, read_all
from tidemill.log.sql.store import ServerLog


@pytest.mark.slow
def test_a_driver_that_is_missing_is_named() -> None:
    """In a process of its own, for modules are imported once."""
    script = (
        "import sys; sys.modules['psycopg'] = None; import tidemill as tm\n"
        "try: tm.Log('postgresql://app@db/shop/orders')\n"
        "except tm.MissingExtra as missing: print(missing)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "pip install 'tidemill[postgres]'" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_copy_that_ends_leaves_the_connections_alone(url: str) -> None:
    with ServerLog(url, parallelism=1) as store:
        writer = store.claim()
        append(writer, [b"a"])
        child = os.fork()
        if not child:
            try:
                store.close()
                writer._connections._connections.clear()
                store._pool._idle.clear()
                gc.collect()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        epoch = writer.epoch
        append(writer, [b"b"])
        assert writer.epoch == epoch  # Its connection was not lost.
        assert read_all(store) == [b"a", b"b"]
