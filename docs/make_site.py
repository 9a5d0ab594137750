"""The documentation as a site: `make docs`, or `python docs/make_site.py`; warnings are errors.

Pages are copied to build/pages, where the reference is written beside them and what they link to in the rest
of the repository is brought along; zensical makes build/site of it. Nothing is fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from make_reference import write_reference

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"
# The README is the first page, the list of pages one beside it; all others lie where they lie in docs/.
PLACES = {ROOT / "README.md": "index.md", DOCS / "index.md": "contents.md"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def stage(pages: Path) -> None:
    """Copy everything the site is made of."""
    shutil.rmtree(pages, ignore_errors=True)
    brought: set[Path] = set()
    _bring(ROOT / "README.md", pages, brought)
    for path in sorted(DOCS.rglob("*")):
        if path.suffix in (".md", ".png", ".svg", ".js", ".css"):
            _bring(path, pages, brought)
    write_reference(pages / "reference")


def place_of(path: Path, pages: Path) -> Path:
    """Return where a file of the repository lies in the site, whose root is docs/."""
    if path in PLACES:
        return pages / PLACES[path]
    return pages / path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT)


def _bring(path: Path, pages: Path, brought: set[Path]) -> None:
    if path in brought:
        return
    brought.add(path)
    target = place_of(path, pages)
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".md":
        target.write_text(_linked(path, target, pages, brought), encoding="utf-8")
    else:
        shutil.copy(path, target)


def _linked(page: Path, target: Path, pages: Path, brought: set[Path]) -> str:
    """Return the page's text with its links resolved for the site; code is left alone."""

    def follow(match: re.Match[str]) -> str:
        mark, text, address, anchor = match[1], match[2], match[3], match[4] or ""
        if "://" in address:
            return match[0]
        if address.startswith("reference/") or "/reference/" in address:  # made, not copied
            return match[0]
        linked = Path(os.path.normpath(page.parent / address))
        if linked.is_dir():
            linked /= "README.md"
        if linked.suffix == ".py" or not linked.is_file():
            return text  # source is no page of the site
        _bring(linked, pages, brought)
        if text == address and linked.suffix == ".md":  # a file's name in the repository, a title on the site
            text = _title(linked)
        where = os.path.relpath(place_of(linked, pages), target.parent)
        return f"{mark}[{text}]({where}{anchor})"

    written, rest = [], page.read_text(encoding="utf-8")
    while found := FENCE.search(rest):
        # Without a prompt the whole block is commands, and is coloured as such.
        prompted = re.search(r"^\$ ", found[0], re.MULTILINE)
        code = found[0] if prompted else re.sub(r"^```console", "```sh", found[0])
        written += [LINK.sub(follow, rest[: found.start()]), code]
        rest = rest[found.end() :]
    return "".join([*written, LINK.sub(follow, rest)])


def _title(page: Path) -> str:
    return next(line[2:] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("# "))


def main() -> int:
    stage(PAGES)
    zensical = shutil.which("zensical", path=os.pathsep.join((str(Path(sys.executable).parent), os.defpath)))
    if zensical is None:
        sys.stderr.write("zensical is needed here and not installed: pip install 'plait[docs]'\n")
        return 2
    command = [zensical, "build", "--strict", "--clean", "--config-file", str(ROOT / "zensical.toml")]
    done = subprocess.run(command, cwd=ROOT, check=False)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
