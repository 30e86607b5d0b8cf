"""A page for a browser: one file, no scripts, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

WIDTH = 960
COLOURS = ["#1f77b4", "#e07b00", "#2a8f5b", "#7b5ea7", "#c62828", "#8c6d31", "#17899b", "#b05a8f"]
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1d2b36; max-width: 960px; margin: 32px auto;
  padding: 0 16px; }
h1 { font-size: 26px; margin-bottom: 4px; } h2 { font-size: 18px; margin: 36px 0 8px; }
p { margin: 6px 0; } .faint { color: #5c6b77; }
.cards { display: flex; gap: 12px; flex-wrap: wrap; margin: 18px 0; }
.card { flex: 1 1 120px; border: 1px solid #dfe5ea; border-radius: 8px; padding: 10px 14px; }
.card b { display: block; font-size: 22px; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: 4px 10px;
  border-bottom: 1px solid #dfe5ea; } td.n, th.n { text-align: right;
  font-variant-numeric: tabular-nums; } .ok { color: #2a8f5b; font-weight: 600; }
.killed { color: #c62828; font-weight: 600; } svg { width: 100%; height: auto; }
td.wide { max-width: 260px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """The text of an HTML file."""
    head = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
    ]
    return "\n".join([*head, *parts, "</body></html>"]) + "\n"


def cards(facts: Iterable[tuple[str, str]]) -> str:
    """Figures in large type, each with its words.

    >>> cards([("7", "rows")])
    "<div class='cards'><div class='card'><b>7</b>rows</div></div>"
    """
    each = (f"<div class='card'><b>{escape(big)}</b>{escape(small)}</div>" for big, small in facts)
    return f"<div class='cards'>{''.join(each)}</div>"


def faint(words: str) -> str:
    """A paragraph that explains."""
    return f"<p class='faint'>{escape(words)}</p>"


def svg(height: int, parts: Sequence[str]) -> str:
    """A drawing as wide as the page."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="system-ui, sans-serif" role="img">{"".join(parts)}</svg>'
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table of texts; `numbers` are the columns that stand to the right."""

    def line(tag: str, cells: Sequence[str]) -> str:
        marked = (
            f"<{tag} class='{'n' if at in numbers else 'wide'}'>{escape(cell)}</{tag}>"
            for at, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    return f"<table>{line('th', headings)}{''.join(line('td', row) for row in rows)}</table>"
