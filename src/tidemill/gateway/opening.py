"""Opens the queue that a command names, and the end of it that the command works on."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tidemill as tm
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.format.settings import NAME as SETTINGS_NAME
from tidemill.files.format.settings import QUEUE, read_settings
from tidemill.files.state.bucket import Shift, Width
from tidemill.gateway.arguments import bucket
from tidemill.gateway.refusal import NotFound


def is_queue(path: str) -> bool:
    """Whether there is a queue already; opening would make one."""
    with storage_errors("looking for a queue in", Path(path)):
        return (Path(path) / SETTINGS_NAME).exists()


def holds_queue(path: str) -> bool:
    """Whether there is a priority queue, and not a log."""
    if not is_queue(path):
        return False
    with storage_errors("opening", Path(path)):
        found = read_settings(LocalFileSystem(), Path(path), kind=None)
    return found is not None and found.kind == QUEUE


def recorded_bucket(path: str) -> Shift | Width:
    """The bucket function of a queue that is there."""
    found = read_settings(LocalFileSystem(), Path(path))
    if found is None:
        raise tm.NotAQueue(f"{path} holds no queue")
    return bucket(found.bucket)


@contextmanager
def open_queue(options: argparse.Namespace) -> Iterator[tm.PriorityQueue]:
    """The queue that is there; a command that pushes nothing makes no queue."""
    check_is_queue(options.queue)
    with tm.PriorityQueue(
        options.queue,
        sync=options.sync,
        on_corruption=options.on_corruption,
        lock_wait_s=options.lock_wait_s,
    ) as queue:
        yield queue


@contextmanager
def open_to_look(options: argparse.Namespace) -> Iterator[tm.PriorityQueue]:
    """The same for a command that changes nothing, and that works beside the owner."""
    check_is_queue(options.queue)
    with tm.PriorityQueue(
        options.queue, on_corruption=options.on_corruption, read_only=True
    ) as queue:
        yield queue


def chosen_end(queue: tm.PriorityQueue, options: argparse.Namespace) -> tm.PriorityQueue | tm.Fork:
    """The fork that the command names, else the queue's own end."""
    return queue if options.fork is None else named_fork(queue, options.fork)


def named_fork(queue: tm.PriorityQueue, name: str) -> tm.Fork:
    """A fork that is there; a name that is misspelt makes none."""
    forks = queue.forks()
    if name not in forks:
        known = ", ".join(forks) if forks else "none"
        raise NotFound(f"{queue.path} has no fork {name!r}; its forks: {known}")
    return queue.fork(name)


def check_is_queue(path: str) -> None:
    """Refuse a folder that holds no queue."""
    if "://" in path:
        raise tm.InvalidInput(
            "a queue is kept in a folder; a URL names a log: see send, receive and consumers"
        )
    if is_queue(path):
        return
    if not Path(path).exists():
        raise tm.NotAQueue(f"there is no folder {path}; `tidemill push` makes a queue")
    raise tm.NotAQueue(f"{path} holds no queue; `tidemill push` makes one in an empty folder")
