"""`python -m benchmarks`: run the workloads, print the table, write the results."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.conditions import conditions
from benchmarks.progress import say
from benchmarks.result import Result
from benchmarks.settings import ROUNDS_MIN, Settings
from benchmarks.table import print_table
from benchmarks.workloads import (
    archive,
    batches,
    command_line,
    counters,
    growth,
    log_embedded,
    log_latency,
    log_reading,
    networked,
    overlap,
    packs,
    peers,
    ring,
    shovel,
    single_items,
    spark_bulk,
    spark_merge,
    spark_pipeline,
    spark_sink,
    spark_source,
    spark_streaming,
)

_RESULTS = Path(__file__).resolve().parent / "results"

WORKLOADS: dict[str, Callable[[Settings], list[Result]]] = {
    "batches": batches.run,
    "peers": peers.run,
    "single": single_items.run,
    "overlap": overlap.run,
    "shovel": shovel.run,
    "growth": growth.run,
    "command line": command_line.run,
    "packs": packs.run,
    "networked": networked.run,
    "log reading": log_reading.run,
    "log latency": log_latency.run,
    "log embedded": log_embedded.run,
    "archive": archive.run,
    "counters": counters.run,
    "ring": ring.run,
    "spark source": spark_source.run,
    "spark sink": spark_sink.run,
    "spark streaming": spark_streaming.run,
    "spark merge": spark_merge.run,
    "spark pipeline": spark_pipeline.run,
    "spark bulk": spark_bulk.run,
}


def main() -> None:
    options = _parse()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    folder = options.folder or options.results.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="scratch-") as scratch:
        settings = Settings(Path(scratch), options.rounds, options.quick)
        found = conditions(settings.folder, rounds=settings.rounds, quick=settings.quick)
        results: list[Result] = []
        for name in options.only or WORKLOADS:
            say(f"workload {name}")
            results += WORKLOADS[name](settings)
            # Written after each workload, so that a run cut short leaves what it has measured.
            _write(options.results, results, found)
    print_table(results, found)
    say(f"written to {options.results}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: a trial, not a measurement"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(WORKLOADS),
        help="run this workload alone; may be repeated",
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help=f"default 7; fewer than {ROUNDS_MIN} prove nothing"
    )
    parser.add_argument(
        "--folder", type=Path, help="the disk to measure; default: next to the results"
    )
    parser.add_argument(
        "--results", type=Path, default=_RESULTS / "embedded.json", help="where to write"
    )
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    if options.rounds < ROUNDS_MIN and not options.quick:
        parser.error(f"a measurement takes at least {ROUNDS_MIN} rounds; --quick allows fewer")
    return options


def _write(path: Path, results: list[Result], found: dict[str, str]) -> None:
    text = json.dumps([result.to_json(found) for result in results], indent=1, ensure_ascii=False)
    path.write_text(text + "\n")


if __name__ == "__main__":
    main()
