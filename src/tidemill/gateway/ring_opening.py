"""Opens the ring that a command names."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import asdict
from typing import Any

import tidemill as tm
from tidemill.records.address import SCHEMES
from tidemill.records.opening import open_records
from tidemill.records.ring import RingInfo
from tidemill.urls import scheme_of


def ring_address(text: str) -> bool:
    """Whether a text names a ring.

    >>> ring_address("redis://localhost/alerts"), ring_address("disk is full")
    (True, False)
    """
    return scheme_of(text) in SCHEMES


def open_ring(options: argparse.Namespace, **more: Any) -> tm.Ring:
    """The ring that is there; only a command that says its capacity makes one."""
    try:
        return tm.Ring(options.queue, buffers=options.buffers, **more)
    except tm.NotAQueue as error:
        error.add_note("in a shell: `tidemill ring create RING --capacity N`")
        raise


def info_document(info: RingInfo) -> dict[str, Any]:
    """The same for programs."""
    return asdict(info)


def problems_of(options: argparse.Namespace) -> tuple[str, ...]:
    """What the stores of a ring do not promise about what they confirm."""
    found: dict[str, None] = {}
    for url in (options.queue, options.buffers):
        if url is not None:
            store, _ = open_records(url)
            with closing(store):
                found.update(dict.fromkeys(store.problems()))
    return tuple(found)
