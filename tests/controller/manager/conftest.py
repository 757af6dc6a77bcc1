"""A cluster in the test's own process: without pods, with one, and with a controller that leads in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.replicas import SHARE, RunningReplica, Town, wait_for


@pytest.fixture
def empty_town() -> Iterator[Town]:
    with Town() as town:
        yield town


@pytest.fixture
def town(empty_town: Town) -> Town:
    """With the pod `a`."""
    empty_town.pod()
    return empty_town


@pytest.fixture
def replica(town: Town) -> Iterator[RunningReplica]:
    with town.replica() as replica:
        yield replica


@pytest.fixture
def leader(town: Town, replica: RunningReplica) -> RunningReplica:
    """One that has given the pod its share."""
    town.policy()
    wait_for(lambda: town.limit() == SHARE, "the pod gets its share", town)
    return replica
