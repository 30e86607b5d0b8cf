"""Metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Lines of metrics, gathered one family after the other.

    >>> text = Exposition()
    >>> text.family("rows_total", "counter", "Rows so far.", [({"peer": "node-2"}, 7)])
    >>> print(text.text(), end="")
    # HELP rows_total Rows so far.
    # TYPE rows_total counter
    rows_total{peer="node-2"} 7
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(
        self,
        name: str,
        kind: str,
        words: str,
        samples: Iterable[tuple[Mapping[str, str], float]],
    ) -> None:
        """A metric with a value for each set of labels."""
        self._head(name, kind, words)
        self._lines += [_sample(name, labels, value) for labels, value in samples]

    def histogram(
        self,
        name: str,
        words: str,
        bounds: Iterable[float],
        samples: Iterable[tuple[Mapping[str, str], list[int], float]],
    ) -> None:
        """Counts by class, the last of which has no upper end, and the sum of all values."""
        self._head(name, "histogram", words)
        ends = [*(f"{bound:g}" for bound in bounds), "+Inf"]
        for labels, counts, total in samples:
            so_far = 0
            for end, count in zip(ends, counts, strict=True):
                so_far += count
                self._lines.append(_sample(f"{name}_bucket", {**labels, "le": end}, so_far))
            self._lines.append(_sample(f"{name}_sum", labels, total))
            self._lines.append(_sample(f"{name}_count", labels, so_far))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _head(self, name: str, kind: str, words: str) -> None:
        self._lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
