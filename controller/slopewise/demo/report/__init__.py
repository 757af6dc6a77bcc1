"""The results of a demo: the comparison of its runs as tables, charts and one HTML page."""
