"""Scenarios: loads and validates what a user wants to simulate."""
