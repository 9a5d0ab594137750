"""What every answer of the explorer tells a browser."""

import threading
import urllib.request

import pytest
from starlette.testclient import TestClient

from plait.lab.report.explore import app
from plait.lab.report.explore.app import ANSWERING, application


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/plane", "/api/runs", "/nowhere", "/api/law"])
def test_no_answer_is_guessed_at_or_shown_in_a_frame(path, tmp_path, monkeypatch):
    def fails(query):
        raise RuntimeError("a fault")

    monkeypatch.setattr(app, "law_view", fails)
    browser = TestClient(application(tmp_path), base_url="http://localhost", raise_server_exceptions=False)
    answer = browser.get(path)
    expected = {"/nowhere": 404, "/api/law": 500, "/api/runs": 400}
    assert answer.status_code == expected.get(path, 200)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    rules = answer.headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'self'", "frame-ancestors 'none'"} <= set(rules)
    stranger = browser.get(path, headers={"Host": "example.com"})
    assert stranger.status_code == 400
    assert stranger.headers["X-Content-Type-Options"] == "nosniff"


def test_many_readers_are_answered_by_few_threads(serve_folder, library_folder):
    """Each thread keeps memory of its own: with dozens of them the server grew for as long as it was read."""
    counts, before = [], set(threading.enumerate())  # servers of other tests have threads too

    def reads(address):
        with urllib.request.urlopen(f"{address}api/runs", timeout=60) as answer:
            assert answer.status == 200
        ours = set(threading.enumerate()) - before
        counts.append(sum("AnyIO worker" in thread.name for thread in ours))

    with serve_folder(library_folder) as address:
        readers = [threading.Thread(target=reads, args=(address,)) for _ in range(24)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert len(counts) == 24
    assert 1 <= max(counts) <= ANSWERING
