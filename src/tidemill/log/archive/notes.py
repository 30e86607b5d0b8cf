"""What a log writes down about its archive."""

from __future__ import annotations

ARCHIVE_NOTE = "archive"  # where it is
RESTORED_NOTE = "restored"  # which archive its rows were restored from
LOG_NOTE = "log"  # by what the archive knows its log
BULK_NOTE = "bulk"  # the token of the last segments that were published from elsewhere
