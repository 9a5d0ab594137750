"""Images as sequences: the split, the order of pixels, epochs, and the class at the last step."""

import math

import numpy as np
import pytest
import torch

from plait.errors import ConfigError, DataError
from plait.lab.tasks import PermutedMNIST, SequentialMNIST
from plait.lab.tasks.image_files import load_images, on_device, pixel_order

GENERATOR = torch.Generator().manual_seed(3)


def numbers(task, batch_size, index, seed=3):
    """Which images a batch shows, told by their pixels."""
    batch = task.batch(batch_size, torch.Generator().manual_seed(seed), index=index)
    return [tuple(row) for row in (batch.inputs * 255).round().int().transpose(0, 1).flatten(1).tolist()]


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("kind", [SequentialMNIST, PermutedMNIST])
def test_a_sequence_is_the_image_in_its_order(digits, kind, group):
    task = kind(group=group, images=str(digits.folder))
    order = np.random.RandomState(100).permutation(24) if kind.permuted else np.arange(24)
    (batch,) = task.tested_on()["test"].sweep(None, 10, lambda _: GENERATOR)
    assert batch.inputs.shape == (24 // group, 10, group)
    assert batch.targets.tolist() == [digits.test_labels.tolist()]
    pixels = digits.test.reshape(10, 24)[:, order].reshape(10, 24 // group, group) / 255
    np.testing.assert_allclose(batch.inputs.transpose(0, 1), pixels, rtol=1e-6)
    image = task.as_image(batch.inputs[:, 4])
    np.testing.assert_array_equal((image * 255).round(), digits.test[4])
    np.testing.assert_array_equal(task.plain_inputs(batch.inputs[:, 4]), np.rint(pixels[4] * 255))


def test_a_value_for_each_step_lies_where_its_pixels_lie(digits):
    task = PermutedMNIST(group=4, images=str(digits.folder))
    image = task.as_image(torch.arange(6.0)).flatten()
    for step in range(6):
        places = pixel_order(24)[4 * step : 4 * step + 4]
        assert image[torch.from_numpy(places)].tolist() == [step] * 4


def test_the_last_sixth_validates(digits):
    task = SequentialMNIST(images=str(digits.folder))
    (batch,) = task.held_out()["validation"].sweep(None, 100, lambda _: GENERATOR)
    assert batch.targets.tolist() == [digits.train_labels[50:].tolist()]
    seen = {pixels for index in range(5) for pixels in numbers(task, 10, index)}
    assert seen == {tuple(image.flatten().tolist()) for image in digits.train[:50]}
    assert list(task.held_out()) == ["validation"]
    assert list(task.tested_on()) == ["test"]


def test_an_epoch_shows_every_image_once_in_an_order_of_its_own(digits):
    task = SequentialMNIST(images=str(digits.folder), subset=43)
    assert task.batches_per_epoch(10) == 4
    epoch = [pixels for index in range(4) for pixels in numbers(task, 10, index)]
    assert len(set(epoch)) == 40
    assert set(epoch) <= {tuple(image.flatten().tolist()) for image in digits.train[:43]}
    again = [pixels for index in range(4, 8) for pixels in numbers(task, 10, index)]
    assert again == epoch  # the same generator: the same order
    other = [pixels for index in range(4) for pixels in numbers(task, 10, index, seed=4)]
    assert other != epoch
    assert len(set(other)) == 40


def test_a_look_takes_in_all_or_the_first_ones(digits):
    task = SequentialMNIST(images=str(digits.folder)).held_out()["validation"]
    sizes = [batch.targets.shape[1] for batch in task.sweep(None, 4, lambda _: GENERATOR)]
    assert sizes == [4, 4, 2]
    labels = [label for b in task.sweep(7, 4, lambda _: GENERATOR) for label in b.targets[0].tolist()]
    assert labels == digits.train_labels[50:57].tolist()


def test_loss_and_score_are_of_the_last_step(digits):
    task = SequentialMNIST(images=str(digits.folder))
    logits, targets = torch.randn(24, 5, 3), torch.tensor([[0, 1, 2, 1, 0]])
    wanted = torch.nn.functional.cross_entropy(logits[-1], targets[0])
    for given in (logits, logits[-1:]):
        torch.testing.assert_close(task.loss(given, targets), wanted)
        assert task.score(given, targets) == (logits[-1].argmax(-1) == targets[0]).float().mean()
    assert task.chance_loss == math.log(3)


def test_mistakes(digits, tmp_path):
    folder = str(digits.folder)
    with pytest.raises(ConfigError, match="divisor of 24 pixels, got 5"):
        SequentialMNIST(group=5, images=folder)
    with pytest.raises(ConfigError, match="at most 50000 images, got 50001"):
        PermutedMNIST(subset=50_001)
    with pytest.raises(DataError, match="at least one batch of 60 images, got 50"):
        PermutedMNIST(images=folder).batches_per_epoch(60)
    with pytest.raises(DataError, match=r"no images: expected .*train-images-idx3-ubyte"):
        PermutedMNIST(images=str(tmp_path))
    (digits.folder / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x01\0")
    load_images.cache_clear()
    with pytest.raises(
        DataError, match=r"t10k-images-idx3-ubyte: expected as many images as labels, got 10 and 1"
    ):
        PermutedMNIST(images=folder)


def test_images_that_were_changed_are_noticed(digits):
    task = PermutedMNIST(images=str(digits.folder))
    path = digits.folder / "train-labels-idx1-ubyte"
    content = bytearray(path.read_bytes())
    content[-1] = (content[-1] + 1) % 3
    path.write_bytes(content)
    for cached in (load_images, on_device):
        cached.cache_clear()
    with pytest.raises(DataError, match=f"other images than before: expected {task.sha256}"):
        PermutedMNIST(**task.options())


def test_the_published_permutation():
    assert pixel_order(784)[:4].tolist() == [73, 529, 19, 222]
    assert sorted(pixel_order(784)) == list(range(784))


@pytest.mark.data
def test_mnist_is_split_as_published(mnist):
    task = PermutedMNIST()
    task.prepare()
    assert [task.batches_per_epoch(100), task.length, task.num_classes] == [500, 784, 10]
    parts = {name: on_device("", name, False, "cpu") for name in ("train", "validation", "test")}
    assert {name: len(labels) for name, (_, labels) in parts.items()} == {
        "train": 50_000,
        "validation": 10_000,
        "test": 10_000,
    }
    assert parts["train"][1][:6].tolist() == [5, 0, 4, 1, 9, 2]
    assert parts["test"][1][:6].tolist() == [7, 2, 1, 0, 4, 1]
    everything = torch.cat([parts["train"][0], parts["validation"][0]]).float() / 255
    assert round(everything.mean().item(), 4) == 0.1307
    batch = task.batch(100, torch.Generator().manual_seed(0))
    assert batch.inputs.shape == (784, 100, 1)
    assert batch.targets.shape == (1, 100)
