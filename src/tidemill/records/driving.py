"""Driving the steps of the protocol against stores, threads and a clock that are real."""

from __future__ import annotations

import random
import threading
import time
from contextlib import AbstractContextManager, nullcontext
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
        self._is_closed = False
        self._home = Home(f"ring {name!r}")

    def run(self, steps: Steps[T]) -> T:
        """Run an operation to its end, in turn."""
        return self._run(steps, self._turn)

    def run_beside(self, steps: Steps[T]) -> T:
        """Run what needs no turn: it remembers nothing that others know of."""
        return self._run(steps, nullcontext())

    def close(self) -> None:
        """Let whoever waits end with the pause that it is in, and wait for what is under way."""
        self._is_closed = True
        if self._home.is_here:
            with self._turn:
                pass

    def _run(self, steps: Steps[T], turn: AbstractContextManager[object]) -> T:
        self._check()
        trouble: BaseException | None = None
        try:
            while True:
                # Whoever waits is out of the block: an interrupt may fall into taking a lock, and
                # a block that ends without its lock would give away that of somebody else.
                with turn:
                    first = steps.send(None) if trouble is None else steps.throw(trouble)
                    wait = self._until_wait(steps, first)
                trouble = self._wait(wait.seconds)
        except StopIteration as ended:
            return ended.value
        finally:
            trouble = None  # It has this frame, which has it: they would keep each other.

    def _until_wait(self, steps: Steps[T], request: Request) -> Wait:
        """Do what is asked for, up to the next wait."""
        while not isinstance(request, Wait):
            try:
                answer = self._perform(request)
            except BaseException as error:  # noqa: BLE001 (the steps decide what it means)
                request = steps.throw(error)
            else:
                request = steps.send(answer)
        return request

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

    def _wait(self, seconds: float) -> BaseException | None:
        """Wait about so long; returns what is to be told to the steps."""
        try:
            # Those who wait for the same thing are not to come back at the same moment. An event
            # would have a lock, which Ctrl-C leaves taken if it falls into the taking.
            time.sleep(seconds * (0.5 + random.random() / 2))
            self._check()
        except BaseException as error:  # noqa: BLE001 (the steps decide what it means)
            return error
        return None

    def _check(self) -> None:
        self._home.check()
        if self._is_closed:
            raise Closed(f"ring {self._name!r} was closed; open it again to use it")
