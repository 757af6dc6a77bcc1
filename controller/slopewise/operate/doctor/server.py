"""Checks of the API server: answer, version, kubelets, clocks, policies and leader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from slopewise.adapters.kube.cache.reflector import objects
from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.client.protocol import Api, Json, path_of
from slopewise.adapters.kube.state.training_policies import PolicyRecord, parse_policy, policy_path
from slopewise.operate.doctor.findings import Finding, grouped
from slopewise.operate.status import leader_line, read_leader
from slopewise.reports.wording import counted, listed

RESIZES_FROM = (1, 35)
"""The first version in which resizing a pod in place is a stable part of Kubernetes."""

CLOCK_NOTE_SECONDS, CLOCK_FAILS_SECONDS = 5.0, 60.0
"""A scrape is 15 s: within 5 s nothing is misjudged. From 60 s on samples are stale, and leases count as abandoned."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def check_server(api: KubeApi) -> Iterator[Finding]:
    """Whether it answers and is new enough; the first finding says whether to go on."""
    try:
        version = api.server_version()
    except ApiError as error:
        yield Finding("API server", "unreachable", str(error), "see whether it runs, and the kubeconfig")
        return
    yield Finding("API server", "ok", f"{api.host} answers, Kubernetes {_text(version)}")
    if version < RESIZES_FROM:
        yield Finding("resize", "failed", f"Kubernetes {_text(version)} does not resize pods in place", _UPDATE)
    yield from _clock(api)


_UPDATE = f"update it to {RESIZES_FROM[0]}.{RESIZES_FROM[1]} or later"


def _clock(api: KubeApi) -> Iterator[Finding]:
    try:
        ahead = api.clock_ahead_seconds()
    except ApiError as error:
        yield Finding("clocks", "unchecked", f"the API server's clock cannot be read: {error}")
        return
    if ahead is None:
        yield Finding("clocks", "unchecked", "the API server's answers have no date")
    else:
        yield clock_finding("the API server's clock", ahead)


def clock_finding(whose: str, ahead_seconds: float) -> Finding:
    """What a difference to this machine's clock means."""
    off = abs(ahead_seconds)
    text = f"{whose} is {off:.0f} s {'ahead of' if ahead_seconds > 0 else 'behind'} this machine's"
    if off <= CLOCK_NOTE_SECONDS:
        return Finding("clocks", "ok", f"{whose} is this machine's to within {CLOCK_NOTE_SECONDS:.0f} s")
    return Finding("clocks", "failed" if off > CLOCK_FAILS_SECONDS else "note", text, "synchronise both (chrony, NTP)")


def check_nodes(api: Api) -> Iterator[Finding]:
    """Whether every kubelet is new enough to resize."""
    try:
        nodes = list(objects(api, path_of("v1", "nodes")))
    except ApiError as error:
        yield Finding("kubelets", "unchecked", f"nodes may not be read: {error}")
        return
    old = [(_name(each), _old_kubelet(each)) for each in nodes]
    found = grouped("kubelets", "failed", ((name, cause) for name, cause in old if cause))
    yield from found
    if not found and nodes:
        yield Finding("kubelets", "ok", f"{counted(len(nodes), 'kubelet')} can resize pods in place")


def _old_kubelet(node: Json) -> str:
    reported = str((node.get("status") or {}).get("nodeInfo", {}).get("kubeletVersion", ""))
    version = _VERSION.match(reported)
    if version is None or (int(version[1]), int(version[2])) >= RESIZES_FROM:
        return ""
    return f"kubelet {reported} does not resize pods in place; {_UPDATE}"


def read_policies(api: Api) -> tuple[list[Finding], list[PolicyRecord]]:
    """The TrainingPolicies, and what is wrong with them."""
    try:
        found = [parse_policy(each) for each in objects(api, policy_path())]
    except ApiError as error:
        if error.is_not_found:
            text = "the custom resources of Slopewise are not installed"
            return [Finding("policies", "failed", text, "apply manifests/crds")], []
        return [Finding("policies", "unchecked", f"the TrainingPolicies cannot be read: {error}")], []
    if not found:
        return [Finding("policies", "failed", "there is no TrainingPolicy", "apply one (examples/cluster)")], []
    invalid = [Finding("policies", "failed", each.invalid) for each in found if each.invalid is not None]
    valid = [each for each in found if each.document is not None]
    modes = [f"{each.name} ({each.document.spec.mode})" for each in valid if each.document is not None]
    return invalid or [Finding("policies", "ok", listed(modes))], valid


def check_leader(api: Api, lease_namespaces: tuple[str, ...]) -> Finding:
    """Whether a controller leads."""
    leader = read_leader(api, lease_namespaces)
    text = leader_line(leader).removeprefix("leader: ")
    if leader.trouble:
        return Finding("leader", "unchecked", text)
    return Finding("leader", "ok" if leader.holder else "failed", text)


def moves_wanted(policies: Iterable[PolicyRecord]) -> bool:
    """Whether a policy moves running jobs or places arriving ones on nodes of its choice."""
    return any(each.document is not None and each.document.spec.migration.enabled for each in policies)


def _name(obj: Json) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def _text(version: Sequence[Any]) -> str:
    return ".".join(map(str, version))
