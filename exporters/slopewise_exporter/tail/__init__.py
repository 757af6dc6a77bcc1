"""Follows what a training writes, for `slopewise-exporter tail`: logs, CSV files, event files, run folders.

`opening` finds out which `source` a path is: `log_source` (over `followed_file`), `csv_source`,
`tensorboard_source`, `mlflow_source` or `wandb_source`, or the newest of several. `follower` polls it, hands what is
found to a `Tracker`, keeps its state, and ends the training that it serves.
"""
