"""`python -m plait.experiments`: run an experiment as a job, with numpy, torch and safetensors alone.

For machines where the command line's own dependencies are missing. The results are two small files; bring
them back and draw them with `plait reproduce NAME --draw DIR`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from plait.errors import PlaitError, known
from plait.experiments import EXPERIMENTS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m plait.experiments", description=__doc__)
    parser.add_argument("name", help=f"one of: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--text", type=Path, nargs="+", help="one file, or train valid test; plain or .gz")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of results; what it holds is not rerun"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--max-minutes", type=float, help="stop after so long; the next call goes on")
    parser.add_argument("--together", type=int, default=4, help="networks trained beside each other on a GPU")
    parser.add_argument("--no-graphs", action="store_true", help="launch every kernel, replay no CUDA graph")
    parser.add_argument("--smoke", action="store_true", help="a size that runs in seconds")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the job; exit code 2 for an error the user can mend, 130 after Ctrl-C."""
    args = _parser().parse_args(argv)
    try:
        full, smoke = EXPERIMENTS[known(args.name, EXPERIMENTS, "experiment")]
        from plait.experiments.runner import run_missing
        from plait.tasks.text import find_treebank, read_text
        from plait.training.device import device_named

        outcome = run_missing(
            smoke if args.smoke else full,
            read_text(args.text or find_treebank()),
            args.out,
            device_named(args.device),
            args.max_minutes,
            args.together,
            not args.no_graphs,
            _say,
        )
    except PlaitError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what is finished is kept\n")
        return 130
    _say(
        f"{outcome.finished} runs finished in {outcome.seconds:.1f} s, {outcome.already} were there, "
        f"{outcome.missing} missing" + (f" ({outcome.reason})" if outcome.reason else "")
    )
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
