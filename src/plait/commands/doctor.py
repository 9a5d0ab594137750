"""`plait doctor`."""

from __future__ import annotations

import platform
from dataclasses import asdict
from itertools import groupby

from plait._version import __version__
from plait.doctor.checks import examine
from plait.doctor.installed import CORE, Package, packages
from plait.provenance import commit, cores, processor
from plait.result import CommandResult, Table

__all__ = ["doctor"]


def doctor() -> CommandResult:
    """What is installed, which backends work here, and one line of remedy for each thing that does not.

    Nothing is downloaded. The C++ scan is compiled if it was not yet: about ten seconds, once.
    """
    found, checks = packages(), examine()
    here = {
        "plait": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": cores(),
    }
    rows = [[c.name, c.status, c.detail, c.remedy] for c in checks]
    broken = [p for p in found if p.extra == CORE and p.problem]
    return CommandResult(
        data={
            **here,
            "packages": [{**asdict(p), "problem": p.problem, "remedy": p.remedy} for p in found],
            "checks": [asdict(check) for check in checks],
        },
        parts=(
            f"plait {__version__} ({here['commit'] or 'installed'}), Python {here['python']}, "
            f"{here['system']}, {here['cores']} cores of {here['processor']}",
            Table(["extra", "packages", "remedy"], _by_extra(found), title="\nInstalled"),
            Table(["what", "", "here", "remedy"], rows, title="\nWorks here"),
        ),
        error="; ".join(f"{p.name}: {p.problem}, {p.remedy}" for p in broken),
    )


def _by_extra(found: list[Package]) -> list[list[str]]:
    rows = []
    for extra, group in groupby(found, key=lambda package: package.extra):
        members = list(group)
        texts = [f"{p.name} {p.problem if p.problem else p.installed}" for p in members]
        remedies = {p.remedy: None for p in members if p.remedy}
        rows.append([extra or "(core)", ", ".join(texts), "; ".join(remedies)])
    return rows
