"""A client of Spark Connect in a Python of its own, which has neither Spark nor Java.

The same Python, which has no Tidemill either, stands in for that of an executor.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

import tidemill
from tests.services.server import skip_or_fail

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-thin" / "bin" / "python"

# Runs what it is told, line by line, and answers each with a line.
_LOOP = """
import json, sys
names = {}
for line in sys.stdin:
    names["result"] = None
    try:
        exec(json.loads(line), names)
        answer = {"result": names["result"]}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
"""


class Refused(Exception):
    """What the client was told to do raised an error; its kind and message as the client saw it."""


class ThinClient:
    """One process, in which names stay from one snippet to the next."""

    def __init__(self, folder: Path, *, has_tidemill: bool) -> None:
        self._errors = (folder / "errors").open("w+")
        # Not with `-c`: pyspark-client takes a program that is no file for a doctest of its own.
        program = folder / "client.py"
        program.write_text(_LOOP)
        self._process = subprocess.Popen(
            [PYTHON, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=folder,
            env=thin_environment(folder if has_tidemill else None),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def run(self, snippet: str, **names: Any) -> Any:
        """Run a snippet with these names, and give what it leaves in `result`."""
        given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(given + snippet) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._said()
        found = json.loads(answer)
        if "error" in found:
            raise Refused(found["error"])
        return found["result"]

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


def thin_environment(folder: Path | None) -> dict[str, str]:
    """The surroundings of a thin Python: with the Tidemill that is tested, if it gets a folder, and
    with nothing else of what is installed beside that.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if folder is not None:
        assert tidemill.__file__ is not None
        packages = folder / "packages"
        packages.mkdir()
        (packages / "tidemill").symlink_to(Path(tidemill.__file__).parent)
        environment["PYTHONPATH"] = str(packages)
    return environment


def need_thin_python() -> None:
    """Skip the test, or fail where all must run, if there is none."""
    if not PYTHON.exists():
        skip_or_fail(f"{PYTHON} is not there: make thin")
