"""What a log writes down about its archive."""

from __future__ import annotations

ARCHIVE_NOTE = "archive"  # where it is
LOG_NOTE = "log"  # by what the archive knows its log
