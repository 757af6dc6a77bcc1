"""What a snapshot says of moves: who could be moved and how, who is being moved, and who waits for a node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs
from support.cluster_records import FakeOwnersApi, FakeStore, a_container, a_node_record, a_pod, an_object, owned_by
from support.worlds import START, FakeClock

from slopewise.adapters.kube.cache.records import (
    MIGRATABLE,
    MOVE,
    PLACE_GATE,
    STOPPED,
    NodeRecord,
    ObjectRecord,
    PodRecord,
    SchedulingFacts,
    Taint,
    VolumeRecord,
)
from slopewise.adapters.kube.client.errors import ApiError
from slopewise.adapters.kube.moves.movability_inputs import Moving
from slopewise.adapters.kube.observer import KubeObserver, Stores
from slopewise.adapters.kube.state.job_memory import Remembered
from slopewise.adapters.kube.workloads.job_facts import trainer_under
from slopewise.adapters.kube.workloads.owners import Owners, WatchedJobIndex
from slopewise.adapters.prometheus.client import Target
from slopewise.adapters.prometheus.container_usage import Machine
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading, Scope
from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.model import Absence, Checkpoint, ClusterSnapshot, JobState, MoveUnderWay

JOB = owned_by("Job", "train", "job-1")
JOB_PATH = "/apis/batch/v1/namespaces/team/jobs/train"
EXTERNAL = SchedulingFacts(needs_no_volume=True)
PINNED_TO_N1 = (
    '{"step":"pinned","fromNode":"n0","toNode":"n1","sinceSeconds":1,"stepSinceSeconds":2,"policy":"p",'
    '"jobUids":["job-1:0"]}'
)


@dataclass
class FakeReader:
    """A Prometheus that knows these jobs, by the name of the pod."""

    jobs: dict[str, JobSeries] = field(default_factory=dict)
    scrape_interval_seconds: float = 5.0

    def read(self, at_seconds: float, scope: Scope) -> PrometheusReading:
        return PrometheusReading({JobKey("team", pod): each for pod, each in self.jobs.items()}, queries=4)

    def targets(self) -> list[Target]:
        return [Target({"instance": "10.0.0.1:9464"}, "down", "connect: connection refused")]

    def metric_names(self, instances: Mapping[JobKey, Collection[str]], at_seconds: float) -> dict[JobKey, set[str]]:
        return {key: {"my_val_loss"} for key in instances}

    def use_of_others(self, *_: object) -> Mapping[str, float]:
        return {}

    def machines(self, at_seconds: float) -> Mapping[str, Machine]:
        return {}


@dataclass
class FakeApi:
    """Answers reads of owners and volumes, and gives a version."""

    answers: dict[str, Any] = field(default_factory=dict)
    version: tuple[int, int] | None = (1, 36)
    asked: list[str] = field(default_factory=list)

    def server_version(self) -> tuple[int, int]:
        if self.version is None:
            raise ApiError(0, "", "no answer")
        return self.version

    def get(self, path: str, params: Mapping[str, str] | None = None, *, metadata_only: bool = False) -> Any:
        self.asked.append(path)
        if path not in self.answers:
            raise ApiError(404, "NotFound", "refused")
        return self.answers[path]


@dataclass
class World:
    """A cluster whose parts a test changes between two looks."""

    pods: FakeStore[PodRecord]
    nodes: FakeStore[NodeRecord]
    jobs: FakeStore[ObjectRecord]
    reader: FakeReader
    api: FakeApi
    observer: KubeObserver
    under_way: list[MoveUnderWay]
    remembered: set[str]
    moves_made: dict[str, int]
    namespaces: FakeStore[ObjectRecord]
    backoff: dict[str, str]
    jobs_remembered: list[Remembered]

    def observe(self) -> ClusterSnapshot:
        return self.observer.observe().snapshot


def the_job(**template: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "train", "namespace": "team", "uid": "job-1"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", **template}}},
    }


def world(*pods: PodRecord, nodes: Sequence[NodeRecord] = (a_node_record(), a_node_record("n2"))) -> World:
    store, machines = FakeStore(pods), FakeStore(tuple(nodes))
    jobs = FakeStore((an_object("train", "job-1"),))
    namespaces = FakeStore((a_namespace(slopewise_moves="allowed"),))
    reader, api = FakeReader(), FakeApi({JOB_PATH: the_job()})
    under_way: list[MoveUnderWay] = []
    remembered: set[str] = set()
    moves_made: dict[str, int] = {}
    backoff: dict[str, str] = {}
    jobs_remembered: list[Remembered] = []
    moving = Moving(
        api,  # type: ignore[arg-type]
        lambda: under_way,
        is_ours=lambda uid: uid in remembered,
        made=lambda uid: moves_made.get(uid, 0),
        remembered=lambda: jobs_remembered,
        backoff=lambda managed: backoff.get(managed.job_uid),
    )
    owners, policy = Owners(jobs, FakeOwnersApi()), TrainingPolicySpec()  # type: ignore[arg-type]
    observer = KubeObserver(
        Stores(store, machines, namespaces),
        owners,
        WatchedJobIndex(store, owners, trainer_under(policy)),
        reader,
        lambda pod: pod.labels.get("team") != "other",
        policy,
        FakeClock(),
        moving=moving,
    )
    return World(
        store,
        machines,
        jobs,
        reader,
        api,
        observer,
        under_way,
        remembered,
        moves_made,
        namespaces,
        backoff,
        jobs_remembered,
    )


def a_namespace(**labels: str) -> ObjectRecord:
    """The one of all pods here; `slopewise_moves` is its label `slopewise.dev/moves`."""
    named = {name.replace("_", ".dev/", 1): value for name, value in labels.items()}
    return structs.replace(an_object("team", "namespace-1"), namespace="", labels=named)


def movable(name: str = "p", facts: SchedulingFacts = EXTERNAL, **more: Any) -> PodRecord:
    made: PodRecord = a_pod(name, owner=JOB, annotations={MIGRATABLE: "true"}, scheduling=facts)
    return structs.replace(made, **more)


def gated(name: str = "p", **more: Any) -> PodRecord:
    made: PodRecord = a_pod(
        name, owner=JOB, node=None, phase="Pending", gates=(PLACE_GATE,), scheduling=SchedulingFacts()
    )
    return structs.replace(made, **more)


def test_a_move_of_the_future_is_not_taken_up() -> None:
    seen = world(movable())
    seen.under_way.append(replace(leaving(), since_seconds=START + 60.0))
    seen.under_way.append(replace(leaving(), since_seconds=START + 1e9))

    assert [each.since_seconds for each in seen.observe().moving] == [START + 60.0]


def leaving(uid: str = "job-1:0") -> MoveUnderWay:
    return MoveUnderWay(uid, "n1", "n2", START - 3, "saving and ending")


# --- who could be moved ----------------------------------------------------------------------------------------


def test_a_job_that_is_not_migratable_costs_no_question() -> None:
    here = world(a_pod("p", owner=JOB))
    (job,) = here.observe().jobs
    assert (job.movability, here.api.asked) == (None, [])


def test_a_migratable_job_says_how_it_can_be_moved_and_what_it_checkpoints() -> None:
    here = world(movable())
    here.reader.jobs["p"] = JobSeries(checkpoint=Checkpoint(START - 30, 1.5, on_sigterm=True))
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert (job.migratable, job.movability.way, job.movability.blocked_reason) == (True, "suspend", None)
    assert job.checkpoint == Checkpoint(START - 30, 1.5, on_sigterm=True)
    assert here.observer.movability("job-1:0") is job.movability
    assert here.observer.movability("nobody:0") is None


@pytest.mark.parametrize("labels", [{}, {"slopewise_moves": "true"}])
def test_a_job_stays_where_its_namespace_does_not_opt_in_to_moves(labels: dict[str, str]) -> None:
    here = world(movable())
    here.namespaces.put(a_namespace(**labels))
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert "label it slopewise.dev/moves=allowed" in (job.movability.blocked_reason or "")


def test_a_namespace_that_opts_in_meanwhile_lets_its_jobs_be_moved_from_the_next_pass_on() -> None:
    here = world(movable())
    here.namespaces.put(a_namespace())
    here.observe()
    here.namespaces.put(a_namespace(slopewise_moves="allowed"))
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert job.movability.blocked_reason is None


def test_a_job_whose_last_move_could_not_be_begun_says_until_when_and_one_that_cannot_move_at_all_does_not() -> None:
    here = world(movable())
    here.backoff["job-1:0"] = "until 12:05:00 UTC: a disruption budget says no"
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert (job.movability.way, job.movability.backoff_reason) == ("suspend", here.backoff["job-1:0"])

    bare = world(movable(owner=None))
    bare.backoff["uid-p:0"] = "until 12:05:00 UTC: a disruption budget says no"
    (job,) = bare.observe().jobs
    assert job.movability is not None
    assert (job.movability.blocked_reason is not None, job.movability.backoff_reason) == (True, None)


def test_a_server_that_shows_no_version_is_not_taken_for_an_old_one() -> None:
    here = world(movable())
    here.api.version = None
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert job.movability.blocked_reason == "the API server has not reported its version yet"


def test_on_an_older_server_the_gate_of_the_template_decides() -> None:
    here = world(movable())
    here.api.version = (1, 35)
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert "no scheduling gate slopewise.dev/place" in (job.movability.blocked_reason or "")


def test_how_often_it_was_moved_counts_for_how_long_the_next_time_takes() -> None:
    here = world(movable())
    here.api.version = (1, 35)
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    here.api.answers[JOB_PATH] = the_job(schedulingGates=[{"name": PLACE_GATE}])
    here.api.answers[JOB_PATH]["spec"]["podFailurePolicy"] = {"rules": rules}
    here.moves_made["job-1:0"] = 2
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert (job.movability.way, job.movability.restart_seconds) == ("evict", 42.0)


def test_nodes_that_would_not_take_it_are_reported() -> None:
    here = world(movable(), nodes=(a_node_record(), a_node_record("n2", taints=(Taint("gpu", "", "NoSchedule"),))))
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert job.movability.refused_nodes == {"n2": "its taint gpu:NoSchedule is not tolerated"}


def test_a_node_that_is_tainted_between_two_passes_is_refused_in_the_second() -> None:
    here = world(movable())
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert job.movability.refused_nodes == {}
    here.nodes.put(a_node_record("n2", unschedulable=True))
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert set(job.movability.refused_nodes) == {"n2"}


def test_cpu_that_other_managed_pods_reserve_is_not_free() -> None:
    big = a_pod("big", a_container(request=3800, limit=None), node="n2", labels={"team": "other"})
    here = world(movable(), big)
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert "200m are not reserved" in job.movability.refused_nodes["n2"]


def test_a_pin_of_ours_is_not_taken_for_the_owners_wish() -> None:
    here = world(movable())
    here.jobs.put(structs.replace(an_object("train", "job-1"), annotations={MOVE: PINNED_TO_N1}))
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    here.api.answers[JOB_PATH] = the_job(affinity={"nodeAffinity": required})
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert job.movability.refused_nodes == {}


def test_what_its_owner_wrote_since_into_a_template_that_is_not_pinned_any_more_counts() -> None:
    here = world(movable())
    here.jobs.put(structs.replace(an_object("train", "job-1"), annotations={MOVE: PINNED_TO_N1}))
    wish = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wish]}}
    here.api.answers[JOB_PATH] = the_job(affinity={"nodeAffinity": required})
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert set(job.movability.refused_nodes) == {"n1", "n2"}


def test_a_claim_that_may_not_be_read_keeps_its_pod() -> None:
    here = world(movable(facts=SchedulingFacts(volumes=(VolumeRecord("data", "persistentVolumeClaim", "saved"),))))
    (job,) = here.observe().jobs
    assert job.movability is not None
    assert job.movability.blocked_reason == "its claim saved, or the volume behind it, is not there"


def test_the_members_of_a_workload_are_those_that_run() -> None:
    index = "batch.kubernetes.io/job-completion-index"
    pods = [movable(f"p{n}", labels={**a_pod().labels, index: str(n)}) for n in range(3)]
    pods[2] = structs.replace(pods[2], phase="Succeeded")
    (first, *_) = world(*pods).observe().jobs
    assert first.movability is not None
    assert first.movability.members == ("job-1:0", "job-1:1")


# --- who is being moved ----------------------------------------------------------------------------------------


def test_a_move_under_way_is_reported_while_its_pod_still_runs_and_while_there_is_none() -> None:
    here = world(movable())
    here.under_way.append(leaving())
    snapshot = here.observe()
    assert ([job.uid for job in snapshot.jobs], snapshot.moving) == (["job-1:0"], (leaving(),))
    here.remembered.add("job-1:0")
    here.pods.drop("p")
    snapshot = here.observe()
    assert (snapshot.jobs, snapshot.moving) == ((), (leaving(),))


def test_moves_of_other_policies_are_not_reported() -> None:
    here = world(movable(labels={"team": "other"}))
    here.under_way.append(leaving())
    assert here.observe().moving == ()


def test_a_pod_that_failed_by_being_moved_is_no_failed_job() -> None:
    here = world(movable(phase="Failed", deleting=True))
    here.under_way.append(leaving())
    assert here.observe().jobs == ()


def test_a_pod_that_was_evicted_and_said_it_succeeded_is_a_job_that_has_ended() -> None:
    here = world(movable(phase="Succeeded", deleting=True))
    here.under_way.append(leaving())
    assert [job.state for job in here.observe().jobs] == [JobState.FINISHED]


def test_a_pod_that_exited_0_when_its_job_was_suspended_is_no_job_that_has_ended() -> None:
    here = world(movable(phase="Succeeded", deleting=True))
    here.jobs.put(structs.replace(an_object("train", "job-1"), annotations={MOVE: PINNED_TO_N1}))
    assert [job.state for job in here.observe().jobs] == [JobState.FINISHED]
    here.under_way.append(leaving())
    assert here.observe().jobs == ()


def test_a_pod_that_failed_by_being_stopped_is_no_failed_job_and_one_that_runs_again_may_fail() -> None:
    here = world(movable(phase="Failed", deleting=True))
    here.jobs.put(structs.replace(an_object("train", "job-1"), annotations={STOPPED: "{}"}))
    assert here.observe().jobs == ()
    here.pods.put(movable(phase="Failed"))
    assert [job.state for job in here.observe().jobs] == [JobState.FAILED]


def test_a_pod_of_a_stateful_set_that_exited_0_when_it_was_evicted_is_no_job_that_has_ended() -> None:
    here = world(
        structs.replace(movable(phase="Succeeded", deleting=True), owner=owned_by("StatefulSet", "train", "job-1"))
    )
    (finished,) = here.observe().jobs
    here.under_way.append(replace(leaving(), job_uid=finished.uid))
    assert here.observe().jobs == ()


# --- who waits for a node --------------------------------------------------------------------------------------


def test_a_pod_behind_our_gate_is_an_arrival_with_what_it_asks_for() -> None:
    asks = {"slopewise.dev/weight": "2", "slopewise.dev/max-useful-cpu": "1500m"}
    here = world(gated(annotations=asks), nodes=(a_node_record(), a_node_record("n2", unschedulable=True)))
    (arrival,) = here.observe().waiting
    assert (arrival.uid, arrival.name, arrival.namespace) == ("job-1:0", "p", "team")
    assert (arrival.arrived_at_seconds, arrival.request_millicores) == (START - 110, 500)
    assert (arrival.objectives.weight, arrival.useful_parallelism_cores) == (2.0, 1.5)
    assert set(arrival.refused_nodes) == {"n2"}


def test_arrivals_come_in_the_order_of_their_arrival() -> None:
    index = "batch.kubernetes.io/job-completion-index"
    pods = [gated(f"p{n}", labels={**a_pod().labels, index: str(n)}, created_at_seconds=START - n) for n in range(3)]
    assert [each.name for each in world(*pods).observe().waiting] == ["p2", "p1", "p0"]


def test_a_pod_that_waits_for_somebody_else_too_has_not_arrived_yet() -> None:
    assert world(gated(gates=(PLACE_GATE, "kueue.x-k8s.io/admission"))).observe().waiting == ()
    assert world(gated(gates=("kueue.x-k8s.io/admission",))).observe().waiting == ()


def test_a_pod_of_another_policy_is_not_ours_to_place() -> None:
    assert world(gated(labels={"team": "other"})).observe().waiting == ()


def test_a_gated_pod_whose_job_is_being_moved_is_placed_by_the_move() -> None:
    here = world(gated())
    here.under_way.append(leaving())
    assert here.observe().waiting == ()


def test_a_gated_pod_of_a_job_that_is_pinned_already_is_no_arrival() -> None:
    here = world(gated())
    here.jobs.put(structs.replace(an_object("train", "job-1"), annotations={MOVE: PINNED_TO_N1}))
    assert here.observe().waiting == ()


def test_a_failed_pod_does_not_hide_its_successor_that_waits() -> None:
    snapshot = world(movable("old", phase="Failed", created_at_seconds=START - 200), gated("new")).observe()
    assert ([each.name for each in snapshot.waiting], snapshot.jobs) == (["new"], ())


def test_a_successor_waits_until_its_predecessor_has_ended() -> None:
    snapshot = world(movable("old", deleting=True), gated("new")).observe()
    assert (snapshot.waiting, [job.name for job in snapshot.jobs]) == ((), ["old"])


# --- jobs without a pod on a node ------------------------------------------------------------------------------


REMEMBERED = Remembered("job-1:0", JOB, "team")


def test_a_remembered_job_whose_owner_is_suspended_is_absent_and_says_so() -> None:
    here = world(movable())
    here.jobs_remembered.append(REMEMBERED)
    assert here.observe().absent == ()
    here.pods.records = ()
    here.api.answers[JOB_PATH] = {**the_job(), "spec": {**the_job()["spec"], "suspend": True}}
    expected = Absence("job-1:0", "suspended", "its Job is suspended, and not by Slopewise", "team/train")
    assert here.observe().absent == (expected,)
    assert here.observe().absent == (expected,)
    assert here.api.asked.count(JOB_PATH) == 2, "its template in the first pass, and then once whether it is suspended"


def test_a_job_between_two_pods_of_its_move_is_not_taken_for_suspended() -> None:
    here = world()
    here.jobs_remembered.append(REMEMBERED)
    here.remembered.add("job-1:0")
    here.api.answers[JOB_PATH] = {**the_job(), "spec": {**the_job()["spec"], "suspend": True}}
    here.under_way.append(leaving())
    assert here.observe().absent == (Absence("job-1:0", "moving", "moves to n2: saving and ending", "team/train"),)


def test_a_job_whose_pod_has_no_node_yet_says_what_it_waits_for() -> None:
    here = world(movable(node=None, phase="Pending"))
    here.jobs_remembered.append(REMEMBERED)
    assert here.observe().absent == (Absence("job-1:0", "waiting", "its pod p waits for a node", "team/train"),)
    here.pods.records = (movable(node=None, phase="Pending", unschedulable_since_seconds=START - 30),)
    assert here.observe().absent[0].reason.startswith("no node takes its pod p just now")
    here.pods.records = (movable(node=None, phase="Pending", gates=(PLACE_GATE,)),)
    assert here.observe().absent[0].reason == f"its pod p waits behind {PLACE_GATE}"


def test_a_job_that_is_gone_for_an_unknown_reason_is_not_reported() -> None:
    here = world()
    here.jobs_remembered.append(REMEMBERED)
    assert here.observe().absent == ()
