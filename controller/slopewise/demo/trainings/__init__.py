"""The built-in jobs of `slopewise demo`: eight really different trainings on real data that is on the machine.

`python -m slopewise.demo.trainings NAME [--steps N] [--seed S]` is one job: `catalogue.py` says which there
are, `numpy_trainings.py` and `sklearn_trainings.py` hold a `Learner` for each, `_loop.py` drives it and reports.
Nothing of the controller runs in these processes, and they know nothing of it: they are what a user's own jobs would
be.
"""
