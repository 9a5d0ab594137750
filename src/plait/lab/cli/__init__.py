"""The command line: parse, call, print, exit.

Commands are named here as strings and imported when called, so `plait --help` loads neither torch nor
the rooms. A command is a typed function in `plait.lab.commands`: its signature is its options, its
docstring its help, and it returns a `CommandResult`. Help and `plait doctor` work without the lab's extra,
all other commands say how to install it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator

from plait._version import __version__
from plait.errors import MissingExtraError, OutputError, PlaitError, check_choice
from plait.lab.cli.streams import prepare_streams
from plait.lab.result import CommandResult
from plait.table import Table

__all__ = ["COMMANDS", "PACKAGES", "main"]

# Name on the command line -> (function, one line of help). A name of two words is a subcommand.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "plait.lab.commands.demo:demo",
        "train a Transformer that chooses what to keep, beside others, and write a page: a minute",
    ),
    "report": (
        "plait.lab.commands.report:report",
        "report on runs as one page: tables with published values, curves",
    ),
    "compare": (
        "plait.lab.commands.compare:compare",
        "compare recurrence, attention and sparse memory at one length: cost and accuracy",
    ),
    "explore": (
        "plait.lab.commands.explore:explore",
        "open a local page: memory, gradients, depth and width, runs",
    ),
    "train": ("plait.lab.commands.train:train", "train a model on a task, or continue a run"),
    "train csv": (
        "plait.lab.commands.train_csv:train_csv",
        "train a model on your own table of sequences",
    ),
    "train minigrid": (
        "plait.lab.commands.train_policy:train_minigrid",
        "train a policy with a memory in a grid world (PPO)",
    ),
    "train gym": (
        "plait.lab.commands.train_policy:train_gym",
        "train a policy with a memory in any Gymnasium environment (PPO)",
    ),
    "train popgym": (
        "plait.lab.commands.train_policy:train_popgym",
        "train a policy with a memory in a POPGym environment (PPO)",
    ),
    "watch": (
        "plait.lab.commands.watch:watch",
        "play a trained policy and show its memory: as text, a GIF or an MP4",
    ),
    "runs": (
        "plait.lab.commands.runs:list_runs",
        "list runs, newest first: task or environment, model, length, score, date",
    ),
    "runs show": ("plait.lab.commands.runs:show_run", "show one run: its options, progress and scores"),
    "runs attention": (
        "plait.lab.commands.pictures:attention",
        "draw a trained run's attention: over its text, over its image, or step by step",
    ),
    "runs curves": (
        "plait.lab.commands.pictures:curves",
        "draw validation curves by epoch, or returns of policies by steps",
    ),
    "runs pack": ("plait.lab.commands.runs:pack_runs", "pack run folders into one archive"),
    "runs unpack": ("plait.lab.commands.runs:unpack_runs", "unpack run folders from an archive"),
    "predict": (
        "plait.lab.commands.predict:predict",
        "predict from a new table with a model of plait train csv",
    ),
    "generate": ("plait.lab.commands.generate:generate", "generate text with a trained character model"),
    "cache train": (
        "plait.lab.commands.cache_train:train_cache",
        "train what the bounded cache of a language model keeps",
    ),
    "cache eval": (
        "plait.lab.commands.cache:evaluate_caches",
        "measure what bounded caches cost a language model: perplexity, needles, memory",
    ),
    "cache report": (
        "plait.lab.commands.cache:report_caches",
        "draw the page of plait cache eval again from its results",
    ),
    "cache generate": (
        "plait.lab.commands.cache:generate_bounded",
        "continue a text with a cache of fixed size",
    ),
    "cache convert": ("plait.lab.commands.cache:convert", "convert a .gguf model to a folder, once"),
    "cache texts": (
        "plait.lab.commands.cache:fetch_texts",
        "fetch long texts from Debian's documentation packages",
    ),
    "tasks": ("plait.lab.commands.tasks:list_tasks", "list the tasks and their options"),
    "tasks show": ("plait.lab.commands.tasks:show_task", "draw one sample of a task"),
    "gradients law": (
        "plait.lab.commands.gradients:law",
        "Theorem 1 for given eigenvalues: printed bound, sharp law, measured slope",
    ),
    "gradients support": (
        "plait.lab.commands.gradients:support",
        "a trained run's attention: κ, depth, Theorem 2's bound, measured norm",
    ),
    "gradients probe": (
        "plait.lab.commands.gradients:probe_run",
        "how far the gradient of a loss reaches, in a run or a Hugging Face folder, by layer",
    ),
    "plan shape": ("plait.lab.commands.plan:shape", "depth and width for a parameter budget (plan 1.3B)"),
    "plan judge": (
        "plait.lab.commands.plan:judge_shape",
        "compare the depth of a shape, or of a config.json, with a fit, other models and laws",
    ),
    "plan table": ("plait.lab.commands.plan:table", "published models against the guideline"),
    "rank": ("plait.lab.commands.rank:rank", "the exact separation rank of a small network"),
    "bounds": ("plait.lab.commands.rank:bounds", "bounds on the separation rank of any network"),
    "reproduce": (
        "plait.lab.commands.reproduce:reproduce",
        "run an experiment from a paper, and report on it",
    ),
    "doctor": ("plait.lab.commands.doctor:doctor", "check what is installed and which backends work here"),
    "bench rank": ("plait.lab.bench.rank:rank", "exact elimination against floating-point LU"),
    "bench layers": (
        "plait.lab.bench.layers:bench_layers",
        "time and memory of each layer and backend against torch.nn",
    ),
    "bench check": (
        "plait.lab.bench.check:bench_check",
        "check that no layer is slower, relative to torch.nn.LSTM, than in a file of bench layers",
    ),
    "bench streaming": (
        "plait.lab.bench.streaming:bench_streaming",
        "inference one step at a time: time, memory",
    ),
    "bench tasks": (
        "plait.lab.bench.tasks:bench_tasks",
        "an epoch of pMNIST and of PTB against torch.nn.LSTM",
    ),
    "bench rl": ("plait.lab.bench.rl:bench_rl", "PPO steps per second in a grid world against RecurrentPPO"),
    "bench sizes": (
        "plait.lab.bench.sweep:bench_sizes",
        "check that layers of any size run and match the reference as a process's first call",
    ),
    "bench memory": ("plait.lab.bench.memory:bench_memory", "peak training memory as the sequence grows"),
    "bench attention": (
        "plait.lab.bench.attention:bench_attention",
        "attention over a bounded memory against full attention",
    ),
    "bench decoding": (
        "plait.lab.bench.decoding:bench_decoding",
        "a language model's decoding with a bounded cache, and with those that grow",
    ),
}
# Group -> the command that runs when no subcommand follows the group's name.
SHORTHAND: dict[str, str] = {"plan": "plan shape"}
# What `plait[lab]` installs; every command needs them, except those of `DIAGNOSIS`, which report what is
# missing.
PACKAGES = ("torch", "numpy", "tyro", "rich", "safetensors", "jinja2", "matplotlib")
DIAGNOSIS = "doctor"
# Out-of-memory messages of torch, CUDA and C++; they appear where our own estimate was too low.
_NO_MEMORY = ("can't allocate memory", "CUDA out of memory", "std::bad_alloc")


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 for success, 2 for an error, 130 if interrupted."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    as_json = "--json" in args
    try:
        _run([arg for arg in args if arg not in ("--debug", "--json")], as_json)
    except KeyboardInterrupt:
        print("plait: interrupted", file=sys.stderr)
        return 130
    except SystemExit:
        raise
    except BaseException as error:
        # A panic in a Rust library does not derive from Exception, but it is an error like any other.
        if debug or not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        _print_error(f"plait: error: {_single_line(_error_message(error))}")
        return 2
    return 0


def _run(args: list[str], as_json: bool) -> None:
    if not args or args[0] in ("-h", "--help"):
        _print_text(_help())
        return
    if args[0] == "--version":
        _print_text(f"plait {__version__}")
        return
    name, rest = _split(args)
    if name in _groups():
        _print_text(_help(name))
        return
    result = _call(name, rest)
    if result is not None:
        with _printing():
            _print(result, as_json)
        if result.error:
            raise PlaitError(result.error)


def _error_message(error: BaseException) -> str:
    """Return a user error's own message; any other error is a bug in plait and asks for a report."""
    if isinstance(error, PlaitError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return "out of memory: take a smaller size, batch, length or width, or a machine with more of it"
    return (
        f"{type(error).__name__}: {error} (a bug in plait, please report it with the output of the "
        "same command with --debug)"
    )


def _groups() -> set[str]:
    return {name.split()[0] for name in COMMANDS if " " in name} - set(COMMANDS)


def _split(args: list[str]) -> tuple[str, list[str]]:
    """Return the command's full name and the arguments left for it."""
    head = args[0]
    pair = " ".join(args[:2])
    if pair in COMMANDS:
        return pair, args[2:]
    if head in SHORTHAND and len(args) > 1 and args[1] not in ("-h", "--help"):
        return SHORTHAND[head], args[1:]
    if head in COMMANDS:
        return head, args[1:]
    if head in _groups():
        if len(args) > 1 and args[1] not in ("-h", "--help"):
            check_choice(
                args[1],
                [n.split()[1] for n in COMMANDS if n.startswith(head + " ")],
                head + " command",
            )
        return head, []
    check_choice(head, {name.split()[0] for name in COMMANDS}, "command")
    raise AssertionError("unreachable")


def _call(name: str, args: list[str]) -> CommandResult | None:
    if name != DIAGNOSIS and (missing := _missing()):
        raise MissingExtraError(
            f"{', '.join(missing)}: needed by plait {name} and not installed; pip install 'plait[lab]'"
        )
    module, _, attribute = COMMANDS[name][0].partition(":")
    function: Callable[..., CommandResult | None] = getattr(importlib.import_module(module), attribute)
    if {"-h", "--help"} & set(args):
        from plait.lab.cli.help import help_text

        _print_text(help_text(function, name, args))
        return None
    if not inspect.signature(function).parameters:  # nothing to parse, so tyro may be missing
        if args:
            raise PlaitError(f"unexpected argument: {' '.join(args)} (plait {name} --help)")
        return function()
    from plait.lab.cli.arguments import read_arguments

    result: CommandResult | None = read_arguments(function, name, args)()
    return result


def _missing() -> list[str]:
    """Return the packages of `PACKAGES` that are not installed."""
    return [package for package in PACKAGES if importlib.util.find_spec(package) is None]


def _single_line(text: str) -> str:
    return " ".join(text.split())


@contextlib.contextmanager
def _printing() -> Iterator[None]:
    """Handle errors of printing: a closed pipe (`| head`) is ignored, a full disk is reported.

    Raises:
        OutputError: with the system's own words.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        raise OutputError(f"cannot write the output: {error.strerror or error}") from error


def _discard_output() -> None:
    """Discard buffered output, which Python would write again when it exits."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _print_text(text: str) -> None:
    with _printing():
        print(text)


def _print(result: CommandResult, as_json: bool) -> None:
    if as_json:
        text = {} if result.stream is None else {"text": "".join(result.stream)}
        data = {**result.data, **text} if text else result.data  # a stream may add to the data at its end
        print(json.dumps(data, indent=2, sort_keys=False, allow_nan=False, default=str))
    for part in () if as_json else result.parts:
        _print_part(part)
    if result.stream is not None and not as_json:
        for piece in result.stream:
            print(piece, end="", flush=True)
        print()


def _print_error(line: str) -> None:
    """Print one line; on a narrower terminal wrap it at spaces, so that names stay whole."""
    if sys.stderr.isatty():
        from plait.lab.cli.drawing import wrapped

        line = wrapped(line, shutil.get_terminal_size().columns - 1)
    print(line, file=sys.stderr)


def _print_part(part: str | Table) -> None:
    """Draw a part for a terminal; print it unwrapped elsewhere, because pipes expect whole lines."""
    if not sys.stdout.isatty():
        print(part.text() if isinstance(part, Table) else part)
        return
    from plait.lab.cli.drawing import draw_table, wrapped

    width = shutil.get_terminal_size().columns - 1  # a line that fills the last column looks cut off
    if isinstance(part, str):
        print(wrapped(part, width))
    elif _missing():  # `plait doctor`
        print(part.text())
    else:
        draw_table(part, width)


def _help(group: str = "") -> str:
    from plait.lab.cli.drawing import listed, wrapped

    names = [name for name in COMMANDS if not group or name.startswith(group + " ")]
    width = shutil.get_terminal_size().columns - 1
    lines = [
        "plait: a bounded memory for sequence models that learns what to keep.",
        "",
        f"usage: plait {group + ' ' if group else ''}COMMAND [OPTIONS]",
        "",
    ]
    for title, first_words in _SECTIONS.items():
        members = {name: COMMANDS[name][1] for name in names if name.split()[0] in first_words}
        if members:
            lines += [*([] if group else [f"{title}:"]), *listed(members, width), ""]
    lines += ["every command takes --help, --json and --debug", "plait --version prints the version"]
    return wrapped("\n".join(lines), width)


# Title in `plait --help` -> first words of its commands.
_SECTIONS = {
    "see it, check this machine": ("demo", "doctor"),
    "train, predict, report": ("train", "predict", "runs", "report", "explore", "watch", "generate", "tasks"),
    "language models": ("cache",),
    "understand and plan": ("gradients", "plan", "compare"),
    "papers and theory": ("reproduce", "rank", "bounds"),
    "speed": ("bench",),
}


def entry(*first: str) -> None:
    """Run the console script; the words of `first` are put before the typed arguments."""
    prepare_streams()
    try:
        code = main([*first, *sys.argv[1:]])
    finally:  # the work is done: from here on Ctrl-C could only interrupt the interpreter's shutdown
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1"):
        # A thread of torch.distributed that meets the interpreter's shutdown aborts the process, and torchrun
        # would report a complete run as failed. Everything is written by now.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
