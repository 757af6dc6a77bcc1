"""Workloads, jobs and their facts, from pods."""
