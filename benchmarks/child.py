"""A fresh process that measures for us, so that its memory and its death are its own.

The parent asks by lines of JSON on stdin, the child answers by lines on stdout, one for each task.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

Answer: TypeAlias = dict[str, Any]
Task: TypeAlias = Callable[..., Answer]

_ROOT = Path(__file__).resolve().parents[1]


class Child:
    """The parent's end."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )

    def ask(self, task: str, **arguments: object) -> Answer:
        """Have a task done; returns its answer."""
        self.tell(task, **arguments)
        return self.answer()

    def tell(self, task: str, **arguments: object) -> None:
        """Have a task started."""
        if self._process.stdin is None:
            raise RuntimeError("the child has no stdin")
        self._process.stdin.write(json.dumps({"task": task, "arguments": arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        if self._process.stdout is None:
            raise RuntimeError("the child has no stdout")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._module} died with status {self._process.wait()}")
        answer: Answer = json.loads(line)
        return answer

    def kill(self) -> None:
        """SIGKILL: the child has no chance to tidy up."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Let the child finish, and wait for its end."""
        self._process.communicate()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()


def serve(tasks: Mapping[str, Task]) -> None:
    """The child's end: do what is asked until there is nothing more."""
    for line in sys.stdin:
        request = json.loads(line)
        answer = tasks[request["task"]](**request["arguments"])
        print(json.dumps(answer), flush=True)
