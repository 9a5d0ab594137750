"""`plait bench attention`: attention over a bounded memory against full attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from plait.errors import check_choice, check_int
from plait.estimates import FLOAT, check_fits
from plait.lab.bench.layer_config import PRECISIONS
from plait.lab.bench.peak import peak_megabytes
from plait.lab.bench.sizes import MOST_ROUNDS, parse_numbers
from plait.lab.bench.timing import limit_threads, take_turns
from plait.lab.machine import check_folder, circumstances, describe
from plait.lab.result import CommandResult
from plait.lab.runs.folder import write_json
from plait.lab.training.process import device_named
from plait.ops.bounded_attention import bounded_attention
from plait.ops.lifetimes import lifetimes
from plait.ops.parity import TOLERANCE
from plait.table import Table

__all__ = ["bench_attention"]

_BASELINE = "full attention"
# the definition has a mask over all pairs of steps, so parity is checked on the first ones
_CHECKED_STEPS = 512


def bench_attention(
    lengths: str = "1024",
    rows: int = 8,
    heads: int = 4,
    head_size: int = 16,
    window: int = 32,
    capacity: int = 32,
    precision: Literal["fp32", "bf16"] = "fp32",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    threads: int | None = None,
    repeats: int = 10,
    commit: str = "",
    out: Path | None = None,
) -> CommandResult:
    """Time forward + backward of bounded attention; the last column is the ratio to torch's causal attention.

    Keys and inputs are random, as in an untrained network. On a GPU FlexAttention is timed with the same
    mask; building the mask has a row of its own.

    Args:
        lengths: sequence lengths, comma-separated.
        rows: batch size.
        heads: number of heads.
        head_size: features of a head.
        window: number of latest states that are read.
        capacity: number of older states that are read.
        precision: dtype of queries, keys and values.
        device: device to run on.
        threads: threads of the CPU; by default torch's own number.
        repeats: rounds of measurement.
        commit: commit to record if the source is not a git checkout.
        out: JSON file to write.
    """
    check_folder(out)
    check_int(1, rows=rows, heads=heads, head_size=head_size, window=window)
    check_int(0, capacity=capacity)
    check_int(1, MOST_ROUNDS, repeats=repeats)
    dtype = PRECISIONS[check_choice(precision, PRECISIONS, "precision")]
    target = device_named(device)
    timings: list[dict[str, Any]] = []
    with limit_threads(threads) as used:
        data: dict[str, Any] = circumstances(target, used, commit or None)
        for steps in parse_numbers(lengths, "lengths"):
            numbers = rows * heads * (12 * steps * head_size + 4 * (window + capacity))
            check_fits(FLOAT * numbers, "take fewer steps or rows", str(target))
            benchmark = _Benchmark((rows, heads, steps, head_size), window, capacity, target, dtype)
            if wrong := benchmark.disagreement():
                return CommandResult(data, (), f"parity failed: {wrong}")
            methods = benchmark.steps()
            times = take_turns(methods, target, repeats, warm_up=2)
            for name, taken in times.items():
                timings.append(
                    {
                        "method": name,
                        "T": steps,
                        "ms": taken.median * 1e3,
                        "spread ms": taken.spread * 1e3,
                        "ratio": taken.ratio_to(times[_BASELINE]),
                        **_peak(methods[name], target),
                    }
                )
    sizes = {"rows": rows, "heads": heads, "head_size": head_size, "window": window, "capacity": capacity}
    data |= {**sizes, "precision": precision, "times": timings}
    if out:
        write_json(out, data)
    notes = [f"{', '.join(f'{name} {size}' for name, size in sizes.items())}, {precision}", describe(data)]
    table = Table(list(timings[0]), [list(row.values()) for row in timings], "forward + backward", notes)
    return CommandResult(data, (table,))


def _peak(step: Callable[[], object], device: torch.device) -> dict[str, float]:
    """Return the peak memory of a call, in MB, on a GPU: what it allocates in addition to its inputs."""
    return {"peak MB": peak_megabytes(lambda: step, device)} if device.type == "cuda" else {}


class _Benchmark:
    """The functions to be timed, on one set of tensors."""

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        window: int,
        capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        generator = torch.Generator().manual_seed(0)

        def draw(*size: int) -> Tensor:
            return torch.randn(size, generator=generator).to(device, dtype)

        self.rule: dict[str, Any] = {"window": window, "capacity": capacity}
        self.query, self.key, self.value = (draw(*shape).requires_grad_() for _ in range(3))
        self.scores = draw(*shape[:3]).requires_grad_()
        self.arriving = draw(*shape)
        self.deaths = lifetimes(self.scores, **self.rule).deaths

    def disagreement(self) -> str | None:
        """Return the first difference from the definition on the first steps of the first row, or None."""
        first = [x[:1, :, :_CHECKED_STEPS] for x in (self.query, self.key, self.value, self.scores)]
        deaths = lifetimes(first[3], **self.rule).deaths
        outcomes = []
        for backend in ("reference", "auto"):
            leaves = [x.detach().requires_grad_() for x in first]
            options: dict[str, Any] = {"scores": leaves[3], "backend": backend, **self.rule}
            query, key, value, _ = leaves
            output = bounded_attention(query, key, value, deaths, **options)
            gradients = torch.autograd.grad(output, leaves, self.arriving[:1, :, :_CHECKED_STEPS])
            outcomes.append((output, *gradients))
        names = ("output", "gradient of query", "of key", "of value", "of scores")
        for name, x, y in zip(names, *outcomes, strict=True):
            worst = (x.double() - y.double()).abs().max().item() / max(1.0, x.double().abs().max().item())
            if not worst <= TOLERANCE[x.dtype]:
                return f"{name}: off by {worst:.2e}, allowed {TOLERANCE[x.dtype]:.0e}"
        return None

    def steps(self) -> dict[str, Callable[[], object]]:
        """Return the functions to be timed, by name."""
        leaves = self.query, self.key, self.value

        def full() -> object:
            output = scaled_dot_product_attention(*leaves, is_causal=True)
            return torch.autograd.grad(output, leaves, self.arriving)

        def bounded(scores: Tensor | None) -> Callable[[], object]:
            wanted = leaves if scores is None else (*leaves, scores)

            def step() -> object:
                output = bounded_attention(*leaves, self.deaths, scores=scores, **self.rule)
                return torch.autograd.grad(output, wanted, self.arriving)

            return step

        def complete() -> object:
            deaths = lifetimes(self.scores, **self.rule).deaths
            output = bounded_attention(*leaves, deaths, scores=self.scores, **self.rule)
            return torch.autograd.grad(output, (*leaves, self.scores), self.arriving)

        steps: dict[str, Callable[[], object]] = {
            _BASELINE: full,
            "bounded attention": bounded(None),
            "bounded attention with scores": bounded(self.scores),
            "lifetimes and attention with scores": complete,
            "lifetimes": lambda: lifetimes(self.scores, **self.rule),
        }
        return steps | (self._flex() if self.query.is_cuda else {})

    def _flex(self) -> dict[str, Callable[[], object]]:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        leaves, deaths = (self.query, self.key, self.value), self.deaths

        def readable(b: Tensor, h: Tensor, t: Tensor, j: Tensor) -> Tensor:
            return (j <= t) & (t < deaths[b, h, j])

        rows, heads, steps, _ = self.query.shape
        build = torch.compile(create_block_mask)
        attend = torch.compile(flex_attention)

        def mask() -> Any:
            return build(readable, rows, heads, steps, steps, device=deaths.device)

        built = mask()

        def flex() -> object:
            return torch.autograd.grad(attend(*leaves, block_mask=built), leaves, self.arriving)

        return {"FlexAttention, the same mask": flex, "FlexAttention's mask": mask}
