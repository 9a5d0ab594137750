"""`plait explore` as a process: its address, how it ends, and what it says when it cannot begin."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from plait.lab.cli import main


def test_it_serves_until_ctrl_c(library_folder):
    command = [sys.executable, "-m", "plait", "explore", str(library_folder), "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONUNBUFFERED", None)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=30) as response:
                assert b"<title>plait explorer</title>" in response.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.fixture
def refused(capsys):
    def call(*arguments):
        assert main(["explore", "--no-browser", *arguments]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    return call


def test_no_such_folder(refused, tmp_path):
    assert "no folder" in refused(str(tmp_path / "absent"))


def test_a_port_in_use(refused, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} is in use" in refused(str(tmp_path), "--port", str(port))


def test_a_port_that_is_none(refused, tmp_path):
    assert "expected 1 to 65535, got 70000" in refused(str(tmp_path), "--port", "70000")


def test_a_missing_extra_is_named(refused, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert "pip install 'plait[explore]'" in refused(str(tmp_path))
