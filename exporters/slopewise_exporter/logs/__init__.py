"""Reads the logs of trainings: bytes in, loss and progress out.

    splitter, parser, tracker = LineSplitter(), LineParser(), Tracker(reporter)
    for line in splitter.feed(block):
        found = parser.parse(line)
        if found is not None:
            tracker.take(found)

`splitter` makes lines of blocks of bytes, `parser` finds numbers in a line (by `json_lines`, `bars`, `text` or the
`patterns` of the user, with the `names` that they have), and `tracker` makes calls of a `Reporter` of them: steps done,
and the plan from epochs and batches. Nothing here reads a file.
"""

from slopewise_exporter.logs.found import Found
from slopewise_exporter.logs.parser import LineParser
from slopewise_exporter.logs.patterns import PatternError
from slopewise_exporter.logs.splitter import LineSplitter
from slopewise_exporter.logs.tracker import Tracker

__all__ = ["Found", "LineParser", "LineSplitter", "PatternError", "Tracker"]
