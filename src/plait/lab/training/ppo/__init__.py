"""Proximal policy optimisation with any of the library's layers as the agent's memory.

`fit.fit_policy` trains, `rollout.evaluate_policy` scores, `policy.load_policy` reads a run folder.
"""
