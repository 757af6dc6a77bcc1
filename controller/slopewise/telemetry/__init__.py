"""Metrics and log lines of passes."""
