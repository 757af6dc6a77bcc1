"""The replication: every published setting run through the simulator, its figures beside the printed ones.

`settings_*.py` say what was published (a `Setting` holds a scenario, a baseline and `Claim`s), `run.py` runs all of it
over many seeds, `page.py` and `plots.py` write `docs/replication.md` and its pictures. `make replicate` does it.
"""
