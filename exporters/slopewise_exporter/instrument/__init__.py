"""Reports a training without a change of its code: import hooks for frameworks, and its output for the rest.

`slopewise-exporter run -- COMMAND` and `SLOPEWISE_EXPORTER=1` start it (`bootstrap`, `slopewise_exporter.pth`). In the
process of the training, `imports` calls `frameworks` after the import of each framework, and `printed` follows what is
printed; both report through `training`. A command that is no Python is followed by a parent (`wrapper`). `claim` keeps
all processes of one training but one from reporting.
"""
