"""Orders of steps: all there are for two operations, and random ones for many clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.records.history import Wrong, check, linearizable
from tests.records.simulator import HOUR_US, LOCK_MS, Client, Op, World

ONE_ID = Op("none").id
EXPIRY_US = LOCK_MS * 1_000 + 1


class Found(AssertionError):
    """A schedule after which something is wrong, with what is needed to run it again."""


@dataclass(slots=True)
class Pair:
    """Two operations that meet in a ring in some state; or several, one after the other."""

    world: World
    first: tuple[Op, ...]
    second: tuple[Op, ...]
    expiries: int = 1  # how often a lock may expire
    faults: dict[str, int] = field(default_factory=dict)  # how often each may happen


def explore(pair: Pair) -> Iterator[World]:
    """The world after each order of the steps of two operations, with each fault everywhere."""
    path: list[int] = []  # which of the options was taken, at each point
    while True:
        widths: list[int] = []
        world = pair.world.clone()
        try:
            _follow(pair, world, path, widths)
            judge(world)
            check_told(world, [*pair.first, *pair.second])
        except AssertionError as error:
            raise Found(f"after the choices {path}: {error}") from error
        yield world
        # The next one in the order of a dictionary: the last choice that has another option.
        path += [0] * (len(widths) - len(path))
        while path and path[-1] + 1 >= widths[len(path) - 1]:
            path.pop()
        if not path:
            return
        path[-1] += 1


def _follow(pair: Pair, world: World, path: list[int], widths: list[int]) -> None:
    clients = [
        Client("one", world, pair.first, clock_s=3_600.0),
        Client("two", world, pair.second, clock_s=-3_600.0),
    ]
    expiries = pair.expiries
    faults = dict(pair.faults)
    while True:
        options: list[tuple[str, int]] = [
            ("run", index) for index, client in enumerate(clients) if not client.done
        ]
        if not options and not world.late:
            return
        runs = len(options)
        grant = world.metadata.grant
        if expiries and grant is not None and runs:
            options.append(("expire", 0))
        for fault, left in faults.items():
            if left:
                options += [
                    (fault, index) for _, index in options[:runs] if clients[index].asks_the_store
                ]
        options += [("deliver", index) for index in range(len(world.late))]
        point = len(widths)
        widths.append(len(options))
        choice, index = options[path[point] if point < len(path) else 0]
        if choice == "run":
            if not clients[index].asks_the_store:
                world.now_us += EXPIRY_US  # a wait always takes longer than the lock lasts
            clients[index].step()
        elif choice == "expire":
            expiries -= 1
            world.now_us += EXPIRY_US
        elif choice == "deliver":
            world.deliver(index)
        elif choice == "crash":
            faults[choice] -= 1
            world.count_fault(choice)
            clients[index].step()
            clients[index].crash()
            clients[index].ops.clear()
        else:
            faults[choice] -= 1
            clients[index].step(choice)


def judge(world: World) -> None:
    """Ask both judges: the one that knows everything has seen every write."""
    check(world.history, world.left())
    if not linearizable(world.history, world.state()):
        raise Wrong("no order of the calls explains what they were told")


@dataclass(slots=True)
class Chances:
    """How likely things are in a random schedule, for each step."""

    pause: float = 0.03  # for longer than a lock lasts
    pause_holding: float = 0.3  # the same, for whoever holds the lock
    fault: float = 0.06
    crash: float = 0.02
    skew: float = 0.02  # the store's clock jumps by up to an hour


def run_random(seed: int, chances: Chances | None = None, *, scale: int = 1) -> World:
    """A random ring, random clients and operations, in a random order with random faults."""
    random = Random(seed)
    chances = chances or Chances()
    world = _random_world(random)
    scripts = _random_ops(random, world, scale)
    clients = [
        Client(f"c{number}", world, ops, clock_s=random.uniform(-3_600, 3_600))
        for number, ops in enumerate(scripts)
    ]
    try:
        _run(random, world, clients, chances)
        finish(world)
        check(world.history, world.left())
        check_told(world, [op for script in scripts for op in script])
        if len(world.history.calls) <= 9 and not linearizable(world.history, world.state()):
            raise Wrong("no order of the calls explains what they were told")
    except AssertionError as error:
        raise Found(f"seed {seed}: {error}; run_random({seed}, scale={scale})") from error
    return world


def _random_world(random: Random) -> World:
    capacity = random.choice((1, 2, 3, 5))
    groups = ("default", "audit") if random.random() < 0.25 else ("default",)
    return World(
        capacity=capacity,
        slots=random.choice((1, 2, 3)),
        groups=groups,
        has_clock=random.random() < 0.6,
    )


def _random_ops(random: Random, world: World, scale: int) -> list[list[Op]]:
    shape = world.metadata.geometry
    overwrites = random.random() < 0.4
    patience_s = random.choice((0.0, 1.0, 1.0))
    named = random.random() < 0.5
    number = 0
    named_ops = 0
    scripts: list[list[Op]] = []
    for _ in range(random.choice((2, 2, 3, 4))):
        script: list[Op] = []
        for _ in range(random.choice((1, 2, 3)) * scale):
            kind = random.choice(("enqueue", "enqueue", "dequeue", "dequeue", "get", "outcome"))
            count = random.choice((1, 1, 2, shape.capacity))
            values: tuple[str, ...] = ()
            if kind == "enqueue":
                count = min(count, shape.capacity)
                values = tuple(f"v{number + index}" for index in range(count))
                number += count
            named_ops += 1
            script.append(
                Op(
                    kind,
                    id=f"op{named_ops}" if named else ONE_ID,
                    asks=f"op{random.randint(1, named_ops)}" if named else ONE_ID,
                    values=values,
                    overwrite=overwrites and kind == "enqueue" and random.random() < 0.6,
                    group=random.choice(world.history.groups),
                    count=count,
                    offset=random.randrange(8),
                    patience_s=patience_s,
                    again=random.random() < 0.7,
                )
            )
        scripts.append(script)
    return scripts


def _run(random: Random, world: World, clients: list[Client], chances: Chances) -> None:
    roll = random.random
    busy = [client for client in clients if not client.done]
    while busy:
        awake = [client for client in busy if client.awake_us <= world.now_us]
        if not awake:
            world.now_us = min(client.awake_us for client in busy)
            continue
        client = awake[int(roll() * len(awake))]
        world.now_us += 500
        grant = world.metadata.grant
        holds = grant is not None and grant.nonce == client.nonce
        if roll() < (chances.pause_holding if holds else chances.pause):
            world.count_fault("pause")
            client.awake_us = world.now_us + int((1 + roll()) * EXPIRY_US)
            continue
        if roll() < chances.skew:
            world.count_fault("skew")
            world.skew_us = random.randint(-HOUR_US, HOUR_US)
        if world.late and roll() < 0.2:
            world.count_fault("delivered late")
            world.deliver(int(roll() * len(world.late)))
        if roll() < chances.crash:
            world.count_fault("crash")
            client.crash()
        elif client.asks_the_store and roll() < chances.fault:
            client.step(random.choice(("answer lost", "request lost", "late", "refused")))
        else:
            client.step()
        if client.done:
            busy.remove(client)
    while world.late:
        world.deliver(0)


def finish(world: World) -> None:
    """Show that the ring still works, whatever happened: waiting long enough breaks any lock."""
    world.skew_us = 0
    last = Client("last", world, [Op("enqueue", ("last",), overwrite=True, patience_s=60.0)])
    while not last.done:
        world.now_us = max(world.now_us, last.awake_us)
        last.step()
    if not isinstance(world.history.calls[-1].result, int):
        raise Wrong(f"the ring is stuck: {world.history.calls[-1].result}")


def check_told(world: World, ops: list[Op]) -> None:
    """What was said about the outcome of an operation was so, and stayed so."""
    by_id = {op.id: op for op in ops if op.id != ONE_ID}
    places = {value.decode(): offset for offset, value in world.committed.items()}
    for id, told in world.told:
        op = by_id.get(id)
        if op is None or op.kind != "enqueue":
            continue
        found = [places.get(value) for value in op.values]
        if told.state == "committed" and (
            told.offset is None or found != list(range(told.offset, told.offset + told.count))
        ):
            raise Wrong(f"{id} was said to be committed at {told.offset}, and is at {found}")
        if told.state == "aborted" and not op.again and found[0] is not None:
            raise Wrong(f"{id} was said to be aborted, and is at {found}")


def replay(pair: Pair, path: list[int]) -> World:
    """One order of steps, as a failure prints it."""
    world = pair.world.clone()
    _follow(pair, world, path, [])
    return world


def filled(world: World, *ops: Op) -> World:
    """A world after some operations without any faults."""
    client = Client("before", world, list(ops))
    while not client.done:
        client.step()
    return world
