"""A folder with two trained runs and an experiment, and the explorer of it at work on a free port."""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pip install 'plait[explore]'")
pytest.importorskip("uvicorn", reason="pip install 'plait[explore]'")

from plait.lab.cli import main
from plait.lab.report.explore.app import application
from plait.lab.report.explore.server import bind, server_for

SHORT = shlex.split(
    "--hidden 6 --delay 12 --updates 6 --batch-size 4 --evaluate-every 3 --evaluate-on 4 "
    "--record-every 2 --gradients-every 6 --quiet --device cpu"
)
NORMS = [{"update": 0, "norms": [[0.1, 0.0, 0.3]]}, {"update": 300, "norms": [[1e-6, 1e-3, 1.0]]}]


@pytest.fixture(scope="session")
def library_folder(bench_at, tmp_path_factory):
    """demo/ with a RelRNN and an LSTM that were trained, table5/ with runs beside published values."""
    root = tmp_path_factory.mktemp("explore")
    for model in (["relrnn", "--window", "4", "--capacity", "3"], ["lstm"]):
        words = ["train", "copy", "--model", *model, *SHORT, "--out", str(root / "demo")]
        assert main(words) == 0
    bench = bench_at(root)
    plan = [("T = 100", "RelRNN", "relrnn", 100, 1.0, ""), ("T = 100", "LSTM", "lstm", 100, 0.12, "")]
    bench.experiment("table5", plan)
    bench.run("table5", "relrnn", scores=(0.2, 0.6, 1.0), gradients=NORMS)
    bench.run("table5", "lstm", scores=(0.12, 0.13, 0.3))
    return root


@contextlib.contextmanager
def serving(folder):
    """The address of an explorer that answers while the block lasts."""
    where, address = bind()
    server = server_for(application(folder))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [where]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield address
    finally:
        server.should_exit = True
        thread.join(10)
        where.close()


@pytest.fixture(scope="session")
def serve_folder():
    return serving


@pytest.fixture(scope="session")
def address(library_folder):
    with serving(library_folder) as found:
        yield found


class Client:
    """Asks like the page; `status` and `seconds` are of the last question."""

    def __init__(self, address: str) -> None:
        self.address, self.status, self.headers, self.seconds = address, 0, {}, 0.0

    def raw(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        request = urllib.request.Request(self.address + path, data=body, headers=headers or {})
        began = time.process_time()  # of both sides, whatever else runs on their core
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                self.status, self.headers = response.status, dict(response.headers)
                return response.read()
        except urllib.error.HTTPError as error:
            with error:
                self.status, self.headers = error.code, dict(error.headers)
                return error.read()
        finally:
            self.seconds = time.process_time() - began

    def __call__(self, path: str, body: bytes | None = None, **query: Any) -> Any:
        text = urllib.parse.urlencode(query)
        answer = json.loads(self.raw(f"api/{path}{'?' * bool(text)}{text}", body))
        assert self.status == 200, answer
        return answer

    def error(self, path: str, body: bytes | None = None, status: int = 400, **query: Any) -> str:
        text = urllib.parse.urlencode(query)
        answer = json.loads(self.raw(f"api/{path}{'?' * bool(text)}{text}", body))
        assert self.status == status, answer
        assert set(answer) == {"error"}
        assert "\n" not in answer["error"]
        return answer["error"]


@pytest.fixture
def ask(address):
    return Client(address)


@pytest.fixture(scope="session")
def client_at():
    return Client


@pytest.fixture
def relrnn(ask):
    """The key of the RelRNN that was trained."""
    return ask("memory/runs")[0]["key"]
