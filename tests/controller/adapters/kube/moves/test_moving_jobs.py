"""What a snapshot says of moves: who could be moved and how, who is being moved, and who waits for a node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from support.cluster_records import FakeOwnersApi, FakeStore, a_container, a_node_record, a_pod, an_object, owned_by
from support.observed_cluster import world
from support.worlds import START

from slopewise.adapters.kube.cache.records import (
    MIGRATABLE,
    MOVE,
    PLACE_GATE,
    STOPPED,
    NodeRecord,
    ObjectRecord,
    PodRecord,
    SchedulingFacts,
)
from slopewise.adapters.kube.moves.movability_inputs import Moving
from slopewise.adapters.kube.state.job_memory import Remembered
from slopewise.adapters.prometheus.reader import JobSeries
from slopewise.model import Absence, Checkpoint, JobState, Movability, MoveUnderWay

JOB = owned_by("Job", "train", "job-1")
JOB_PATH = "/apis/batch/v1/namespaces/team/jobs/train"
EXTERNAL = SchedulingFacts(needs_no_volume=True)
PINNED_TO_N1 = (
    '{"step":"pinned","fromNode":"n0","toNode":"n1","sinceSeconds":1,"stepSinceSeconds":2,"policy":"p",'
    '"jobUids":["job-1:0"]}'
)


class MovingWorld:
    """A cluster of which a test says who is moved, what is remembered, and what owners look like."""

    def __init__(
        self, *pods: PodRecord, nodes: tuple[NodeRecord, ...] = (a_node_record(), a_node_record("n2"))
    ) -> None:
        self.api = FakeOwnersApi({JOB_PATH: the_job()})
        self.under_way: list[MoveUnderWay] = []
        self.remembered: set[str] = set()
        self.moves_made: dict[str, int] = {}
        self.backoff: dict[str, str] = {}
        self.jobs_remembered: list[Remembered] = []
        self.namespaces = FakeStore((a_namespace(slopewise_moves="allowed"),))
        moving = Moving(
            self.api,  # type: ignore[arg-type]
            lambda: self.under_way,
            is_ours=lambda uid: uid in self.remembered,
            made=lambda uid: self.moves_made.get(uid, 0),
            remembered=lambda: self.jobs_remembered,
            backoff=lambda managed: self.backoff.get(managed.job_uid),
        )
        seen = world(
            *pods, nodes=nodes, namespaces=self.namespaces, moving=moving,
            select=lambda pod: pod.labels.get("team") != "other",
        )  # fmt: skip
        self.pods, self.jobs, self.nodes, self.reader = seen.pods, seen.jobs, seen.nodes, seen.reader
        self.observer, self.observe = seen.observer, seen.observe

    def movability(self) -> Movability:
        """Of the only job, or the first."""
        found = self.observe().jobs[0].movability
        assert found is not None
        return found

    def annotate_job(self, **annotations: str) -> None:
        self.jobs.put(structs.replace(an_object("train", "job-1"), annotations=annotations))


def the_job(**template: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "train", "namespace": "team", "uid": "job-1"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", **template}}},
    }


def a_namespace(**labels: str) -> ObjectRecord:
    """The one of all pods here; `slopewise_moves` is its label `slopewise.dev/moves`."""
    named = {name.replace("_", ".dev/", 1): value for name, value in labels.items()}
    return structs.replace(an_object("team", "namespace-1"), namespace="", labels=named)


def movable(name: str = "p", **more: Any) -> PodRecord:
    made: PodRecord = a_pod(name, owner=JOB, annotations={MIGRATABLE: "true"}, scheduling=EXTERNAL)
    return structs.replace(made, **more)


def gated(name: str = "p", **more: Any) -> PodRecord:
    made: PodRecord = a_pod(
        name, owner=JOB, node=None, phase="Pending", gates=(PLACE_GATE,), scheduling=SchedulingFacts()
    )
    return structs.replace(made, **more)


def numbered(index: int) -> dict[str, str]:
    """The labels of a pod of an Indexed Job."""
    return {**a_pod().labels, "batch.kubernetes.io/job-completion-index": str(index)}


def test_a_move_of_the_future_is_not_taken_up() -> None:
    seen = MovingWorld(movable())
    seen.under_way.append(replace(leaving(), since_seconds=START + 60.0))
    seen.under_way.append(replace(leaving(), since_seconds=START + 1e9))

    assert [each.since_seconds for each in seen.observe().moving] == [START + 60.0]


def leaving(uid: str = "job-1:0") -> MoveUnderWay:
    return MoveUnderWay(uid, "n1", "n2", START - 3, "saving and ending")


# --- who could be moved ----------------------------------------------------------------------------------------


def test_a_migratable_job_says_how_it_can_be_moved_and_what_it_checkpoints() -> None:
    here = MovingWorld(movable())
    here.reader.jobs["p"] = JobSeries(checkpoint=Checkpoint(START - 30, 1.5, on_sigterm=True))
    (job,), found = here.observe().jobs, here.movability()
    assert (job.migratable, found.way, found.blocked_reason) == (True, "suspend", None)
    assert job.checkpoint == Checkpoint(START - 30, 1.5, on_sigterm=True)
    assert here.observer.movability("job-1:0") is found
    assert here.observer.movability("nobody:0") is None
    other = MovingWorld(a_pod("p", owner=JOB))
    assert (other.observe().jobs[0].movability, other.api.asked) == (None, []), "one that is not costs no question"


def test_the_members_of_a_workload_are_those_that_run_and_what_other_pods_reserve_is_not_free() -> None:
    pods = [movable(f"p{n}", labels=numbered(n)) for n in range(3)]
    pods[2] = structs.replace(pods[2], phase="Succeeded")
    big = a_pod("big", a_container(request=3800, limit=None), node="n2", labels={"team": "other"})
    found = MovingWorld(*pods, big).movability()
    assert found.members == ("job-1:0", "job-1:1")
    assert "200m are not reserved" in found.refused_nodes["n2"]


def test_what_changes_between_two_passes_counts_in_the_second() -> None:
    here = MovingWorld(movable())
    assert here.movability().refused_nodes == {}
    assert here.nodes is not None
    here.nodes.put(a_node_record("n2", unschedulable=True))
    assert set(here.movability().refused_nodes) == {"n2"}
    here.namespaces.put(a_namespace())
    assert "label it slopewise.dev/moves=allowed" in (here.movability().blocked_reason or "")


def test_a_server_that_shows_no_version_is_not_taken_for_an_old_one() -> None:
    here = MovingWorld(movable())
    here.api.version = None
    assert here.movability().blocked_reason == "the API server has not reported its version yet"


def test_how_often_it_was_moved_counts_for_how_long_the_next_time_takes() -> None:
    here = MovingWorld(movable())
    here.api.version = (1, 35)
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    here.api.answers[JOB_PATH] = the_job(schedulingGates=[{"name": PLACE_GATE}])
    here.api.answers[JOB_PATH]["spec"]["podFailurePolicy"] = {"rules": rules}
    here.moves_made["job-1:0"] = 2
    found = here.movability()
    assert (found.way, found.restart_seconds) == ("evict", 42.0)


def test_a_job_whose_last_move_could_not_be_begun_says_until_when_and_one_that_cannot_move_at_all_does_not() -> None:
    here = MovingWorld(movable())
    here.backoff["job-1:0"] = "until 12:05:00 UTC: a disruption budget says no"
    found = here.movability()
    assert (found.way, found.backoff_reason) == ("suspend", here.backoff["job-1:0"])

    bare = MovingWorld(movable(owner=None))
    bare.backoff["uid-p:0"] = "until 12:05:00 UTC: a disruption budget says no"
    found = bare.movability()
    assert (found.blocked_reason is not None, found.backoff_reason) == (True, None)


@pytest.mark.parametrize(
    ("term", "refused"),
    [
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, set()),
        ({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}, {"n1", "n2"}),
    ],
    ids=["our pin", "what its owner wrote since"],
)
def test_of_the_affinity_of_a_template_all_but_our_pin_counts(term: dict[str, Any], refused: set[str]) -> None:
    here = MovingWorld(movable())
    here.annotate_job(**{MOVE: PINNED_TO_N1})
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    here.api.answers[JOB_PATH] = the_job(affinity={"nodeAffinity": required})
    assert set(here.movability().refused_nodes) == refused


# --- who is being moved ----------------------------------------------------------------------------------------


def test_a_move_under_way_is_reported_while_its_pod_still_runs_and_while_there_is_none() -> None:
    here = MovingWorld(movable())
    here.under_way.append(leaving())
    snapshot = here.observe()
    assert ([job.uid for job in snapshot.jobs], snapshot.moving) == (["job-1:0"], (leaving(),))
    here.remembered.add("job-1:0")
    here.pods.drop("p")
    snapshot = here.observe()
    assert (snapshot.jobs, snapshot.moving) == ((), (leaving(),))
    other = MovingWorld(movable(labels={"team": "other"}))
    other.under_way.append(leaving())
    assert other.observe().moving == (), "those of other policies are not"


@pytest.mark.parametrize(
    ("phase", "kind", "annotations", "state"),
    [
        ("Failed", "Job", {}, None),
        ("Succeeded", "Job", {}, JobState.FINISHED),
        ("Succeeded", "Job", {MOVE: PINNED_TO_N1}, None),
        ("Succeeded", "StatefulSet", {}, None),
    ],
    ids=["failed", "evicted and has finished", "exited 0 when its Job was suspended", "replaced although it exited 0"],
)
def test_who_is_moved_has_not_ended(phase: str, kind: str, annotations: dict[str, str], state: JobState | None) -> None:
    here = MovingWorld(movable(phase=phase, deleting=True, owner=owned_by(kind, "train", "job-1")))
    here.annotate_job(**annotations)
    (ended,) = here.observe().jobs
    here.under_way.append(leaving(ended.uid))
    assert [job.state for job in here.observe().jobs] == ([] if state is None else [state])


def test_a_pod_that_failed_by_being_stopped_is_no_failed_job_and_one_that_runs_again_may_fail() -> None:
    here = MovingWorld(movable(phase="Failed", deleting=True))
    here.annotate_job(**{STOPPED: "{}"})
    assert here.observe().jobs == ()
    here.pods.put(movable(phase="Failed"))
    assert [job.state for job in here.observe().jobs] == [JobState.FAILED]


# --- who waits for a node --------------------------------------------------------------------------------------


def test_a_pod_behind_our_gate_is_an_arrival_with_what_it_asks_for() -> None:
    asks = {"slopewise.dev/weight": "2", "slopewise.dev/max-useful-cpu": "1500m"}
    here = MovingWorld(gated(annotations=asks), nodes=(a_node_record(), a_node_record("n2", unschedulable=True)))
    (arrival,) = here.observe().waiting
    assert (arrival.uid, arrival.name, arrival.namespace) == ("job-1:0", "p", "team")
    assert (arrival.arrived_at_seconds, arrival.request_millicores) == (START - 110, 500)
    assert (arrival.objectives.weight, arrival.useful_parallelism_cores) == (2.0, 1.5)
    assert set(arrival.refused_nodes) == {"n2"}


@pytest.mark.parametrize(
    ("pods", "waiting"),
    [
        ([gated(f"p{n}", labels=numbered(n), created_at_seconds=START - n) for n in range(3)], ["p2", "p1", "p0"]),
        ([gated(gates=(PLACE_GATE, "kueue.x-k8s.io/admission"))], []),
        ([gated(gates=("kueue.x-k8s.io/admission",))], []),
        ([gated(labels={"team": "other"})], []),
        ([movable("old", phase="Failed", created_at_seconds=START - 200), gated("new")], ["new"]),
        ([movable("old", deleting=True), gated("new")], []),
    ],
    ids=["in their order", "two gates", "another's gate", "another policy's", "after a failed one", "before its end"],
)
def test_who_waits_for_a_node_of_this_policy(pods: list[PodRecord], waiting: list[str]) -> None:
    assert [each.name for each in MovingWorld(*pods).observe().waiting] == waiting


def test_a_gated_pod_whose_job_is_moved_or_pinned_is_no_arrival() -> None:
    here, pinned = MovingWorld(gated()), MovingWorld(gated())
    here.under_way.append(leaving())
    pinned.annotate_job(**{MOVE: PINNED_TO_N1})
    assert here.observe().waiting == pinned.observe().waiting == ()


# --- jobs without a pod on a node ------------------------------------------------------------------------------


REMEMBERED = Remembered("job-1:0", JOB, "team")


def test_a_remembered_job_whose_owner_is_suspended_is_absent_and_says_so() -> None:
    here = MovingWorld(movable())
    here.jobs_remembered.append(REMEMBERED)
    assert here.observe().absent == ()
    here.pods.records = ()
    here.api.answers[JOB_PATH] = {**the_job(), "spec": {**the_job()["spec"], "suspend": True}}
    expected = Absence("job-1:0", "suspended", "its Job is suspended, and not by Slopewise", "team/train")
    assert here.observe().absent == (expected,)
    assert here.observe().absent == (expected,)
    assert here.api.asked.count(JOB_PATH) == 2, "its template in the first pass, and then once whether it is suspended"


def test_a_job_between_two_pods_of_its_move_is_not_taken_for_suspended() -> None:
    here = MovingWorld()
    here.jobs_remembered.append(REMEMBERED)
    here.remembered.add("job-1:0")
    here.api.answers[JOB_PATH] = {**the_job(), "spec": {**the_job()["spec"], "suspend": True}}
    here.under_way.append(leaving())
    assert here.observe().absent == (Absence("job-1:0", "moving", "moves to n2: saving and ending", "team/train"),)


def test_a_job_whose_pod_has_no_node_yet_says_what_it_waits_for() -> None:
    here = MovingWorld(movable(node=None, phase="Pending"))
    here.jobs_remembered.append(REMEMBERED)
    assert here.observe().absent == (Absence("job-1:0", "waiting", "its pod p waits for a node", "team/train"),)
    here.pods.records = (movable(node=None, phase="Pending", unschedulable_since_seconds=START - 30),)
    assert here.observe().absent[0].reason.startswith("no node takes its pod p just now")
    here.pods.records = (movable(node=None, phase="Pending", gates=(PLACE_GATE,)),)
    assert here.observe().absent[0].reason == f"its pod p waits behind {PLACE_GATE}"


def test_a_job_that_is_gone_for_an_unknown_reason_is_not_reported() -> None:
    here = MovingWorld()
    here.jobs_remembered.append(REMEMBERED)
    assert here.observe().absent == ()
