"""`tidemill counters serve`: a node of counters as a process."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import tidemill as tm
from tidemill.counters.snapshot import fitting, snapshot_of
from tidemill.files.disk.storage import storage_errors
from tidemill.gateway.arguments import interval, positive
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.http.missing import missing_http
from tidemill.gateway.http.token import TOKEN_WORDS, is_token
from tidemill.gateway.refusal import NotFound
from tidemill.gateway.tls_arguments import add_tls, tls_of

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "TIDEMILL_TOKEN"

DETAILS = """
Runs until it is stopped. Peers find it at --listen, as do `tidemill counters get` and the others;
with --http it also serves requests for other languages, and metrics for Prometheus at /metrics.

HTTP wants a token, `Authorization: Bearer TOKEN`: that of TIDEMILL_TOKEN, or of --token-file, which
is made if it is not there; by default a file beside the folder.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    peers = options.peer if options.peers_file is None else Path(options.peers_file)
    if options.peer and options.peers_file is not None:
        raise tm.InvalidInput("--peer and --peers-file exclude each other")
    tls = tls_of(options)
    with ExitStack() as stack:
        counters = stack.enter_context(
            tm.Counters(
                options.node,
                path=options.path,
                listen=options.listen,
                peers=peers,
                tls=tls,
                insecure=options.insecure,
                read_only=options.read_only,
                sync_ms=options.sync_ms,
                save_ms=options.save_ms,
                gc_ms=options.gc_ms,
            )
        )
        document = {"node": counters.node, "address": counters.address}
        words = f"{counters.node} listens on {counters.address}"
        if options.http is not None:
            document |= _serve_http(counters, options, tls, stack)
            words += f", HTTP on {document['http']}"
            if "token_file" in document:
                words += f" with the token in {document['token_file']}"
        out = None
        if options.snapshot_log is not None:
            log = stack.enter_context(tm.Log(options.snapshot_log, schema=tm.Counters.SNAPSHOT))
            out = stack.enter_context(log.publisher())
        console.result(words, document)
        console.flush()
        _wait(counters, out, options.snapshot_every.total_seconds())


def _wait(counters: tm.Counters, out: tm.Publisher | None, every_s: float) -> None:
    """Until the command is stopped, or the node stops by itself."""
    due_s = time.monotonic() + every_s
    told: list[str] = []
    while True:
        pause_s = None if out is None else max(0.0, due_s - time.monotonic())
        error = counters.wait_halted(pause_s)
        if error is not None:
            raise error
        if out is not None:
            due_s = time.monotonic() + every_s
            values, beyond = fitting(counters.all()[0])
            if beyond != told and beyond:
                logger.warning("no column holds the value of %s, left out", ", ".join(beyond))
            told = beyond
            # One counter that others brought there must not end the node, nor what it tells of all.
            out.send(snapshot_of(counters.node, values))


def _serve_http(
    counters: tm.Counters, options: argparse.Namespace, tls: tm.Tls | None, stack: ExitStack
) -> dict[str, str]:
    try:
        from tidemill.gateway.http.counters import counters_app  # noqa: PLC0415
        from tidemill.gateway.http.serving import HttpServer  # noqa: PLC0415
    except ImportError as cause:
        raise missing_http() from cause
    token, file = _token(options)
    server = stack.enter_context(HttpServer(counters_app(counters, token), options.http, tls=tls))
    found = {"http": server.address}
    return found if file is None else {**found, "token_file": str(file)}


def _token(options: argparse.Namespace) -> tuple[str, Path | None]:
    """The token, and the file that it is in."""
    if options.token_file is None and (token := os.environ.get(TOKEN_VARIABLE, "").strip()):
        if not is_token(token):
            raise tm.InvalidInput(f"{TOKEN_VARIABLE} holds no token, {TOKEN_WORDS}")
        return token, None
    if options.token_file is None and options.path is None:
        raise tm.InvalidInput(f"HTTP wants a token: set {TOKEN_VARIABLE}, or name a --token-file")
    file = Path(options.token_file or f"{str(options.path).rstrip('/')}.token")
    with storage_errors("writing", file):
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _read_token(file), file
        except FileNotFoundError as error:
            raise NotFound(f"the folder of the token's file {file} is not there") from error
        with os.fdopen(handle, "w") as opened:
            token = secrets.token_urlsafe(32)
            opened.write(token + "\n")
    return token, file


def _read_token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except UnicodeDecodeError:
        token = ""
    if not is_token(token):
        raise tm.InvalidInput(
            f"{file} holds no token, {TOKEN_WORDS}: write one, or remove the file, and it is made "
            "anew"
        )
    return token


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("node", metavar="NODE", help="the id of the node, of no other that lives")
    parser.add_argument(
        "--path", metavar="FOLDER", help="where it keeps its state; without, it ends with it"
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:7801",
        metavar="HOST:PORT",
        help="where peers and clients reach it (default: 127.0.0.1:7801)",
    )
    parser.add_argument(
        "--peer", action="append", default=[], metavar="HOST:PORT", help="may be said several times"
    )
    parser.add_argument(
        "--peers-file", metavar="FILE", help="an address on each line, read again every second"
    )
    parser.add_argument("--read-only", action="store_true", help="follow the others only")
    parser.add_argument(
        "--insecure", action="store_true", help="listen beyond this machine without certificates"
    )
    add_tls(parser)
    for name, default, words in (
        ("sync-ms", 2_000, "between two exchanges with a peer"),
        ("save-ms", 100, "within which a change is on disk"),
        ("gc-ms", 60_000, "between two looks for what expired or was deleted"),
    ):
        parser.add_argument(
            f"--{name}",
            type=positive,
            default=default,
            metavar="MS",
            help=f"{words} (default: {default})",
        )
    parser.add_argument("--http", metavar="HOST:PORT", help="serve HTTP there, too")
    parser.add_argument("--token-file", metavar="FILE", help="what HTTP wants from its clients")
    parser.add_argument("--snapshot-log", metavar="LOG", help="send all values to this log")
    parser.add_argument(
        "--snapshot-every",
        type=interval,
        default=timedelta(seconds=10),
        metavar="TIME",
        help="... so often (default: 10s)",
    )


COMMAND = Command(
    name="serve",
    summary="run a node of counters until it is stopped",
    details=DETAILS,
    examples=(
        "tidemill counters serve node-1 --path counters/ --peer 127.0.0.1:7802",
        "tidemill counters serve node-2 --listen 127.0.0.1:7802 --http 127.0.0.1:8080 "
        "--path counters-2/",
    ),
    arguments=_arguments,
    run=run,
)
