"""Results of earlier decisions: originals, rollbacks, tracking of moves, restores. Pure."""
