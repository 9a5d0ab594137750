"""The lab: tasks, training, runs, experiments, reports and the command line.

It needs more than the library does: `pip install "plait[lab]"`.

The library (`plait.models`, `plait.gradients`, …) does not know this package.
"""
