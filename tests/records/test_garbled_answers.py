"""Answers that no Redis and no etcd gives: they are as good as none, and are given no memory on
their word.
"""

from __future__ import annotations

import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest

import tidemill as tm
from tidemill.limits import RECORD_BYTES_MAX
from tidemill.records.opening import open_records

Answer = Callable[[bytes], bytes]

_CLOCK_OF_REDIS = b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n"


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """The port of a server that gives this answer to whatever was sent."""
    clients: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(client: socket.socket) -> None:
        with suppress(OSError):
            while sent := client.recv(1 << 20):
                client.sendall(answer(sent))

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # It is over.
            clients.append(client)
            threads.append(threading.Thread(target=serve, args=(client,)))
            threads[-1].start()

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for client in clients:
                stack.enter_context(client)
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _redis(answer: bytes) -> Answer:
    """A Redis up to the first command that is about a record."""
    return lambda sent: answer if b"HMGET" in sent or b"EVAL" in sent else b"+OK\r\n"


def _http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _etcd(answer: bytes) -> Answer:
    """An etcd up to the first transaction."""
    return lambda sent: answer if b"/kv/txn" in sent else _http(b'{"leader":"5"}')


def _found(fields: bytes) -> bytes:
    return _http(b'{"responses":[{"response_range":{"kvs":[%s]}}]}' % fields)


# As the first answer of all, and as the one about a record.
_NO_REDIS = {
    "more bytes than there are": b"$4611686018427387904\r\n",
    "more bytes than a number has": b"$99999999999999999999\r\n",
    "8 GiB": b"$8589934592\r\n",
    "less than nothing": b"$-2\r\n",
    "few answers, less than none": b"*-5\r\n",
    "as many answers as there is memory": b"*2000000000\r\n" + b":1\r\n" * 10_000,
    "answers within answers": b"*1\r\n" * 100,
    "no number": b":abc\r\n",
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a line without end": b"+" + b"x" * 1_000_000,
}
_NO_RECORD_OF_REDIS = {
    "no clock": b"*0\r\n" + b"*3\r\n" + b"$-1\r\n" * 3,
    "nothing for a clock": b"*-1\r\n" + b"*3\r\n" + b"$-1\r\n" * 3,
    "words for a clock": b"*2\r\n$1\r\nx\r\n$1\r\ny\r\n" + b"*3\r\n" + b"$-1\r\n" * 3,
    "nothing for fields": _CLOCK_OF_REDIS + b"$-1\r\n",
    "too few fields": _CLOCK_OF_REDIS + b"*1\r\n$1\r\n1\r\n",
    "numbers for fields": _CLOCK_OF_REDIS + b"*3\r\n:1\r\n:1\r\n:1\r\n",
    "a refusal among fields": _CLOCK_OF_REDIS + b"*3\r\n-ERR no\r\n:1\r\n:1\r\n",
}
_NO_WRITE_OF_REDIS = {
    "words": b"+OK\r\n",
    "nothing": b"$-1\r\n",
    "another number": b":7\r\n",
    "several": b"*1\r\n:1\r\n",
}
_NO_ETCD = {
    "nothing": _http(b"{}"),
    "no object": _http(b"[]"),
    "no text": _http(b"\xff\xfe"),
    "lists within lists": _http(b"[" * 100_000),
    "nothing for a leader": _http(b'{"leader":null,"responses":null}'),
    "no base64": _found(b'{"value":"!!","mod_revision":"1"}'),
    "numbers for text": _found(b'{"value":1,"mod_revision":"1"}'),
    "no number": _found(b'{"value":"aGk=","mod_revision":"x"}'),
    "no revision": _found(b'{"value":"aGk="}'),
    "no key": _found(b"7"),
    "no answers": _http(b'{"responses":[]}'),
    "other answers": _http(b'{"responses":[{}]}'),
    "a length beyond all memory": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n",
    "8 GiB": b"HTTP/1.1 200 OK\r\nContent-Length: 8589934592\r\n\r\n{}",
    "a part beyond all memory": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n"
    ),
    "a list for a code": (
        b'HTTP/1.1 500 No\r\nContent-Length: 27\r\n\r\n{"code":[13],"message":{}} '
    ),
}

_ANSWERS = [
    *(pytest.param("redis", lambda _, a=a: a, id=f"redis: {w}") for w, a in _NO_REDIS.items()),
    *(
        pytest.param("redis", _redis(answer), id=f"redis: {what}, of a record")
        for what, answer in {**_NO_REDIS, **_NO_RECORD_OF_REDIS}.items()
    ),
    *(pytest.param("etcd", lambda _, a=a: a, id=f"etcd: {w}") for w, a in _NO_ETCD.items()),
    *(
        pytest.param("etcd", _etcd(answer), id=f"etcd: {what}, of a record")
        for what, answer in _NO_ETCD.items()
    ),
]


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        ("redis", _redis(b"-ERR no\x1b[2J\rtidemill: all is well\r\n" * 2)),
        (
            "etcd",
            lambda _: _http(b'{"message":"no\\u001b[2J\\rtidemill: all is well"}').replace(
                b"200 OK", b"400 Bad"
            ),
        ),
    ],
    ids=["redis", "etcd"],
)
def test_what_a_server_refuses_with_stays_on_its_line(scheme: str, answer: Answer) -> None:
    with answering(answer) as port, pytest.raises(tm.StorageFailed) as caught:
        open_records(f"{scheme}://127.0.0.1:{port}/alerts")[0].get("alerts:ring")
    assert str(caught.value).endswith(r"no\x1b[2J\rtidemill: all is well")


@pytest.mark.parametrize(("scheme", "answer"), _ANSWERS)
def test_a_read_whose_answer_nobody_gives_is_not_answered(scheme: str, answer: Answer) -> None:
    with answering(answer) as port:
        store, _ = open_records(f"{scheme}://127.0.0.1:{port}/alerts?timeout_s=0.1")
        with closing(store):
            tracemalloc.start()
            try:
                with pytest.raises(tm.Unavailable, match="gave no answer"):
                    store.get("alerts:ring")
                assert tracemalloc.get_traced_memory()[1] < RECORD_BYTES_MAX
            finally:
                tracemalloc.stop()


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        *(
            pytest.param("redis", _redis(answer), id=f"redis: {what}")
            for what, answer in {**_NO_REDIS, **_NO_WRITE_OF_REDIS}.items()
        ),
        *(
            pytest.param("etcd", _etcd(answer), id=f"etcd: {what}")
            for what, answer in _NO_ETCD.items()
        ),
    ],
)
def test_a_write_whose_answer_nobody_gives_is_in_doubt(scheme: str, answer: Answer) -> None:
    with answering(answer) as port:
        store, _ = open_records(f"{scheme}://127.0.0.1:{port}/alerts?timeout_s=0.5")
        with closing(store):
            writes: tuple[Callable[[], object], ...] = (
                lambda: store.create("alerts:ring", b"x"),
                lambda: store.replace("alerts:ring", b"x", 7),
                lambda: store.delete("alerts:ring", 7),
            )
            for write in writes:
                with pytest.raises(tm.OutcomeUnknown, match="may have taken effect"):
                    write()
