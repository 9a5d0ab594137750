"""`python -m plait.experiments`: run an experiment as a job, with numpy, torch and safetensors alone.

For machines where the command line's own dependencies are missing. The results are small files; pack them
there (--pack), bring them back, and look at them with `plait reproduce` and `plait report` here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from plait.errors import PlaitError
from plait.experiments import DATA_SETS, WORLDS, experiment_named, experiments
from plait.experiments.depthwidth import FIGURE_1, SMOKE
from plait.experiments.selection import Selection


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m plait.experiments", description=__doc__)
    add = parser.add_argument
    runnable = [e.name for e in experiments().values() if e.needs in ("", WORLDS, *DATA_SETS)]
    add("name", help=f"one of: {', '.join([*runnable, FIGURE_1.name])}")
    add("--out", type=Path, required=True, help="folder of results; what it holds is not rerun")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add("--max-minutes", type=float, help="save and stop after so long; the next call goes on")
    add("--together", type=int, help="runs beside each other on each GPU, or on the CPU")
    add("--smoke", action="store_true", help="a size that runs in seconds")
    add("--models", default="", help="only these, with commas")
    add("--delays", default="", help="only these, with commas")
    add("--rows", default="", help="only rows whose name holds one of these words, with commas")
    add("--seeds", default="", help="these instead of the experiment's own, with commas")
    add("--updates", type=int, help="train for so many at most")
    add("--steps", type=float, help="table4: play so many")
    add("--backend", default="", help="table4: minigrid or envpool")
    add("--ray", default="", help="auto, local or HOST:PORT")
    add("--mps", action="store_true", help="share each GPU through NVIDIA's Multi-Process Service")
    add("--reuse", type=Path, help="take finished runs over from this folder")
    add("--retry", action="store_true", help="try runs that failed before once more")
    add("--pack", type=Path, help="afterwards put all runs into this .tar.gz, to go on elsewhere")
    add("--pack-light", type=Path, help="afterwards put them into this .tar.gz without checkpoints")
    add("--text", type=Path, nargs="+", help=f"{FIGURE_1.name}: one file, or train valid test; plain or .gz")
    add("--no-graphs", action="store_true", help=f"{FIGURE_1.name}: launch every kernel, replay no graph")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the job; exit code 2 for an error the user can mend, 130 after Ctrl-C."""
    args = _parser().parse_args(argv)
    try:
        line = _figure1(args) if args.name == FIGURE_1.name else _experiment(args)
    except PlaitError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; what is finished is kept\n")
        return 130
    _say(line)
    return 0


def _experiment(args: argparse.Namespace) -> str:
    from plait.experiments.session import Means, carry_out, told

    selection = Selection.read(
        args.models, args.delays, args.rows, args.seeds,
        updates=args.updates, steps=args.steps, backend=args.backend,
    )  # fmt: skip
    experiment = selection.of(experiment_named(args.name, args.smoke))
    means = Means(args.device, args.together, args.ray, args.mps, args.max_minutes, args.reuse, args.retry)
    outcome, _ = carry_out(experiment, args.out, means, sys.stdout)
    lines = [told(outcome)]
    for archive, light in ((args.pack, False), (args.pack_light, True)):
        if archive is not None:
            from plait.runs.archive import pack

            names = pack([args.out], archive, args.out, light)
            lines.append(f"{archive} holds {len(names)} runs; {archive.stat().st_size / 1e6:.1f} MB")
    return "\n".join(lines)


def _figure1(args: argparse.Namespace) -> str:
    from plait.experiments.depthwidth.runner import run_missing
    from plait.tasks.text import find_treebank, read_text
    from plait.training.process import device_named

    outcome = run_missing(
        SMOKE if args.smoke else FIGURE_1,
        read_text(args.text or find_treebank()),
        args.out,
        device_named(args.device),
        args.max_minutes,
        args.together or 4,
        not args.no_graphs,
        _say,
    )
    return (
        f"{outcome.finished} runs finished in {outcome.seconds:.1f} s, {outcome.already} were there, "
        f"{outcome.missing} missing" + (f" ({outcome.reason})" if outcome.reason else "")
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
