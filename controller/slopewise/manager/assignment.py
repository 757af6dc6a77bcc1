"""Assigns pods to TrainingPolicies, and validates the policies.

`manager/leader.py` reads the policies, and each `policy_runner.py` its pods. An invalid policy has no pods: a younger
one that selects them manages them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slopewise.adapters.kube.state.training_policies import Claims, PolicyRecord, claim_pods
from slopewise.adapters.kube.watches import Watches
from slopewise.config.pass_settings import interval_mistake, with_interval


def checked(record: PolicyRecord, scrape_interval_seconds: float) -> PolicyRecord:
    """The record with its interval; invalid, with a message, where that is shorter than the scrape interval."""
    if record.document is None:
        return record
    mistake = interval_mistake(record.document, scrape_interval_seconds)
    if mistake is None:
        return replace(record, document=with_interval(record.document, scrape_interval_seconds))
    reason = f"TrainingPolicy {record.name}: {mistake}, or scrape more often (--scrape-interval)."
    return replace(record, document=None, invalid=reason)


class PolicyAssignment:
    """Which policy manages which pod, computed again only when an input has changed."""

    def __init__(self, watches: Watches, file_policy: PolicyRecord | None, scrape_interval_seconds: float) -> None:
        """`file_policy`: the one policy, where it came as a file."""
        self._watches = watches
        self._file_policy = None if file_policy is None else (file_policy,)
        self._scrape_interval_seconds = scrape_interval_seconds
        self._checked: tuple[tuple[PolicyRecord, ...], tuple[PolicyRecord, ...]] = ((), ())
        self._known: tuple[tuple[object, ...], Claims] | None = None

    def policies(self) -> tuple[PolicyRecord, ...]:
        """All current policies, also invalid ones and those that are being deleted.

        The same tuple until something changes.
        """
        if self._file_policy is not None:
            return self._file_policy
        there = () if self._watches.policies is None else self._watches.policies.items()
        if there is not self._checked[0]:
            self._checked = (there, tuple(checked(record, self._scrape_interval_seconds) for record in there))
        return self._checked[1]

    def current(self) -> Claims:
        """Each pod's policy. A store returns the same tuple until something changes, so a call is cheap."""
        watches, policies = self._watches, self.policies()
        seen = (
            policies,
            watches.pods.items(),
            () if watches.namespaces is None else watches.namespaces.items(),
            () if watches.nodes is None else watches.nodes.items(),
        )
        known = self._known
        if known is None or any(now is not before for now, before in zip(seen, known[0], strict=True)):
            known = (seen, claim_pods(policies, watches.pods.items(), self._namespaces(), self._nodes()))
            self._known = known
        return known[1]

    def _namespaces(self) -> Mapping[str, Mapping[str, str]]:
        store = self._watches.namespaces
        if store is None:  # their labels may not be read: only an empty selector selects
            return {pod.namespace: {} for pod in self._watches.pods.items()}
        return {each.name: each.labels for each in store.items()}

    def _nodes(self) -> Mapping[str, Mapping[str, str]]:
        store = self._watches.nodes
        if store is None:
            return {pod.node: {} for pod in self._watches.pods.items() if pod.node is not None}
        return {each.name: each.labels for each in store.items()}
