"""Task on user data from Python: arrays, a `Dataset` or a `DataLoader`, read once into memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plait.errors import ConfigError, DataError, ShapeError, check_choice
from plait.lab.tasks.base import HIDDEN, IGNORE
from plait.lab.tasks.sequences import Sequences, SequenceTask, Split, share_of

__all__ = ["DataTask", "data_task"]

_LAYOUTS = {True: "(N, T, F), batch first", False: "(T, N, F), time first (batch_first=True for the other)"}


@dataclass(frozen=True)
class DataTask(SequenceTask):
    """Predict the targets of sequences passed in Python; made by `plait.fit` or `data_task`.

    A run's description holds the sizes a network needs and the digest of the data, but not the data: to
    resume such a run, pass them again.

    Args:
        input_size: number of features per step, or size of a symbol's embedding.
        outputs: number of classes, or of regression targets.
        symbols: size of the vocabulary if inputs are symbols; 0 for features.
        sequences: number of training sequences.
    """

    name = "data"
    input_size: int = 1
    outputs: int = 1
    symbols: int = 0
    sequences: int = 0
    data: Split | None = field(default=None, metadata=HIDDEN, compare=False, repr=False)

    @property
    def num_classes(self) -> int:
        return self.outputs

    @property
    def vocabulary(self) -> int | None:
        return self.symbols or None

    def split(self) -> Split:
        if self.data is None:
            raise DataError(
                "data: this run's were passed in Python; pass them again: "
                "plait.fit(model, data, held_out=…, folder=RUN, resume=True)"
            )
        return self.data


def data_task(
    data: Any,
    held_out: Any,
    batch_first: bool = False,
    *,
    asks: str | None = None,
    standardise: bool = True,
    embedding: int = 1,
) -> DataTask:
    """Return a task on user data.

    Args:
        data: (X, y), (X, y, lengths), a `torch.utils.data.Dataset` or list of (x, y), or a `DataLoader` of
            such batches. X is (N, T, F) or (T, N, F), or a list of (T_i, F); integers without F are symbols.
            y holds a class (an integer, or a name) or numbers for each sequence, or for each step. Steps
            without a target have -100, or nan. Data are read once, in order, and kept in memory.
        held_out: the share of the sequences to hold out, or data of the same kind.
        batch_first: whether X, and y of every step, are (N, T, …).
        asks: whether y is for the "last" or for "every" step, if its shape is ambiguous.
        standardise: see `SequenceTask`.
        embedding: size of a symbol's embedding.

    >>> task = data_task((torch.randn(20, 9, 3), torch.arange(20) % 2), held_out=0.25, batch_first=True)
    >>> task.answer, task.asks, task.outputs, task.sequences
    ('class', 'last', 2, 15)
    """
    if asks is not None:
        check_choice(asks, ("last", "every"), "asks")
    rows, every = _read(data, batch_first, asks, "")
    if isinstance(held_out, float) and 0 < held_out < 1:
        if len(rows) < 2:
            raise ConfigError(f"held_out: a share of {len(rows)} sequences leaves none; give more data")
        sides = share_of([str(index) for index in range(len(rows))], held_out)
        parts = [[row for row, out in zip(rows, sides, strict=True) if out is side] for side in (False, True)]
    elif held_out is None or isinstance(held_out, bool | int | float):
        raise ConfigError(
            "held_out: expected a share of the sequences between 0 and 1 (held_out=0.2), or data of the same "
            f"kind (held_out=(X, y)), got {held_out}; a score on training data says nothing"
        )
    else:
        others, every_other = _read(held_out, batch_first, asks, "held_out: ")
        if every_other is not every:
            raise ShapeError("held_out: expected y as the data to train on have it, per sequence or per step")
        parts = [rows, others]
    classes = _name_classes(parts)
    split = Split(*(_joined(part, every) for part in parts))
    _check_alike(split)
    numbers = split.train.targets.is_floating_point()
    symbols = 0 if split.train.inputs.dim() == 2 else 1 + max(int(p.inputs.max()) for p in _both(split))
    outputs = split.train.targets.shape[-1] if numbers else len(classes) or 1 + _largest(split)
    return DataTask(
        "number" if numbers else "class",
        "every" if every else "last",
        classes,
        standardise,
        split.sha256,
        input_size=embedding if symbols else split.train.inputs.shape[1],
        outputs=outputs,
        symbols=symbols,
        sequences=len(split.train.lengths),
        data=split,
    )


Row = tuple[Tensor, Any]


def _read(data: Any, batch_first: bool, asks: str | None, where: str) -> tuple[list[Row], bool]:
    """Return sequences (T_i, F) with their targets, and whether every step has a target."""
    from torch.utils.data import DataLoader

    if isinstance(data, tuple) and len(data) in (2, 3):
        rows, every = _of_arrays(*data, batch_first=batch_first, asks=asks, where=where)
    elif isinstance(data, DataLoader):
        rows, kinds = [], set()
        for batch in _in_order(data):
            if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                raise DataError(f"{where}data: expected batches (X, y) or (X, y, lengths) of the loader")
            some, every = _of_arrays(*batch, batch_first=batch_first, asks=asks, where=where)
            rows += some
            kinds.add(every)
        if len(kinds) > 1:
            raise ShapeError(f"{where}y: expected targets of every step in all batches, or in none")
        every = kinds.pop() if kinds else False
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping):
        pairs = [data[index] for index in range(len(data))]
        if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
            raise DataError(f"{where}data: expected items (x, y) of the data set")
        rows, every = _of_arrays(
            [x for x, _ in pairs], [y for _, y in pairs], batch_first=True, asks=asks, where=where
        )
    else:
        raise DataError(
            f"{where}data: expected a task, (X, y), a data set with a length or a DataLoader, got "
            f"{type(data).__name__}"
        )
    if not rows:
        raise DataError(f"{where}data: expected at least one sequence, got none")
    return rows, every


def _in_order(loader: Any) -> Any:
    """Return a loader of the same batches without shuffling or workers, which is deterministic."""
    from torch.utils.data import DataLoader, IterableDataset

    if isinstance(loader.dataset, IterableDataset):
        if not hasattr(loader.dataset, "__len__"):
            raise DataError("data: expected a DataLoader whose data set has a length; it is read once, whole")
        return loader
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size or 1,
        collate_fn=loader.collate_fn,
        generator=torch.Generator(),  # else it would draw a seed from the global generator
    )


def _of_arrays(
    inputs: Any, targets: Any, lengths: Any = None, *, batch_first: bool, asks: str | None, where: str
) -> tuple[list[Row], bool]:
    if isinstance(inputs, tuple | list):
        xs = [_tensor(x, f"{where}X[{index}]") for index, x in enumerate(inputs)]
        ys, joint = _as_list(targets, f"{where}y"), False
    else:
        whole = _tensor(inputs, f"{where}X")
        if whole.dim() == 3 and not whole.is_floating_point():
            symbols = "(N, T)" if batch_first else "(T, N)"
            raise ShapeError(
                f"{where}X: expected {symbols} where integers are symbols, got {tuple(whole.shape)}; if they "
                "are features, pass X.float()"
            )
        if whole.dim() - whole.is_floating_point() != 2:
            raise ShapeError(f"{where}X: expected {_LAYOUTS[batch_first]}, got {tuple(whole.shape)}")
        xs = list((whole if batch_first else whole.transpose(0, 1)).unbind(0))
        ys, joint = _by_sequence(targets, whole, len(xs), batch_first, asks, where)
    if len(ys) != len(xs):
        hint = ""
        if not isinstance(inputs, tuple | list) and len(ys) == inputs.shape[1 if batch_first else 0]:
            layout = "(T, N, F)" if batch_first else "(N, T, F)"
            hint = f"; is X {layout}? pass batch_first={not batch_first}"
        raise ShapeError(
            f"{where}y: expected {len(xs)} targets, one for each sequence of X, got {len(ys)}{hint}"
        )
    ends = [len(x) for x in xs] if lengths is None else _checked_lengths(lengths, xs, where)
    every = joint or _is_every(xs, ys, asks)
    rows: list[Row] = []
    for index, (x, y, end) in enumerate(zip(xs, ys, ends, strict=True)):
        _check_one(x, y, every, index, where)
        y = _classes_of(y, every, f"{where}y[{index}]")
        rows.append((x[:end], y[:end] if every else y))
        if isinstance(y, Tensor) and bool(_absent(rows[-1][1]).all()):
            raise DataError(
                f"{where}y[{index}]: expected a target, got none that counts; leave X[{index}] out"
            )
    return rows, every


def _by_sequence(
    targets: Any, whole: Tensor, count: int, batch_first: bool, asks: str | None, where: str
) -> tuple[list[Any], bool]:
    """Return targets by sequence, and whether they are of every step, recognised by a time-first shape."""
    if batch_first or isinstance(targets, list) or asks == "last":
        return _as_list(targets, f"{where}y"), False
    values = _values(targets, f"{where}y")
    if isinstance(values, Tensor) and values.dim() >= 2 and values.shape[:2] == whole.shape[:2]:
        return list(values.transpose(0, 1).unbind(0)), True
    return _as_list(targets, f"{where}y"), False


def _as_list(targets: Any, name: str) -> list[Any]:
    if isinstance(targets, list | tuple):
        return [_values(target, f"{name}[{index}]") for index, target in enumerate(targets)]
    values = _values(targets, name)
    if isinstance(values, Tensor):
        if not values.dim():
            raise ShapeError(f"{name}: expected one target for each sequence, got a single number")
        return list(values.unbind(0))
    return list(values)


def _values(value: Any, name: str) -> Any:
    """Return a tensor; names of classes unchanged."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        return value.tolist()
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return list(value)
    return _tensor(value, name)


def _tensor(value: Any, name: str) -> Tensor:
    try:
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name}: expected numbers, got {type(value).__name__} ({error})") from error
    return tensor.float() if tensor.is_floating_point() else tensor.long()


def _is_every(xs: list[Tensor], ys: list[Any], asks: str | None) -> bool:
    """Return whether targets have a time axis; without `asks`, an axis as long as the sequences is time."""
    if asks is not None:
        return asks == "every"
    sizes = [len(y) if isinstance(y, list) or (isinstance(y, Tensor) and y.dim()) else -1 for y in ys]
    return all(size == len(x) for size, x in zip(sizes, xs, strict=True))


def _checked_lengths(lengths: Any, xs: list[Tensor], where: str) -> list[int]:
    numbers = _tensor(lengths, f"{where}lengths").flatten().tolist()
    broken = [number for number in numbers if number % 1]
    if broken:
        raise ShapeError(f"{where}lengths: expected whole numbers, got {broken[0]:g}")
    steps = [int(number) for number in numbers]
    if len(steps) != len(xs) or any(not 0 < n <= len(x) for n, x in zip(steps, xs, strict=False)):
        raise ShapeError(
            f"{where}lengths: expected {len(xs)} numbers from 1 to {max(map(len, xs), default=0)}, the steps "
            f"of X, got {len(steps)} from {min(steps, default=0)} to {max(steps, default=0)}"
        )
    return steps


def _check_one(x: Tensor, y: Any, every: bool, index: int, where: str) -> None:
    if x.dim() - x.is_floating_point() != 1 or not len(x):
        raise ShapeError(
            f"{where}X[{index}]: expected (T, F) of at least one step, or symbols (T,), got {tuple(x.shape)}"
        )
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        step = int((~torch.isfinite(x)).any(-1).nonzero()[0]) + 1
        raise DataError(
            f"{where}X[{index}]: expected finite numbers, got another at step {step}; fill it first"
        )
    if every and (isinstance(y, str) or len(y) != len(x)):
        got = 1 if isinstance(y, str) else len(y)
        raise ShapeError(
            f"{where}y[{index}]: expected {len(x)} targets, one for each step of X[{index}], got {got}"
        )
    if not every and (isinstance(y, list) or (isinstance(y, Tensor) and y.dim() > 1)):
        raise ShapeError(
            f"{where}y[{index}]: expected one target, or one for each of {len(x)} steps, got {len(y)}"
        )


def _classes_of(y: Any, every: bool, name: str) -> Any:
    """Return integer targets without a last axis of size 1, which other libraries add; refuse a wider one."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dim() == every:
        return y
    if y.dim() > 1 + every or y.shape[-1] != 1:
        step = " for each step" if every else ""
        raise ShapeError(
            f"{name}: expected one class{step}, got {y.shape[-1]} integers; numbers to predict are floats"
        )
    return y.squeeze(-1)


def _absent(targets: Tensor) -> Tensor:
    return targets.isnan() if targets.is_floating_point() else targets == IGNORE


def _name_classes(parts: list[list[Row]]) -> tuple[str, ...]:
    """Return the sorted names of classes, replaced by indices in `parts`; empty for integer classes."""
    ys = [y for part in parts for _, y in part]
    if not any(isinstance(y, str | list) for y in ys):
        return ()
    if not all(isinstance(y, str | list) for y in ys):
        raise DataError("y: expected names of classes everywhere, or nowhere, got both")
    names = tuple(sorted({name for y in ys for name in ([y] if isinstance(y, str) else y)}))
    index_of = {name: index for index, name in enumerate(names)}
    for part in parts:
        part[:] = [
            (x, torch.tensor(index_of[y] if isinstance(y, str) else [index_of[name] for name in y]))
            for x, y in part
        ]
    return names


def _joined(rows: Sequence[Row], every: bool) -> Sequences:
    lengths = torch.tensor([len(x) for x, _ in rows])
    kinds = {(x.shape[1:], x.dtype) for x, _ in rows}
    answers = {(y.shape[1:] if every else y.shape, y.dtype) for _, y in rows}
    for name, layouts in (("X", kinds), ("y", answers)):
        if len(layouts) > 1:
            shown = " and ".join(f"{tuple(shape)} {dtype}" for shape, dtype in sorted(layouts, key=str)[:2])
            raise ShapeError(f"{name}: expected the same features and type in every sequence, got {shown}")
    inputs = torch.cat([x for x, _ in rows])
    targets = torch.cat([y for _, y in rows]) if every else torch.stack([y for _, y in rows])
    if targets.is_floating_point() and targets.dim() == 1:
        targets = targets.unsqueeze(1)
    return Sequences(inputs, targets, lengths.cumsum(0) - lengths, lengths, every)


def _both(split: Split) -> tuple[Sequences, Sequences]:
    return split.train, split.held_out


def _largest(split: Split) -> int:
    targets = [part.targets[part.targets != IGNORE] for part in _both(split)]
    if any(len(classes) and int(classes.min()) < 0 for classes in targets):
        raise DataError(f"y: expected classes from 0 on, or {IGNORE} for none, got a negative one")
    return max(int(classes.max()) for classes in targets if len(classes))


def _check_alike(split: Split) -> None:
    train, held_out = _both(split)
    for name, known, other in (
        ("X", train.inputs, held_out.inputs),
        ("y", train.targets, held_out.targets),
    ):
        if known.shape[1:] != other.shape[1:] or known.dtype != other.dtype:
            raise ShapeError(
                f"held_out: expected {name} with {tuple(known.shape[1:])} features of {known.dtype} as the "
                f"data to train on, got {tuple(other.shape[1:])} of {other.dtype}"
            )
