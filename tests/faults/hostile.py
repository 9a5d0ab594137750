"""Files that mean harm: archives, checkpoints with a right digest, safetensors, IDX, gzip, text, JSON.

Each maker writes one file (or folder) by a seed and names the commands that are to read it. What may come of
it: the command does its work, or says in one line why not. No crash, no hang, no flood, nothing written
outside its folder.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import resource
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from plait.lab.runs.checkpoint import read_checkpoint, write_checkpoint
from tests.faults.damage import ODD, Room
from tests.faults.isolation import Said, command, isolated

Lines = list[list[object]]
Maker = Callable[[random.Random, Path, Room], Lines]
FLOOD = 3 * 2**30  # bytes that a command may ask for beyond what the process has
SMALL = [
    "--updates",
    "2",
    "--batch-size",
    "2",
    "--hidden",
    "4",
    "--evaluate-on",
    "2",
    "--quiet",
    "--device",
    "cpu",
]
DEEP = "[" * 100_000 + "]" * 100_000


# Archives

NAMES = (
    "../evil",
    "run/../../evil",
    "/tmp/evil-of-plait",
    "evil",
    "run/a/b",
    ".run/config.json",
    "run\\..\\evil",
    "run/" + "x" * 300,
    "x" * 5000 + "/config.json",
    "run/\udcff",
    "run/new\nline",
    "run/nul\0",
    "",
    "/",
    ".",
    "run/.",
    "run",
    "SHA256SUMS",
    "run/SHA256SUMS",
    "experiment.json",
    "ru\u202en/config.json",
)
KINDS = (
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.FIFOTYPE,
    tarfile.DIRTYPE,
    tarfile.CONTTYPE,
    tarfile.GNUTYPE_SPARSE,
    b"Z",
)


def _members(draw: random.Random, room: Room) -> list[tuple[tarfile.TarInfo, bytes]]:
    found = []
    for path in sorted(room.good.iterdir()):
        if path.is_file() and path.name != "lock":
            member = tarfile.TarInfo(f"run/{path.name}")
            found.append((member, path.read_bytes()))
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {one.name}\n" for one, data in found).encode()
    if draw.random() < 0.7:
        found.insert(0, (tarfile.TarInfo("SHA256SUMS"), sums))
    return found


def archive(draw: random.Random, room: Path, runs: Room) -> Lines:
    members = _members(draw, runs)
    for _ in range(draw.choice((0, 1, 1, 2))):
        place = draw.randrange(len(members))
        member, data = members[place]
        match draw.choice(("name", "kind", "twice", "data", "size", "pax", "drop", "extra", "bomb")):
            case "name":
                member.name = draw.choice(NAMES)
            case "kind":
                member.type, member.linkname = draw.choice(KINDS), draw.choice(("/etc/passwd", "../x", "run"))
                members[place] = (member, b"")
            case "twice":
                members.insert(draw.randrange(len(members)), (member, data))
            case "data":
                members[place] = (member, draw.randbytes(draw.choice((0, 10, 10_000))))
            case "pax":
                keys = ("path", "linkpath", "size", "GNU.sparse.size", "GNU.sparse.map", "comment", "mtime")
                values = ("../evil", "-5", "99999999999", "x" * 100_000, "0,1,2,x", "nan", "\0")
                member.pax_headers = {draw.choice(keys): draw.choice(values)}
            case "drop":
                members.pop(place)
            case "extra":
                more = tarfile.TarInfo(draw.choice((f"other/{draw.choice(('config.json', 'x'))}", *NAMES)))
                members.append((more, b"{}"))
            case "bomb":
                more = tarfile.TarInfo(draw.choice(("run/zeroes", "SHA256SUMS")))
                members.append((more, bytes(draw.choice((2**20, 2**27)))))
            case "size":
                member.size = draw.choice((0, 10**6, 10**12, 8**11 - 1))
                members[place] = (member, data)
        if not members:
            break
    content = io.BytesIO()
    with tarfile.open(
        fileobj=content, mode="w", format=draw.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    ) as tar:
        for member, data in members:
            member.size = member.size or len(data)
            try:
                head = member.tobuf(tar.format, "utf-8", "surrogateescape")
            except (ValueError, UnicodeError):
                continue
            tar.fileobj.write(head + data + bytes(-len(data) % 512))  # type: ignore[union-attr]
    packed = bytearray(gzip.compress(content.getvalue(), compresslevel=1, mtime=0))
    if draw.random() < 0.25:
        packed = _bent(draw, packed)
    path = room / "a.tar.gz"
    path.write_bytes(packed)
    return [["runs", "unpack", path, "--out", room / "out"], ["report", path, "-o", room / "r.md"]]


def _bent(draw: random.Random, content: bytearray) -> bytearray:
    match draw.choice(("flip", "cut", "twice", "tail")):
        case "flip":
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        case "cut":
            del content[draw.randrange(len(content)) :]
        case "twice":
            content += bytes(content)
        case "tail":
            content += draw.randbytes(1000)
    return content


# Checkpoints with a right digest

_DTYPES = (
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.uint8,
)
_NUMBERS = (-1, 2**30, 2**31, 2**62, -(2**62), 255, 7)


def _other_tensor(draw: random.Random, value: torch.Tensor) -> torch.Tensor:
    match draw.choice(("dtype", "shape", "values", "place", "empty", "transposed", "more")):
        case "dtype":
            return value.to(draw.choice(_DTYPES))
        case "shape":
            return value.flatten()[: draw.randrange(value.numel() + 1)]
        case "empty":
            return value.new_zeros(draw.choice([(0,), (0, 0), (0, 3), ()]))
        case "transposed":
            return value.mT.contiguous() if value.dim() > 1 else value[None]
        case "more":
            return torch.cat([value.reshape(1, -1)] * 2) if value.numel() else value[None]
    changed, fill = value.clone(), draw.choice((float("nan"), float("inf"), 1e38, *_NUMBERS))
    if not value.is_floating_point():
        fill = draw.choice(_NUMBERS)
    limits = None if value.is_floating_point() or value.dtype == torch.bool else torch.iinfo(value.dtype)
    fill = fill if limits is None else max(limits.min, min(limits.max, fill))
    if draw.random() < 0.5 or not value.numel():
        return changed.fill_(fill)
    changed.view(-1)[draw.randrange(value.numel())] = fill
    return changed


def checkpoint(draw: random.Random, room: Path, runs: Room) -> Lines:
    kind = draw.choice(sorted(runs.subjects))
    run = Path(shutil.copytree(runs.folders[kind, "killed"], room / "run"))
    path = run / "checkpoint.safetensors"
    found = read_checkpoint(path)
    with safe_open(path, "pt") as file:
        owner = json.loads(file.metadata()["plait"])["run"]
    tensors, counters = dict(found.tensors), dict(found.counters)
    for _ in range(draw.choice((1, 1, 3))):
        # Weights are many, and what is carried is few and read by compiled code.
        names = draw.choice([[n for n in tensors if n.startswith("carry")], list(tensors)]) or list(tensors)
        name = draw.choice(sorted(names))
        match draw.choice(("tensor", "tensor", "tensor", "counter", "drop", "rename", "journals")):
            case "tensor":
                tensors[name] = _other_tensor(draw, tensors[name]).contiguous()
            case "counter":
                counters[draw.choice([*sorted(counters), "strange"])] = draw.choice(ODD[:-2])
            case "journals":
                key = draw.choice(("metrics.jsonl", "gradients.jsonl", "sha256"))
                counters["journals"] = {**found.counters["journals"], key: draw.choice(ODD[:-2])}
            case "drop":
                tensors.pop(name)
            case "rename":
                tensors[
                    draw.choice(
                        (f"{name}.more", "carry.0.0.99", "carry.x", "carry.0.-1.0", "optimizer..", "x")
                    )
                ] = tensors.pop(name)
    write_checkpoint(path, tensors, owner, counters)
    return [
        ["runs", room],
        ["runs", "show", run],
        ["gradients", "probe", run, "--sequences", "1"],
        ["train", "--resume", run, "--quiet"],
        ["report", room, "-o", room / "r.md"],
    ]


def safetensors(draw: random.Random, room: Path, runs: Room) -> Lines:
    """The header as it should not be; most of these do not reach the digest."""
    kind = draw.choice(sorted(runs.subjects))
    run = Path(shutil.copytree(runs.folders[kind, "killed"], room / "run"))
    path = run / "checkpoint.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    name = draw.choice([key for key in header if key != "__metadata__"])
    text: str | None = None
    match draw.choice(("length", "offsets", "shape", "dtype", "metadata", "deep", "twice", "odd", "digits")):
        case "length":
            length = draw.choice((0, 1, 2**31, 2**62, 2**64 - 1, 100 * 2**20, len(content)))
            text = json.dumps(header)
        case "offsets":
            header[name]["data_offsets"] = draw.choice(
                ([0, 2**62], [-1, 4], [8, 0], [0], "x", [0, len(data) + 8])
            )
        case "shape":
            header[name]["shape"] = draw.choice(([2**62], [-1], [2**32, 2**32], [0], "x", [1.5], [1] * 1000))
        case "dtype":
            header[name]["dtype"] = draw.choice(("F128", "", None, "I4", "BOOL", "F64"))
        case "metadata":
            plait = header["__metadata__"]["plait"]
            bad = (
                "",
                "null",
                "[]",
                DEEP,
                plait[:50],
                plait.replace('"update"', '"x"'),
                plait.replace("1", "NaN"),
            )
            header["__metadata__"] = draw.choice(({}, None, {"plait": draw.choice(bad)}, {"plait": 3}))
        case "deep":
            text = '{"a":' + DEEP + "}"
        case "twice":
            text = json.dumps(header).replace("{", '{"__metadata__": {}, ', 1)
        case "odd":
            header[name] = draw.choice(ODD[:-2])
        case "digits":
            text = json.dumps(header).replace("0", "9" * draw.choice((5, 400)), 1)
    head = (json.dumps(header) if text is None else text).encode()
    size = length if length != int.from_bytes(content[:8], "little") else len(head)
    path.write_bytes((size % 2**64).to_bytes(8, "little") + head + data)
    return [
        ["runs", room],
        ["train", "--resume", run, "--quiet"],
        ["gradients", "probe", run, "--sequences", "1"],
    ]


# Data


def _gz(draw: random.Random, content: bytes) -> bytes:
    packed = bytearray(gzip.compress(content, compresslevel=1, mtime=0))
    return bytes(_bent(draw, packed) if draw.random() < 0.6 else packed)


def idx(draw: random.Random, room: Path, runs: Room) -> Lines:
    folder = room / "images"
    folder.mkdir()
    for part, count in (("train", 12), ("t10k", 4)):
        for what, shape in (("images-idx3", (count, 4, 3)), ("labels-idx1", (count,))):
            values = draw.randbytes(count * (12 if "3" in what else 1))
            values = values if "3" in what else bytes(byte % 3 for byte in values)
            head = [0, 0, 8, len(shape)]
            sizes = list(shape)
            if draw.random() < 0.3:
                match draw.choice(("head", "size", "cut", "more", "labels", "none")):
                    case "head":
                        head[draw.randrange(4)] = draw.randrange(256)
                    case "size":
                        sizes[draw.randrange(len(sizes))] = draw.choice((0, 1, 2**31, 2**32 - 1))
                    case "cut":
                        values = values[: draw.randrange(len(values))]
                    case "more":
                        values += draw.randbytes(100)
                    case "labels":
                        values = bytes([255]) * len(values)
                    case "none":
                        sizes, values = [0] * len(sizes), b""
            content = bytes(head) + struct.pack(f">{len(sizes)}I", *sizes) + values
            packed = draw.random() < 0.3
            name = f"{part}-{what}-ubyte" + (".gz" if packed else "")
            (folder / name).write_bytes(_gz(draw, content) if packed else content)
    return [["train", "smnist", "--images", folder, "--out", room / "out", *SMALL]]


def text(draw: random.Random, room: Path, runs: Room) -> Lines:
    plain = b"to be, or not to be, that is the question:\n" * 20
    choices: tuple[bytes, ...] = (
        b"",
        b"\n" * 50,
        b" \t\r\n",
        b"\0" * 500,
        plain.replace(b"b", b"\xff"),
        b"\xef\xbb\xbf" + plain,
        b"x" * 3_000_000,
        plain[:30],
        b"a",
        "".join(map(chr, range(0x4E00, 0x4E00 + 3000))).encode(),
        "\u2028\u2029\u0085\x0b\x0c".encode() * 99,
        b"\xed\xa0\x80" * 99,
        plain.replace(b"\n", b"\r"),
        plain,
        "e\u0301\u200d\U0001f469\u200d".encode() * 60,
        plain.replace(b" ", b"\0"),
        draw.randbytes(3000),
    )
    content = draw.choice(choices)
    packed = draw.random() < 0.4
    if packed and draw.random() < 0.1:
        content = bytes(2**26)
    path = room / ("book.txt.gz" if packed else "book.txt")
    path.write_bytes(_gz(draw, content) if packed else content)
    files = [path] if draw.random() < 0.8 else [path, path, path]
    return [
        ["train", "text", "--text", *files, "--span", "8", "--embedding", "3", "--out", room / "out", *SMALL]
    ]


# JSON

BOMBS = (
    DEEP,
    '{"a":' * 50_000 + "1" + "}" * 50_000,
    "9" * 5000,
    '"' + "x" * 10**6 + '"',
    "NaN",
    "1e999",
    "",
    "{",
    "null",
    "[]",
    "{}",
    '"\\ud800"',
    '{"task": {}, "model": {}, "recipe": {}}',
    "\0",
    "\ufeff{}",
    "[1,]",
    '{"a": 1, "a": 2}',
    "-",
    "true",
    '{"model_type": "gpt2"}',
)
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    2.5,
    10**30,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    "../../x",
    2**31,
    1e308,
    "\u202e",
    [1] * 100,
)


def _stranger(draw: random.Random, values: Any) -> Any:
    """The same data with one value of another kind, somewhere."""
    values = json.loads(json.dumps(values))
    place, key = {"": values}, ""
    while isinstance(place[key], dict | list) and place[key] and draw.random() < 0.85:  # type: ignore[index]
        place = place[key]  # type: ignore[assignment]
        key = draw.choice(sorted(place)) if isinstance(place, dict) else draw.randrange(len(place))  # type: ignore[assignment]
    place[key] = draw.choice(STRANGE)
    return values if key != "" else place[""]


def config(draw: random.Random, room: Path, runs: Room) -> Lines:
    """A run's description, an experiment's, a Hugging Face config."""
    run = room / "runs" / "run"
    run.mkdir(parents=True)
    kind = draw.choice(sorted(runs.subjects))
    good = json.loads((runs.folders[kind, "killed"] / "config.json").read_text())
    hugging = {
        "model_type": "gpt2",
        "n_layer": 2,
        "n_embd": 8,
        "n_head": 2,
        "vocab_size": 11,
        "n_positions": 16,
    }
    bomb = draw.choice(BOMBS) if draw.random() < 0.3 else None
    content = json.dumps(_stranger(draw, good)) if bomb is None else bomb
    (run / "config.json").write_text(content, errors="surrogatepass")
    (room / "hf.json").write_text(
        json.dumps(_stranger(draw, hugging)) if bomb is None else bomb, errors="surrogatepass"
    )
    plan = {
        "name": "x",
        "title": "",
        "source": "",
        "claim": "",
        "kind": "table",
        "metric": "",
        "updates_to": 0.9,
        "needs": "",
        "seeds": [0],
        "runs": [],
        "notes": [],
    }
    shutil.copytree(runs.good, room / "plan" / "run")
    (room / "plan" / "experiment.json").write_text(
        json.dumps(_stranger(draw, plan)) if bomb is None else bomb, errors="surrogatepass"
    )
    return [
        ["runs", run.parent],
        ["runs", "show", run],
        ["plan", "judge", "--config", room / "hf.json"],
        ["report", room / "plan", "-o", room / "r.md"],
        ["rank", "--check", room / "hf.json"],
        ["train", "--resume", run, "--quiet", "--max-minutes", "0.02"],
    ]


MAKERS: dict[str, Maker] = {
    "archive": archive,
    "checkpoint": checkpoint,
    "safetensors": safetensors,
    "idx": idx,
    "text": text,
    "config": config,
}


def one_case(runs: Room, number: int, seed: int, where: Path) -> tuple[str, list[str]]:
    """Case `number` of a seed: what was made, and what is wrong with what came of it."""
    draw = random.Random(f"{seed} {number}")
    kind = draw.choice(sorted(MAKERS))
    room = where / "inside"
    room.mkdir(parents=True)
    lines = MAKERS[kind](draw, room, runs)

    def work() -> list[str]:
        resource.setrlimit(resource.RLIMIT_AS, (_size() + FLOOD, resource.RLIM_INFINITY))
        os.chdir(room)
        return [wrong for line in lines for wrong in _judged(line, command(*line))]

    status, answer = isolated(work)
    wrong = answer if status == "done" else [f"{status}: {answer} of {lines}"]
    wrong += [f"written outside: {path}" for path in where.iterdir() if path != room]
    if Path("/tmp/evil-of-plait").exists():
        wrong.append("written outside: /tmp/evil-of-plait")
    return kind, wrong


def _judged(line: list[object], said: Said) -> list[str]:
    name = " ".join(map(str, line[:2]))
    if said.code and not said.told:
        return [f"{name}: {said.code} {said.err[-700:]}"]
    if "Traceback" in said.err + said.out:
        return [f"{name}: {said.err[-700:]}"]
    if said.code and line[1] == "unpack" and Path(str(line[-1])).exists():
        return [f"{name}: was refused and left something behind"]
    return []


def _size() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
