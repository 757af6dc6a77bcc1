"""Every error this project raises on purpose. Each message is a sentence: what is wrong, where, what to do.

`UsageError` ends the command with exit code 2, `DataSourceError` with 4, any other `SlopewiseError` with 1.
"""

from __future__ import annotations


class SlopewiseError(Exception):
    """Base of all our errors."""

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
    """This pass could not see the world: nothing may be changed. The message becomes the pass's `held` reason."""


class PolicyError(SlopewiseError):
    """A policy failed, or its answer cannot be used: nothing may be changed. The message becomes the pass's `held`."""


class ActuationError(SlopewiseError):
    """One resize could not be carried out; the others go on."""
