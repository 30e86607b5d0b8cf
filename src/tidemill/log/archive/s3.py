"""Objects in a bucket: Amazon's S3 and whatever speaks its protocol.

    s3://bucket/prefix?endpoint=https://s3.example.com&region=eu-central-1

Credentials come from the environment, as with every tool for S3 (`AWS_ACCESS_KEY_ID` and so on; at
Amazon's, the role of the machine as well). An address is written down in the log and shown in
messages, so that they have no place in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import pyarrow as pa

from tidemill.errors import (
    InvalidInput,
    MissingExtra,
    NoAccess,
    NotAnArchive,
    TidemillError,
    Unavailable,
)
from tidemill.log.archive.objects import Absent, Changed, ObjectStore, Present, Stored
from tidemill.urls import is_text, seconds_of

try:
    import obstore
    from obstore.exceptions import (
        AlreadyExistsError,
        BaseError,
        NotSupportedError,
        PermissionDeniedError,
        PreconditionError,
        UnauthenticatedError,
    )
    from obstore.store import S3Store
except ImportError as cause:
    raise MissingExtra("an archive on S3 needs obstore: pip install 'tidemill[s3]'") from cause

_WANTED = "use s3://bucket/prefix, with ?endpoint=https://… if it is not Amazon's"
_OPTIONS = ("endpoint", "region", "timeout_s", "retry_s")
_NO_PARTS = ("", ".", "..")  # of a prefix
# Of credentials that were good for a while; Amazon says so with status 400, as of a bad request.
_OUTDATED = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>", re.ASCII)
_STATUS = re.compile(r"status code: ([0-9]{3})", re.ASCII)
_DELETED_AT_ONCE = 1_000  # what one request may name
_TRIES_MAX = 10


@dataclass(frozen=True, slots=True)
class S3Address:
    """A bucket, and where in it.

    >>> S3Address.parse("s3://backups/orders?endpoint=https://s3.example.com").url
    's3://backups/orders?endpoint=https%3A%2F%2Fs3.example.com'
    >>> S3Address.parse("s3://backups/env=prod/my%20orders").prefix
    'env=prod/my orders'
    """

    bucket: str
    prefix: str  # as the objects have it; a URL may write its characters as %20 and the like
    endpoint: str | None = None
    region: str | None = None
    timeout_s: float = 30.0  # of one request
    retry_s: float = 30.0  # how long to try again what failed for a while

    @classmethod
    def parse(cls, url: str) -> S3Address:
        """Read a URL; anything that is wrong with it is `InvalidInput`, without what it says."""
        try:
            parts = urlsplit(url)
            has_secret = parts.username is not None or parts.password is not None
        except ValueError:
            raise InvalidInput(f"this is no URL of an archive: {_WANTED}") from None
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        endpoint = options.get("endpoint")
        if has_secret or "@" in (endpoint or ""):
            raise InvalidInput(
                "the URL of an archive is written down in the log and holds no credentials: set "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
            )
        prefix = unquote(parts.path).strip("/")
        # Stores differ in what they make of such parts, and what stands behind `#` would be lost.
        is_odd = bool(parts.fragment) or any(part in _NO_PARTS for part in prefix.split("/"))
        is_odd = is_odd or not is_text(unquote(url))
        if parts.scheme.lower() != "s3" or not parts.netloc or ":" in parts.netloc or is_odd:
            raise InvalidInput(f"this is no URL of an archive: {_WANTED}")
        if unknown := sorted(options.keys() - set(_OPTIONS)):
            raise InvalidInput(
                f"unknown option {unknown[0]!r} in the URL of an archive: use {', '.join(_OPTIONS)}"
            )
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise InvalidInput("the endpoint of an archive starts with http:// or https://")
        return cls(
            parts.netloc,
            prefix,
            endpoint,
            options.get("region"),
            seconds_of(options.get("timeout_s", "30")),
            seconds_of(options.get("retry_s", "30"), "retry_s"),
        )

    @property
    def place(self) -> str:
        """The archive for messages."""
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"s3://{self.bucket}/{self.prefix}{at}"

    @property
    def url(self) -> str:
        """What `parse` reads."""
        options = {name: getattr(self, name) for name in ("endpoint", "region")}
        for name in ("timeout_s", "retry_s"):
            if getattr(self, name) != 30.0:
                options[name] = f"{getattr(self, name):g}"
        query = urlencode({name: value for name, value in options.items() if value})
        return f"s3://{self.bucket}/{quote(self.prefix)}" + (f"?{query}" if query else "")


class S3Objects(ObjectStore):
    """A part of a bucket. Requests that fail for a while are repeated, with pauses."""

    def __init__(self, url: str) -> None:
        address = S3Address.parse(url)
        self.place, self.url = address.place, address.url
        self._bucket = address.bucket
        options: dict[str, str] = {}
        if address.endpoint is not None:
            options["endpoint"] = address.endpoint
            if not os.environ.get("AWS_ACCESS_KEY_ID"):
                # Else the role of the machine would be asked for, which only Amazon's servers know.
                raise NoAccess(
                    f"{self.place} needs credentials: set AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY in the environment"
                )
        if address.region is not None:
            options["region"] = address.region
        try:
            self._store = _opened(address, options)
        except ValueError as error:
            raise InvalidInput(f"there can be no archive at {self.place}: {error}") from error

    def get(self, name: str) -> Stored:
        with self._errors("reading", name):
            found = obstore.get(self._store, name)
            tag = found.meta["e_tag"]
            if tag is None:
                raise Unavailable(f"{self.place} gives its objects no tags: it cannot be used")
            return Stored(pa.py_buffer(found.bytes()), tag)

    def get_range(self, name: str, start: int, end: int) -> pa.Buffer:
        with self._errors("reading", name):
            try:
                return pa.py_buffer(obstore.get_range(self._store, name, start=start, end=end))
            except BaseError as error:
                if _status(error) != "416":
                    raise
                return pa.py_buffer(b"")  # It is shorter than that.

    def put_new(self, name: str, data: pa.Buffer) -> str:
        with self._errors("writing", name):
            try:
                done = obstore.put(
                    self._store, name, _bytes(data), mode="create", use_multipart=False
                )
            except AlreadyExistsError as error:
                raise Present(name) from error
            return str(done["e_tag"])

    def replace(self, name: str, data: pa.Buffer, tag: str) -> str:
        with self._errors("writing", name):
            try:
                done = obstore.put(
                    self._store,
                    name,
                    _bytes(data),
                    mode={"e_tag": tag},
                    use_multipart=False,
                )
            except (PreconditionError, FileNotFoundError) as error:
                if _code(error) == "NoSuchBucket":
                    raise
                raise Changed(name) from error
            return str(done["e_tag"])

    def names(self, folder: str, *, after: str = "") -> Iterator[str]:
        with self._errors("listing", folder):
            pages = obstore.list(self._store, folder, offset=after or None, chunk_size=1_000)
            for page in pages:
                yield from (one["path"] for one in page)

    def delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETED_AT_ONCE):
            with self._errors("removing", names[start]):
                try:
                    obstore.delete(self._store, list(names[start : start + _DELETED_AT_ONCE]))
                except FileNotFoundError as error:
                    if _code(error) == "NoSuchBucket":
                        raise

    @contextmanager
    def _errors(self, doing: str, name: str) -> Iterator[None]:
        """Raise an error of ours where the block raises one of the driver's."""
        try:
            yield
        except FileNotFoundError as error:
            if _code(error) == "NoSuchBucket":
                raise NotAnArchive(
                    f"there is no bucket {self._bucket!r} for {self.place}: make it, or check the "
                    "URL"
                ) from error
            raise Absent(name) from error
        except (BaseError, OSError) as error:
            raise self._typed(error, doing, name) from _shown(error)
        except BaseException as error:
            # The driver panics about hosts and credentials that no request can be made of; and
            # nobody who handles errors handles that.
            if type(error).__name__ != "PanicException":
                raise
            raise InvalidInput(
                f"no request can be made to {self.place} ({error}): check the URL, and the "
                "credentials in the environment, for what does not belong there"
            ) from error

    def _typed(self, error: Exception, doing: str, name: str) -> TidemillError:
        code = _code(error)
        said = f" ({code})" if code else ""
        if _is_refusal(error):
            return NoAccess(
                f"{self.place} refuses {doing} {name}{said}: check the credentials in the "
                "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) and what they may do"
            )
        if isinstance(error, NotSupportedError) or code == "NotImplemented":
            return NotAnArchive(
                f"{self.place} cannot put objects on a condition, which an archive needs: use a "
                "store that honours If-Match and If-None-Match"
            )
        status = _status(error)
        said = said or (f" (status {status})" if status else "")
        return Unavailable(f"{self.place} did not answer while {doing} {name}{said}; try again")


def _opened(address: S3Address, options: dict[str, str]) -> S3Store:
    return S3Store(
        address.bucket,
        prefix=address.prefix,
        client_options={
            "allow_http": (address.endpoint or "").startswith("http:"),
            "timeout": timedelta(seconds=address.timeout_s),
            "connect_timeout": timedelta(seconds=min(address.timeout_s, 5.0)),
        },
        retry_config={
            "max_retries": _TRIES_MAX,
            "retry_timeout": timedelta(seconds=address.retry_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        },
        **options,  # type: ignore[arg-type]
    )


def _code(error: Exception) -> str | None:
    """What the server called it."""
    found = _CODE.search(str(error))
    return found[1] if found else None


def _is_refusal(error: Exception) -> bool:
    """Whether it is about who asks; the driver has a kind of error of its own for some calls."""
    kinds = (PermissionDeniedError, UnauthenticatedError, PermissionError)
    return isinstance(error, kinds) or _status(error) in ("401", "403") or _code(error) in _OUTDATED


def _status(error: Exception) -> str | None:
    found = _STATUS.search(str(error))
    return found[1] if found else None


def _shown(error: Exception) -> Exception | None:
    """The cause to be shown: not what a refusal says, for that may repeat what was signed."""
    return None if _is_refusal(error) else error


def _bytes(data: pa.Buffer) -> obstore.Bytes:
    """The same memory, of unsigned bytes, which is what the driver takes."""
    return obstore.Bytes(memoryview(data).cast("B"))
