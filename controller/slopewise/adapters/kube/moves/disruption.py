"""Checks disruption budgets before several pods are ended together.

`suspend/begin.py` ends all pods of a Job at once, which no budget restrains, and `evict/controller.py` moves a workload
whole or not at all. `moves/eviction.py` sends each eviction as a dry run first. For several pods that is not enough,
since a budget that allows one disruption grants each of four. So the budgets are read, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from slopewise.adapters.kube.cache.records import PodRecord
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.meanings import Refused, explain
from slopewise.adapters.kube.client.paths import path_of
from slopewise.adapters.kube.client.protocol import Api, Json
from slopewise.adapters.kube.moves.eviction import evict
from slopewise.config.selectors import LabelSelector


def refusal(api: Api, pods: Sequence[PodRecord]) -> Refused | None:
    """Why these pods, all of one namespace, must not end at once; None: they may."""
    for pod in pods:
        refused = evict(api, pod, dry_run=True)
        if refused is not None and not refused.gone:
            return refused
    return _refused_together(api, pods) if len(pods) > 1 else None


def _refused_together(api: Api, pods: Sequence[PodRecord]) -> Refused | None:
    try:
        found = api.get(path_of("policy/v1", "poddisruptionbudgets", pods[0].namespace))
    except ApiError as error:
        return explain(error, "list budgets")
    return next(_violated(found["items"], pods), None)


def _violated(budgets: Sequence[Json], pods: Sequence[PodRecord]) -> Iterator[Refused]:
    for budget in budgets:
        selected = sum(_selects(budget, pod) for pod in pods)
        allowed = (budget.get("status") or {}).get("disruptionsAllowed", 0)
        if selected > allowed:
            yield Refused(
                "deferred",
                f"a disruption budget says no: {budget['metadata']['name']} allows {allowed} disruptions now, and "
                f"{selected} pods would end at once",
                "budget",
            )


def _selects(budget: Json, pod: PodRecord) -> bool:
    """A selector that cannot be read counts as selecting: better no move than one too many."""
    selector = budget["spec"].get("selector")
    if selector is None:
        return False
    try:
        return LabelSelector.model_validate(selector).matches(pod.labels)
    except ValidationError:
        return True
