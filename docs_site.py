"""What the site adds to the pages: the list of decisions, which nobody has to keep, and colours for
the examples in docstrings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

PAGE = "decisions/index.md"
EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Called by mkdocs for the text of each page."""
    if page.file.src_uri != PAGE:
        return markdown
    folder = Path(config["docs_dir"]) / "decisions"
    lines = [
        f"- [{re.sub('^# ', '', path.read_text().splitlines()[0])}]({path.name})"
        for path in sorted(folder.glob("0*.md"))
    ]
    return "\n".join([markdown, *lines, ""])


class FencedExamples(griffe.Extension):
    """Marks examples as sessions of Python, where Markdown would take them for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
