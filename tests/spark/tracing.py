"""Which files a program syncs, in order, as the system sees it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.server import skip_or_fail

MARK = "from here on"  # which a program prints on standard error, and what came before is left out


def synced(program: str, folder: Path) -> list[str]:
    """Run a program, whose argument is the folder, and tell what it has synced."""
    strace = shutil.which("strace") or ""
    if not strace:
        skip_or_fail("strace is not installed: make services")
    trial = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True)
    if trial.returncode:
        pytest.skip("strace may not trace here")
    trace = ["-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,write", "-e", "signal=none"]
    calls = folder / "calls"
    subprocess.run(
        [strace, *trace, "-o", str(calls), sys.executable, "-c", program, str(folder)],
        check=True,
        capture_output=True,
    )
    _, _, marked = calls.read_text().partition(MARK)
    return re.findall(r"(?:fsync|fdatasync)\(\d+<([^>]*)>", marked)
