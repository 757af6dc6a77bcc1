"""What a pass asks for when nothing changes: no write to a pod, no list, and a handful of queries."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs

from support import fault_stage
from support.fault_stage import Stage
from support.gateway import Request

from slopewise.adapters.kube.client.protocol import resource_of
from slopewise.decision_record.reader import read
from slopewise.decision_record.replay import replay
from slopewise.own_policies import catalogue

MAX_QUERIES = 6
PASSES = 3


def lists(request: Request) -> bool:
    """Whether it reads a collection, once; a watch is no list."""
    return request.method == "GET" and not resource_of(request.path)[1] and "watch=true" not in request.query


def test_a_pass_that_changes_nothing_writes_to_no_pod_and_asks_for_no_list(stage: Stage, tmp_path: Path) -> None:
    stage.pods("a", "b")
    policy = stage.policy()
    gateway, records = stage.gateway(), tmp_path / "records"
    controller = stage.controller(gateway, record=records)
    stage.wait_for_limits({"a": 1000, "b": 1000})
    controller.wait_for_passes(2)
    since, passes = time.monotonic(), len(controller.lines("pass completed"))

    controller.wait_for_passes(PASSES)

    assert all(line["applied"] == 0 for line in controller.lines("pass completed")[passes:])
    asked = [request for request in gateway.requests if request.at_seconds >= since]
    assert [each.kind for each in asked if lists(each) or (each.writes and "pods" in each.kind)] == []
    assert "patch pods/resize" in {request.kind for request in gateway.requests}, "the first passes did change pods"

    # The record of a real cluster gives the same decisions again, bit for bit, while the controller writes on.
    catalogue.name_file(Path(fault_stage.__file__).with_name("policies") / "even_shares.py")
    again = list(replay(read(records / f"{policy}.jsonl", lambda _: None)))
    assert len(again) >= PASSES
    assert [(each.where, each.differences) for each in again if each.differences] == []
    applied = [each for pass_ in again for each in pass_.result.decided if each.result == "applied"]
    assert {(each.action, each.after) for each in applied} >= {("resize", 1000)}


def test_a_pass_sends_six_queries_at_most_however_many_jobs_there_are(stage: Stage) -> None:
    stage.pods("a", "b", "c")
    stage.policy(policy={"name": "marginal"}, resources={"control": "requests"})
    prometheus = stage.prometheus_gateway()
    controller = stage.controller(prometheus_url=prometheus.url)

    controller.wait_for_passes(PASSES)

    by_pass = Counter(parse_qs(request.query)["time"][0] for request in prometheus.requests)
    assert len(by_pass) >= PASSES
    assert max(by_pass.values()) <= MAX_QUERIES
