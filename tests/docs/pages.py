"""The pages of the documentation, and the Python in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Those that need a cluster or a server of Spark run where the tests have one, in `tests/spark`.
ON_CLUSTER = ROOT / "docs" / "how-to" / "run-spark-on-a-cluster.md"
ON_CONNECT = ROOT / "docs" / "how-to" / "use-spark-connect.md"

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES_ALONE = [page for page in PAGES if page not in (ON_CLUSTER, ON_CONNECT)]


def program_of(page: Path, *, url: str, ours: str, folder: Path) -> str:
    """The program that a page is, at a server of ours in place of its own, and in our folder."""
    program = "\n".join(BLOCK.findall(page.read_text()))
    assert url in program
    return program.replace(url, ours).replace("/data/", f"{folder}/")
