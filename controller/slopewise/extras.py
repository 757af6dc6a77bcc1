"""Refuses what needs an extra of the package (e.g. `slopewise[report]`) that is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from slopewise.errors import UsageError


def require(module: str, extra: str, needing: str) -> None:
    """UsageError unless `module`, which comes with `extra`, is installed; `needing`: e.g. `--report needs jinja2`."""
    if find_spec(module) is None:
        raise UsageError(f'{needing}, which is not installed; run `pip install "slopewise[{extra}]"`.')
