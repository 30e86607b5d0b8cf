"""Publishers and receivers that get killed.

    python -m tests.log.sql.killed_children URL

Starts once, and then one process for each line of its input, so that a hundred of them cost little:

    publish TOLD FIRST_VALUE      sends unique rows
    receive TOLD                  receives and acks as the consumer `billing`
    relay TOLD LOG                publishes the outbox at URL

Answers with the process id. What a child attempts and is told goes to the file TOLD, a line of JSON
at a time, written at once; so all lines but the last are whole when the process is gone.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable

import tidemill as tm
import tidemill.log.sql.store
from tests.faults.checker import UniqueValues
from tests.log.sql.relays import relay_after_a_kill

CONSUMER = "billing"

Tell = Callable[..., None]


def publish(url: str, tell: Tell, first_value: int) -> None:
    draw = random.Random(first_value)
    values = UniqueValues(first_value)
    with tm.Log(url) as log:
        out = log.publisher()
        tell("opened")
        while True:
            rows = [values.value(0) for _ in range(draw.choice([1, 2, 5]))]
            tell("send", [row.decode() for row in rows])
            tell("sent", out.send(rows).first)


def receive(url: str, tell: Tell) -> None:
    with tm.Log(url) as log:
        receiver = log.receiver(CONSUMER)
        tell("opened", receiver.pointer)
        for batch in receiver:
            tell("got", batch.first_seq, [row.decode() for row in batch.rows()])
            batch.ack()


def relay(url: str, tell: Tell, log: str) -> None:
    relay = relay_after_a_kill(url, log)
    tell("opened")
    relay.run()


def main(url: str) -> None:
    for line in sys.stdin:
        kind, path, *more = line.split()
        child = os.fork()
        if child:
            sys.stdout.write(f"{child}\n")
            sys.stdout.flush()
            os.waitpid(child, 0)
            continue
        told = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def tell(*words: object, told: int = told) -> None:
            os.write(told, json.dumps(words).encode() + b"\n")

        try:
            if kind == "publish":
                publish(url, tell, int(more[0]))
            elif kind == "relay":
                relay(url, tell, more[0])
            else:
                receive(url, tell)
        finally:
            os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
