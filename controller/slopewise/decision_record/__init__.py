"""The decision record: one JSON line a pass, with all of its inputs and results, which `slopewise replay` runs again.

`docs/decision-record.md` documents the lines. `recorder` writes them, `files` bounds them on disk, `reader` reads them
and `replay` runs the passes again on them.
"""
