"""What is in an archive: which rows lie in which segment, without a hole. Pure.

    manifest.json                              pages/…-7-….json
    first 1, next 900_001, epoch 9             first 1, rows 400_000
    pages    ┌ 1 … 400_000 ─────────────────▶  segments ┌ 1 … 1_700
    segments ┌ 400_001 … 402_200                        ├ 1_701 … 3_100
             ├ 402_201 … 900_000                        └ …
             └ 900_001 …

The manifest is replaced whole, on condition that it is still the one that was read. So that this
stays cheap when there are a hundred thousand segments, the older ones stand in pages, objects that
never change; the manifest knows their bounds alone.

- `first` is the first row of the log that is to be kept; rows before it may still be in a segment.
- `epoch` is the archiver's that may add segments, as that of a publisher. Names of objects carry
  the epoch under which they were put: what has an older one and is not in the manifest never will
  be.
- `pending` are segments that somebody is about to publish, see `bulk`; they are none of the others
  until the log says so.
- `gone` names objects that are to be deleted, so that a crash between the two forgets none.

Invariant: segments follow one another without a gap, and no row of one ever changes.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from xxhash import xxh3_64_hexdigest

from tidemill.batch import SchemaVersions
from tidemill.errors import Bug, Corrupt, UnknownFormat
from tidemill.limits import INT64_MAX, MANIFEST_BYTES_MAX, TIME_US_MAX

NAME = "manifest.json"
SEGMENTS = "segments"
PAGES = "pages"

_FORMAT = "tidemill archive"
_VERSION = 1
FIRST_SEQ = "first_seq"  # what readers of Parquet call the number in the name of a segment's folder
# Segments had the names that pages have.
_FILE = re.compile(
    r"(?:segments/first_seq=[0-9]{20}/|(?:segments|pages)/[0-9]{20}-)([0-9]+)"
    r"-[0-9a-f]+\.[a-z.0-9]+",
    re.ASCII,
)
_DIGEST = re.compile(r"[0-9a-f]{16,32}", re.ASCII)


class Segment(NamedTuple):
    """A file of rows; the number of a row is `first` plus its place in the file, from 0 on."""

    file: str
    first: int
    rows: int
    bytes: int  # of the file
    footer_bytes: int  # of its end, which says where all else is
    time_min: int  # of its first row, in µs
    time_max: int  # of its last
    digest: str  # xxh3-128 of the file
    footer_digest: str  # xxh3-64 of its end
    schema: str  # the fingerprint of the version that its columns have

    @property
    def next(self) -> int:
        return self.first + self.rows


class Page(NamedTuple):
    """A file that lists segments."""

    file: str
    first: int
    rows: int
    bytes: int  # of all its segments
    segments: int
    time_min: int
    time_max: int
    digest: str  # xxh3-64 of the file

    @property
    def next(self) -> int:
        return self.first + self.rows


class Pending(NamedTuple):
    """Segments behind the last one, which count as soon as the log has written down the token."""

    token: str
    before: str  # what the log has written down until then; empty: nothing
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One state of an archive.

    >>> from tidemill.batch import DEFAULT
    >>> empty = Manifest(log="a1", first=1, next=1, versions=SchemaVersions([DEFAULT]))
    >>> Manifest.parse(empty.encode()) == empty
    True
    """

    log: str  # which log it is the archive of
    first: int
    next: int
    versions: SchemaVersions
    epoch: int = 0
    pages: tuple[Page, ...] = ()
    segments: tuple[Segment, ...] = ()
    gone: tuple[str, ...] = ()
    pending: Pending | None = None

    @property
    def covered(self) -> int:
        """The first row that a segment holds, kept or not; `next` if there is none."""
        return self.parts[0].first if self.pages or self.segments else self.next

    @property
    def parts(self) -> list[Page | Segment]:
        """What stands in the manifest, in order."""
        return [*self.pages, *self.segments]

    @property
    def bytes(self) -> int:
        """What all segments take."""
        return sum(part.bytes for part in self.parts)

    @property
    def count(self) -> int:
        """How many segments there are."""
        return len(self.segments) + sum(page.segments for page in self.pages)

    def added(self, segment: Segment, versions: SchemaVersions) -> Manifest:
        """With one more segment, which begins where the last ends."""
        if segment.first != self.next:
            raise Bug(f"a segment from row {segment.first} on does not follow row {self.next - 1}")
        if len(self.versions) > len(versions):
            versions = self.versions
        return replace(
            self, next=segment.next, segments=(*self.segments, segment), versions=versions
        )

    def settled(self) -> Manifest:
        """With the segments that were pending; of rows that are trimmed already, without."""
        if self.pending is None:
            return self
        segments = self.pending.segments
        last = segments[-1].next
        if self.first >= last:
            return replace(self, gone=(*self.gone, *(one.file for one in segments)), pending=None)
        return replace(self, next=last, segments=(*self.segments, *segments), pending=None)

    def dropped(self) -> Manifest:
        """Without the segments that were pending."""
        if self.pending is None:
            return self
        gone = (*self.gone, *(one.file for one in self.pending.segments))
        return replace(self, gone=gone, pending=None)

    def encode(self) -> pa.Buffer:
        """The bytes of `manifest.json`."""
        data = {
            "format": _FORMAT,
            "version": _VERSION,
            "log": self.log,
            "epoch": self.epoch,
            "first": self.first,
            "next": self.next,
            "schemas": self.versions.to_json(),
            "pages": [page._asdict() for page in self.pages],
            "segments": [segment._asdict() for segment in self.segments],
            "gone": list(self.gone),
        }
        if self.pending is not None:
            segments = [segment._asdict() for segment in self.pending.segments]
            data["pending"] = {**self.pending._asdict(), "segments": segments}
        return pa.py_buffer(_sealed(data))

    @classmethod
    def parse(cls, data: pa.Buffer) -> Manifest:
        """What `encode` made; anything else is `Corrupt`."""
        found = _unsealed(data, "the manifest")
        if found.get("format") != _FORMAT:
            raise Corrupt("the manifest is not one of an archive")
        if found.get("version") != _VERSION:
            raise UnknownFormat(
                f"the archive has format version {found.get('version')}, this release reads "
                f"{_VERSION}: upgrade tidemill"
            )
        try:
            manifest = cls(
                log=_text(found["log"]),
                epoch=_number(found["epoch"]),
                first=_number(found["first"]),
                next=_number(found["next"]),
                versions=SchemaVersions.from_json(found["schemas"]),
                pages=tuple(_page(page) for page in found["pages"]),
                segments=tuple(_segment(segment) for segment in found["segments"]),
                gone=tuple(_file(name) for name in found["gone"]),
                pending=_pending(found.get("pending")),
            )
        except (KeyError, TypeError, ValueError) as cause:
            raise Corrupt(f"the manifest is not one that we wrote: {cause!r}") from cause
        parts = manifest.parts
        _check_order(parts)
        if parts and parts[-1].next != manifest.next:
            raise Corrupt(f"the manifest ends at row {parts[-1].next}, and says {manifest.next}")
        if not 1 <= manifest.first <= manifest.next:
            raise Corrupt(f"the manifest begins at row {manifest.first}, behind {manifest.next}")
        return manifest


def encode_page(segments: Sequence[Segment], file: str) -> tuple[Page, pa.Buffer]:
    """A page for segments that follow one another, and the bytes of its file."""
    data = _sealed({"format": _FORMAT, "segments": [segment._asdict() for segment in segments]})
    page = Page(
        file=file,
        first=segments[0].first,
        rows=segments[-1].next - segments[0].first,
        bytes=sum(segment.bytes for segment in segments),
        segments=len(segments),
        time_min=segments[0].time_min,
        time_max=segments[-1].time_max,
        digest=xxh3_64_hexdigest(data),
    )
    return page, pa.py_buffer(data)


def parse_page(page: Page, data: pa.Buffer) -> tuple[Segment, ...]:
    """The segments of a page; `Corrupt` if they are not those that it was made of."""
    if xxh3_64_hexdigest(data) != page.digest:
        raise Corrupt(f"the checksum of {page.file} does not match")
    found = _unsealed(data, page.file)
    try:
        segments = tuple(_segment(segment) for segment in found["segments"])
    except (KeyError, TypeError, ValueError) as cause:
        raise Corrupt(f"{page.file} is not one that we wrote: {cause!r}") from cause
    _check_order(segments)
    if not segments or (segments[0].first, segments[-1].next) != (page.first, page.next):
        raise Corrupt(f"{page.file} lists other rows than the manifest says")
    return segments


def segment_folder(first: int) -> str:
    """Where segments are whose first row has this number, as far as names tell.

    Readers of Parquet know this form, and give it to each row as a column; rows that are wanted
    without it do not pay for it.

    >>> segment_folder(7)
    'segments/first_seq=00000000000000000007'
    """
    return f"{SEGMENTS}/{FIRST_SEQ}={first:020}"


def new_segment_name(first: int, epoch: int) -> str:
    """A name for a segment put under an epoch, which nobody else will use."""
    return f"{segment_folder(first)}/{epoch}-{secrets.token_hex(8)}.parquet"


def new_page_name(first: int, epoch: int) -> str:
    """A name for a page put under an epoch, which nobody else will use."""
    return f"{PAGES}/{first:020}-{epoch}-{secrets.token_hex(8)}.json"


def epoch_of(name: str) -> int | None:
    """The epoch under which an object was put; None if the name is none of ours.

    >>> epoch_of(f"{segment_folder(7)}/3-c0ffee.parquet.1f.part"), epoch_of("notes.txt")
    (3, None)
    """
    found = _FILE.fullmatch(name)
    return int(found[1]) if found else None


def _sealed(data: dict[str, Any]) -> bytes:
    """JSON with a checksum of the rest in its last field; one line for each element of a list."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = text.replace('{"file":', '\n{"file":')[:-1].encode()
    return head + f',\n"check":"{xxh3_64_hexdigest(head)}"}}\n'.encode()


def _unsealed(data: pa.Buffer, what: str) -> dict[str, Any]:
    if data.size > MANIFEST_BYTES_MAX:
        raise Corrupt(f"{what} has {data.size} bytes, over {MANIFEST_BYTES_MAX}")
    content = data.to_pybytes()
    head, _, tail = content.rpartition(b',\n"check":"')
    if tail != f'{xxh3_64_hexdigest(head)}"}}\n'.encode():
        raise Corrupt(f"the checksum of {what} does not match")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as cause:
        raise Corrupt(f"{what} is no JSON: {cause}") from cause
    if not isinstance(found, dict):
        raise Corrupt(f"{what} is no JSON object")
    return found


def _check_order(parts: Iterable[Page | Segment]) -> None:
    for one, other in pairwise(parts):
        if other.first != one.next:
            raise Corrupt(f"{other.file} begins at row {other.first}, not at {one.next}")
        if other.time_min < one.time_max:
            raise Corrupt(f"{other.file} is older than the one before it")


def _segment(data: dict[str, Any]) -> Segment:
    return Segment(
        file=_file(data["file"]),
        first=_number(data["first"], 1),
        rows=_number(data["rows"], 1),
        bytes=_number(data["bytes"], 1),
        footer_bytes=_number(data["footer_bytes"], 1),
        time_min=_time(data["time_min"]),
        time_max=_time(data["time_max"]),
        digest=_digest(data["digest"]),
        footer_digest=_digest(data["footer_digest"]),
        schema=_digest(data["schema"]),
    )


def _pending(data: dict[str, Any] | None) -> Pending | None:
    if data is None:
        return None
    segments = tuple(_segment(segment) for segment in data["segments"])
    _check_order(segments)
    if not segments:
        raise ValueError("nothing is pending")
    return Pending(_text(data["token"]), _text(data["before"]), segments)


def _page(data: dict[str, Any]) -> Page:
    return Page(
        file=_file(data["file"]),
        first=_number(data["first"], 1),
        rows=_number(data["rows"], 1),
        bytes=_number(data["bytes"], 1),
        segments=_number(data["segments"], 1),
        time_min=_time(data["time_min"]),
        time_max=_time(data["time_max"]),
        digest=_digest(data["digest"]),
    )


def _number(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= INT64_MAX:
        raise ValueError(f"{value!r} is no number from {least} on")
    return value


def _time(value: object) -> int:
    if _number(value) > TIME_US_MAX:
        raise ValueError(f"{value!r} is no time")
    return _number(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _file(value: object) -> str:
    """The name of an object, which can lead nowhere else."""
    if _FILE.fullmatch(_text(value)) is None:
        raise ValueError(f"{value!r} is no name of an object")
    return _text(value)


def _digest(value: object) -> str:
    if _DIGEST.fullmatch(_text(value)) is None:
        raise ValueError(f"{value!r} is no digest")
    return _text(value)
