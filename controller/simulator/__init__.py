"""The simulator: the real pass over a simulated world.

`scenario.py` reads what a user wrote, `workload.py` draws one `Instance` of it from a seed, `engine.py` runs the pass
over `world.py` until all jobs have ended, `measures.py` turns a `RunOutcome` into figures, `sweep.py` does that for
many seeds and policies, `report.py` shows them. Nothing in here decides anything: that is `controller/reconcile.py`.
"""
