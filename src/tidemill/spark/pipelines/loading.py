"""The pipelines in a file of Python.

The file is run as a module that Python cannot find again. So what its functions hand to Spark, as
user-defined functions, travels with its code, and executors need not have the file.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

from tidemill.errors import InvalidPipeline, TidemillError
from tidemill.spark.pipelines.definition import Pipeline

_EARLY = (
    " The file is read before Spark starts: name types as objects, LongType(), not as text, and "
    "use the session within functions only"
)


def load(path: Path) -> dict[str, Pipeline]:
    """The pipelines of a file by name, in the order in which they stand there."""
    if not path.is_file():
        raise InvalidPipeline(f"there is no file {path}")
    found: dict[str, Pipeline] = {}
    for value in vars(_run(path.absolute())).values():
        if not isinstance(value, Pipeline) or found.get(value.name) is value:
            continue
        same = [name for name in found if name.lower() == value.name.lower()]
        if same:
            raise InvalidPipeline(
                f"{path} has two pipelines of the name {value.name}, which would share their "
                "state: give one another name, @pipeline(…, name=…)"
            )
        found[value.name] = value
    if not found:
        raise InvalidPipeline(
            f"{path} defines no pipeline: decorate a function with @pipeline(source=…, sink=…)"
        )
    return found


def chosen(path: Path, names: Sequence[str]) -> dict[str, Pipeline]:
    """Those of the file that are named; all, if none is."""
    found = load(path)
    for name in names:
        if name not in found:
            raise InvalidPipeline(f"{path} has no pipeline {name!r}; there are: {', '.join(found)}")
    return {name: found[name] for name in names} if names else found


def _run(path: Path) -> ModuleType:
    name = f"tidemill pipelines of {path.name}"  # which no module can have
    spec = importlib.util.spec_from_file_location(
        name, path, loader=SourceFileLoader(name, str(path))
    )
    if spec is None or spec.loader is None:
        raise InvalidPipeline(f"{path} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    # As for a script: what lies beside the file can be imported.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    try:
        # Standard output is for what the command says, in JSON perhaps.
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except TidemillError as error:
        error.add_note(f"in {_where(path, error)}")
        raise
    except (Exception, SystemExit) as error:  # It is the user's code, which may raise anything.
        hint = _EARLY if "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error) else ""
        raise InvalidPipeline(
            f"{_where(path, error)} cannot be run: {type(error).__name__}: {error}{hint}"
        ) from error
    finally:
        del sys.modules[name]
    return module


def _where(path: Path, error: BaseException) -> str:
    """The file, and the line that was at fault."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    return f"{path}, line {lines[-1]}" if lines else str(path)
