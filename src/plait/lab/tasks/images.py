"""Image classification pixel by pixel: sequential and permuted MNIST."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from plait.errors import ConfigError, DataError, check_int
from plait.lab.tasks.base import HIDDEN, Batch, Task, accuracy, epoch_rows
from plait.lab.tasks.image_files import ImageSet, load_images, on_device, pixel_order

__all__ = ["ImageTask", "PermutedMNIST", "SequentialMNIST"]

_SHADES = " .:-=+*#%@"
_MNIST_SIDE, _MNIST_CLASSES, _MNIST_TRAIN = 28, 10, 50_000


@dataclass(frozen=True)
class ImageTask(Task):
    """Base class: T = pixels / group steps of `group` pixels in [0, 1], with the class as target of the last.

    Of MNIST, 50,000 images are for training, the last 10,000 of the 60,000 for validation, 10,000 for the
    test. All are kept on the device as bytes; an epoch's order follows from (seed, epoch), and an incomplete
    last batch is left out.

    Args:
        group: pixels per step.
        subset: train on the first `subset` images only; validation and test stay whole.
        images: folder with four IDX files of MNIST's names to use instead of MNIST.
        sha256: digest of these images; empty to compute it, else verified.
    """

    permuted: ClassVar[bool]
    input_initialiser = "kaiming"
    group: int = 1
    subset: int | None = None
    images: str = ""
    sha256: str = ""
    part: str = field(default="train", metadata=HIDDEN)

    def __post_init__(self) -> None:
        check_int(1, group=self.group)
        if self.subset is not None:
            check_int(1, subset=self.subset)
        if not isinstance(self.images, str):
            raise ConfigError(f"images: expected a folder, got {self.images!r:.80}")
        if self.images and not self.sha256:
            object.__setattr__(self, "sha256", load_images(self.images).sha256)
        height, width = self.shape
        if height * width % self.group:
            raise ConfigError(
                f"group: expected a divisor of {height * width} pixels, got {self.group}; with 7, a row of "
                "MNIST is four steps"
            )
        if self.subset is not None and not self.images and self.subset > _MNIST_TRAIN:
            raise ConfigError(f"subset: expected at most {_MNIST_TRAIN} images, got {self.subset}")

    @property
    def reads(self) -> str:
        return "last"

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        if not self.images:
            return _MNIST_SIDE, _MNIST_SIDE
        height, width = self._loaded().train.shape[1:]
        return height, width

    @property
    def length(self) -> int:
        """Number of steps T."""
        return math.prod(self.shape) // self.group

    @property
    def input_size(self) -> int:
        return self.group

    @property
    def num_classes(self) -> int:
        return self._loaded().classes if self.images else _MNIST_CLASSES

    @property
    def chance_loss(self) -> float:
        """Loss of a uniform guess: ln of the number of classes."""
        return math.log(self.num_classes)

    def prepare(self, device: torch.device | str = "cpu") -> None:
        self._loaded()
        for part in ("train", "validation", "test"):
            on_device(self.images, part, self.permuted, str(device))

    def batches_per_epoch(self, batch_size: int) -> int:
        count = self.subset or (self._loaded().kept if self.images else _MNIST_TRAIN)
        if count < batch_size:
            raise DataError(f"{self.name}: expected at least one batch of {batch_size} images, got {count}")
        return count // batch_size

    def batch(
        self,
        batch_size: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        index: int = 0,
    ) -> Batch:
        pixels, labels = self._tensors(device)
        rows = epoch_rows(generator, len(pixels), batch_size, index, device)
        return self._steps(pixels, labels, rows)

    def sweep(
        self,
        sequences: int | None,
        batch_size: int,
        generator_of: Callable[[int], torch.Generator],
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        """Yield the images in order, the first `sequences` or all."""
        pixels, labels = self._tensors(device)
        count = len(pixels) if sequences is None else min(sequences, len(pixels))
        for begin in range(0, count, batch_size):
            yield self._steps(pixels, labels, slice(begin, min(begin + batch_size, count)))

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy at the last step, from logits of every step or of the last alone."""
        return super().loss(logits[-1:], targets)

    def score(self, logits: Tensor, targets: Tensor) -> Tensor:
        return accuracy(logits[-1:], targets)

    def held_out(self) -> Mapping[str, Task]:
        return {"validation": replace(self, part="validation")}

    def tested_on(self) -> Mapping[str, Task]:
        return {"test": replace(self, part="test")}

    def plain_inputs(self, inputs: Tensor) -> list[Any]:
        """Return the bytes, a list of `group` for each step."""
        return (inputs * 255).round().long().tolist()

    def as_image(self, steps: Tensor) -> Tensor:
        """Arrange values by step, (T,) or (T, group), as an image (height, width)."""
        values = steps.reshape(self.length, -1).expand(self.length, self.group).reshape(-1)
        if self.permuted:
            values = torch.empty_like(values).index_copy(
                0, torch.from_numpy(pixel_order(len(values))), values
            )
        return values.view(self.shape)

    def show(self, seed: int = 0, width: int = 100) -> str:
        """Return one image in ASCII shades, and its label."""
        batch = self.batch(1, torch.Generator().manual_seed(seed))
        image = self.as_image(batch.inputs[:, 0])
        rows = ["".join(_SHADES[int(value * 9.99)] * 2 for value in row) for row in image.tolist()]
        order = "in the published random order" if self.permuted else "row by row"
        caption = f"{self.length} steps of {self.group} pixels, {order}; asked: {int(batch.targets[-1, 0])}"
        return "\n".join([*(row[:width].rstrip() for row in rows), caption])

    def _loaded(self) -> ImageSet:
        image_set = load_images(self.images)
        if self.images and image_set.sha256 != self.sha256:
            raise DataError(
                f"{self.images} holds other images than before: expected {self.sha256}, "
                f"got {image_set.sha256}"
            )
        return image_set

    def _tensors(self, device: torch.device | str) -> tuple[Tensor, Tensor]:
        pixels, labels = on_device(self.images, self.part, self.permuted, str(device))
        if self.part == "train" and self.subset is not None:
            return pixels[: self.subset], labels[: self.subset]
        return pixels, labels

    def _steps(self, pixels: Tensor, labels: Tensor, rows: Tensor | slice) -> Batch:
        """Return pixels (B, P) as steps (T, B, group) in [0, 1]."""
        chosen = pixels[rows].view(-1, self.length, self.group).transpose(0, 1).float() / 255
        return Batch(chosen, labels[rows].unsqueeze(0))


@dataclass(frozen=True)
class SequentialMNIST(ImageTask):
    """Name a digit after reading its pixels row by row.

    >>> SequentialMNIST(group=7).length, SequentialMNIST().batches_per_epoch(100)
    (112, 500)
    """

    name = "smnist"
    permuted = False


@dataclass(frozen=True)
class PermutedMNIST(ImageTask):
    """Name a digit after reading its pixels in one fixed random order.

    >>> PermutedMNIST(subset=10_000).batches_per_epoch(100)
    100
    """

    name = "pmnist"
    permuted = True
