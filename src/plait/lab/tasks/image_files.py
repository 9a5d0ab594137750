"""Images and labels, of MNIST or of any folder of IDX files, as arrays and as tensors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plait.errors import DataError
from plait.lab.tasks import sources
from plait.lab.tasks.idx import read_idx

__all__ = ["ImageSet", "load_images", "on_device", "pixel_order"]

_VALIDATION = 6  # the last sixth of the training images is for validation


@dataclass(frozen=True)
class ImageSet:
    """Training and test images as bytes: pixels (N, height, width) and labels (N,)."""

    train: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]

    @cached_property
    def sha256(self) -> str:
        """Digest of images and labels, sixteen hexadecimal digits."""
        digest = hashlib.sha256()
        for part in (self.train, self.train_labels, self.test, self.test_labels):
            digest.update(f"{part.shape}".encode() + part.tobytes())
        return digest.hexdigest()[:16]

    @property
    def classes(self) -> int:
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1

    @property
    def kept(self) -> int:
        """Number of images for training; the rest of the training file is for validation."""
        return len(self.train) - len(self.train) // _VALIDATION

    def part(self, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return pixels and labels of train, validation or test."""
        if name == "test":
            return self.test, self.test_labels
        rows = slice(None, self.kept) if name == "train" else slice(self.kept, None)
        return self.train[rows], self.train_labels[rows]


@lru_cache(maxsize=2)
def load_images(folder: str = "") -> ImageSet:
    """Load MNIST, verified by checksum, or the four IDX files of its names in `folder` (plain or .gz)."""
    paths = [
        _in_folder(Path(folder), file.name) if folder else sources.locate(file) for file in sources.MNIST
    ]
    arrays = [read_idx(path, 3 if "idx3" in path.name else 1) for path in paths]
    image_set = ImageSet(*arrays)
    for path, images, labels in (
        (paths[0], image_set.train, image_set.train_labels),
        (paths[2], image_set.test, image_set.test_labels),
    ):
        if not images.size or len(images) != len(labels):
            raise DataError(f"{path}: expected as many images as labels, got {len(images)} and {len(labels)}")
    if image_set.train.shape[1:] != image_set.test.shape[1:]:
        raise DataError(
            f"{paths[2]}: expected images of {image_set.train.shape[1:]} pixels as in {paths[0].name}, "
            f"got {image_set.test.shape[1:]}"
        )
    return image_set


def pixel_order(pixels: int) -> NDArray[np.int64]:
    """Return the pixel permutation of the published experiments.

    >>> pixel_order(784)[:4].tolist()
    [73, 529, 19, 222]
    """
    return np.random.RandomState(100).permutation(pixels).astype(np.int64)


@lru_cache(maxsize=8)
def on_device(folder: str, part: str, permuted: bool, device: str) -> tuple[Tensor, Tensor]:
    """Return pixels (N, height · width) as bytes, in the order of the steps, and labels, on the device."""
    images, labels = load_images(folder).part(part)
    pixels = torch.from_numpy(images.reshape(len(images), -1).copy()).to(device)
    if permuted:
        pixels = pixels.index_select(1, torch.from_numpy(pixel_order(pixels.shape[1])).to(device))
    return pixels, torch.from_numpy(labels.astype(np.int64)).to(device)


def _in_folder(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(
        f"no images: expected {folder / name} or {name}.gz beside it; MNIST's four names are used"
    )
