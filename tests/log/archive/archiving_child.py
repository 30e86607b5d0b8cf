"""A process that sends and archives until it is killed; it says how far it is sure to have come."""

from __future__ import annotations

import sys

import tidemill as tm
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes


def main(log_path: str, archive_path: str) -> None:
    with tm.Log(log_path, segment_bytes=16_384) as log, log.publisher() as out:
        hot = log._store.hot
        archive = Archive(open_objects(archive_path))
        archiver = Archiver(hot, archive, Sizes(segment_rows=50, manifest_segments=3))
        while True:
            first = log.ends().next
            receipt = out.send([b"%08d" % seq * 10 for seq in range(first, first + 40)])
            sys.stdout.write(f"{receipt.last}\n")
            sys.stdout.flush()
            archiver.run(receipt.last - 15)


if __name__ == "__main__":
    main(*sys.argv[1:])
