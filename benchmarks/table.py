"""The outcome for people: conditions first, then a line for each result."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.result import Result

_HEAD = ("workload", "ours", "peer", "", "ratio", "target", "met")
_LEFT = {0, 3, 5, 6}  # columns of words


def print_table(results: Sequence[Result], conditions: dict[str, str]) -> None:
    width = max(len(name) for name in conditions)
    for name, value in conditions.items():
        print(f"{name:<{width}}  {value}")
    print()
    rows = [_HEAD, *(_cells(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        cells = (
            f"{cell:<{width}}" if column in _LEFT else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
    judged = [result.met for result in results if result.target is not None]
    missing = f", {judged.count(None)} not measured" if None in judged else ""
    print(f"\n{judged.count(True)} of {len(judged)} targets met{missing}")


def _cells(result: Result) -> tuple[str, ...]:
    target = "" if result.target is None else result.target.describe(result.unit)
    verdict = {True: "yes", False: "NO", None: "" if result.target is None else "?"}[result.met]
    return (
        result.workload,
        "skipped" if result.ours is None else f"{_number(result.ours)} {result.unit}",
        "" if result.peer is None else _number(result.peer),
        result.peer_name if not result.note else f"{result.peer_name} ({result.note})".strip(),
        "" if result.ratio is None else f"{result.ratio:.2f} ×",
        target,
        verdict,
    )


def _number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e4:
        return f"{value / 1e3:.1f} k"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
