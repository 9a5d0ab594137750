"""A watch inside other people's loops: `transformers.Trainer` and Lightning, each imported on use."""

from __future__ import annotations

from typing import Any

from plait.errors import MissingExtraError
from plait.gradients.watch import Watch

__all__ = ["lightning_callback", "trainer_callback"]


def trainer_callback(every: int = 100, **options: Any) -> Any:
    """A `transformers.TrainerCallback` that watches the model being trained.

    `Trainer(..., callbacks=[trainer_callback(every=100)])`. What was seen is in its `watch`, and the newest
    numbers are added to what the Trainer logs.
    """
    base = _class("transformers", "TrainerCallback")

    class GradientWatch(base):  # type: ignore[misc, valid-type]
        watch: Watch | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.watch = Watch(given["model"], every, **options)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
            seen = self.watch.collect() if self.watch is not None else []
            if seen and logs is not None:
                logs.update(seen[-1].scalars())  # what the callbacks after this one write
                if state.log_history:
                    state.log_history[-1].update(seen[-1].scalars())

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if self.watch is not None:
                self.watch.close()

    return GradientWatch()


def lightning_callback(every: int = 100, **options: Any) -> Any:
    """A Lightning `Callback` that watches the module being trained, or its part named by `module=`.

    `Trainer(..., callbacks=[lightning_callback(every=100)])`. What was seen is in its `watch`, and the newest
    numbers are logged by the module. A LightningModule is called as a whole only if its `training_step` calls
    `self(...)`; where it calls a part of itself, name that part: `module="model"`.
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
            before = 0 if self.watch is None else len(self.watch._seen)
            seen = [] if self.watch is None else self.watch.collect()
            if len(seen) > before:
                pl_module.log_dict(seen[-1].scalars())

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self.watch is not None:
                self.watch.close()

    return GradientWatch()


def _class(module: str, name: str) -> type:
    import importlib

    try:
        found: type = getattr(importlib.import_module(module), name)
    except ImportError as error:
        library = module.partition(".")[0]
        raise MissingExtraError(f"{library} is needed for this callback: pip install {library}") from error
    return found
