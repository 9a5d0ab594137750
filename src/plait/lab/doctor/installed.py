"""Packages that plait declares, by extra, with their installed versions.

Declarations are read from `pyproject.toml` in a checkout, else from the metadata of the installed
distribution, so that a new extra appears here without a change.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from plait.provenance import version_of

__all__ = ["CORE", "Package", "declared", "packages"]

CORE = ""  # key of the required dependencies, which belong to no extra
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_MINIMUM = re.compile(r">=\s*([0-9][0-9.]*)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True)
class Package:
    """Requirement of an extra: its minimum version (None: any) and the installed one (None: missing)."""

    extra: str
    name: str
    minimum: str | None
    installed: str | None

    @property
    def problem(self) -> str | None:
        """Problem with the installed version, or None.

        >>> Package("lab", "matplotlib", "3.10", "3.9.2").problem
        '3.9.2 is older than 3.10'
        """
        if self.installed is None:
            return "not installed"
        if self.minimum and _numbers(self.installed) < _numbers(self.minimum):
            return f"{self.installed} is older than {self.minimum}"
        return None

    @property
    def remedy(self) -> str:
        """Command that fixes the problem; empty where there is none."""
        if self.problem is None:
            return ""
        if self.extra == CORE:
            return f"pip install '{self.name}{f'>={self.minimum}' if self.minimum else ''}'"
        return f"pip install 'plait[{self.extra}]'"


def packages() -> list[Package]:
    """Return every declared package with its installed version, required ones first."""
    result = []
    for extra, requirements in declared().items():
        for requirement in requirements:
            match = _NAME.match(requirement)
            if match is None or match[0] == "plait":  # an extra that combines others
                continue
            minimum = _MINIMUM.search(requirement)
            result.append(Package(extra, match[0], minimum[1] if minimum else None, version_of(match[0])))
    return result


def declared() -> dict[str, list[str]]:
    """Return requirements by extra, `CORE` first; empty where plait is neither a checkout nor installed."""
    project = Path(__file__).parents[4] / "pyproject.toml"
    if project.is_file():
        table = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {})
        if table.get("name") == "plait":
            return {CORE: table["dependencies"], **table["optional-dependencies"]}
    try:
        lines = importlib.metadata.requires("plait") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    by_extra: dict[str, list[str]] = {CORE: []}
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra = _EXTRA.search(marker)
        by_extra.setdefault(extra[1] if extra else CORE, []).append(requirement.strip())
    return by_extra


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version without trailing zeros: (2, 13) for 2.13.0+cpu."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in leading[0].split(".")] if leading else [0]
    while numbers and numbers[-1] == 0:  # 2.0 equals 2
        numbers.pop()
    return tuple(numbers)
