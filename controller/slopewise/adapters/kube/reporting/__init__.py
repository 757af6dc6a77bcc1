"""Reports passes and moves: statuses, events and history."""
