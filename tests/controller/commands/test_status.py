"""`slopewise status` against an API server."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.api_server import ApiServer, refusal
from support.command_line import slopewise
from support.stored import condition, put_growth, put_lease

from slopewise.adapters.kube.state.training_policies import policy_path


def put_policy(server: ApiServer, name: str = "default", *conditions: dict[str, str], **jobs: Any) -> None:
    spec = {"mode": "Auto", "policy": {"name": "flowcon"}, "placement": {"name": "specon"}}
    status = {"jobs": {"total": 0, **jobs}, "conditions": conditions}
    server.put(policy_path(), {"metadata": {"name": name}, "spec": spec, "status": status})


def printed(reach: tuple[str, str], *more: str) -> str:
    ended = slopewise("status", *reach, *more)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_who_leads_the_policies_the_jobs_and_what_somebody_should_look_at(
    server: ApiServer, reach: tuple[str, str]
) -> None:
    put_lease(server, 3)
    ready = condition("Ready", "True", "ModeAuto")
    put_policy(server, "default", ready, total=3, byClass={"NL": 2, "CL": 1})
    put_policy(server, "broken", condition("Ready", "False", "InvalidSpec", "spec.policy.name: there is no policy x"))
    no_loss = condition("MetricsAvailable", "False", "NoTarget", "no target \x1b[31mfor it")
    put_growth(server, "a", state="Training", job_class="NL", conditions=[condition("Managed", "True", "Managed")])
    put_growth(server, "b", state="Training", job_class="NL", conditions=[no_loss])
    only_recommends = condition("Managed", "False", "ModeRecommend", "mode")
    put_growth(server, "c", state="Training", job_class="CL", conditions=[no_loss, only_recommends])
    text = printed(reach)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert re.fullmatch(r"leader: controller-0, renewed ([3-9]|[1-5]\d) s ago", lines[0])
    assert lines[1].startswith("POLICY MODE DECIDES BY READY JOBS CLASSES")
    assert lines[2] == "broken Auto flowcon+specon False 0 –"
    assert lines[3] == "default Auto flowcon+specon True 3 2 NL, 1 CL"
    assert lines[4] == "3 workloads: 3 Training; 2 NL, still learning; 1 CL, hardly growing"
    attention = " ".join(lines[5:])
    assert "Ready (InvalidSpec), policy broken: spec.policy.name: there is no policy x" in attention
    assert "MetricsAvailable (NoTarget), team-a/b, team-a/c: no target" in attention
    assert "ModeRecommend" not in attention
    assert "\x1b" not in text

    facts = json.loads(printed(reach, "-o", "json"))
    assert facts["workloads"] == {"total": 3, "byState": {"Training": 3}, "byClass": {"NL": 2, "CL": 1}}
    assert [each["reason"] for each in facts["attention"]] == ["InvalidSpec", "NoTarget"]
    assert [each["name"] for each in facts["policies"]] == ["broken", "default"]


@pytest.mark.parametrize("seconds_ago", [None, 3600])
def test_without_a_leader_it_says_so(seconds_ago: float | None, server: ApiServer, reach: tuple[str, str]) -> None:
    if seconds_ago is not None:
        put_lease(server, seconds_ago)
    assert printed(reach).splitlines()[0].startswith("leader: none; no controller runs")


def test_a_lease_that_may_not_be_read_hides_nothing_else(server: ApiServer, reach: tuple[str, str]) -> None:
    put_policy(server)
    server.fault(refusal(403, "Forbidden", "leases is forbidden"), path="/leases")
    lines = printed(reach).splitlines()
    assert lines[0] == "leader: not known (no right to read leases in slopewise-system)"
    assert "flowcon+specon" in lines[2]


def leader_in_team_a(reach: tuple[str, str], *more: str) -> str:
    return printed(reach, "--namespace", "team-a", *more).splitlines()[0]


def test_one_namespace_is_managed_by_its_own_controller_else_by_that_of_the_cluster(
    server: ApiServer, reach: tuple[str, str]
) -> None:
    assert leader_in_team_a(reach).startswith("leader: none; no controller runs")
    put_lease(server, 3)
    assert leader_in_team_a(reach).startswith("leader: controller-0, renewed")
    put_lease(server, 3600, "gone-0", "team-a")
    assert leader_in_team_a(reach).startswith("leader: controller-0, renewed")
    put_lease(server, 3, "of-team-0", "team-a")
    assert leader_in_team_a(reach).startswith("leader: of-team-0, renewed")


def test_only_the_named_namespace_is_searched_for_the_lease(server: ApiServer, reach: tuple[str, str]) -> None:
    put_lease(server, 3)
    named = leader_in_team_a(reach, "--lease-namespace", "team-a")
    assert named.startswith("leader: none; no controller runs")


def test_one_namespace_is_shown_without_any_right_in_the_cluster(server: ApiServer, reach: tuple[str, str]) -> None:
    put_policy(server)
    put_growth(server, "a", state="Training", job_class="NL")
    server.fault(refusal(403, "Forbidden", "leases is forbidden"), path="/slopewise-system/leases", times=2)
    server.fault(refusal(403, "Forbidden", "trainingpolicies is forbidden"), path="/trainingpolicies", times=2)
    lines = printed(reach, "--namespace", "team-a").splitlines()
    assert lines[:2] == [
        "leader: not known (no right to read leases in slopewise-system)",
        "policies: not known (no right to list trainingpolicies in the cluster)",
    ]
    assert lines[2].startswith("1 workload: 1 Training")
    facts = json.loads(printed(reach, "--namespace", "team-a", "-o", "json"))
    assert (facts["policies"], facts["policiesTrouble"], facts["workloads"]["total"]) == (
        [],
        "no right to list trainingpolicies in the cluster",
        1,
    )


def test_an_empty_cluster_says_what_to_do(reach: tuple[str, str]) -> None:
    text = " ".join(printed(reach).split())
    assert "there is no TrainingPolicy; apply one" in text
    assert 'no workload is managed; label its pods slopewise.dev/managed: "true"' in text


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("status",), "trainingpolicies"),
        (("status",), "jobgrowths"),
        (("top",), "jobgrowths"),
        (("explain", "train"), "jobgrowths"),
        (("history", "-o", "csv"), "jobgrowths"),
    ],
)
def test_what_may_not_be_read_is_named_and_the_exit_code_is_4(
    command: tuple[str, ...], what: str, server: ApiServer, reach: tuple[str, str]
) -> None:
    server.fault(refusal(403, "Forbidden", f"{what} is forbidden"), path=f"/{what}", times=9)
    ended = slopewise(*command, *reach)
    assert ended.returncode == 4
    assert "cannot be read" in ended.stderr


def test_a_policy_that_somebody_has_written_nonsense_into_is_listed(server: ApiServer, reach: tuple[str, str]) -> None:
    server.put(policy_path(), {"metadata": {"name": "odd"}, "spec": None, "status": {"conditions": "none"}})
    assert "odd" in printed(reach)
