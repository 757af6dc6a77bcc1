"""`run --local`: the composition root of one machine, its live table, logs and result."""
