"""Draw the walks of architecture.md: which files a command runs through, traced over all of src/plait.

`python docs/make_architecture.py` rewrites the page, `--check` only says whether it would change; titles that
follow limit either to those walks.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from blocks import with_blocks

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "plait"
PAGE = ROOT / "docs" / "architecture.md"
SMALL = ["--device", "cpu", "--quiet", "--out"]
COPY = ["--hidden", "4", "--delay", "2", "--updates", "2", "--batch-size", "2", "--evaluate-on", "2"]
POLICY = ["--env", "Empty-5x5", "--hidden", "4", "--total-timesteps", "16", "--n-envs", "2", "--n-steps", "8"]
POLICY += ["--n-minibatches", "1", "--evaluate-on", "1"]
TABLE = ["--smoke", "--models", "lstm", "--delays", "10", "--together", "1", "--device", "cpu", "--out"]
COMMAND = "from plait.lab import cli; cli.main({arguments!r})"
# Title on the page -> Python that is traced; `{out}` is an empty folder.
WALKS = {
    "plait train copy": COMMAND.format(
        arguments=["train", "copy", "--model", "relrnn", *COPY, *SMALL, "{out}"]
    ),
    "plait train minigrid": COMMAND.format(arguments=["train", "minigrid", *POLICY, *SMALL, "{out}"]),
    "plait reproduce table5": COMMAND.format(arguments=["reproduce", "table5", *TABLE, "{out}/runs"]),
    "plait report": COMMAND.format(
        arguments=["report", "results/memory/by-answers.tar.gz", "-o", "{out}/report.html"]
    ),
    "plait plan": COMMAND.format(arguments=["plan", "1.3B"]),
    "RelLSTM on a CPU, forward and backward": (
        "import torch, plait; plait.RelLSTM(3, 4)(torch.randn(20, 2, 3))[0].sum().backward()"
    ),
    "A bounded Transformer, forward and backward": (
        "import torch, plait\n"
        "memory = plait.RelevancyMemory(4, 4, relevance='learned')\n"
        "plait.Transformer(3, 8, memory=memory)(torch.randn(20, 2, 3))[0].sum().backward()"
    ),
    "plait.gradients.probe": (
        "import torch, plait.gradients as gradients\n"
        "gradients.probe(torch.nn.LSTM(3, 4), torch.randn(20, 2, 3), lambda output: output[0][-1].sum())"
    ),
}
# Titles of paths that need a GPU -> the modules that start them; what they import is listed instead.
IMPORTS = {
    "A scan on a Hopper GPU": ["ops/attentive_scan/cluster_scan.py", "ops/full_scan/cluster_scan.py"],
    "A scan on another GPU": ["ops/attentive_scan/triton_scan.py"],
}
TRACER = """
import sys
seen, stack = {{}}, {{}}
def profile(frame, event, _):
    code = frame.f_code
    # A function: bodies of modules and classes have no new locals, and a comprehension in one calls nothing.
    if event == "call" and code.co_flags & 2 and (code.co_name[0] != "<" or frame.f_back.f_code.co_flags & 2):
        seen.setdefault(code.co_filename)
warm = sys.argv[1:]  # imported first, because tracing imports takes long
for name in warm:
    __import__(name)
sys.setprofile(profile)
try:
    exec({code!r})
finally:
    sys.setprofile(None)
    print("\\n".join(["", "traced", *seen]))
"""


def traced(title: str) -> list[str]:
    """Return the files of src/plait in which a walk calls a function, in the order of their first call."""
    with tempfile.TemporaryDirectory() as folder:
        script = TRACER.format(code=WALKS[title].replace("{out}", folder))
        warm = ["torch", "torch._dynamo"] + (
            ["safetensors.torch", "tyro", "jinja2"] if "cli" in script else []
        )
        done = subprocess.run(
            [sys.executable, "-c", script, *warm],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PLAIT_CACHE": folder},
        )
    if done.returncode:
        raise SystemExit(f"{title}: {done.stderr[-2000:]}")
    files = map(Path, done.stdout.partition("\ntraced\n")[2].splitlines())
    ours = [file.relative_to(SOURCE) for file in files if file.is_relative_to(SOURCE)]
    return [file.as_posix() for file in ours if file.suffix == ".py"]  # a template is traced as a file too


def imported(starts: list[str]) -> list[str]:
    """Return the files of `ops` that some modules import, directly or not, themselves first."""
    found: list[str] = []
    queue = list(starts)
    while queue:
        name = queue.pop(0)
        if name in found or not (SOURCE / name).is_file():
            continue
        found.append(name)
        for node in ast.walk(ast.parse((SOURCE / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("plait.ops"):
                module = node.module.removeprefix("plait.").replace(".", "/")
                queue += [f"{module}.py", *(f"{module}/{alias.name}.py" for alias in node.names)]
    return found


def purpose(name: str) -> str:
    """Return the first sentence of a file's docstring."""
    text = ast.get_docstring(ast.parse((SOURCE / name).read_text(encoding="utf-8"))) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`])[.:;] ", first, maxsplit=1)[0].rstrip(".")


def drawn(files: list[str]) -> str:
    """Return a walk as a table of files with their purposes; a command's files of the library in one line."""
    lab = [name for name in files if name.startswith("lab/")]
    packages: dict[str, list[str]] = {}
    for name in lab or files:
        packages.setdefault("/".join(name.split("/")[: 2 if lab else 1]), []).append(name)
    lines = [
        f"{len(files)} files" + (f", {len(lab)} of the lab:" if lab else ":"),
        "",
        "| file | |",
        "|---|---|",
    ]
    for name in [name for names in packages.values() for name in names]:
        lines.append(f"| `{name}` | {purpose(name).replace('|', chr(92) + '|')} |")
    library = [f"`{name}`" for name in files if lab and name not in lab]
    if library:
        lines += ["", f"Of the library: {', '.join(library)}."]
    return "\n".join(lines)


def page(text: str, titles: Iterable[str] = (*WALKS, *IMPORTS)) -> str:
    """Return the page with some walks drawn anew between their markers."""

    def body(title: str) -> str:
        return drawn(traced(title) if title in WALKS else imported(IMPORTS[title]))

    return with_blocks(text, "walk", titles, body)


def main() -> None:
    check, titles = "--check" in sys.argv[1:], [word for word in sys.argv[1:] if word != "--check"]
    old = PAGE.read_text(encoding="utf-8")
    new = page(old, titles or (*WALKS, *IMPORTS))
    if check:
        sys.exit(old != new and f"{PAGE.relative_to(ROOT)} is stale: run python docs/make_architecture.py")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
