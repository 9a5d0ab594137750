"""NVIDIA's service, played by a script that writes down what it is asked."""

import os

import pytest

from plait.errors import BackendError
from plait.lab.experiments.mps import CONTROL, multi_process_service

SCRIPT = """#!/bin/sh
read words
echo "$CUDA_MPS_PIPE_DIRECTORY $* $words" >> "{log}"
exit {code}
"""


@pytest.fixture
def control(tmp_path, monkeypatch):
    def make(code=0):
        path = tmp_path / CONTROL
        path.write_text(SCRIPT.format(log=tmp_path / "log", code=code))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        return tmp_path / "log"

    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return make


def test_it_is_started_in_a_folder_of_its_own_and_stopped(control):
    log = control()
    with multi_process_service():
        folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        assert os.path.isdir(folder)
        assert os.path.isdir(os.environ["CUDA_MPS_LOG_DIRECTORY"])
    assert log.read_text().splitlines() == [f"{folder} -d ", f"{folder}  quit"]
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert not os.path.exists(folder)


def test_it_is_stopped_when_the_work_fails(control):
    log = control()
    with pytest.raises(ZeroDivisionError), multi_process_service():
        _ = 1 / 0
    assert "quit" in log.read_text()


def test_what_was_set_before_is_set_again(control, monkeypatch):
    control()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere")
    with multi_process_service():
        assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] != "/elsewhere"
    assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "/elsewhere"


def test_a_daemon_that_does_not_start(control):
    control(code=1)
    with pytest.raises(BackendError, match="ended with code 1"), multi_process_service():
        pass
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ


def test_a_machine_without_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="which is not on this machine"), multi_process_service():
        pass
