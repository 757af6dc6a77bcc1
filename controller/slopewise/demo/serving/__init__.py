"""The served models of `slopewise demo`: real classifiers behind HTTP, each under a load that never pauses.

`python -m slopewise.demo.serving NAME --seconds S` is one job: `catalogue.py` says which there are, `models.py`
fits one, `server.py` answers requests, exports how long each took, and sends them.
"""
