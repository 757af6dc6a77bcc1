"""Trainings without a line of Slopewise and without a number of threads: scripts that the demo starts by their path."""
