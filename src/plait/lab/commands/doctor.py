"""The command `plait doctor`."""

from __future__ import annotations

import platform
from dataclasses import asdict
from itertools import groupby

from plait._version import __version__
from plait.lab.doctor.checks import examine
from plait.lab.doctor.installed import CORE, Package, packages
from plait.lab.result import CommandResult
from plait.provenance import commit, cores, processor
from plait.table import Table

__all__ = ["doctor"]


def doctor() -> CommandResult:
    """Check what is installed and which backends work here, with a one-line remedy for each problem.

    Nothing is downloaded. The C++ scan is compiled unless it was before: about ten seconds, once.
    """
    installed, checks = packages(), examine()
    system = {
        "plait": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": cores(),
    }
    rows = [[c.name, c.status, c.detail, c.remedy] for c in checks]
    broken = [p for p in installed if p.extra == CORE and p.problem]
    return CommandResult(
        data={
            **system,
            "packages": [{**asdict(p), "problem": p.problem, "remedy": p.remedy} for p in installed],
            "checks": [asdict(check) for check in checks],
        },
        parts=(
            f"plait {__version__} ({system['commit'] or 'installed'}), Python {system['python']}, "
            f"{system['system']}, {system['cores']} cores of {system['processor']}",
            Table(["extra", "packages", "remedy"], _by_extra(installed), title="\nInstalled"),
            Table(["check", "", "details", "remedy"], rows, title="\nChecks"),
        ),
        error="; ".join(f"{p.name}: {p.problem}, {p.remedy}" for p in broken),
    )


def _by_extra(installed: list[Package]) -> list[list[str]]:
    rows = []
    for extra, group in groupby(installed, key=lambda package: package.extra):
        members = list(group)
        texts = [f"{p.name} {p.problem if p.problem else p.installed}" for p in members]
        remedies = {p.remedy: None for p in members if p.remedy}
        rows.append([extra or "(core)", ", ".join(texts), "; ".join(remedies)])
    return rows
