"""Stored state: statuses of JobGrowths and TrainingPolicies."""
