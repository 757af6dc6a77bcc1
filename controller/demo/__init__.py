"""`slopewise demo`: real trainings, a real Prometheus and the real loop, on this machine.

`trainings/` are the built-in jobs, `runner.py` runs one policy over them, `results.py` is what a run yields,
`table.py` and `report.py` show it. The controller proper imports nothing of this package.
"""
