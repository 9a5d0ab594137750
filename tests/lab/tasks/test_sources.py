"""Data files: which place is looked in first, what is refused, and downloads from a server of our own."""

import gzip
import hashlib
import http.server
import threading
import tracemalloc
from pathlib import Path

import pytest

from plait.errors import DataError, OutputError
from plait.lab.tasks import sources
from plait.lab.tasks.sources import MNIST, TREEBANK, DataFile, cache_folder, locate, read_bytes

CONTENT = b"a data set of some bytes\n" * 40


class _Server(http.server.BaseHTTPRequestHandler):
    """Each folder is a mirror with a fault of its own."""

    def do_GET(self):
        kind, name = self.path.strip("/").split("/")
        body = gzip.compress(CONTENT, mtime=0) if name.endswith(".gz") else CONTENT
        promised = len(body)
        if kind == "absent":
            self.send_error(404)
            return
        if kind == "broken":
            body = body[: len(body) // 2]
        elif kind == "shortened":  # whole for HTTP, but half of the file
            body = body[: len(body) // 2]
            promised = len(body)
        elif kind == "other":
            body = gzip.compress(b"other", mtime=0) if name.endswith(".gz") else b"other"
            promised = len(body)
        self.send_response(200)
        self.send_header("Content-Length", str(promised))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture
def wanted(server, nowhere):
    """A file on the mirrors named; its digest is the true one."""

    def file(*kinds, packed=False):
        mirrors = tuple(f"{server}/{kind}/" for kind in kinds)
        return DataFile("some", "some.txt", hashlib.sha256(CONTENT).hexdigest(), mirrors, packed)

    return file


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


@pytest.mark.parametrize("packed", [False, True])
def test_a_download_is_kept_and_found_again(wanted, nowhere, packed):
    path = locate(wanted("good", packed=packed))
    assert path == nowhere / "some" / "some.txt"
    assert read_bytes(path) == CONTENT
    assert left(nowhere) == ["some.txt"]
    assert locate(wanted("absent")) == path  # it must come from the cache


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("absent", "answered 404"),
        ("broken", "broke off"),
        ("shortened", "sent another file|cut short"),
        ("other", "sent another file"),
    ],
)
def test_a_bad_download_leaves_nothing_and_the_next_mirror_is_tried(wanted, nowhere, kind, says, packed):
    with pytest.raises(DataError, match=rf"127\.0\.0\.1:\d+: .*({says})"):
        locate(wanted(kind, packed=packed))
    assert left(nowhere) == []
    assert locate(wanted(kind, "good", packed=packed)).read_bytes() == CONTENT


def test_no_data_and_no_network_is_one_line_with_what_to_do(nowhere, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAIT_DATA", str(tmp_path / "mine"))
    file = DataFile("some", "some.txt", "0" * 64, ("http://127.0.0.1:9/", "http://127.0.0.1:9/b/"))
    with pytest.raises(DataError) as caught:
        locate(file)
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(tmp_path / "mine" / "some"), str(nowhere / "some"), "refused", "PLAIT_DATA", "--data"):
        assert part in message


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_users_folder_comes_before_the_cache(wanted, nowhere, tmp_path, monkeypatch, ending):
    cached = locate(wanted("good"))
    mine = tmp_path / "mine" / "some" / f"some.txt{ending}"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(gzip.compress(CONTENT, mtime=0) if ending else CONTENT)
    assert locate(wanted("absent")) == cached
    monkeypatch.setenv("PLAIT_DATA", str(tmp_path / "mine"))
    assert locate(wanted("absent")) == mine


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("some.txt", CONTENT[:-1], "not the published file or is cut short: expected SHA-256"),
        ("some.txt", b"", "is empty"),
        ("some.txt.gz", gzip.compress(CONTENT, mtime=0)[:-9], "cut short or not gzip"),
        ("some.txt.gz", CONTENT, "cut short or not gzip"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(wanted, tmp_path, monkeypatch, name, content, says):
    path = tmp_path / "mine" / "some" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    monkeypatch.setenv("PLAIT_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError, match=rf"{name}.*{says}.*delete it.* get it from http"):
        locate(wanted("good"))
    assert path.read_bytes() == content


def test_an_unfinished_download_does_not_look_complete(wanted, nowhere, monkeypatch):
    """The process dies after writing and before renaming."""

    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("plait.lab.tasks.sources.os.replace", die)
        with pytest.raises(KeyboardInterrupt):
            locate(wanted("good"))
    assert not (nowhere / "some" / "some.txt").exists()
    (nowhere / "some" / ".some.txt.abc.part").write_bytes(CONTENT[:10])  # what kill -9 would leave
    assert locate(wanted("good")).read_bytes() == CONTENT


def test_an_unwritable_cache_is_reported(wanted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(OutputError, match=r"cannot write .* set PLAIT_CACHE"):
        locate(wanted("good"))


def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch, tmp_path):
    monkeypatch.delenv("PLAIT_CACHE", raising=False)
    monkeypatch.setattr("plait.files.sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "plait"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "plait"


def test_the_mirrors_are_several_and_encrypted():
    for file in (*MNIST, *TREEBANK):
        assert len(file.urls()) >= 2
        assert all(url.startswith("https://") for url in file.urls())


def test_a_bomb_is_refused_while_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_UNPACKED", 3_000_000)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes(40_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="unpacks to more than 3,000,000 bytes"):
            read_bytes(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    path.write_bytes(gzip.compress(bytes(3_000_000)) + gzip.compress(b""))
    assert read_bytes(path) == bytes(3_000_000)
