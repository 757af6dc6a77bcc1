"""`slopewise-exporter tail FILE|-|DIR`: follows what a training writes and serves it as metrics."""

from __future__ import annotations

import sys
from collections.abc import Sequence

SUMMARY = "follow a training's log or run folder and report for it"


def main(arguments: Sequence[str]) -> int:
    """Not built yet."""
    sys.stderr.write("slopewise-exporter tail: not built yet\n")
    return 2
