"""kill -9 at a random moment, again and again, and a resume: the end must be that of a run nobody disturbed,
bit by bit. A subject is trained in a fork of a warm process; `reproduce` with its workers, and Ray's, are
whole commands, of which now the runner dies and now a worker. Signals that ask (INT, TERM, HUP) are
answered."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plait.lab.runs.reading import all_runs
from tests.faults.isolation import command, fork
from tests.faults.subjects import Subject, outcome

Outcomes = dict[str, dict[str, Any]]
SMOKE = ["--smoke", "--models", "relrnn,lstm", "--delays", "10", "--device", "cpu"]


def start(work: Callable[[], int], errors: Path) -> int:
    """A forked child that does it, with what it says in a file; its process id."""
    child = fork()
    if child:
        return child
    try:
        os.setsid()
        handle = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        os.write(2, f"Traceback: {error!r}\n".encode())
        code = 99
    os._exit(code)


def finished(child: int) -> int | None:
    """Its exit code, minus the signal that ended it; None while it is at work."""
    found, status = os.waitpid(child, os.WNOHANG)
    return None if not found else os.waitstatus_to_exitcode(status)


def wait(child: int, seconds: float) -> int | None:
    """As `finished`, after at most so long."""
    end = time.monotonic() + seconds
    while (code := finished(child)) is None and time.monotonic() < end:
        time.sleep(0.002)
    return code


def descendants(root: int) -> list[int]:
    """Every process below one, as /proc has it."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [root]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


class Kills:
    """What is killed, what it ends with when nobody disturbs it, and how long that takes."""

    def __init__(self, where: Path, work: Callable[[Path], int], runs: Callable[[Path], list[Path]]) -> None:
        self.work, self.runs = work, runs
        self.seconds = min(self._took(where.with_name(f"{where.name}-{turn}")) for turn in "12")
        self.truth = self.ends(where.with_name(f"{where.name}-1"))

    def _took(self, where: Path) -> float:
        began, said = time.monotonic(), where.with_suffix(".said")
        assert wait(start(lambda: self.work(where), said), 300) == 0, said.read_text()
        return time.monotonic() - began

    def ends(self, where: Path) -> Outcomes:
        """By the names of the runs; a run alone has that of its folder."""
        return {"" if run == where else run.name: outcome(run) for run in self.runs(where)}


def of_subject(subject: Subject, where: Path) -> Kills:
    """One run, trained or resumed in a fork."""

    def work(folder: Path) -> int:
        subject.train(folder, resume=(folder / "config.json").exists())
        return 0

    return Kills(where, work, lambda folder: [folder])


def of_command(words: list[str], where: Path) -> Kills:
    """A command whose runs come to lie in its folder; the same command goes on with them."""

    def work(folder: Path) -> int:
        from plait.lab.cli import main

        return main([*words, "--out", str(folder)])

    return Kills(where, work, lambda folder: [path.parent for path in sorted(folder.glob("*/config.json"))])


def killed_case(kills: Kills, draw: random.Random, where: Path, most: int) -> tuple[int, list[str]]:
    """Kill it up to `most` times, then let it end: how often that was, and what is wrong with the end."""
    said, count = where.with_suffix(".said"), 0
    wrong: list[str] = []
    for _ in range(most):
        child = start(lambda: kills.work(where), said)
        if wait(child, draw.random() * kills.seconds * 1.05) is not None:
            break  # it was done before
        below = descendants(child)
        victim = draw.choice([child, *below])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            victim = 0
        count += victim != 0
        if victim == child:
            os.waitpid(child, 0)
        elif wait(child, 120) is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            wrong.append("a worker was killed and its runner hangs")
        wrong += _listed(kills, where)
    code = None
    for _ in range(3):  # runs of a runner that died may be busy for a moment more
        child = start(lambda: kills.work(where), said)
        code = wait(child, 240)
        if code == 0:
            break
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    text = said.read_text() if said.exists() else ""
    if code != 0 or "Traceback" in text:
        return count, [*wrong, f"it ended with {code}: {text[-600:]}"]
    if kills.ends(where) != kills.truth:
        wrong.append("it ended otherwise than the run nobody disturbed")
    return count, wrong


def _listed(kills: Kills, where: Path) -> list[str]:
    """A run that was killed is interrupted, and nothing is wrong with it."""
    runs = kills.runs(where) if where.exists() else []
    records = [record for run in runs for record in all_runs(run.parent) if record.folder == run]
    return [
        f"{one.name} is listed as {one.status}: {one.reason}" for one in records if one.status == "damaged"
    ]


ASKING = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def asked_case(
    subject: Subject, truth: dict[str, Any], draw: random.Random, where: Path
) -> tuple[str, list[str]]:
    """A signal that asks, at a random moment of `plait train`: a clean word, and it can be resumed."""
    (where / "config").mkdir(parents=True)
    run = where / "run"
    number = draw.choice(sorted(ASKING))
    child = start(lambda: _trained(subject, run), where / "said")
    time.sleep(0.001)
    code = wait(child, draw.random() * 0.4)
    if code is None:
        os.kill(child, number)
        code = wait(child, 60)
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    # One that was ended before it began has said nothing.
    said = (where / "said").read_text() if (where / "said").exists() else ""
    wrong = []
    # Before the session begins a signal does what it always does: it ends the process.
    if code not in (0, ASKING[number], -number) or "Traceback" in said:
        wrong.append(f"{signal.Signals(number).name} gave {code}: {said[-500:]}")
    if (run / "config.json").exists():
        again = command(
            "train", "--resume", run, "--json", "--quiet", "--checkpoint-every", subject.checkpoint_every
        )
        if again.code:
            wrong.append(f"after {signal.Signals(number).name} it cannot be resumed: {again.err}")
        elif json.loads(again.out)["status"] != "complete" or outcome(run) != truth:
            wrong.append(f"after {signal.Signals(number).name} it ended otherwise")
    return f"{signal.Signals(number).name} {code}", wrong


def _trained(subject: Subject, run: Path) -> int:
    """What `plait train` does with the subject, its last door included."""
    from plait.lab import cli
    from plait.lab.result import CommandResult

    def work(*_: Any) -> CommandResult:
        return CommandResult({"status": subject.train(run, resume=False).status})

    cli._call = work  # type: ignore[assignment]
    return cli.main(["train", "--json"])
