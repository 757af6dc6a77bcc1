"""What disruption budgets have against ending pods together, asked before anything is done.

Before it: `suspending.py`, which ends all pods of a Job at once, and nobody else asks the budgets about that; and
`evictions.py`, which moves a workload whole or not at all. After it: `evicting.py`, for an eviction of each pod as a
dry run, which is the API server's own answer. For several pods that is not enough: a budget that allows one disruption
says yes to each of four. So the budgets themselves are read, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from controller.adapters.kube.api_error import ApiError
from controller.adapters.kube.contracts import Api, Json
from controller.adapters.kube.evicting import COMPONENT, Refused, evict
from controller.adapters.kube.paths import path_of
from controller.adapters.kube.records import PodRecord
from controller.settings import LabelSelector


def refusal(api: Api, pods: Sequence[PodRecord]) -> Refused | None:
    """Why these pods, all of one namespace, must not end at once; None: nothing is against it."""
    for pod in pods:
        refused = evict(api, pod, dry_run=True)
        if refused is not None and not refused.gone:
            return refused
    return _refused_together(api, pods) if len(pods) > 1 else None


def _refused_together(api: Api, pods: Sequence[PodRecord]) -> Refused | None:
    try:
        found = api.get(path_of("policy/v1", "poddisruptionbudgets", pods[0].namespace))
    except ApiError as error:
        if error.is_forbidden:
            return Refused("infeasible", f"our account may not read PodDisruptionBudgets; {COMPONENT}", "rule")
        return Refused("failed", f"its PodDisruptionBudgets cannot be read ({error.message})", "trouble")
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
