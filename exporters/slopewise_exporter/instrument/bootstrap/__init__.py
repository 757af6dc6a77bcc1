"""A folder for PYTHONPATH: Python loads its `sitecustomize` when it starts."""
