"""Random damage to the files of a run folder, and what may come of it: the true result, or a word of what is
wrong. An altered result that is shown as if nothing were is the one thing that must not happen."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plait.errors import PlaitError
from tests.faults.isolation import Said, command, isolated
from tests.faults.subjects import KEPT, STATES, Subject, outcome, subjects

Damage = Callable[[random.Random, Path, Path], None]


def _flip(draw: random.Random, path: Path, other: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 1, 1, 8))):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _other_digit(draw: random.Random, path: Path, other: Path) -> None:
    """The damage that is hardest to see: a digit for a digit."""
    content = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if places:
        place = draw.choice(places)
        content[place] = draw.choice([byte for byte in range(48, 58) if byte != content[place]])
    path.write_bytes(content)


def _cut(draw: random.Random, path: Path, other: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def _cut_at_a_line(draw: random.Random, path: Path, other: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: draw.randrange(len(lines))]))


def _zeroes(draw: random.Random, path: Path, other: Path) -> None:
    content = bytearray(path.read_bytes())
    begin = draw.randrange(len(content))
    end = min(len(content), begin + draw.choice((1, 16, 512, 4096)))
    content[begin:end] = bytes(end - begin)
    path.write_bytes(content)


def _delete(draw: random.Random, path: Path, other: Path) -> None:
    path.unlink()


def _line_twice(draw: random.Random, path: Path, other: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    place = draw.randrange(len(lines))
    path.write_bytes(b"".join([*lines[: place + 1], *lines[place:]]))


def _lines_swapped(draw: random.Random, path: Path, other: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    first, second = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    path.write_bytes(b"".join(lines))


def _of_another_run(draw: random.Random, path: Path, other: Path) -> None:
    if (other / path.name).exists():
        shutil.copy(other / path.name, path)


def _of_another_name(draw: random.Random, path: Path, other: Path) -> None:
    files = [p for p in sorted(path.parent.iterdir()) if p.is_file() and not p.is_symlink() and p != path]
    if files:
        shutil.copy(draw.choice(files), path)


def _link(draw: random.Random, path: Path, other: Path) -> None:
    target = draw.choice(("nowhere", path.name, str(other / path.name), "/dev/null", "."))
    path.unlink()
    path.symlink_to(target)


def _folder(draw: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


def _garbage(draw: random.Random, path: Path, other: Path) -> None:
    path.write_bytes(draw.randbytes(draw.choice((1, 100, 10_000))))


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    "\ud800",
    float("nan"),
)


def _another_type(draw: random.Random, path: Path, other: Path) -> None:
    """Right JSON, one value of which is of another kind; a file that is none gets garbage."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError:
        try:
            lines = [json.loads(path.read_text())]
        except ValueError:
            return _garbage(draw, path, other)
    place: Any = lines
    key: Any = draw.randrange(len(lines)) if lines else None
    if key is None:
        return None
    while isinstance(place[key], dict | list) and place[key] and draw.random() < 0.8:
        place = place[key]
        key = draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
    place[key] = draw.choice(ODD)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return None


DAMAGES: dict[str, Damage] = {
    "flipped bits": _flip,
    "another digit": _other_digit,
    "cut": _cut,
    "cut at a line": _cut_at_a_line,
    "zeroes": _zeroes,
    "deleted": _delete,
    "a line twice": _line_twice,
    "lines swapped": _lines_swapped,
    "of another run": _of_another_run,
    "of another name": _of_another_name,
    "a link": _link,
    "a folder": _folder,
    "garbage": _garbage,
    "another type": _another_type,
}


class Room:
    """Whole runs of every kind in every state with what is true of them; each case damages a copy."""

    def __init__(self, root: Path, kinds: tuple[str, ...] | None = None) -> None:
        self.root = root
        self.subjects = {k: s for k, s in subjects(root).items() if kinds is None or k in kinds}
        self.folders: dict[tuple[str, str], Path] = {}
        self.ends: dict[str, dict[str, Any]] = {}
        self.good = root / "whole" / "good"
        other = {**self.subjects["copy"].description}
        other["recipe"] = {**other["recipe"], "seed": 7}
        Subject(other, 4).train(self.good)
        for kind, subject in self.subjects.items():
            for state, leave in STATES.items():
                folder = self.folders[kind, state] = root / "whole" / f"{kind}-{state}"
                leave(subject, folder)
            self.ends[kind] = outcome(self.folders[kind, "complete"])
        self.truths = {case: self._truth(*case) for case in self.folders}

    def laid_out(self, kind: str, state: str, where: Path) -> Path:
        """A folder of two runs, a good one and the one that is to be damaged; that one."""
        where = where / "runs"  # pages name the folder
        shutil.copytree(self.good, where / "good")
        return Path(shutil.copytree(self.folders[kind, state], where / "run"))

    def _truth(self, kind: str, state: str) -> dict[str, Any]:
        where = self.root / "truth" / f"{kind}-{state}"
        run = self.laid_out(kind, state, where)
        truth = {name: told for name, (_, told) in looks(run, state).items()}
        shutil.rmtree(run)  # what the good run says when the other one is left out, or its results are
        rows = _results(json.loads(command("report", run.parent, "-o", where / "alone.md", "--json").out))[
            "rows"
        ]
        truth["report"]["alone"] = {score for row in rows.values() for score in _scores(row).values()}
        return truth


def looks(run: Path, state: str) -> dict[str, tuple[Said, Any]]:
    """Everything that only reads, on the folder that the run lies in: what was said, and the values in it."""
    out = run.parent
    found: dict[str, tuple[Said, Any]] = {}
    listed = command("runs", out, "--json")
    found["runs"] = listed, _by_name(json.loads(listed.out)) if not listed.code else None
    shown = command("runs", "show", run, "--json")
    found["show"] = shown, _without_place(json.loads(shown.out)) if not shown.code else None
    page = command("report", out, "-o", out.parent / f"{out.name}.md", "--json")
    found["report"] = page, _results(json.loads(page.out)) if not page.code else None
    found["weights"] = _loaded(run)
    found["explorer"] = _explored(out)
    return found


def _by_name(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {os.path.basename(row.pop("folder")): row for row in rows}


def _without_place(shown: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shown.items() if key not in ("folder", "repeat")}


def _results(page: dict[str, Any]) -> dict[str, Any]:
    return {
        "damaged": page["damaged"],
        "rows": {
            f"{row.get('task', row.get('row'))} {row.get('model', row.get('column'))}": row
            for group in page["groups"]
            for row in group["results"]
        },
    }


def _loaded(run: Path) -> tuple[Said, Any]:
    from plait.lab.training.session import load

    try:
        network = load(run)
    except PlaitError as error:
        return Said(2, "", f"{error}\n"), None
    return Said(0, "", ""), {name: value.numpy().tobytes() for name, value in network.state_dict().items()}


ADDRESSES = ("runs", "group", "plot", "memory/runs", "norms/runs", "memory?run=run", "norms?run=run")


def _explored(out: Path) -> tuple[Said, Any]:
    from starlette.testclient import TestClient

    from plait.lab.report.explore.app import application

    browser = TestClient(application(out), base_url="http://localhost", raise_server_exceptions=False)
    answers = {name: browser.get(f"/api/{name}") for name in ADDRESSES}
    broken = {name: answer.text for name, answer in answers.items() if answer.status_code not in (200, 400)}
    values = {name: answer.json() for name, answer in answers.items()}
    return Said(500 if broken else 0, "", str(broken) if broken else ""), values


def judge_looks(found: dict[str, tuple[Said, Any]], truth: dict[str, Any]) -> list[str]:
    """What is wrong with what was said, if anything is."""
    wrong = [f"{name}: {said}" for name, (said, _) in found.items() if said.code and not said.told]
    rows = found["runs"][1]
    if rows is None:
        return [*wrong, f"the listing failed: {found['runs'][0]}"]
    if rows.get("good") != truth["runs"]["good"]:
        wrong.append(f"the good run is listed as {rows.get('good')}")
    mine = rows.get("run")
    true = truth["runs"]["run"]
    if mine is None or (mine["status"] != "damaged" and mine != true and not _says_less(mine, true)):
        wrong.append(f"listed as {mine}, and is {true}")
    if mine is not None and mine["status"] == "damaged":
        if not mine["reason"]:
            wrong.append("damaged for no reason")
        for key in ("best_score", "task", "model"):
            if mine[key] not in (None, truth["runs"]["run"][key]):
                wrong.append(f"a damaged run is listed with {key} {mine[key]}")
    if found["weights"][1] not in (None, truth["weights"]):
        wrong.append("weights: altered ones are believed")
    shown = found["show"][1]
    if shown not in (None, truth["show"]) and not _says_less(shown, truth["show"]):
        wrong.append(f"show: an altered result is believed: {shown}")
    return [*wrong, *_judge_report(found["report"][1], truth["report"]), *_judge_views(found, truth)]


def _says_less(mine: dict[str, Any], true: dict[str, Any]) -> bool:
    """A run whose summary was lost is one that was interrupted, and says so; all else must be as it was."""
    beside = ("status", "reason", "summary", "best_score")
    return (
        mine["status"] == "interrupted"
        and all(mine[key] == true[key] for key in mine if key not in beside)
        and mine["best_score"] in (None, true["best_score"])
    )


def _judge_report(page: Any, truth: Any) -> list[str]:
    if page is None:
        return []
    if not page["damaged"] and any("interrupted" in row["runs"] for row in page["rows"].values()):
        for rows in (page["rows"], truth["rows"]):
            for row in rows.values():
                row.pop("runs", None)
    if not page["damaged"]:
        true = {"damaged": [], "rows": truth["rows"]}
        return [] if page == true else [f"report: an altered result is believed: {page} for {truth}"]
    mine = truth["rows"].values()
    seen = {score for row in mine for score in _scores(row).values()} | truth["alone"] | {None, "—"}
    return [
        f"report: {row['model']} has {key} {score}, which is nobody's"
        for row in page["rows"].values()
        for key, score in _scores(row).items()
        if score not in seen
    ]


def _scores(row: dict[str, Any]) -> dict[str, Any]:
    """Return the score in a row of a report, by its heading."""
    (score,) = [key for key in row if key.startswith("held-out ")]
    return {score: row[score]}


def _judge_views(found: dict[str, tuple[Said, Any]], truth: dict[str, Any]) -> list[str]:
    """Of a run that is said to be damaged fewer lines may be shown, and no others."""
    views, true = found["explorer"][1], truth["explorer"]
    said = views["runs"].get("damaged") or found["runs"][1].get("run", {}).get("reason")
    wrong = []
    for name in ADDRESSES if not said else ("memory?run=run", "norms?run=run"):
        lines = true[name].get("lines", []) if isinstance(true[name], dict) else []
        fewer = said and "lines" in views[name] and all(line in lines for line in views[name]["lines"])
        if "error" not in views[name] and views[name] != true[name] and not fewer:
            wrong.append(f"explorer: {name} altered")
    return wrong


def judge_resume(run: Path, end: dict[str, Any]) -> list[str]:
    """Go on with it: it ends as it would have, or one line says why not, and nothing was changed."""
    before = _contents(run)
    said = command("train", "--resume", run, "--json", "--quiet")
    if said.code:
        wrong = [] if said.told else [f"resume: {said}"]
        changed = sorted(name for name, now in _contents(run).items() if before.get(name, now) != now)
        gone = sorted(set(before) - set(_contents(run)))
        return [*wrong, *(f"resume was refused and {name} was changed" for name in (*changed, *gone))]
    told = json.loads(said.out)
    if {key: told[key] for key in KEPT} != end["summary"]:
        return [f"resume: an altered result is believed: {told}"]
    try:
        return [] if outcome(run) == end else ["resume: what it ended with is altered"]
    except PlaitError as error:
        return [f"resume: it ended with {error}"]


def _contents(run: Path) -> dict[str, Any]:
    return {
        path.name: os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else "folder"
        for path in run.iterdir()
        if path.name != "lock"
    }


def one_case(room: Room, number: int, seed: int, where: Path) -> tuple[str, list[str]]:
    """Case `number` of a seed: what was done, and what is wrong with what came of it."""
    draw = random.Random(f"{seed} {number}")
    kind, state = draw.choice(sorted(room.folders))
    run = room.laid_out(kind, state, where)
    done = []
    for _ in range(draw.choice((1, 1, 1, 2))):
        # Not through a link: it may lead into the other run.
        files = [p for p in sorted(run.iterdir()) if p.is_file() and not p.is_symlink() and p.name != "lock"]
        files = [p for p in files if p.stat().st_size]
        if not files:
            break
        path, name = draw.choice(files), draw.choice(sorted(DAMAGES))
        try:
            DAMAGES[name](draw, path, room.good)
        except UnicodeError:  # text is expected where there is none
            _garbage(draw, path, room.good)
        done.append(f"{path.name} {name}")
    what = f"{kind} {state}: {', '.join(done)}"
    packs, goes_on = draw.random() < 0.3, draw.random() < 0.5

    def work() -> list[str]:
        found = looks(run, state)
        wrong = judge_looks(found, room.truths[kind, state])
        if packs:
            archive = where / "packed.tar.gz"
            said = command("runs", "pack", run, "-o", archive)
            wrong += [f"pack: {said}"] if said.code and not said.told else []
            if not said.code and found["runs"][1]["run"]["status"] == "damaged":
                wrong.append("pack: a damaged run was packed without a word")
        if goes_on:
            wrong += judge_resume(run, room.ends[kind])
        return wrong

    status, answer = isolated(work)
    return what, answer if status == "done" else [f"{status}: {answer}"]
