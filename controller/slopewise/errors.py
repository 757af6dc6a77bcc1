"""The errors that this project raises on purpose. A message contains what is wrong, where, and what to do.

`UsageError` ends the command with exit code 2, `DataSourceError` with 4, any other `SlopewiseError` with 1.
"""

from __future__ import annotations


class SlopewiseError(Exception):
    """Base of all errors of this project."""

    exit_code = 1


class UsageError(SlopewiseError):
    """The user's input cannot be used: a flag, a policy file, a jobs file."""

    exit_code = 2


class MissingToolError(SlopewiseError):
    """A program or a right that this command needs is not there; the message says what to install or grant."""


class DataSourceError(SlopewiseError):
    """Prometheus cannot be reached, or its answer cannot be trusted."""

    exit_code = 4


class ObservationError(DataSourceError):
    """The pass could not observe, so nothing may be changed. The message becomes `PassReport.held`."""


class PolicyError(SlopewiseError):
    """A policy failed or gave an unusable answer, so nothing may be changed. The message becomes `PassReport.held`."""


class ActuationError(SlopewiseError):
    """One resize, move or restore could not be carried out; the others continue."""
