"""Results of a sweep: measures, table, charts and HTML page."""
