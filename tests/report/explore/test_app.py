"""What every answer of the explorer tells a browser."""

import pytest
from starlette.testclient import TestClient

from plait.report.explore import app
from plait.report.explore.app import application


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
