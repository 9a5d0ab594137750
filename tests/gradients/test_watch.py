"""The watch sees what a probe sees, in loops it does not own, and changes nothing."""

from __future__ import annotations

import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import plait
from plait.errors import ConfigError
from plait.gradients import Watch, probe
from plait.gradients.writers import JsonLines, TensorBoard

DOUBLE = torch.float64


def batches(number: int, width: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(12, 2, width, dtype=DOUBLE, generator=generator) for _ in range(number)]


def last(output: Any) -> Tensor:
    return output[0][-1].square().sum()


def train(model: nn.Module, xs: list[Tensor]) -> list[float]:
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for x in xs:
        loss = last(model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


BUILDERS = {
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, dtype=DOUBLE),
    "rellstm": lambda: plait.RelLSTM(3, 4, window=2, capacity=2, dtype=DOUBLE),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_it_sees_what_a_probe_sees_and_changes_nothing(name: str) -> None:
    xs = batches(7)
    torch.manual_seed(0)
    alone = BUILDERS[name]()
    torch.manual_seed(0)
    watched = BUILDERS[name]()
    expected = probe(watched, xs[0], last)
    plain_losses = train(alone, xs)
    with Watch(watched, every=3) as watch:
        assert train(watched, xs) == pytest.approx(plain_losses, rel=1e-12)
        seen = watch.collect()
    assert [one.number for one in seen] == [0, 3, 6]
    for one, other in zip(seen[0].profile.layers, expected.layers, strict=True):
        assert one.norms == pytest.approx(other.norms, rel=1e-12)
        assert one.decay is not None
        assert one.decay.reached == other.decay.reached
    assert watch.latest.inputs[0].verdict().startswith(("vanishes", "reaches", "has a hole"))
    assert "forward" not in watched.__dict__
    assert not watched._forward_hooks
    assert not watched._forward_pre_hooks


def test_hooks_of_the_model_run_once() -> None:
    model, calls = BUILDERS["lstm"](), []
    model.register_forward_hook(lambda module, args, output: calls.append(1))
    with Watch(model, every=1):
        train(model, batches(3))
    assert len(calls) == 3
    train(model, batches(1))
    assert len(calls) == 4


def test_only_training_passes_count() -> None:
    model, (x,) = BUILDERS["lstm"](), batches(1)
    watch = Watch(model, every=1)
    with pytest.raises(ConfigError, match="nothing seen yet"):
        _ = watch.latest
    model.eval()
    last(model(x)).backward()
    model.train()
    with torch.no_grad():
        model(x)
    model(x)  # forward alone
    last(model(x)).backward()
    assert [one.number for one in watch.collect()] == [1]
    with pytest.raises(RuntimeError):
        model(torch.randn(3, 2, 9, dtype=DOUBLE))
    assert not model._forward_hooks  # the taps went with the error
    watch.close()
    assert "forward" not in model.__dict__
    with pytest.raises(ConfigError, match="every"):
        Watch(model, every=0)


def test_writers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the writer needs tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = tmp_path / "norms.jsonl"
    model = BUILDERS["lstm"]()
    with Watch(model, every=2, writers=[JsonLines(lines), TensorBoard(tmp_path / "events")]):
        train(model, batches(3))
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [record["number"] for record in records] == [0, 2]
    assert len(records[0]["layers"][0]["norms"]) == 12
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    curve = events.Scalars("gradients/layer 0/felt")
    assert [point.step for point in curve] == [0, 2]
    assert curve[0].value == records[0]["layers"][0]["decay"]["reached"]


@pytest.mark.slow  # a clock: other work on the machine moves it
def test_overhead_at_one_pass_in_a_hundred() -> None:
    torch.set_num_threads(1)
    model, x = nn.LSTM(16, 64), torch.randn(100, 32, 16)  # 5 ms a pass; a watched one takes 2 or 3 ms more

    def work() -> float:
        begin = time.process_time()
        for _ in range(100):
            last(model(x)).backward()
        return time.process_time() - begin

    work()
    plain, watched = [], []
    for _ in range(9):  # in turns, the best of each: other work on the machine slows both
        plain.append(work())
        with Watch(model, every=100):
            watched.append(work())
    assert min(watched) < 1.05 * min(plain)


def tiny_gpt2(hub: Any) -> nn.Module:
    torch.manual_seed(0)
    return hub.GPT2LMHeadModel(
        hub.GPT2Config(
            vocab_size=20, n_positions=16, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
    )


def test_trainer_callback_through_its_handler() -> None:
    """The library's own handler calls it, as the Trainer does; the whole Trainer needs accelerate."""
    hub = pytest.importorskip("transformers", reason="the callback is for its Trainer")
    from transformers.trainer_callback import CallbackHandler, TrainerControl, TrainerState

    from plait.integrations.trainers import trainer_callback

    model, callback = tiny_gpt2(hub), trainer_callback(every=2)
    handler = CallbackHandler([callback], model, None, None, None)
    state, control, logs = TrainerState(), TrainerControl(), {"loss": 1.0}
    handler.on_train_begin(None, state, control)
    tokens = torch.randint(20, (2, 12))
    for _ in range(3):
        model(input_ids=tokens, labels=tokens).loss.backward()
    handler.on_log(None, state, control, logs)
    handler.on_train_end(None, state, control)
    assert [seen.number for seen in callback.watch.collect()] == [0, 2]
    assert logs["gradients/transformer.h.1/largest"] > 0
    assert "forward" not in model.__dict__


def test_a_whole_trainer(tmp_path: Path) -> None:
    hub = pytest.importorskip("transformers", reason="the callback is for its Trainer")
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("transformers.Trainer needs accelerate")
    from plait.integrations.trainers import trainer_callback

    rows = [{"input_ids": torch.arange(12) % 20, "labels": torch.arange(12) % 20} for _ in range(8)]
    callback = trainer_callback(every=2)
    settings = hub.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=2,
        logging_steps=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = hub.Trainer(tiny_gpt2(hub), settings, train_dataset=rows, callbacks=[callback])
    trainer.train()
    assert [seen.number for seen in callback.watch.collect()] == [0, 2]
    assert any("gradients/transformer.h.0/largest" in line for line in trainer.state.log_history)


@pytest.mark.filterwarnings("default")  # Lightning warns of torch's changes and of few workers
def test_a_lightning_trainer(tmp_path: Path) -> None:
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("the callback is for lightning, which is not installed")
    import lightning.pytorch as lightning

    from plait.integrations.trainers import lightning_callback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.LSTM(3, 4, batch_first=True)

        def training_step(self, batch: Tensor, index: int) -> Tensor:
            return self.model(batch)[0][:, -1].square().sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callback = lightning_callback(every=2, module="model")
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(8, 10, 3), batch_size=2))
    assert [seen.number for seen in callback.watch.collect()] == [0, 2]
    assert trainer.logged_metrics["gradients/layer 0/felt"] > 1


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from plait.errors import MissingExtraError
    from plait.integrations import trainers

    monkeypatch.setitem(__import__("sys").modules, "lightning.pytorch", None)
    with pytest.raises(MissingExtraError, match="lightning is needed for this callback"):
        trainers.lightning_callback()
