"""Resizes pods in place, by `pods/resize`."""
