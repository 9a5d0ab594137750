"""`python -m plait.depthwidth`: an exact rank as a job, with numpy and torch alone.

For machines where the command line's own dependencies are missing. It reports progress on stderr and
keeps the certificate on disk up to date after every run.
"""

from __future__ import annotations

import argparse
import sys
import time

from plait.depthwidth.certificate import certify
from plait.depthwidth.check import check_certificate
from plait.depthwidth.field import PRIMES
from plait.depthwidth.rank import Problem
from plait.errors import ConfigError, PlaitError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m plait.depthwidth", description=__doc__)
    parser.add_argument("--check", metavar="FILE", help="measure nothing; check this certificate")
    parser.add_argument("--depth", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--tokens", type=int, help="sequence length, 2·width if not given")
    parser.add_argument("--cut", type=int, help="tokens in A, half of them if not given")
    parser.add_argument("--residual", action="store_true")
    parser.add_argument("--graded", action="store_true", help="component by component: smaller matrices")
    parser.add_argument("--templates", type=int)
    parser.add_argument("--device", help="cuda, or nothing for numpy")
    parser.add_argument(
        "--runs", type=int, default=2, choices=(1, 2, 3), help="primes and seeds to repeat with"
    )
    parser.add_argument("--out", help="certificate, a JSON file")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the job; exit code 2 for an error the user can mend."""
    args = _parser().parse_args(argv)
    began = time.perf_counter()
    last = 0.0

    def progress(label: str, rank: int, most: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last > 5 or rank == most:
            last = now
            sys.stderr.write(f"{now - began:8.1f} s  {label}  rank {rank:,} of at most {most:,}\n")
            sys.stderr.flush()

    try:
        if args.check:
            found = check_certificate(
                args.check, device=args.device, progress=lambda done, most: progress("witness", done, most)
            )
            sys.stdout.write(
                f"holds: rank at least {found.rank:,} (a false witness passes with chance "
                f"2^{found.forged_log2:.0f} a try), Gram bound {found.gram:,}, certain {found.certain}, "
                f"{time.perf_counter() - began:.1f} s\n"
            )
            return 0
        if args.depth is None or args.width is None:
            raise ConfigError("give --depth and --width, or --check FILE")
        problem = Problem(args.depth, args.width, args.heads, args.tokens, args.cut, args.residual)
        certificate = certify(
            problem,
            primes=PRIMES[: args.runs],
            seeds=range(args.runs),
            graded=args.graded,
            templates=args.templates,
            device=args.device,
            progress=progress,
            out=args.out,
        )
    except PlaitError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for run in certificate.runs:
        sys.stdout.write(
            f"p = {run.p}, seed {run.seed}: rank {run.rank:,}, {run.templates:,} templates, "
            f"saturated {run.saturated}, {run.seconds:.1f} s\n"
        )
    sys.stdout.write(
        f"rank {certificate.rank:,}, agreed {certificate.agreed}, Gram bound {certificate.gram:,}, "
        f"matches {certificate.matches_gram}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
