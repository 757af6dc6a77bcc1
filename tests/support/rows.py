"""Rows of an instant query, as `prometheus/client.py` hands them on."""

from __future__ import annotations

from collections.abc import Mapping

from slopewise.adapters.prometheus.client import Row


def row_of(labels: Mapping[str, str], value: float) -> Row:
    """A row that was evaluated at no moment in particular."""
    return Row(dict(labels), (0.0, value))
