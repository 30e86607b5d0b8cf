"""From the address of an archive to its objects: a folder, a bucket, or `memory:` for tests."""

from __future__ import annotations

import os

from tidemill.errors import InvalidInput
from tidemill.files.folder.folder_path import folder_path
from tidemill.log.archive.folder import FolderObjects
from tidemill.log.archive.memory import MemoryObjects
from tidemill.log.archive.objects import ObjectStore
from tidemill.urls import path_of, scheme_of


def open_objects(url: str | os.PathLike[str]) -> ObjectStore:
    """The objects at an address; nothing is made or asked for yet.

    >>> open_objects("ftp://host/orders")
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: an archive cannot be kept at ftp: give a folder or s3://
    """
    scheme = scheme_of(url)
    if scheme == "file":
        path = path_of(url)
        if path == "":
            raise InvalidInput("an archive needs a folder, or s3://bucket/prefix")
        folder_path(path, "an archive")
        return FolderObjects(path)
    if scheme == "memory":
        return MemoryObjects.of(str(url)[len("memory:") :])
    if scheme == "s3":
        # Its driver is an extra, which most programs do without.
        from tidemill.log.archive.s3 import S3Objects  # noqa: PLC0415

        return S3Objects(str(url))
    raise InvalidInput(f"an archive cannot be kept at {scheme}: give a folder or s3://")
