"""Rows of an instant query, as `prometheus_http.py` hands them on."""

from __future__ import annotations

from collections.abc import Mapping

from controller.adapters.prometheus_http import Row


def row_of(labels: Mapping[str, str], value: float) -> Row:
    """A row that was evaluated at no moment in particular."""
    return Row(dict(labels), (0.0, value))
