"""Nodes that tests drive by hand: a clock that stands still, and short ways to talk."""

from __future__ import annotations

from tidemill.counters import Message, Node, Replica, decode, encode


class StandingClock:
    """A clock that goes when it is told to, in either direction."""

    def __init__(self, now_s: float = 1_000.0) -> None:
        self.now_s = now_s

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)


CLOCK = StandingClock()


def node(name: str, incarnation: int = 1, *, clock: StandingClock = CLOCK) -> Node:
    made = Node(Replica(name, incarnation), now_ns=clock.time_ns)
    made.seal()
    return made


def reader(name: str) -> Node:
    made = Node(Replica(name, 1), now_ns=CLOCK.time_ns, is_reader=True)
    made.seal()
    return made


def greeting(sender: Node) -> Message:
    sender.seal()
    return sender.hello()


def told(sender: Node, receiver: Node) -> Message:
    """What one would tell the other; both keep the order of sealing first."""
    sender.seal()
    try:
        message = sender.delta(receiver.replica)
    except ValueError:
        message = None
    return message if message is not None else sender.hello()


def tell(sender: Node, receiver: Node) -> int:
    """Tell it, by way of bytes; how many rows that took."""
    message = decode(encode(told(sender, receiver)))
    receiver.receive(message)
    receiver.seal()
    return message.rows


def meet(*nodes: Node, rounds: int = 3) -> None:
    """Let all tell all what they have, and that they have it."""
    for _ in range(rounds):
        for one in nodes:
            for other in nodes:
                if one is not other:
                    tell(one, other)


def values(one: Node) -> dict[str, int]:
    return one.all()[0]
