"""`python -m plait.doctor [--json]`: the same where not even plait's own requirements are installed."""

from __future__ import annotations

import json
import sys

from plait.answer import Table
from plait.commands.doctor import doctor

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Write the answer; 0 if plait can run here, 2 if a core package is missing."""
    answer = doctor()
    if "--json" in (sys.argv if argv is None else argv):
        sys.stdout.write(json.dumps(answer.data, indent=2) + "\n")
    else:
        texts = (part.text() if isinstance(part, Table) else part for part in answer.parts)
        sys.stdout.write("".join(f"{text}\n" for text in texts))
    if answer.error:
        sys.stderr.write(f"plait: error: {answer.error}\n")
    return 2 if answer.error else 0


if __name__ == "__main__":
    sys.exit(main())
