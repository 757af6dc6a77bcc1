"""Empty: the status of a TrainJob is no longer read. The import rules in pyproject.toml name this module."""
