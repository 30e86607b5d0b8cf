"""The same work by many threads at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def together(work: Callable[[int], None], threads: int) -> float:
    """Seconds until all threads have done their work; one thread is the caller itself."""
    if threads == 1:
        start = time.perf_counter()
        work(0)
        return time.perf_counter() - start
    failures: list[BaseException] = []
    barrier = threading.Barrier(threads + 1)

    def body(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)

    started = [threading.Thread(target=body, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    start = (
        time.perf_counter()
    )  # before, since who comes last to the barrier may go on last as well
    barrier.wait()
    for thread in started:
        thread.join()
    seconds = time.perf_counter() - start
    if failures:
        raise failures[0]
    return seconds
