"""A session at a server of Spark Connect: it behaves as any other does, and needs no Java here."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from tidemill.errors import InvalidInput, MissingExtra, SurroundingsError
from tidemill.urls import is_host

# Errors say what is wrong; where in its code is for the server's log.
_SETTINGS = {"spark.sql.connect.serverStacktrace.enabled": "false"}
_PORT = 15002
_WANTED = "use sc://host:15002"
_ANSWER_S_MAX = 30.0
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def connect(
    name: str,
    remote: str,
    defaults: Mapping[str, str],  # of which a server lets a client set some
    config: Mapping[str, str],
) -> SparkSession:
    """The running session at a server, or a new one."""
    ours = {key: value for key, value in defaults.items() if key.startswith("spark.sql.")}
    builder = SparkSession.builder.appName(name)
    for setting, value in {**ours, **_SETTINGS, **config}.items():
        builder = builder.config(setting, value)
    _check_answers(remote)
    try:
        return builder.remote(remote).getOrCreate()
    except ImportError as cause:
        raise MissingExtra(
            "a client of Spark Connect needs more than PySpark itself: "
            "pip install 'pyspark[connect]'"
        ) from cause


def _check_answers(remote: str) -> None:
    """Raise if nobody listens there: Spark's client would try for ten minutes, and say nothing."""
    try:
        parts = urlsplit(remote)
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        # It is not shown, and neither are its words: it may hold a token.
        raise InvalidInput(f"this is no address of a Spark Connect server: {_WANTED}") from None
    is_by_proxy = any(name.lower() in _PROXIES for name in os.environ)
    if parts.scheme != "sc" or host is None or is_by_proxy:
        return  # Spark knows what is wrong with it, or the way there.
    if not is_host(host):
        raise InvalidInput(f"{host!r} is no name of a host: {_WANTED}")
    try:
        socket.create_connection((host, port), timeout=_ANSWER_S_MAX).close()
    except OSError as cause:
        raise SurroundingsError(
            f"no Spark Connect server answers at {host}:{port} ({cause}): see that it runs, and "
            "that this is its address"
        ) from cause
