"""Where no thread can be started: a call that raises is not made behind one's back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import tidemill as tm
from tests.aio.event_loop import in_event_loop
from tidemill.aio.threads import Threads


@contextmanager
def no_more_threads(threads: Threads) -> Iterator[None]:
    """All threads are busy until the block is left, and no other can be started: what a pool is
    given then it puts in line, raises, and takes up later.
    """
    pool = threads._pool
    in_line: list[Callable[[], object]] = []

    def submit(call: Callable[..., object], *args: object, **options: object) -> None:
        in_line.append(partial(call, *args, **options))
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "submit", submit)
        yield
    assert in_line
    for call in in_line:
        pool.submit(call).result()


@in_event_loop
async def test_a_call_that_no_thread_is_there_for_is_never_made() -> None:
    threads = Threads(2)
    made: list[int] = []
    with no_more_threads(threads):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await threads.run(made.append, 1)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threads.begin(made.append, 2)
    await threads.run(made.append, 3)
    assert made == [3]
    await threads.end()


@in_event_loop
async def test_a_pop_and_a_push_that_no_thread_is_there_for_have_done_nothing(
    tmp_path: Path,
) -> None:
    async with tm.aio.PriorityQueue(tmp_path, maintain_in_background=False) as queue:
        await queue.push([(1, b"a"), (2, b"b")])
        with no_more_threads(queue._around.threads):
            outcomes = await asyncio.gather(
                queue.pop(1), queue.push([(3, b"c")]), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [RuntimeError, RuntimeError]
        await queue.push([(4, b"d")])
        assert (await queue.pop(9)).rows() == [(1, b"a"), (2, b"b"), (4, b"d")]
