"""Run folders into one archive and out of it, to move them between machines."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from plait.errors import BusyError, CheckpointError, ConfigError, OutputError
from plait.training.catalogue import find_run, read_run
from plait.training.files import is_locked, write_whole

__all__ = ["pack", "unpack"]


EXPERIMENT = "experiment.json"  # what the runs of a folder belong to travels with them


def pack(
    runs: Sequence[str | Path], archive: Path, out: Path | str = "runs", light: bool = False
) -> list[str]:
    """Write the runs (folders, ids, or folders of runs) into a .tar.gz; return their names.

    A run that some process is at work on is refused: its files would not fit together. `light` leaves the
    checkpoints out: such runs can be read and reported, not gone on with.
    """
    left_out = {"lock", *(["checkpoint.safetensors"] if light else [])}
    experiments = [path for run in runs if (path := Path(run, EXPERIMENT)).is_file()]
    if len(experiments) > 1:
        raise ConfigError(
            f"{experiments[0].parent} and {experiments[1].parent} are two experiments; pack one"
        )
    folders = _folders(runs, out)
    for folder in folders:
        read_run(folder)
        if is_locked(folder):
            raise BusyError(f"{folder} is being trained; stop it first, or pack it when it has ended")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for folder in folders:
            for path in sorted(folder.iterdir()):
                if path.is_file() and path.name not in left_out and not path.name.startswith("."):
                    tar.add(path, f"{folder.name}/{path.name}", recursive=False)
        for path in experiments:
            tar.add(path, EXPERIMENT, recursive=False)
    write_whole(archive, content.getvalue())
    return [folder.name for folder in folders]


def unpack(archive: Path, out: Path | str = "runs") -> tuple[list[str], list[str]]:
    """Put an archive's runs into `out`; return the names of those that came and of those that were there.

    Nothing that exists is overwritten, and a run is there whole or not at all. An archive that holds
    anything but plain files one folder deep (links, `..`, absolute paths) is refused before a byte is
    written.
    """
    out = Path(out)
    try:
        with tarfile.open(archive) as tar:
            members = [_checked(member, archive) for member in tar.getmembers() if not member.isdir()]
            names = sorted({PurePosixPath(member.name).parts[0] for member in members} - {EXPERIMENT})
            out.mkdir(parents=True, exist_ok=True)
            present = [name for name in names if (out / name).exists()]
            with tempfile.TemporaryDirectory(dir=out, prefix=".unpacking-") as room:
                for member in members:
                    _extract(tar, member, Path(room))
                wanted = [name for name in names if name not in present]
                for name in wanted:
                    read_run(Path(room, name))
                described = [EXPERIMENT] if Path(room, EXPERIMENT).exists() else []
                for name in [*wanted, *(one for one in described if not (out / one).exists())]:
                    os.rename(Path(room, name), out / name)
    except (tarfile.TarError, EOFError) as error:
        raise CheckpointError(f"{archive} is cut short or not a .tar.gz ({error})") from error
    except OSError as error:
        raise OutputError(f"cannot unpack {archive} into {out}: {error.strerror or error}") from error
    return wanted, present


def _folders(runs: Sequence[str | Path], out: Path | str) -> list[Path]:
    folders: list[Path] = []
    for run in runs:
        path = Path(run)
        inside = sorted(config.parent for config in path.glob("*/config.json"))
        folders += inside if inside and not (path / "config.json").exists() else [find_run(run, out)]
    unique = {folder.resolve(): folder for folder in folders}
    names = [folder.name for folder in unique]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ConfigError(f"two runs are called {min(twice)}; pack them one at a time")
    return list(unique)


def _checked(member: tarfile.TarInfo, archive: Path) -> tarfile.TarInfo:
    parts = PurePosixPath(member.name).parts
    plain = member.isreg() and len(parts) == 2 and not {"..", "/"} & set(parts) and "\\" not in member.name
    if member.isreg() and member.name == EXPERIMENT:
        return member
    if not plain or parts[0].startswith("."):
        raise CheckpointError(
            f"{archive} holds {member.name!r}, not a plain file of a run folder; nothing was unpacked"
        )
    return member


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, room: Path) -> None:
    """By hand: names were checked, and no owner, mode or link of the archive is taken over."""
    source = tar.extractfile(member)
    assert source is not None, "only regular files come here"
    target = room / member.name
    target.parent.mkdir(exist_ok=True)
    with source, target.open("xb") as file:
        shutil.copyfileobj(source, file)
