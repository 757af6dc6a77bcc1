"""Moves Jobs by suspending them, pinning their template to a node, and resuming them."""
