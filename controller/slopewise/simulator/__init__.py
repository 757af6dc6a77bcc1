"""Simulates a cluster and its training jobs under the real pass.

`scenario/` reads what a user wrote, `workload.py` draws one `Instance` of it from a seed, `engine.py` runs the pass
over `world/` until all jobs have ended, `sweep.py` (with `workers.py`) does that for many seeds and policies, and
`results/` measures the `RunOutcome`s and shows the figures.
Nothing in here decides anything: that is `controller/slopewise/reconcile.py`.
"""
