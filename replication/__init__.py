"""The replication: every published setting run through the simulator, its figures beside the printed ones.

`settings_*.py` say what was published (a `Setting` holds a scenario, a baseline and `Claim`s), `run.py` runs all of it
over many seeds, `page.py` and `plots.py` write `replication/papers.md` and its pictures. `make replicate` does it.

`comments.py` says what to make of the figures, and a cause only with the rows and columns that show it. A cause is
tried with a `Variant` that has another `scenario` or other parameters, in `settings_causes.py`.
"""
