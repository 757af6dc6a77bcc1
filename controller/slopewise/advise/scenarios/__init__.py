"""Reads jobs of the past, and makes scenarios of the simulator of them."""
