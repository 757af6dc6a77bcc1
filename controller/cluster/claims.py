"""Which policies there are, which of them can be obeyed, and which pods are whose.

Before it: the watches. After it: `leading.py` (the policies) and each `runner.py` (its pods). A policy that cannot be
obeyed has no pods: a younger one that selects them manages them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from controller.adapters.kube.policies import Claims, PolicyRecord, claim_pods
from controller.cluster.watches import Watches
from controller.documents import interval_mistake


def checked(record: PolicyRecord, scrape_interval_seconds: float) -> PolicyRecord:
    """The same, without its document and with a sentence where it would look more often than trainers are scraped."""
    if record.document is None:
        return record
    mistake = interval_mistake(record.document, scrape_interval_seconds)
    if mistake is None:
        return record
    why = f"TrainingPolicy {record.name}: {mistake}, or scrape more often (--scrape-interval)."
    return replace(record, document=None, invalid=why)


class ClaimKeeper:
    """Which policy manages which pod, worked out again only when something of it has changed."""

    def __init__(self, watches: Watches, file_policy: PolicyRecord | None, scrape_interval_seconds: float) -> None:
        """`file_policy`: the one policy, where it came as a file."""
        self._watches = watches
        self._file_policy = None if file_policy is None else (file_policy,)
        self._scrape_interval_seconds = scrape_interval_seconds
        self._checked: tuple[tuple[PolicyRecord, ...], tuple[PolicyRecord, ...]] = ((), ())
        self._known: tuple[tuple[object, ...], Claims] | None = None

    def policies(self) -> tuple[PolicyRecord, ...]:
        """All policies as they are now, also those that are being deleted or cannot be obeyed; which say why.

        The same tuple until something changes.
        """
        if self._file_policy is not None:
            return self._file_policy
        there = () if self._watches.policies is None else self._watches.policies.items()
        if there is not self._checked[0]:
            self._checked = (there, tuple(checked(record, self._scrape_interval_seconds) for record in there))
        return self._checked[1]

    def current(self) -> Claims:
        """Each pod's policy. A store hands out the same tuple until something changes, so looking is cheap."""
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
        if store is None:  # their labels may not be read: only a selector that asks for none selects
            return {pod.namespace: {} for pod in self._watches.pods.items()}
        return {each.name: each.labels for each in store.items()}

    def _nodes(self) -> Mapping[str, Mapping[str, str]]:
        store = self._watches.nodes
        if store is None:
            return {pod.node: {} for pod in self._watches.pods.items() if pod.node is not None}
        return {each.name: each.labels for each in store.items()}
