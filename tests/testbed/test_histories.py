"""Histories of bugs that this project had, each of which is found; and one of a good run, in which nothing is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.histories import CLUSTER, OTHER, US, Told
from support.managed_pods import NAMESPACE
from typer.testing import CliRunner

from slopewise.adapters.kube.cache.records import MANAGED_LABEL, PLACE_GATE
from slopewise.decision_record.lines import SCHEMA, Pass, Result, Settings, encode
from slopewise.decision_record.lines import Decided as DecidedLine
from slopewise.errors import UsageError
from testbed.histories.__main__ import app
from testbed.histories.check import contradictions
from testbed.histories.events import Decided, Sample, Step, Write
from testbed.histories.reading import LAST_PASS_SECONDS, read

Tale = Callable[[Told], None]
MEMORY = {"limits": "500Mi", "requests": "200Mi"}


def never_restored_when_the_label_was_set_to_false(told: Told) -> None:
    told.managed()
    told.change("pods", "a", CLUSTER, metadata={"labels": {MANAGED_LABEL: "false"}})
    told.wait(130)
    told.lease()


def its_original_forgotten_when_the_label_was_taken_off(told: Told) -> None:
    told.managed()
    told.change("pods", "a", CLUSTER, metadata={"labels": {}})
    told.store(None)


def changed_again_after_its_job_growth_was_lost(told: Told) -> None:
    told.managed()
    told.remove("jobgrowths", "a")
    told.resize("1")


def our_own_value_taken_for_the_original_after_a_restart(told: Told) -> None:
    told.managed()
    told.store("2")


def another_original_stored_than_the_pod_had(told: Told) -> None:
    told.pod()
    told.policy()
    told.store("500m")
    told.resize("2")


def restored_said_when_accepted_and_not_in_effect(told: Told) -> None:
    told.managed()
    told.delete_policy()
    raw = json.loads(json.dumps(told.objects["pods", "a"]))
    raw["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "300m"
    told.write("pods/resize", "a", raw)
    told.let_policy_go()


def a_status_by_a_process_that_was_suspended_between_its_look_at_the_lease_and_its_write(told: Told) -> None:
    told.managed()
    told.wait(20)
    told.lease(OTHER)
    told.wait(5)
    told.store(by=US)


def a_change_after_the_lease_was_handed_back(told: Told) -> None:
    told.managed()
    told.lease(US, holder="")
    told.wait(5)
    told.resize("1")


def changed_under_a_freeze_that_could_not_be_read(told: Told) -> None:
    told.managed()
    told.freeze("of a later version", name="x")
    told.wait(5)
    told.resize("1")


def restored_under_a_freeze(told: Told) -> None:
    told.managed()
    told.delete_policy()
    told.freeze("namespace", name=NAMESPACE)
    told.wait(5)
    told.resize("300m")


def suspended_under_a_freeze(told: Told) -> None:
    told.namespace()
    told.job()
    told.pod(owner="train")
    told.freeze("namespace", name=NAMESPACE)
    told.wait(5)
    told.suspend()


def evicted_where_the_namespace_does_not_opt_in(told: Told) -> None:
    told.managed()
    told.namespace("later")
    told.evict()


def suspended_where_the_namespace_does_not_opt_in(told: Told) -> None:
    told.namespace("later")
    told.job()
    told.suspend()


def a_job_restored_from_a_backup_in_mid_move_and_never_resumed(told: Told) -> None:
    told.namespace()
    told.job()
    told.suspend()
    told.wait(130)
    told.lease()


def a_pod_behind_the_gate_that_no_policy_places(told: Told) -> None:
    told.pod(schedulingGates=[{"name": PLACE_GATE}])
    told.lease()
    told.wait(160)
    told.lease()


def raised_above_the_ceiling(told: Told) -> None:
    told.managed()
    told.resize("5")


def lowered_below_the_floor(told: Told) -> None:
    told.managed()
    told.resize("200m")


def memory_changed_before_its_original_was_stored(told: Told) -> None:
    told.pod(memory=MEMORY)
    told.policy(memory="Requests")
    told.store()
    told.resize("300m", memory={**MEMORY, "requests": "100Mi"})


def a_memory_limit_lowered_below_its_original_after_a_downgrade(told: Told) -> None:
    told.pod(memory=MEMORY)
    told.policy(memory="Limits")
    told.store(memory=MEMORY)
    told.resize("300m", memory={**MEMORY, "limits": "600Mi"})
    told.resize("300m", memory={**MEMORY, "limits": "400Mi"})


def a_memory_limit_raised_by_a_policy_that_changes_requests(told: Told) -> None:
    told.pod(memory=MEMORY)
    told.policy(memory="Limits")
    told.store(memory=MEMORY)
    told.policy(memory="Requests")
    told.wait(60)
    told.resize("300m", memory={"limits": "600Mi", "requests": "100Mi"})


def an_original_of_memory_forgotten_when_only_cpu_was_restored(told: Told) -> None:
    told.pod(memory=MEMORY)
    told.policy(memory="Requests")
    told.store(memory=MEMORY)
    told.resize("300m", memory={**MEMORY, "requests": "100Mi"})
    told.store(None)


def moved_by_eviction_under_a_freeze_that_came_after_the_dry_run(told: Told) -> None:
    told.managed()
    told.freeze("node", name="node-b")
    told.wait(5)
    told.store(move={"node": "node-b", "pods": [{"uid": "uid-a", "owner": {"uid": "uid-train"}}]})


def placed_on_a_node_under_a_freeze_of_it(told: Told) -> None:
    told.pod("gated", schedulingGates=[{"name": PLACE_GATE}])
    told.freeze("node", name="node-b")
    told.wait(5)
    told.place("gated", "node-b")


def changed_in_a_mode_that_only_recommends_and_restored_when_its_policy_was_deleted(told: Told) -> None:
    told.pod()
    told.policy(mode="Recommend")
    told.store()
    told.resize("2")
    told.delete_policy()
    told.resize("300m")
    told.let_policy_go()


def changed_long_after_its_owner_took_the_label_off(told: Told) -> None:
    told.managed()
    told.change("pods", "a", CLUSTER, metadata={"labels": {MANAGED_LABEL: "false"}})
    told.wait(60)
    told.resize("1")
    told.resize("300m")


def a_policy_that_decides_no_cpu_and_leaves_what_another_changed(told: Told) -> None:
    told.managed()
    told.policy(mode="Observe")
    told.wait(130)
    told.lease()


def a_resize_reported_as_applied_that_was_refused(told: Told) -> None:
    told.managed()
    told.resize("1", code=409)
    told.decided(1000)


def a_resize_reported_as_applied_that_an_earlier_pass_did(told: Told) -> None:
    told.managed()
    told.resize("1")
    told.resize("2")
    told.wait(60)
    since = told.now
    told.resize("1", code=409)
    told.decided(1000, since=since)


def a_cgroup_that_did_not_follow(told: Told) -> None:
    told.managed()
    told.wait(15)
    told.sample(300)


def a_checkpoint_put_aside_that_was_whole(told: Told) -> None:
    told.life("one", 0, 20, saved=15)
    told.life("two", 5, 30)


def a_job_that_a_restart_started_twice(told: Told) -> None:
    told.life("one", 0, 5, saved=5)
    told.life("two", 5, 8)
    told.events.append(Step(told.now, "t", "one", "step", 6))


def steps_left_out_by_a_torn_checkpoint(told: Told) -> None:
    told.life("one", 0, 5)
    told.life("two", 9, 12)


FOUND: dict[Tale, str] = {
    never_restored_when_the_label_was_set_to_false: "restore: pod a is managed no more and has limit 2000m",
    its_original_forgotten_when_the_label_was_taken_off: "original: limit 300m, request 100m is forgotten",
    changed_again_after_its_job_growth_was_lost: "original: its original is not stored",
    our_own_value_taken_for_the_original_after_a_restart: "original: limit 2000m, request 100m, our own value",
    another_original_stored_than_the_pod_had: "original: limit 500m, request 100m is stored; it had limit 300m",
    restored_said_when_accepted_and_not_in_effect: "restore: p is let go; a pod of it has limit 2000m",
    a_status_by_a_process_that_was_suspended_between_its_look_at_the_lease_and_its_write: "writer: replica-1 does not",
    a_change_after_the_lease_was_handed_back: "writer: replica-1 does not lead",
    changed_under_a_freeze_that_could_not_be_read: "freeze: f is in force",
    restored_under_a_freeze: "freeze: f is in force",
    suspended_under_a_freeze: "freeze: f is in force",
    evicted_where_the_namespace_does_not_opt_in: "consent: its owner or namespace does not consent to an eviction",
    suspended_where_the_namespace_does_not_opt_in: "consent: its owner or namespace does not consent to a suspension",
    a_job_restored_from_a_backup_in_mid_move_and_never_resumed: "waiting: job train is suspended by us and has no pod",
    a_pod_behind_the_gate_that_no_policy_places: "waiting: pod a is gated",
    lowered_below_the_floor: "bounds: 200m is below the floor of p, 250m",
    memory_changed_before_its_original_was_stored: "original: memory limit 524288000, request 209715200 is not stored",
    a_memory_limit_lowered_below_its_original_after_a_downgrade: "memory: memory limit 419430400, request 209715200 is",
    a_memory_limit_raised_by_a_policy_that_changes_requests: "memory: memory limit 524288000, request 209715200 becom",
    an_original_of_memory_forgotten_when_only_cpu_was_restored: "original: memory limit 524288000, request 20971520",
    moved_by_eviction_under_a_freeze_that_came_after_the_dry_run: "freeze: f is in force",
    placed_on_a_node_under_a_freeze_of_it: "freeze: f is in force",
    raised_above_the_ceiling: "bounds: limit 5000m, request 100m is above the ceiling of p, 4000m",
    changed_in_a_mode_that_only_recommends_and_restored_when_its_policy_was_deleted: (
        "managed: limit 300m, request 100m becomes limit 2000m, request 100m of a pod that is not managed"
    ),
    changed_long_after_its_owner_took_the_label_off: "managed: limit 2000m, request 100m becomes limit 1000m",
    a_policy_that_decides_no_cpu_and_leaves_what_another_changed: "restore: pod a is managed no more",
    a_resize_reported_as_applied_that_was_refused: "report: 1000m is applied: the last write gave it limit 2000m",
    a_resize_reported_as_applied_that_an_earlier_pass_did: "report: 1000m is applied: the last write gave it limit 20",
    a_cgroup_that_did_not_follow: "cpu: the cgroup should have limit 2000m",
    a_checkpoint_put_aside_that_was_whole: "steps: it goes on before its last checkpoint at 15",
    a_job_that_a_restart_started_twice: "steps: two lives train at once",
    steps_left_out_by_a_torn_checkpoint: "steps: steps 6 to 9 were not done",
}


@pytest.mark.parametrize("tale", FOUND, ids=lambda tale: tale.__name__)
def test_the_history_of_a_bug_is_found_with_the_events_that_show_it(tale: Tale) -> None:
    told = Told()
    tale(told)
    [found] = contradictions(told.events)
    assert str(found).startswith(FOUND[tale])
    assert all(event in told.events for event in found.events)


def test_a_good_run_has_no_contradiction() -> None:
    told = Told()
    told.managed()
    told.sample(2000)
    told.resize("1", code=409)
    told.resize("1")
    told.events.append(Sample(told.events[-2].at_seconds + 0.05, "uid-a", 1000))  # before the resize is answered
    told.decided(1000, since=told.now - 2.0)
    told.decided(1000, since=told.now)  # it has that already
    told.freeze("namespace", name="another")
    told.resize("2")
    told.remove("freezes", "f")
    told.lease(US, holder="")
    told.lease(US)
    told.wait(5)
    told.store()
    told.lease(US, holder="")
    told.remove("leases", "slopewise-controller")
    told.lease(OTHER)
    told.delete_policy()
    told.resize("300m", by=OTHER)
    told.sample(300)
    told.let_policy_go(by=OTHER)
    told.store(None, by=OTHER)
    told.life("one", 0, 5, saved=4)
    told.life("two", 4, 8)
    assert contradictions(told.events, settled=True) == []


def test_a_pass_that_has_begun_and_a_restore_in_parts_are_no_contradiction() -> None:
    told = Told()
    told.managed()
    told.policy(mode="Observe")
    told.wait(20)
    told.resize("1")
    told.wait(60)
    raw = json.loads(json.dumps(told.objects["pods", "a"]))
    raw["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "300m"}, "requests": {"cpu": "60m"}}
    told.objects["pods", "a"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "50m"
    told.write("pods/resize", "a", raw)
    assert contradictions(told.events) == []


def test_what_is_left_when_all_has_settled_is_found_at_once() -> None:
    told = Told()
    told.managed()
    told.delete_policy()
    assert contradictions(told.events) == []
    [found] = contradictions(told.events, settled=True)
    assert "managed no more" in found.message


# --- files ---------------------------------------------------------------------------------------------------


def test_memory_that_follows_its_policy_and_a_replacement_under_a_freeze_are_no_contradiction() -> None:
    told = Told()
    told.namespace()
    told.pod(memory=MEMORY, owner="train")
    told.pod("gated", owner="train", schedulingGates=[{"name": PLACE_GATE}])
    told.policy(memory="Limits")
    told.store(memory=MEMORY)
    told.resize("300m", memory={"limits": "600Mi", "requests": "100Mi"})
    told.policy(memory="Ignore")
    told.resize("300m", memory={"limits": "600Mi", "requests": "209715199"})
    told.store(None, move={"node": "node-b", "pods": [{"uid": "uid-a", "owner": {"uid": "uid-train"}}]})
    told.freeze()
    told.wait(5)
    told.place("gated", "node-b")
    assert [str(each) for each in contradictions(told.events)] == []


def an_audit_line(**more: object) -> str:
    pod = {"kind": "Pod", "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, "spec": {"containers": [{}]}}
    line = {
        "stage": "ResponseComplete",
        "verb": "patch",
        "requestURI": "/api/v1/namespaces/n/pods/a/resize?fieldManager=slopewise",
        "objectRef": {"resource": "pods", "namespace": "n", "name": "a", "subresource": "resize"},
        "user": {"username": "admin"},
        "userAgent": "slopewise/1 replica-0",
        "responseStatus": {"code": 200},
        "responseObject": pod,
        "requestReceivedTimestamp": "2026-11-27T12:00:00.000000Z",
        "stageTimestamp": "2026-11-27T12:00:00.250000Z",
        **more,
    }
    return json.dumps(line) + "\n"


def test_a_folder_is_read_and_its_contradictions_are_printed_with_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_text(an_audit_line() + an_audit_line(verb="get") + '{"half')
    (tmp_path / "cgroups.jsonl").write_text('{"at": 1.0, "pod": "u", "limitMillicores": null}\n')
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "diary").write_text('{"at": 1.0, "pod": "x", "event": "goes on", "steps": 0}\n')
    done = CliRunner().invoke(app, [str(tmp_path)])
    assert done.exit_code == 1
    assert "original: its original is not stored when it is changed" in done.output
    assert "slopewise/1 replica-0: patch pods/resize n/a -> 200 (version 7)" in done.output
    assert "1 samples, 1 steps, 1 writes: 1 contradictions" in done.output
    as_json = json.loads(CliRunner().invoke(app, [str(tmp_path), "-o", "json"]).output)
    assert [each["rule"] for each in as_json["contradictions"]] == ["original"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{\n", "line 1 is not JSON"),
        (an_audit_line(stageTimestamp=5), "line 1 is no event"),
        ("", "has no events"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "audit.log").write_text(text)
    with pytest.raises(UsageError, match=said):
        read(tmp_path)


def test_a_decision_record_is_read_up_to_a_line_that_was_cut_off(tmp_path: Path) -> None:
    decided = DecidedLine("resize", "uid-a:0", "a", "node-a", "why", before=300, after=2000, result="applied")
    withheld = DecidedLine("resize", "uid-b:0", "b", "node-a", "why", before=300, after=2000, guard="floor")
    passes = [Pass(at, "p", result=Result((decided, withheld))) for at in (10.0, 14.0)]
    record = tmp_path / "records" / "p.jsonl"
    record.parent.mkdir()
    lines = [encode(Settings(SCHEMA, "0.1.0", {})), *(encode(each) for each in passes)]
    record.write_bytes(b"".join(lines) + b'{"kind":"pa')
    assert read(tmp_path) == [
        Decided(end, "p", "uid-a:0", 2000, "applied", begin)
        for begin, end in ((10.0, 14.0), (14.0, 14.0 + LAST_PASS_SECONDS))
    ]


def test_a_namespace_is_found_although_its_reference_names_it_twice(tmp_path: Path) -> None:
    at = {"resource": "namespaces", "namespace": "n", "name": "n"}
    (tmp_path / "audit.log").write_text(an_audit_line(objectRef=at))
    [event] = read(tmp_path)
    assert isinstance(event, Write)
    assert event.key == ("namespaces", "", "n")


def test_a_dry_run_is_no_write(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_text(an_audit_line(requestURI="/x?dryRun=All") + an_audit_line())
    assert len(read(tmp_path)) == 1
