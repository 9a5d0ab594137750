"""Fill the tables of the results pages from the archives: `python docs/make_results.py`, or `make results`.

Every block `<!-- table: NAME -->` of a page is computed from what lies under results/, and whole pages of
reports are written anew. `--check` only says which pages would change; names of pages limit either to those.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from archive_tables import agents, bench, bounded, caches, memory, overview, untangling
from archive_tables.records import archive_table, archives, groups
from blocks import block_names, with_blocks

from plait.lab.report.cache_page import cache_readme
from plait.lab.report.depthwidth.figure1 import figure1_page
from plait.lab.report.depthwidth.tuned import tuned_page
from plait.lab.report.gather import Group
from plait.lab.report.markdown import report_text

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
Tables = Mapping[str, Callable[[], str]]
# Page -> the tables it may show, by name; each must be shown.
PAGES: dict[str, Tables] = {
    "docs/results.md": overview.BLOCKS,
    "docs/notes/models.md": {
        name: memory.BLOCKS[name] for name in ("lead-ins", "rules, tests", "like for like")
    },
    "docs/notes/rl.md": {"grid worlds": agents.RL["grid worlds"]},
    "results/untangling/README.md": untangling.BLOCKS,
    "results/memory/README.md": memory.BLOCKS,
    "results/bounded/README.md": bounded.BLOCKS,
    "results/cache/README.md": caches.BLOCKS,
    "results/popgym/README.md": agents.POPGYM,
    "results/rl/README.md": agents.RL,
    "results/bench/README.md": bench.BLOCKS,
}


def report(*names: str) -> str:
    """Return the report of some archives, with the command that draws it as its only origin.

    Machine and time of drawing are left out: the page follows from the archives alone.
    """
    every = sorted(
        (group for name in names for group in groups(name)), key=lambda group: group.kind == "loose"
    )
    folder = names[0].partition("/")[0]
    text = report_text(every, "make results").replace(f"{RESULTS}/", "results/")
    head, _, _ = text.rpartition("- command: ")
    return f"{head}- command: make results\n- runs: results/{folder}\n"


def depthwidth(name: str, page: Callable[[Group], str]) -> str:
    """Return the page of an experiment on depth and width, with its archive."""
    (group,) = groups(name)
    notes = "\n".join(f"\n{note}" for note in group.notes)
    return f"{page(group)}\n## Archive\n\n{archive_table(name.partition('/')[0])}\n{notes}\n"


# Page -> its whole text.
REPORTS: dict[str, Callable[[], str]] = {
    "results/untangling/report.md": lambda: report(*archives("untangling")),
    "results/memory/report.md": lambda: report(*archives("memory")),
    "results/popgym/popgym-easy.md": lambda: report("popgym/popgym-easy"),
    "results/popgym/popgym-1m.md": lambda: report("popgym/popgym-1m"),
    "results/rl/table4.md": lambda: report("rl/table4"),
    "results/rl/table4-3m.md": lambda: report("rl/table4-3m"),
    "results/cache/cpu/README.md": lambda: cache_readme(RESULTS / "cache" / "cpu"),
    "results/depthwidth/README.md": lambda: depthwidth("depthwidth/depthwidth-figure1", figure1_page),
    "results/depthwidth-tuned/README.md": lambda: depthwidth("depthwidth-tuned/depthwidth-tuned", tuned_page),
}


def filled(name: str) -> str:
    """Return the text of a page as the archives have it."""
    if name in REPORTS:
        return REPORTS[name]().rstrip("\n") + "\n"
    text, tables = (ROOT / name).read_text(encoding="utf-8"), PAGES[name]
    shown = block_names(text, "table")
    if sorted(shown) != sorted(tables):
        raise SystemExit(
            f"{name}: expected each of its tables once, got {sorted(shown)}; it should have {sorted(tables)}"
        )
    return with_blocks(text, "table", shown, lambda block: tables[block]())


def main() -> None:
    check, names = "--check" in sys.argv[1:], [word for word in sys.argv[1:] if word != "--check"]
    stale = []
    for name in names or (*PAGES, *REPORTS):
        path, text = ROOT / name, filled(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check:
        sys.exit(f"{', '.join(stale)}: not what the archives give; run make results" if stale else 0)
    sys.stdout.write("".join(f"{name} written\n" for name in stale))


if __name__ == "__main__":
    main()
