"""Decides whether an evicted pod is recreated behind our gate, without a failure counted against its owner. Pure.

`moves/owner_cache.py` checks every pod that may be moved, and `moves/eviction.py` checks again with the owner's current
state. A pod that is not recreated is never evicted. `suspend/begin.py` checks whether a suspended Job would fail
(`failed_when_ended_reason`).

Conditions (Kubernetes 1.36):

- Its direct owner makes a new pod once the old one has ended: a Job or a StatefulSet. A ReplicaSet makes it at once,
  and two processes would write one checkpoint.
- The owner's template carries the gate `slopewise.dev/place`; otherwise the scheduler places the new pod first.
- A Job does not count the eviction as a failure. That takes `restartPolicy: Never` and a rule of `podFailurePolicy`
  that ignores `DisruptionTarget`, before every other rule that such a pod would meet: the first match decides, and a
  trainer that saved ends with 143 (SIGTERM), one that did not with 137 (SIGKILL).
"""

from __future__ import annotations

from collections.abc import Iterable

from slopewise.adapters.kube.cache.records import PLACE_GATE
from slopewise.adapters.kube.client.protocol import Json

EVICTABLE = ("Job", "StatefulSet")
"""The kinds of owners that recreate a pod only after its end."""

_DISRUPTION = "DisruptionTarget"
_ENDS_WITH = (143, 137)
_JOB_CONTROLLER = "kubernetes.io/job-controller"

_ADD_RULE = "add podFailurePolicy with action Ignore on DisruptionTarget as its first rule"


def not_recreated_reason_of(kind: str, owner: Json, pod_name: str = "") -> str | None:
    """Why a pod of this owner must not be evicted; None: it is recreated, gated, and no failure is counted.

    `owner` is the pod's direct controlling owner as the API server has it. Without `pod_name`: of any pod of it.
    """
    if kind not in EVICTABLE:
        return f"a {kind} does not bring it back one after the other; run it as a Job or a StatefulSet"
    if (reason := ended_reason(kind, owner, pod_name) or _ungated(kind, owner["spec"]["template"]["spec"])) is not None:
        return reason
    return _counting_job(owner) if kind == "Job" else None


def failed_when_ended_reason(job_spec: Json) -> str | None:
    """Why suspending a Job may fail it finally; None: it does not.

    The Job controller applies `FailJob` to every failed pod that it still sees, also to those of a suspended Job. Such
    pods carry no `DisruptionTarget`, so an Ignore rule for that does not help here.
    """
    rules = (job_spec.get("podFailurePolicy") or {}).get("rules") or ()
    for code in _ENDS_WITH:
        first = next((number for number, rule in enumerate(rules) if _fits_exit_code(rule, (code,))), None)
        if first is not None and rules[first].get("action") == "FailJob":
            return (
                f"rule {first} of its Job's podFailurePolicy fails the Job when a pod that is signalled to end exits "
                f"with {code}; put a rule that ignores 143 and 137 before it"
            )
    return None


def ended_reason(kind: str, owner: Json, pod_name: str = "") -> str | None:
    """Why this owner does not replace this pod now; None: it does, as long as it needs some."""
    if "deletionTimestamp" in owner["metadata"]:
        return f"its {kind} is being deleted"
    if kind == "StatefulSet":
        return _scaled_down(owner["spec"], pod_name)
    if kind != "Job":
        return None
    if owner["spec"].get("suspend"):
        return "its Job is suspended"
    if owner["spec"].get("parallelism") == 0:
        return "its Job has parallelism: 0"
    return "its Job has ended" if is_finished(owner) else None


def _scaled_down(spec: Json, pod_name: str) -> str | None:
    """Its pods are numbered from `ordinals.start` on; those beyond `replicas` are not recreated."""
    replicas, ordinal = spec.get("replicas", 1), pod_name.rpartition("-")[2]
    first = (spec.get("ordinals") or {}).get("start", 0)
    if replicas == 0:
        return "its StatefulSet has replicas: 0"
    if ordinal.isdecimal() and int(ordinal) >= first + replicas:
        return f"its StatefulSet has replicas: {replicas}, and {pod_name} is not among them any more"
    return None


def foreign_manager(job_spec: Json) -> str | None:
    """Who runs a Job instead of Kubernetes' own controller; None: that one does."""
    manager = job_spec.get("managedBy") or _JOB_CONTROLLER
    return None if manager == _JOB_CONTROLLER else str(manager)


def _ungated(kind: str, pod_spec: Json) -> str | None:
    if any(gate.get("name") == PLACE_GATE for gate in pod_spec.get("schedulingGates") or ()):
        return None
    return f"its {kind}'s template has no scheduling gate {PLACE_GATE}, so its new pod could not be steered; add it"


def _counting_job(job: Json) -> str | None:
    spec = job["spec"]
    restarts = spec["template"]["spec"].get("restartPolicy")
    if restarts != "Never":
        return f"its Job would count an eviction as a failure (restartPolicy {restarts}); set Never, and {_ADD_RULE}"
    return _counted((spec.get("podFailurePolicy") or {}).get("rules") or ())


def _counted(rules: Iterable[Json]) -> str | None:
    """Why the rules count an eviction as a failure; they apply in order, the first match decides."""
    for number, rule in enumerate(rules):
        on_disruption = any(
            each.get("type") == _DISRUPTION and each.get("status", "True") == "True"
            for each in rule.get("onPodConditions") or ()
        )
        if rule.get("action") == "Ignore" and on_disruption:
            return None
        if rule.get("action") != "Ignore" and (on_disruption or _fits_exit_code(rule)):
            return f"rule {number} of its Job's podFailurePolicy would meet an eviction first; {_ADD_RULE}"
    return f"its Job would count an eviction as a failure; {_ADD_RULE}"


def _fits_exit_code(rule: Json, ends_with: Iterable[int] = _ENDS_WITH) -> bool:
    codes = rule.get("onExitCodes")
    if not codes:
        return False
    named = set(codes.get("values") or ())
    return any((code in named) == (codes.get("operator") == "In") for code in ends_with)


FAILED = ("Failed", "FailureTarget")
FINISHED = ("Complete", "SuccessCriteriaMet", *FAILED)


def is_finished(job: Json) -> bool:
    """Whether it has ended, or is about to."""
    return has_condition(job, FINISHED)


def ends_with_failure(job: Json) -> bool:
    """Whether it has failed finally, or is about to."""
    return has_condition(job, FAILED)


def has_condition(job: Json, kinds: tuple[str, ...]) -> bool:
    """Whether one of these conditions is true."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] in kinds and each["status"] == "True" for each in conditions)
