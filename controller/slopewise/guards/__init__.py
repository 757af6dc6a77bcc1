"""Guards: vetoes and clamps of resizes and moves."""
