"""The lab: tasks, training, runs, experiments, reports and the command line. Needs `pip install "plait[lab]"`.

The library (`plait.models`, `plait.gradients`, …) does not know this package.
"""
