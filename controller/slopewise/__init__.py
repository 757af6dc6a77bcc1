"""Slopewise: gives CPU to the training jobs whose loss is still falling."""

__version__ = "0.1.0"
