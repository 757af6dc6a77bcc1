"""The simulator: the real pass over a simulated world.

`scenario.py` reads what a user wrote, `workload.py` draws one `Instance` of it from a seed, `engine.py` runs the pass
over `world.py` until all jobs have ended, `measures.py` turns a `RunOutcome` into figures, `sweep.py` (with
`workers.py`) does that for many seeds and policies and yields `results.py`, which `table.py` and `report.py` show.
Nothing in here decides anything: that is `controller/reconcile.py`.
"""
