"""The doctor: verifies a folder, repairs it as far as it is told to, and looks after what was set
aside. It never destroys data without being told to, by name.

    verify        everything, without changing a byte, also beside the owner of the folder
    repair        what is derived is made again; damage is set aside if told to
    quarantined   the records that were set aside; `salvage`, `save`, `push_back`, `drop` one
    upgrade       a folder of an older format
"""

from __future__ import annotations

import os

from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.doctor.examination import Examination
from tidemill.files.doctor.salvage import Salvaged
from tidemill.files.doctor.treatment import Treatment
from tidemill.files.doctor.ward import Quarantined, drop, push_back, quarantined, salvage, save
from tidemill.files.folder.folder_path import folder_path
from tidemill.files.folder.upgrade import Upgrade, upgrade
from tidemill.files.report import Finding, OnProgress, Progress, Report, Severity
from tidemill.files.state.bucket import BucketFunction

__all__ = [
    "Finding",
    "Progress",
    "Quarantined",
    "Report",
    "Salvaged",
    "Severity",
    "Upgrade",
    "drop",
    "push_back",
    "quarantined",
    "repair",
    "salvage",
    "save",
    "upgrade",
    "verify",
]


def verify(
    path: str | os.PathLike[str],
    *,
    bucket: BucketFunction | None = None,  # the user's own, if the queue has one
    on_progress: OnProgress | None = None,  # called after each record
    file_system: FileSystem | None = None,  # where the folder lives; for tests
) -> Report:
    """Verify everything in the folder of a queue, without changing a byte and without its lock.

    Beside a process that has the queue open, what was committed when this began is verified.

    >>> import tempfile, tidemill as tm
    >>> folder = tempfile.mkdtemp()
    >>> with tm.PriorityQueue(folder) as queue:
    ...     receipt = queue.push([(1, b"a"), (2, b"b")])
    ...     report = tm.doctor.verify(folder)
    >>> report.is_healthy, report.is_in_use, report.forks
    (True, True, {'': 2})
    """
    fs = file_system or LocalFileSystem()
    return Examination(
        fs, folder_path(path, "a queue"), bucket=bucket, on_progress=on_progress
    ).report


def repair(
    path: str | os.PathLike[str],
    *,
    set_aside: bool = False,  # damaged records, as opening with on_corruption="continue" does
    bucket: BucketFunction | None = None,  # the user's own, if the queue has one
    on_progress: OnProgress | None = None,  # called after each record, before and after the repair
    file_system: FileSystem | None = None,  # where the folder lives; for tests
) -> Report:
    """Make again what is derived, remove what dead processes left, and verify; `done` says what.

    Damage to the journal is told and left as it is, unless `set_aside` says otherwise: then damaged
    records are copied to the quarantine and left out from there on, in the whole folder and not
    only where a pop comes across them. Nobody may have the folder open.

    >>> import pathlib, tempfile, tidemill as tm
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> tm.PriorityQueue(folder).close()
    >>> for spine in folder.glob("journal/*.spine"):
    ...     size = spine.write_bytes(b"rubbish")
    >>> tm.doctor.repair(folder).done
    ('made the spine again',)
    """
    fs = file_system or LocalFileSystem()
    return Treatment(
        fs,
        folder_path(path, "a queue"),
        set_aside=set_aside,
        bucket=bucket,
        on_progress=on_progress,
    ).run()
