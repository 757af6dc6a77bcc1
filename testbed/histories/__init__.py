"""Reads what happened on a cluster as one history, and finds the events in it that contradict each other.

`python -m testbed.histories FOLDER` reads a folder (`reading.py`) and checks the rules of `check.py`: `cpu.py` has
those of resizes, originals and leases, `memory.py`, `freezes.py`, and `moves.py` those of consent, waiting pods and
trainings.
"""
