"""Results of a sweep: measures, table and HTML page."""
