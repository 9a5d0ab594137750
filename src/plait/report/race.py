"""Runs side by side, a process and a thread each; the run folders say how far they are."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from plait.errors import PlaitError
from plait.report.standings import Standings
from plait.runs.folder import Journal
from plait.training.process import Stop

__all__ = ["race"]

PATIENCE = 0.3  # seconds between two looks at the folders
GRACE = 20  # seconds a run has to save when it is asked to stop


class _Runner:
    """`plait train …` in a process of its own. In its own session too: Ctrl-C reaches it through us, once."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self.name, self.folder = name, folder
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it lives as long as the process)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "plait", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def look(self, standings: Standings) -> None:
        """Tell the standings what the run has written."""
        lines = Journal.read(self.folder / "metrics.jsonl")
        if lines:
            looks = [line for line in lines if "held_out" in line]
            accuracy = next(iter(looks[-1]["held_out"].values()))["score"] if looks else None
            standings.show(self.name, lines[-1]["update"], accuracy, looks[-1]["update"] if looks else 0)

    def trouble(self) -> str | None:
        """The last line of what it said, if it ended badly."""
        if self.process.returncode == 0:
            return None
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        last = said[-1] if said else f"it ended with code {self.process.returncode}"
        return f"{self.name}: {last.removeprefix('plait: error: ')}"

    def ask(self) -> None:
        """Ask it to save and stop."""
        if self.running:
            self.process.terminate()

    def end(self) -> None:
        """Wait for that; insist if it takes too long."""
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


def race(commands: Mapping[str, tuple[Sequence[str], Path]], standings: Standings) -> None:
    """Run commands at once until all have ended; all are stopped when one fails or when we are.

    Args:
        commands: by name, the arguments after `plait` and the run folder they write to.

    Raises:
        PlaitError: what the first one that failed said.
        KeyboardInterrupt, SystemExit: on SIGINT and SIGTERM, once every run has saved.
    """
    runners: list[_Runner] = []
    with Stop() as stop:
        try:
            for name, (arguments, folder) in commands.items():
                runners.append(_Runner(name, arguments, folder))
            while not stop.asked:
                for runner in runners:
                    runner.look(standings)
                failed = [runner.trouble() for runner in runners if not runner.running]
                if any(failed) or not any(runner.running for runner in runners):
                    break
                time.sleep(PATIENCE)
            for runner in runners:
                runner.look(standings)
                if not runner.running and (trouble := runner.trouble()):
                    raise PlaitError(trouble)
        finally:
            for runner in runners:
                runner.ask()
            for runner in runners:
                runner.end()
    stop.pass_on()
