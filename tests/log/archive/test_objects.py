"""What an archive asks of the place that it lives in, of a folder and of a real S3 server."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.crash_states import enumerate_states
from tests.faults.memory_fs import MemoryFileSystem
from tests.services.seaweedfs import ACCESS_KEY, BUCKET, SeaweedFS
from tidemill.errors import InvalidInput, NoAccess, NotAnArchive, Unavailable
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.log.archive.folder import FolderObjects
from tidemill.log.archive.objects import Absent, Changed, ObjectStore, Present
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.s3 import S3Address, S3Objects

Opens = Callable[[], ObjectStore]


@pytest.fixture(params=["memory", "folder", pytest.param("s3", marks=pytest.mark.slow)])
def opens(request: pytest.FixtureRequest, tmp_path: Path) -> Opens:
    """Opens the same objects each time."""
    if request.param == "memory":
        name = f"test-{secrets.token_hex(8)}"
        return lambda: open_objects(f"memory:{name}")
    if request.param == "folder":
        return lambda: FolderObjects(tmp_path / "some" / "archive")
    server: SeaweedFS = request.getfixturevalue("seaweedfs")
    url = server.url(request.getfixturevalue("prefix"))
    return lambda: open_objects(url)


def buffer(text: str) -> pa.Buffer:
    return pa.py_buffer(text.encode())


def content(objects: ObjectStore, name: str) -> str:
    return objects.get(name).data.to_pybytes().decode()


def test_an_object_is_put_once(opens: Opens) -> None:
    objects = opens()
    tag = objects.put_new("segments/1", buffer("rows"))
    with pytest.raises(Present):
        objects.put_new("segments/1", buffer("others"))
    found = opens().get("segments/1")
    assert (found.data.to_pybytes(), found.tag) == (b"rows", tag)


def test_an_object_is_replaced_by_who_knows_it(opens: Opens) -> None:
    one, other = opens(), opens()
    first = one.put_new("manifest.json", buffer("1"))
    second = one.replace("manifest.json", buffer("2"), first)
    with pytest.raises(Changed):
        other.replace("manifest.json", buffer("other"), first)
    assert content(other, "manifest.json") == "2"
    assert other.get("manifest.json").tag == second
    other.replace("manifest.json", buffer("3"), second)
    assert content(one, "manifest.json") == "3"


def test_what_is_not_there_cannot_be_replaced_or_read(opens: Opens) -> None:
    objects = opens()
    with pytest.raises(Changed):
        objects.replace("manifest.json", buffer("1"), '"00000000000000000000000000000000"')
    with pytest.raises(Absent):
        objects.get("manifest.json")
    with pytest.raises(Absent):
        objects.get_range("segments/1", 0, 4)
    assert list(objects.names("segments")) == []
    objects.delete(["segments/1"])


def test_of_many_that_replace_at_once_one_wins_each_time(opens: Opens) -> None:
    opens().put_new("manifest.json", buffer(""))
    lost = []
    all_have_read = threading.Barrier(4)

    def add(name: str) -> None:
        objects = opens()
        for number in range(10):
            has_met = number > 0
            while True:
                data, tag = objects.get("manifest.json")
                text = data.to_pybytes().decode() + f"{name}{number} "
                if not has_met:
                    # So that one wins, and three lose, however fast the store is.
                    all_have_read.wait(60)
                    has_met = True
                try:
                    objects.replace("manifest.json", buffer(text), tag)
                    break
                except Changed:
                    lost.append(name)

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = content(opens(), "manifest.json").split()
    assert sorted(found) == [f"{name}{number}" for name in "abcd" for number in range(10)]
    assert len(lost) >= 3


def test_a_part_of_an_object_is_read(opens: Opens) -> None:
    objects = opens()
    objects.put_new("segments/1", buffer("0123456789"))
    assert objects.get_range("segments/1", 2, 5).to_pybytes() == b"234"
    assert objects.get_range("segments/1", 8, 10).to_pybytes() == b"89"


def test_names_are_listed_in_order_from_one_on(opens: Opens) -> None:
    objects = opens()
    for name in ("segments/3", "segments/1", "pages/2", "segments/2"):
        objects.put_new(name, buffer(name))
    assert list(objects.names("segments")) == ["segments/1", "segments/2", "segments/3"]
    assert list(objects.names("segments", after="segments/1")) == ["segments/2", "segments/3"]
    objects.delete(["segments/2", "segments/9", "segments/1"])
    assert list(objects.names("segments")) == ["segments/3"]
    with pytest.raises(Absent):
        objects.get("segments/1")


def test_names_may_have_folders_within(opens: Opens) -> None:
    objects = opens()
    names = [f"segments/at={number}/{letter}" for number in (1, 2, 3) for letter in "ab"]
    for name in ("segments/0", *names):
        objects.put_new(name, buffer("rows"))
    assert list(objects.names("segments")) == ["segments/0", *names]
    assert list(objects.names("segments", after="segments/at=1/~")) == names[2:]
    assert list(objects.names("segments", after="segments/at=2/a")) == names[3:]
    objects.delete([*names[:3], "segments/at=9/a"])
    assert list(objects.names("segments")) == ["segments/0", *names[3:]]
    objects.put_new(names[0], buffer("again"))
    assert list(objects.names("segments", after="segments/1")) == [names[0], *names[3:]]


def test_a_folder_forgets_what_a_crash_left_of_a_replacement(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    tag = objects.put_new("manifest.json", buffer("1"))
    (tmp_path / "manifest.json.abc.swap.part").write_bytes(b"half")
    objects.replace("manifest.json", buffer("2"), tag)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "manifest.json"]


@pytest.mark.slow
def test_wrong_credentials_are_said_without_them(
    seaweedfs: SeaweedFS, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-key")
    objects = open_objects(seaweedfs.url(prefix))
    for call in (
        lambda: objects.get("manifest.json"),
        lambda: objects.put_new("manifest.json", buffer("1")),
        lambda: list(objects.names("segments")),
    ):
        with pytest.raises(NoAccess) as caught:
            call()
        said = str(caught.value) + repr(caught.value.__cause__)
        assert f"s3://{BUCKET}/{prefix}" in said
        assert "AWS_SECRET_ACCESS_KEY" in said
        assert "a-wrong-key" not in said
        assert ACCESS_KEY not in said


@pytest.mark.parametrize("status", [400, 403])
def test_credentials_that_have_expired_are_no_access(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Expired(BaseHTTPRequestHandler):
        """Says what Amazon's servers do of a token that was good until now."""

        def do_GET(self) -> None:
            said = b"<Error><Code>ExpiredToken</Code><Message>for a-token</Message></Error>"
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a-token")
    with HTTPServer(("127.0.0.1", 0), Expired) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        objects = open_objects(f"s3://b/orders?endpoint=http://127.0.0.1:{server.server_port}")
        for call in (
            lambda: objects.get("manifest.json"),
            lambda: objects.put_new("manifest.json", buffer("1")),
            lambda: objects.replace("manifest.json", buffer("1"), '"tag"'),
            lambda: list(objects.names("segments")),
        ):
            with pytest.raises(NoAccess, match="ExpiredToken") as caught:
                call()
            assert "a-token" not in str(caught.value) + repr(caught.value.__cause__)
        server.shutdown()


@pytest.mark.slow
def test_a_missing_bucket_is_said(seaweedfs: SeaweedFS, prefix: str) -> None:
    with pytest.raises(NotAnArchive, match="there is no bucket 'nobody-made-it'"):
        open_objects(seaweedfs.url(prefix, bucket="nobody-made-it")).get("manifest.json")


def test_a_server_that_is_away_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    objects = S3Objects("s3://bucket/orders?endpoint=http://127.0.0.1:1&timeout_s=1&retry_s=0.2")
    with pytest.raises(Unavailable, match=r"did not answer while reading manifest\.json"):
        objects.get("manifest.json")


def test_credentials_that_are_missing_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(NoAccess, match="set AWS_ACCESS_KEY_ID"):
        S3Objects("s3://bucket/orders?endpoint=http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://key:secret@bucket/orders", "holds no credentials"),
        ("s3://bucket/orders?endpoint=http://key:secret@host", "holds no credentials"),
        ("s3://bucket", "no URL of an archive"),
        ("s3:///orders", "no URL of an archive"),
        ("s3://bucket/orders#secret", "no URL of an archive"),
        ("s3://bucket/some//orders", "no URL of an archive"),
        ("s3://bucket/some\udcff/orders", "no URL of an archive"),
        ("s3://bucket/some/%2E%2E/orders", "no URL of an archive"),
        ("s3://bucket/orders?password=secret", "unknown option 'password'"),
        ("s3://bucket/orders?endpoint=host", "starts with http"),
        ("s3://bucket/orders?timeout_s=soon", "number of seconds"),
        ("ftp://host/orders", "cannot be kept at ftp"),
        ("", "needs a folder"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_secrets(url: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        open_objects(url)
    assert "secret" not in str(caught.value).replace("AWS_SECRET", "")


def test_a_url_says_all_that_it_takes_to_open_it_again() -> None:
    url = "s3://b/some/place?endpoint=https://s3.example.com&region=eu&timeout_s=2.5"
    address = S3Address.parse(url)
    assert S3Address.parse(address.url) == address
    assert address.place == "s3://b/some/place at https://s3.example.com"


@pytest.mark.parametrize(
    "prefix", ["env=prod/orders", "my orders", "a+b", "a:b", "café", "100%", "a%20b", "a#b?c&d=e"]
)
def test_a_url_leads_to_the_same_prefix_however_often_it_is_written_down(prefix: str) -> None:
    address = S3Address.parse(f"s3://b/{quote(prefix)}")
    assert address.prefix == prefix
    assert S3Address.parse(address.url) == address
    assert S3Address.parse("s3://b/env=prod/my orders").url == "s3://b/env%3Dprod/my%20orders"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("s3://b/orders?endpoint=http://host:99999", "key"),
        ("s3://b/orders?endpoint=http://", "key"),
        ("s3://a bucket/orders", "key"),
        ("s3://b/orders?endpoint=http://127.0.0.1:1", "key\n"),
        ("s3://b/a%00b", "key"),
    ],
)
def test_what_no_request_can_be_made_of_is_an_error_that_is_handled(
    url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(InvalidInput) as caught:
        open_objects(url).get("manifest.json")
    assert "secret" not in str(caught.value)


def test_a_folder_within_goes_with_the_last_of_it(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path)
    objects.put_new("segments/at=1/a", buffer("rows"))
    objects.put_new("segments/at=1/b", buffer("rows"))
    objects.delete(["segments/at=1/a"])
    assert (tmp_path / "segments" / "at=1").exists()
    objects.delete(["segments/at=1/b"])
    assert [path.name for path in tmp_path.iterdir()] == ["segments"]
    assert not (tmp_path / "segments" / "at=1").exists()


def test_a_folder_that_is_removed_as_something_is_put_into_it_is_made_again(tmp_path: Path) -> None:
    class Removing(LocalFileSystem):
        """Has another remove each empty folder just after it was made, a few times."""

        left = 3

        def sync_folder(self, path: Path) -> None:
            super().sync_folder(path)
            made = path / "at=1"
            if self.left and made.exists() and not list(made.iterdir()):
                self.left -= 1
                made.rmdir()

    fs = Removing()
    objects = FolderObjects(tmp_path / "archive", fs)
    objects.put_new("segments/at=1/a", buffer("rows"))
    fs.left = 2
    (tmp_path / "given").write_bytes(b"file")
    objects.adopt(tmp_path / "given", "segments/at=1/b")
    assert fs.left == 2, "nothing is removed that holds something"
    objects.delete(["segments/at=1/a", "segments/at=1/b"])
    objects.adopt(tmp_path / "given", "segments/at=1/b")
    assert (fs.left, objects.get("segments/at=1/b").data.to_pybytes()) == (0, b"file")
    (tmp_path / "given").unlink()
    with pytest.raises(tm.TidemillError, match="given"):
        objects.adopt(tmp_path / "given", "segments/at=1/c")


def test_what_a_killed_process_put_lasts_once_another_relies_on_it() -> None:
    path = Path("/stores/archive")
    name, other = "segments/first_seq=1/one", "segments/first_seq=1/two"
    disk = MemoryFileSystem()
    FolderObjects(path, disk).put_new(name, buffer("rows"))
    trace = disk.trace
    judged = 0
    for point in range(1, len(trace.operations) + 1):
        fs = MemoryFileSystem.replayed(trace, point)
        objects = FolderObjects(path, fs)
        try:
            objects.put_new(name, buffer("rows"))
        except Present:
            pass  # The one that was killed had come so far.
        objects.put_new(other, buffer("more"))
        after = len(fs.trace.operations)
        fs.mark("put")
        for state in enumerate_states(fs.trace, since=after):
            found = FolderObjects(path, state.file_system())
            assert [content(found, one) for one in (name, other)] == ["rows", "more"]
            judged += 1
    assert judged >= len(trace.operations)
