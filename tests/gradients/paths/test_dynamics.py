"""Steps of one's own: what a step that attends to nothing is handed."""

import torch

from plait.gradients.paths import Dynamics


def test_a_step_that_attends_to_nothing_is_handed_no_state():
    handed = []

    def context(m, mixed, held):
        handed.append(tuple(held.shape))
        return held.sum(0)

    begin = torch.zeros(3)
    Dynamics(lambda m, mixed: mixed + m, context, lambda s, c: (s + c) / 2, [[], [1, 2]], begin).run()
    assert handed == [(0, 3), (2, 3)]
