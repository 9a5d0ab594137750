"""Training: the supervised loop and the policy learner, both resumable after a kill; run descriptions.

Import what you need from its modules: `plait.lab.training.fit.fit` (also `plait.fit`),
`plait.lab.training.session.load` (also `plait.load`), `plait.lab.training.recipe.Recipe`. The package itself
imports nothing, so that the help of a command does not load torch.
"""
