"""`slopewise-exporter run -- COMMAND`: starts a training and reports for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

SUMMARY = "start a training and report for it"


def main(arguments: Sequence[str]) -> int:
    """Not built yet."""
    sys.stderr.write("slopewise-exporter run: not built yet\n")
    return 2
