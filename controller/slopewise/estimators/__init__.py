"""Estimates growth, pace and the range of a loss from what was observed. Pure."""
