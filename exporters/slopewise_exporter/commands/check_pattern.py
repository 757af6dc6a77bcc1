"""`slopewise-exporter check-pattern FILE`: shows line by line what is found in a log."""

from __future__ import annotations

import sys
from collections.abc import Sequence

SUMMARY = "show line by line what is found in a log"


def main(arguments: Sequence[str]) -> int:
    """Not built yet."""
    sys.stderr.write("slopewise-exporter check-pattern: not built yet\n")
    return 2
