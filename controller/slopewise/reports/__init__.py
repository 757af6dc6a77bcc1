"""Rendering that the demo, the simulator and `run --local` share: texts, cells, tables, charts and the HTML page."""
