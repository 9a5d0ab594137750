"""Callbacks that watch gradients in `transformers.Trainer` and Lightning; each library is imported on use."""

from __future__ import annotations

from typing import Any

from plait.errors import MissingExtraError
from plait.gradients.watch import Watch

__all__ = ["lightning_callback", "trainer_callback"]


def trainer_callback(every: int = 100, **options: Any) -> Any:
    """Return a `transformers.TrainerCallback` that watches the model being trained.

    Pass it as `Trainer(..., callbacks=[trainer_callback(every=100)])`. Its `watch` holds the records, and the
    newest numbers are added to the Trainer's logs. `every` and `options` are those of `Watch`.
    """
    base = _class("transformers", "TrainerCallback")

    class GradientWatch(base):  # type: ignore[misc, valid-type]
        watch: Watch | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.watch = Watch(kwargs["model"], every, **options)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            records = self.watch.collect() if self.watch is not None else []
            if records and logs is not None:
                logs.update(records[-1].scalars())  # written by the callbacks after this one
                if state.log_history:
                    state.log_history[-1].update(records[-1].scalars())

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.watch is not None:
                self.watch.close()

    return GradientWatch()


def lightning_callback(every: int = 100, **options: Any) -> Any:
    """Return a Lightning `Callback` that watches the module being trained, or its submodule `module=`.

    Pass it as `Trainer(..., callbacks=[lightning_callback(every=100)])`. Its `watch` holds the records, and
    the module logs the newest numbers. A LightningModule is called as a whole only if its `training_step`
    calls `self(...)`; where it calls a submodule, name that one: `module="model"`.
    """
    base = _class("lightning.pytorch", "Callback")
    part = options.pop("module", "")

    class GradientWatch(base):  # type: ignore[misc, valid-type]
        watch: Watch | None = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.watch = Watch(pl_module.get_submodule(part), every, **options)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            before = 0 if self.watch is None else len(self.watch._records)
            records = [] if self.watch is None else self.watch.collect()
            if len(records) > before:
                pl_module.log_dict(records[-1].scalars())

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self.watch is not None:
                self.watch.close()

    return GradientWatch()


def _class(module: str, name: str) -> type:
    import importlib

    try:
        base: type = getattr(importlib.import_module(module), name)
    except ImportError as error:
        library = module.partition(".")[0]
        raise MissingExtraError(f"{library} is needed for this callback: pip install {library}") from error
    return base
