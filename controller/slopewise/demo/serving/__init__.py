"""The served models of `slopewise demo`: real classifiers behind HTTP, each under a load that never pauses.

`python -m slopewise.demo.serving NAME --seconds S` is one job: `catalogue.py` says which there are, `models.py`
fits one, `server.py` answers requests and exports how long each took, `load.py` is the one client of each.
`open_loop.py` is a client at a fixed rate, elsewhere; `worker.py` makes a model hang or fail where a test asks for it.
`calibration.py` finds out what a request costs on this machine, from which the objectives follow.
"""
