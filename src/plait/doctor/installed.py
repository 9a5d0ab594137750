"""The packages plait declares, by extra, and which of them are installed.

The declarations are read, not repeated: from `pyproject.toml` in a checkout, else from the metadata of the
installed distribution. An extra that is added there shows up here.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from plait.provenance import version_of

__all__ = ["CORE", "Package", "declared", "packages"]

CORE = ""  # the extra of what plait cannot do without
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_MINIMUM = re.compile(r">=\s*([0-9][0-9.]*)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


@dataclass(frozen=True)
class Package:
    """One requirement of one extra: its least version, and the one installed (None: it is not)."""

    extra: str
    name: str
    minimum: str | None
    installed: str | None

    @property
    def problem(self) -> str | None:
        """What is wrong with it, or None.

        >>> Package("report", "matplotlib", "3.10", "3.9.2").problem
        '3.9.2 is older than 3.10'
        """
        if self.installed is None:
            return "not installed"
        if self.minimum and _numbers(self.installed) < _numbers(self.minimum):
            return f"{self.installed} is older than {self.minimum}"
        return None

    @property
    def remedy(self) -> str:
        """One line that mends it; empty where nothing is wrong."""
        if self.problem is None:
            return ""
        if self.extra == CORE:
            return f"pip install '{self.name}{f'>={self.minimum}' if self.minimum else ''}'"
        return f"pip install 'plait[{self.extra}]'"


def packages() -> list[Package]:
    """Every declared package, core first, as it is here."""
    found = []
    for extra, requirements in declared().items():
        for requirement in requirements:
            match = _NAME.match(requirement)
            if match is None or match[0] == "plait":  # an extra made of other extras
                continue
            least = _MINIMUM.search(requirement)
            found.append(Package(extra, match[0], least[1] if least else None, version_of(match[0])))
    return found


def declared() -> dict[str, list[str]]:
    """Requirements by extra, `CORE` first; empty where plait is neither a checkout nor installed."""
    project = Path(__file__).parents[3] / "pyproject.toml"
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
    """The leading numbers of a version; 2.13.0+cpu counts as 2.13.0."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in leading[0].split(".")] if leading else [0]
    while numbers and numbers[-1] == 0:  # 2.0 is 2
        numbers.pop()
    return tuple(numbers)
