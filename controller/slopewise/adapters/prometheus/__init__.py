"""Reads losses, progress and CPU from Prometheus."""
