"""Whether anything may be changed at all: vetoes by the mode, by its share of the jobs, and by freezes."""

from __future__ import annotations

from collections.abc import Iterable

from slopewise.model import Bounds, ClusterSnapshot, Job, Veto, acts, in_canary


def paused_by_mode(bounds: Bounds) -> Veto | None:
    """A veto in a mode that changes nothing."""
    return None if acts(bounds.mode) else Veto(f"mode is {bounds.mode}, and only Canary and Auto change anything")


def not_in_canary(job_uid: str, bounds: Bounds) -> Veto | None:
    """A veto in mode Canary, for a job that is not in its share."""
    if bounds.mode != "Canary" or in_canary(job_uid, bounds.canary_ratio):
        return None
    return Veto(f"mode is Canary, and the job is not in its share of {bounds.canary_ratio:.0%}")


def under_a_freeze(snapshot: ClusterSnapshot, namespace: str, *nodes: str) -> Veto | None:
    """A veto while a freeze covers the namespace or one of the nodes; both effects withhold changes."""
    freeze = snapshot.freezes.of(namespace, *nodes)
    return None if freeze is None else Veto(freeze.message)


def one_under_a_freeze(snapshot: ClusterSnapshot, jobs: Iterable[Job]) -> Veto | None:
    """A veto while a freeze covers one of these jobs, which are changed together."""
    vetoes = (under_a_freeze(snapshot, job.namespace, job.node) for job in jobs)
    return next((veto for veto in vetoes if veto is not None), None)
