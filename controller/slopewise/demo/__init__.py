"""`slopewise demo`: compares policies over real trainings on this machine, with a real Prometheus and the real loop.

`trainings/` and `serving/` are the built-in jobs, `runner.py` runs one policy over them, `report/` shows what came of
it. The controller proper imports nothing of this package.
"""
