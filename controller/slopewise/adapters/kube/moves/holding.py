"""Empty: no gated pod is held back any more. The import rules in pyproject.toml name this module."""
