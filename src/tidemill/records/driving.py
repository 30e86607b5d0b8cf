"""Driving the steps of the protocol against stores, threads and a clock that are real."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, TypeVar

from tidemill.errors import Bug, Closed
from tidemill.log.home import Home
from tidemill.records.protocol.creation import metadata_name
from tidemill.records.protocol.requests import (
    CreateMetadata,
    DeleteBuffer,
    DeleteMetadata,
    GetBuffers,
    GetMetadata,
    Now,
    ReplaceMetadata,
    Request,
    Steps,
    Wait,
    WriteBuffers,
)
from tidemill.records.store import RecordStore

T = TypeVar("T")


class Driver:
    """Does what steps ask for, one operation at a time.

    Threads that share a handle take turns here, rather than in the store, where waiting is dear.
    Whoever waits lets the others go on.
    """

    def __init__(self, name: str, store: RecordStore, buffers: RecordStore) -> None:
        self._metadata = metadata_name(name)
        self._name = name
        self._store = store
        self._buffers = buffers
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._home = Home(f"ring {name!r}")

    def run(self, steps: Steps[T]) -> T:
        """Run an operation to its end, in turn."""
        self._check()
        with self._turn:
            return self._run(steps)

    def run_beside(self, steps: Steps[T]) -> T:
        """Run what needs no turn: it remembers nothing, and never waits."""
        self._check()
        return self._run(steps)

    def close(self) -> None:
        """Wake whoever waits, and wait for what is under way."""
        self._closed.set()
        if self._home.is_here:
            with self._turn:
                pass

    def _run(self, steps: Steps[T]) -> T:
        try:
            request = next(steps)
            while True:
                try:
                    answer = self._perform(request)
                except BaseException as error:  # noqa: BLE001 (the steps decide what it means)
                    request = steps.throw(error)
                else:
                    request = steps.send(answer)
        except StopIteration as ended:
            return ended.value

    def _perform(self, request: Request) -> Any:
        match request:
            case ReplaceMetadata():
                return self._store.replace(self._metadata, request.data, request.generation)
            case GetMetadata():
                return self._store.get(self._metadata)
            case GetBuffers():
                if not request.names:
                    return []
                if len(request.names) == 1:
                    return [self._buffers.get(request.names[0])]
                return self._buffers.get_many(request.names)
            case WriteBuffers():
                return self._write(request)
            case Now():
                return time.monotonic()
            case Wait():
                return self._wait(request.seconds)
            case CreateMetadata():
                return self._store.create(self._metadata, request.data)
            case DeleteMetadata():
                return self._store.delete(self._metadata, request.generation)
            case DeleteBuffer():
                return self._buffers.delete(request.name, request.generation)
        raise Bug(f"nobody knows how to do {request!r}")

    def _write(self, request: WriteBuffers) -> list[int | None]:
        if len(request.writes) != 1:
            return self._buffers.write_many(request.writes)
        (write,) = request.writes
        if write.generation is None:
            return [self._buffers.create(write.name, write.data)]
        return [self._buffers.replace(write.name, write.data, write.generation)]

    def _wait(self, seconds: float) -> None:
        # Those who wait for the same thing are not to come back at the same moment.
        seconds *= 0.5 + random.random() / 2
        self._turn.release()
        try:
            self._closed.wait(seconds)
        finally:
            self._turn.acquire()
        self._check()

    def _check(self) -> None:
        self._home.check()
        if self._closed.is_set():
            raise Closed(f"ring {self._name!r} was closed; open it again to use it")
