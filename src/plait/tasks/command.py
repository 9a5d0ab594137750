"""`plait tasks` and `plait tasks show`."""

from __future__ import annotations

from typing import Annotated

import tyro

from plait.answer import Answer, Table

__all__ = ["list_tasks", "show_task"]


def list_tasks() -> Answer:
    """The tasks a network can be trained on, with their options."""
    from plait.tasks import TASKS

    rows = []
    for name, kind in TASKS.items():
        task = kind()
        options = ", ".join(f"{key}={value}" for key, value in task.options().items())
        what = (kind.__doc__ or "").strip().splitlines()[0]
        rows.append([name, what, options, task.input_size, task.num_classes])
    table = Table(["task", "what it asks", "options", "inputs", "classes"], rows)
    return Answer(table.records(), (table, "See one: plait tasks show copy --delay 20"))


def show_task(
    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")],
    /,
    delay: int | None = None,
    test_delays: tuple[int, ...] | None = None,
    seed: int = 0,
    width: int = 100,
) -> Answer:
    """Draw one sample of a task, so that a person can see what is asked.

    Args:
        task: copy, transfer, denoise; `plait tasks` lists them.
        delay: T, the steps to remember over; a sequence has T + 20.
        test_delays: transfer only: the delays it is tested at.
        seed: which sample.
        width: characters a line.
    """
    from plait.tasks import task_named

    chosen = task_named(task, delay=delay, test_delays=test_delays)
    picture = chosen.show(seed, max(10, width))
    chance = chosen.chance_loss
    facts = [
        f"inputs one-hot over {chosen.input_size}, {chosen.num_classes} classes",
        *([f"loss without memory {chance:.5f}"] if chance is not None else []),
        *([f"scored on {', '.join(chosen.held_out())}"] if len(chosen.held_out()) > 1 else []),
    ]
    heading = f"{task} ({', '.join(f'{k}={v}' for k, v in chosen.options().items())}): {'; '.join(facts)}"
    data = {
        "task": task,
        **chosen.options(),
        "input_size": chosen.input_size,
        "num_classes": chosen.num_classes,
        "chance_loss": chance,
        "sample": picture,
    }
    return Answer(data, (heading, "", picture))
