"""Pods, nodes and what Prometheus knows of them become one snapshot; what cannot be seen whole is held or named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs
from support.cluster_records import (
    GIB,
    FakeOwnersApi,
    FakeStore,
    a_container,
    a_node_record,
    a_pod,
    an_object,
    owned_by,
)
from support.worlds import START, FakeClock

from slopewise.adapters.kube.cache.records import NodeRecord, ObjectRecord, OtherPod, PodPending, PodRecord
from slopewise.adapters.kube.observer import KubeNotes, KubeObserver, Stores
from slopewise.adapters.kube.snapshot import GRACE_SECONDS
from slopewise.adapters.kube.workloads.autoscalers import AutoscalerRecord
from slopewise.adapters.kube.workloads.job_facts import trainer_under
from slopewise.adapters.kube.workloads.owners import Owners, WatchedJobIndex
from slopewise.adapters.prometheus.client import Target
from slopewise.adapters.prometheus.container_usage import ContainerKey, ContainerUse, Machine
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, PrometheusReading, Scope
from slopewise.config.training_policy import Selection, TrainingPolicySpec
from slopewise.errors import ObservationError
from slopewise.model import (
    ClusterSnapshot,
    ContainerHealth,
    CpuAllocation,
    Evaluation,
    Job,
    JobState,
    MemoryAllocation,
    Node,
    Objectives,
    PendingResize,
    Responses,
    Unconfirmed,
    Usage,
)

JOB = owned_by("Job", "train", "job-1")
INDEX = "batch.kubernetes.io/job-completion-index"
LEVEL = Evaluation(0.5, 4, START - 1, 'training_loss{stage="eval"}')
DOWN = JobSeries(up=False, instances=frozenset({"10.0.0.1:9464"}))
REPORTS = JobSeries(evaluation=LEVEL, steps_total=10, steps_planned=100, state=JobState.TRAINING, up=True)


@dataclass
class FakeReader:
    """What Prometheus would say, and what it was asked."""

    jobs: dict[str, JobSeries] = field(default_factory=dict)
    uses: dict[str, ContainerUse] = field(default_factory=dict)
    sizes: dict[str, Machine] = field(default_factory=dict)
    scrape_interval_seconds: float = 5.0
    asked: list[Scope] = field(default_factory=list)
    others: dict[str, float] | ObservationError = field(default_factory=dict)
    asked_others: list[tuple[frozenset[str], Container[JobKey]]] = field(default_factory=list)
    left_out: dict[JobKey, int] = field(default_factory=dict)

    def read(self, at_seconds: float, scope: Scope) -> PrometheusReading:
        self.asked.append(scope)
        jobs = {JobKey("team", pod): series for pod, series in self.jobs.items()}
        uses = {ContainerKey("team", pod, "trainer"): use for pod, use in self.uses.items()}
        return PrometheusReading(jobs, 4, uses, self.left_out)

    def targets(self) -> list[Target]:
        return [Target({"instance": "10.0.0.1:9464"}, "down", "connect: connection refused")]

    def metric_names(self, instances: Mapping[JobKey, Collection[str]], at_seconds: float) -> dict[JobKey, set[str]]:
        return {key: {"my_val_loss"} for key in instances}

    def use_of_others(
        self, at_seconds: float, namespaces: Collection[str], ours: Container[JobKey]
    ) -> Mapping[str, float]:
        self.asked_others.append((frozenset(namespaces), ours))
        if isinstance(self.others, ObservationError):
            raise self.others
        return self.others

    def machines(self, at_seconds: float) -> Mapping[str, Machine]:
        return self.sizes


@dataclass
class World:
    """A cluster whose parts a test changes between two looks."""

    pods: FakeStore[PodRecord]
    nodes: FakeStore[NodeRecord] | None
    jobs: FakeStore[ObjectRecord]
    reader: FakeReader
    clock: FakeClock
    observer: KubeObserver
    index: WatchedJobIndex

    notes: KubeNotes = field(default_factory=KubeNotes)
    """Of the last look."""

    def look(self) -> ClusterSnapshot:
        seen = self.observer.observe()
        assert isinstance(seen.notes, KubeNotes)
        self.notes = seen.notes
        return seen.snapshot

    def job(self) -> Job:
        (job,) = self.look().jobs
        return job


def world(
    *pods: PodRecord,
    nodes: tuple[NodeRecord, ...] | None = (a_node_record(),),
    spec: Mapping[str, Any] | None = None,
    select: Callable[[PodRecord], bool] = lambda _: True,
    original: Callable[[str], CpuAllocation | None] = lambda _: None,
    original_memory: Callable[[str], MemoryAllocation | None] = lambda _: None,
    api: FakeOwnersApi | None = None,
    waited: Callable[[str], float | None] = lambda _: None,
    autoscalers: FakeStore[AutoscalerRecord] | None = None,
    others: FakeStore[OtherPod] | None = None,
    **series: JobSeries,
) -> World:
    store, machines = FakeStore(tuple(pods)), None if nodes is None else FakeStore(nodes)
    reader, clock = FakeReader(series), FakeClock()
    jobs = FakeStore((an_object("train", "job-1"),))
    owners = Owners(jobs, api or FakeOwnersApi())  # type: ignore[arg-type]
    policy = TrainingPolicySpec.model_validate({"resources": {"control": "limits"}, **(spec or {})})
    stores = Stores(store, machines, None, autoscalers, others)
    index = WatchedJobIndex(store, owners, trainer_under(policy))
    observer = KubeObserver(
        stores,
        owners,
        index,
        reader,
        select,
        policy,
        clock,
        original,
        waited_seconds=waited,
        original_memory=original_memory,
    )
    return World(store, machines, jobs, reader, clock, observer, index)


def names(snapshot: ClusterSnapshot) -> list[str]:
    return [job.name for job in snapshot.jobs]


def test_a_job_is_reported_in_full() -> None:
    annotations = {
        "slopewise.dev/weight": "2",
        "slopewise.dev/max-useful-cpu": "1500m",
        "slopewise.dev/migratable": "true",
    }
    pod = a_pod("p", a_container(restarts_total=1), a_container("side", init=True), owner=JOB, annotations=annotations)
    here = world(pod, p=REPORTS)
    usage = Usage(START - 3, 100.0, 2.0**20, 430.0, 1500.0)
    here.reader.uses["p"] = ContainerUse(usage, 40, 30)
    job = here.job()
    assert (job.uid, job.name, job.namespace, job.node) == ("job-1:0", "p", "team", "n1")
    assert (job.state, job.started_at_seconds) == (JobState.TRAINING, START - 105)
    assert (job.evaluation, job.steps_total, job.steps_planned, job.usage) == (LEVEL, 10, 100, usage)
    assert (job.allocation, job.memory_request_bytes) == (CpuAllocation(2000, 500), 2 * GIB)
    assert (job.objectives, job.useful_parallelism_cores, job.migratable) == (Objectives(weight=2.0), 1.5, True)
    assert job.container_health == ContainerHealth(1, None, 40, 30)
    assert job.accepts is not None
    assert (job.accepts.min_millicores, job.ineligible_reason, job.pending, job.warnings) == (500, None, None, ())


def test_a_lowered_memory_request_is_shown_with_what_the_next_pod_will_request() -> None:
    side = a_container("side", init=True)
    pod = a_pod("p", a_container(memory_request_bytes=GIB // 4), side)
    original = MemoryAllocation(GIB, 2 * GIB)
    job = world(pod, original=lambda _: CpuAllocation(2000, 500), original_memory=lambda _: original).job()
    assert job.memory == MemoryAllocation(GIB // 4, 2 * GIB)
    assert (job.memory_request_bytes, job.memory_to_move_bytes) == (1.25 * GIB, 2 * GIB)
    assert job.memory_ineligible_reason is None
    assert world(pod).job().memory_to_move_bytes == 1.25 * GIB


def test_a_pending_change_of_memory_has_what_is_in_effect() -> None:
    waits = PodPending("Deferred", START - 5, "no memory")
    there = MemoryAllocation(GIB // 4, 2 * GIB)
    job = world(a_pod("p", a_container(reported_memory=there), pending=waits)).job()
    assert job.pending is not None
    assert job.pending.actual_memory == there
    job = world(a_pod("p", a_container(reported_memory=MemoryAllocation(GIB, 2 * GIB)), pending=waits)).job()
    assert job.pending is not None
    assert job.pending.actual_memory is None


def test_a_job_with_gpus_is_reported_with_what_it_waited_and_whether_its_request_follows() -> None:
    container = a_container(limit=6000, request=6000, memory_limit_bytes=GIB)
    pod = a_pod("p", container, qos_class="Guaranteed", accelerators=2.0)
    share = {"resources": {"control": "limits", "accelerators": "Share"}}
    here = world(pod, spec=share, p=replace(REPORTS, wait_ratio=0.5, waited_seconds_total=40.0))
    here.reader.uses["p"] = ContainerUse(Usage(START - 3, 100.0), 40, 30, 2.5)
    job = here.job()
    assert (job.accelerators, job.wait_ratio, job.waited_seconds_total) == (2, 0.5, 40)
    assert job.request_follows_limit
    assert job.container_health == ContainerHealth(0, None, 40, 30, 2.5)
    assert (job.ineligible_reason, job.memory_ineligible_reason is None) == (None, False)
    assert not world(pod).job().request_follows_limit


def test_a_node_under_memory_pressure_says_so() -> None:
    [node] = world(a_pod(), nodes=(a_node_record(memory_pressure=True),)).look().nodes
    assert node.memory_pressure


def test_a_snapshot_has_the_nodes_with_what_they_have_to_give() -> None:
    cordoned = a_node_record("n2", unschedulable=True)
    lost = a_node_record("n3", ready=False)
    here = world(a_pod(), nodes=(a_node_record(cpu=1930), cordoned, lost, a_node_record("n4")))
    assert here.look().nodes == (Node("n1", 1.93, 8 * GIB), Node("n4", 4.0, 8 * GIB))


class TestCapacity:
    """What is left of a node of 4 cores."""

    SYSTEM = OtherPod("kube-system", "dns", "n1", 1000)

    def left(self, here: World) -> float | None:
        (node,) = here.look().nodes
        return node.available_cores

    def test_it_is_what_pods_that_are_not_ours_do_not_request(self) -> None:
        of_another_policy = a_pod("other", a_container(request=700))
        ended = a_pod("ended", a_container(request=9000), phase="Succeeded")
        here = world(
            a_pod("mine", a_container(request=500), owner=JOB),
            of_another_policy,
            ended,
            others=FakeStore((self.SYSTEM,)),
            select=lambda pod: pod.name == "mine",
        )
        assert self.left(here) == pytest.approx(4 - 1.0 - 0.7)
        assert here.notes.capacities["n1"].note is None

    def test_use_counts_where_it_is_more_than_what_is_requested(self) -> None:
        here = world(a_pod("mine", owner=JOB), others=FakeStore((self.SYSTEM,)))
        here.reader.others = {"n1": 2.25}
        assert self.left(here) == pytest.approx(1.75)
        here.reader.others = {"n1": 0.25}
        assert self.left(here) == pytest.approx(3.0)
        assert here.reader.asked_others[-1][0] == {"team"}

    def test_the_use_of_pods_that_are_ours_or_gone_is_not_that_of_others(self) -> None:
        beside = OtherPod("team", "beside", "n1", 100)
        pods = a_pod("mine", owner=JOB), a_pod("ended", phase="Succeeded")
        here = world(*pods, others=FakeStore((self.SYSTEM, beside)), select=lambda pod: pod.name == "mine")
        self.left(here)
        left_out = here.reader.asked_others[-1][1]
        names = ("mine", "beside", "ended", "deleted")
        assert [name for name in names if JobKey("team", name) in left_out] == ["mine", "ended", "deleted"]
        assert JobKey("", "") not in left_out, "the sum of other namespaces"

    def test_without_an_answer_about_use_the_pass_goes_on_with_requests(self) -> None:
        here = world(a_pod("mine", owner=JOB), others=FakeStore((self.SYSTEM,)))
        here.reader.others = ObservationError("Prometheus is gone")
        assert self.left(here) == pytest.approx(3.0)

    @pytest.mark.parametrize("others", [None, FakeStore[OtherPod]((SYSTEM,), synced=False)])
    def test_without_any_figure_all_of_it_counts_and_that_is_said(self, others: FakeStore[OtherPod] | None) -> None:
        here = world(a_pod("mine", owner=JOB), others=others)
        assert self.left(here) is None
        assert here.notes.capacities["n1"].note == (
            "what other pods request and use is not known, so all of its CPU counts"
        )


def test_nodes_that_the_policy_does_not_select_are_not_offered() -> None:
    spec = {"selector": {"nodes": {"matchLabels": {"pool": "cpu"}}}}
    nodes = (a_node_record("n1", labels={"pool": "cpu"}), a_node_record("n2"))
    assert [node.name for node in world(nodes=nodes, spec=spec).look().nodes] == ["n1"]


def test_a_lost_node_stays_with_its_jobs_and_they_say_why_nothing_happens() -> None:
    here = world(a_pod(), nodes=(a_node_record(ready=False),))
    snapshot = here.look()
    assert [node.name for node in snapshot.nodes] == ["n1"]
    assert snapshot.jobs[0].ineligible_reason == "node n1 is not ready; changes go on when it is"


def test_only_selected_pods_on_a_node_are_jobs() -> None:
    waiting = a_pod("w", node=None, phase="Pending")
    here = world(a_pod("a"), a_pod("b"), waiting, select=lambda pod: pod.name != "b")
    assert names(here.look()) == ["a"]


def test_only_rows_of_the_jobs_namespaces_and_containers_are_asked_for() -> None:
    here = world(a_pod("a", a_container("pytorch"), namespace="x"), a_pod("b"))
    here.look()
    assert here.reader.asked == [Scope(("team", "x"), ("pytorch", "trainer"))]


def test_without_jobs_no_rows_are_asked_for() -> None:
    here = world()
    assert here.look().jobs == ()
    assert here.reader.asked == [Scope(("",), ())]


def test_a_rank_that_reports_nothing_is_judged_by_the_rank_that_does() -> None:
    ranks = [a_pod(f"r{rank}", owner=JOB, labels={INDEX: f"{rank}"}) for rank in range(11)]
    late = replace(REPORTS, evaluation=replace(LEVEL, level=0.9))
    here = world(*ranks, r2=REPORTS, r10=late, r3=JobSeries(responses=Responses(1, 1.0)))
    jobs = {job.name: job for job in here.look().jobs}
    assert jobs["r0"].evaluation == LEVEL
    assert (jobs["r0"].steps_total, jobs["r0"].state) == (10, JobState.TRAINING)
    assert jobs["r10"].evaluation == late.evaluation
    assert jobs["r3"].evaluation is None


def test_jobs_of_another_workload_lend_nothing() -> None:
    here = world(a_pod("a"), a_pod("b"), a=REPORTS)
    assert [job.evaluation for job in here.look().jobs] == [LEVEL, None]


@pytest.mark.parametrize(
    ("pod", "series", "state"),
    [
        (a_pod(phase="Succeeded"), REPORTS, JobState.FINISHED),
        (a_pod(phase="Failed"), REPORTS, JobState.FAILED),
        (a_pod("p", a_container(running_since_seconds=None)), REPORTS, JobState.STARTING),
        (a_pod(), JobSeries(), JobState.STARTING),
        (a_pod(), JobSeries(responses=Responses(1, 1.0)), JobState.TRAINING),
    ],
)
def test_the_state_is_how_the_pod_ended_or_what_the_job_says(
    pod: PodRecord, series: JobSeries, state: JobState
) -> None:
    assert world(pod, p=series).job().state is state


def test_a_job_that_has_ended_is_shown_for_a_while() -> None:
    here = world(a_pod(phase="Succeeded"))
    assert names(here.look()) == ["p"]
    here.clock.seconds += 599
    assert names(here.look()) == ["p"]
    here.clock.seconds += 2
    assert names(here.look()) == []
    assert names(here.look()) == []


@pytest.mark.parametrize(
    ("kind", "result"), [("Deferred", "deferred"), ("Infeasible", "infeasible"), ("Error", "failed")]
)
def test_a_resize_that_waits_is_reported_with_the_time_at_which_we_first_saw_it(kind: Any, result: Any) -> None:
    slow_clock = PodPending(kind, START - 5000, "no room")
    container = a_container(limit=3000, reported=CpuAllocation(2000, 500))
    here = world(a_pod("p", container, pending=slow_clock))
    expected = PendingResize(result, START, "no room", CpuAllocation(2000, 500))
    assert here.job().pending == expected
    here.clock.seconds += 100
    assert here.job().pending == expected
    here.pods.put(a_pod("p", container, pending=structs.replace(slow_clock, since_seconds=START - 4000)))
    assert here.job().pending == replace(expected, since_seconds=START + 100)


SQUEEZED = CpuAllocation(500, 500)


@pytest.mark.parametrize(
    ("node", "waited", "late", "found"),
    [
        (a_node_record(), 2.0, False, "n1 has not reported it in effect yet"),
        (a_node_record(), 60.0, True, "n1 does not carry it out; see whether its kubelet runs"),
        (a_node_record(ready=False), 60.0, True, "n1 is not ready"),
    ],
)
def test_what_a_job_has_is_what_its_kubelet_reports(node: NodeRecord, waited: float, late: bool, found: str) -> None:
    pod = a_pod("p", a_container(limit=2000, reported=SQUEEZED))
    here = world(pod, nodes=(node,), waited=lambda _: waited)
    job = here.job()
    assert (job.allocation, job.actual) == (CpuAllocation(2000, 500), SQUEEZED)
    expected = f"the API server has accepted limit 2000m, request 500m; {found} (it reports limit 500m, request 500m)"
    assert job.unconfirmed == Unconfirmed(expected, late)
    assert here.notes.behind == (["n1"] if late else [])

    here.pods.put(a_pod())
    assert here.observer.with_cpu(job) == replace(job, actual=job.allocation, unconfirmed=None)
    assert here.observer.workloads_of({"uid-p"}) == {"uid-p"}
    here.pods.put(a_pod(uid="of another pod of that name"))
    assert here.observer.with_cpu(job) is None


def test_pods_whose_owner_somebody_scales_by_cpu_are_left_alone_as_long_as_that_is_so() -> None:
    scales = AutoscalerRecord("team", "web", "Job", "train", counts_cpu=True)
    others = (
        AutoscalerRecord("team", "by-queue", "Job", "train", counts_cpu=False),
        AutoscalerRecord("another", "web", "Job", "train", counts_cpu=True),
    )
    store = FakeStore(others)
    here = world(a_pod(owner=JOB), autoscalers=store)
    assert here.job().ineligible_reason is None
    store.put(*others, scales)
    job = here.job()
    assert job.ineligible_reason == (
        "HorizontalPodAutoscaler web scales it by CPU, which a resize changes; scale it by another metric, or set "
        "slopewise.dev/managed to 'false'"
    )
    assert here.notes.autoscaled == {job.uid}
    store.records = others
    assert here.job().ineligible_reason is None
    assert here.notes.autoscaled == frozenset()


def test_memory_of_pods_whose_owner_somebody_scales_by_memory_is_left_alone_and_restored_where_it_was_changed() -> None:
    scales = AutoscalerRecord("team", "web", "Job", "train", counts_cpu=False, counts_memory=True)
    store = FakeStore[AutoscalerRecord](())
    here, original = world(a_pod(owner=JOB), autoscalers=store), MemoryAllocation(GIB, 2 * GIB)
    changed = world(a_pod(owner=JOB), autoscalers=store, original_memory=lambda _: original)
    assert (here.job().memory_ineligible_reason, changed.job().memory_ineligible_reason) == (None, None)
    store.put(scales)
    job = here.job()
    assert str(job.memory_ineligible_reason).startswith("HorizontalPodAutoscaler web scales it by memory, which a")
    assert (job.ineligible_reason, here.notes.autoscaled) == (None, frozenset())
    assert changed.job().memory_ineligible_reason == job.memory_ineligible_reason
    assert changed.notes.autoscaled == {job.uid}


def test_a_kubelet_that_has_not_seen_the_newest_spec_has_not_carried_it_out() -> None:
    job = world(a_pod(unobserved=True)).job()
    assert job.actual == job.allocation
    assert job.unconfirmed is not None
    assert "it has not seen the last change" in job.unconfirmed.detail


def test_a_resize_that_its_kubelet_defers_is_no_kubelet_that_is_behind() -> None:
    container = a_container(limit=3000, reported=CpuAllocation(2000, 500))
    job = world(a_pod("p", container, pending=PodPending("Deferred", START, "no room")), waited=lambda _: 600.0).job()
    assert (job.actual, job.unconfirmed) == (CpuAllocation(2000, 500), None)


def test_a_kubelet_that_reports_no_resources_leaves_what_is_actual_unknown() -> None:
    job = world(a_pod("p", a_container(reported=None))).job()
    assert (job.actual, job.unconfirmed) == (None, None)


def test_a_start_in_the_future_of_our_clock_is_now() -> None:
    assert world(a_pod(started_at_seconds=START + 60)).job().started_at_seconds == START


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (JobSeries(), "reports no loss: Prometheus has no target for it; give its container a port named metrics"),
        (DOWN, "reports no loss: port 9464 refuses; see whether its exporter listens and answers"),
        (
            replace(DOWN, up=True),
            "reports no loss: port 9464 answers, but has no training_loss; it has my_val_loss; if",
        ),
        (replace(REPORTS, up=False), "Prometheus cannot scrape it; see whether its exporter listens"),
        (REPORTS, None),
    ],
)
def test_what_cannot_be_measured_is_reported_after_a_while_with_the_remedy(
    series: JobSeries, expected: str | None
) -> None:
    here = world(a_pod("p", a_container(running_since_seconds=START)), p=series)
    assert here.job().warnings == ()
    here.clock.seconds += GRACE_SECONDS
    warnings = here.job().warnings
    (no_use,) = [warning for warning in warnings if warning.startswith("no kubelet reports its usage; scrape")]
    others = [warning for warning in warnings if warning != no_use]
    assert [warning.startswith(expected or "") for warning in others] == [True] * (expected is not None)


@pytest.mark.parametrize(
    ("pod", "spec", "container", "unclear"),
    [
        (a_pod("p", a_container("a"), a_container("b")), None, "b", None),
        (a_pod("p", a_container("a"), a_container("c")), "c", "c", None),
        (a_pod("p", a_container("only"), a_container("side", init=True)), "other", "only", None),
    ],
)
def test_the_trainer_is_the_policys_container_then_the_owners_then_the_only_one(
    pod: PodRecord, spec: str | None, container: str, unclear: str | None
) -> None:
    annotated = structs.replace(pod, annotations={"slopewise.dev/container": "b"} if spec != "other" else {})
    here = world(annotated, spec={"selector": {"container": spec}} if spec else {})
    job = here.job()
    managed = here.index.find(job.uid)
    assert managed is not None
    assert (managed.container.name, job.ineligible_reason) == (container, unclear)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, "which container trains is not known; name one of a, c in slopewise.dev/container"),
        ({"slopewise.dev/container": "x"}, "annotation slopewise.dev/container names 'x', and the pod has a, c"),
    ],
)
def test_a_pod_whose_trainer_is_not_known_is_left_alone(annotations: dict[str, str], expected: str) -> None:
    assert (
        world(a_pod("p", a_container("a"), a_container("c"), annotations=annotations)).job().ineligible_reason
        == expected
    )


def test_requests_may_add_up_to_what_they_were_before_we_came() -> None:
    pods = [a_pod(name, a_container(request=700)) for name in ("a", "b", "c")]
    originals = {"uid-a:0": CpuAllocation(2000, 500), "uid-b:0": CpuAllocation(2000, 300)}
    here = world(*pods, spec={"resources": {"control": "requests"}}, original=originals.get)
    (node,) = here.look().nodes
    assert node.requests_max_millicores == 500 + 300 + 700 + 2


def test_kueues_bound_is_the_original_request_not_the_present_one() -> None:
    pod = a_pod("p", a_container(request=200), labels={"kueue.x-k8s.io/queue-name": "q"})
    originals = {"uid-p:0": CpuAllocation(2000, 500)}
    job = world(pod, spec={"resources": {"control": "requests"}}, original=originals.get).job()
    assert job.accepts is not None
    assert job.accepts.max_millicores == 500


def test_a_changed_pod_node_or_original_is_looked_at_again() -> None:
    originals: dict[str, CpuAllocation] = {}
    here = world(a_pod(), original=originals.get, spec={"resources": {"control": "limits", "lowerRequests": True}})
    assert here.job().ineligible_reason is None
    here.pods.put(a_pod(foreign_resizers=("x",)))
    assert (here.job().ineligible_reason or "").startswith("x resizes it too")
    here.pods.put(a_pod("p", a_container(limit=500), qos_class="Guaranteed"))
    originals["uid-p:0"] = CpuAllocation(900, 900)
    accepts = here.job().accepts
    assert accepts is not None
    assert accepts.max_millicores == 900
    assert here.nodes is not None
    here.nodes.put(a_node_record(ready=False))
    assert (here.job().ineligible_reason or "").startswith("node n1 is not ready")


@pytest.mark.parametrize("what", ["pods", "nodes", "jobs"])
def test_an_api_server_that_is_silent_holds_the_pass(what: str) -> None:
    here = world(a_pod())
    store = getattr(here, what)
    store.silent = 121.0
    with pytest.raises(ObservationError, match=f"sent nothing about {what} for 121 s, bound 120 s"):
        here.look()
    store.synced = False
    with pytest.raises(ObservationError, match=f"The {what} of the cluster are not read yet"):
        here.look()
    assert here.reader.asked == []


def test_pods_whose_owner_cannot_be_read_are_left_out_and_named() -> None:
    jobset = owned_by("JobSet", "s", "set-1", "jobset.x-k8s.io/v1alpha2")
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/s"
    here = world(a_pod("a"), a_pod("b", owner=jobset), api=FakeOwnersApi({path: 500}))
    assert names(here.look()) == ["a"]
    assert list(here.notes.left_out) == ["team/b"]


def test_a_pod_on_a_node_that_is_not_known_yet_is_left_out_and_named() -> None:
    here = world(a_pod("a"), a_pod("b", node="n9"))
    assert names(here.look()) == ["a"]
    assert here.notes.left_out == {"team/b": "the size of its node n9 is not known"}


def test_a_pod_with_too_many_series_is_named_and_stays_a_job_without_a_loss() -> None:
    here = world(a_pod("a"), a_pod("b"))
    here.reader.jobs = {"a": REPORTS, "b": JobSeries(warnings=("left out: it exports 100000 series",))}
    here.reader.left_out = {JobKey("team", "b"): 100_000}
    _, job = here.look().jobs
    assert (job.name, job.evaluation, job.warnings[0]) == ("b", None, "left out: it exports 100000 series")
    assert here.notes.left_out == {"team/b": "it exports 100000 series"}


def test_without_the_right_to_read_nodes_prometheus_shows_their_size() -> None:
    here = world(a_pod(), nodes=None)
    here.reader.sizes = {"n1": Machine(2.0, GIB), "n2": Machine(4.0, GIB)}
    snapshot = here.look()
    assert snapshot.nodes == (Node("n1", 2.0, GIB),)
    assert snapshot.jobs[0].ineligible_reason is None


def test_without_any_nodes_size_the_pass_is_held_with_the_remedy() -> None:
    with pytest.raises(
        ObservationError, match=r"The size of no node is known \(n1 …\).* grant the right to read nodes"
    ):
        world(a_pod(), nodes=None).look()


def test_the_index_finds_the_newest_that_is_known_of_a_pod() -> None:
    here = world(a_pod())
    here.look()
    newer = a_pod(resource_version="2")
    here.pods.put(newer)
    managed = here.index.find("uid-p:0")
    assert managed is not None
    assert managed.pod is newer


def test_the_index_finds_a_pod_that_is_selected_no_more_and_before_the_first_pass() -> None:
    here = world(a_pod(), select=lambda _: False)
    managed = here.index.find("uid-p:0")
    assert managed is not None
    assert managed.pod.name == "p"


def test_a_pod_that_is_gone_is_not_found_nor_is_another_of_its_name() -> None:
    here = world(a_pod())
    here.look()
    here.pods.put(a_pod(uid="another"))
    assert here.index.find("uid-p:0") is None
    here.pods.drop("p")
    assert here.index.find("another:0") is None


def test_the_index_finds_the_pod_that_replaced_another_in_its_slot() -> None:
    here = world(a_pod("old", owner=JOB))
    here.look()
    here.pods.drop("old")
    here.pods.put(a_pod("new", owner=JOB))
    managed = here.index.find("job-1:0")
    assert managed is not None
    assert managed.pod.name == "new"


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ({}, True),
        ({"pods": {"matchLabels": {"team": "a"}}}, False),
        ({"pods": {"matchLabels": {"slopewise.dev/managed": "true"}}}, True),
        ({"namespaces": {"matchLabels": {"env": "lab"}}}, True),
        ({"namespaces": {"matchLabels": {"env": "prod"}}}, False),
        ({"nodes": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}}, False),
    ],
)
def test_a_selection_picks_by_pod_namespace_and_node(selection: dict[str, Any], selected: bool) -> None:
    namespace = structs.replace(an_object("team", "u", namespace=""), labels={"env": "lab"})
    stores = Stores(FakeStore(), FakeStore((a_node_record(),)), FakeStore((namespace,)))
    assert stores.selects(Selection.model_validate(selection), a_pod()) is selected


def test_a_pod_without_a_node_yet_is_not_refused_for_its_node() -> None:
    stores = Stores(FakeStore(), FakeStore((a_node_record(),)), None)
    picky = Selection.model_validate({"nodes": {"matchLabels": {"pool": "cpu"}}})
    assert stores.selects(picky, a_pod(node=None))
    assert not stores.selects(picky, a_pod())


def test_a_workload_that_reports_no_loss_says_so_once_and_all_of_its_pods_know_why() -> None:
    ranks = [
        a_pod(
            f"train-{rank}", a_container(running_since_seconds=START), owner=JOB, annotations={INDEX: str(rank)},
        )
        for rank in range(3)
    ]  # fmt: skip
    series: dict[str, Any] = {"train-1": DOWN}
    here = world(*ranks, **series)
    here.look()
    here.clock.seconds += GRACE_SECONDS
    jobs = here.look().jobs
    causes = {job.missing_evaluation for job in jobs}
    assert [cause.reason for cause in causes if cause] == ["ScrapeFails"]
    expected = {job.name for job in jobs if any("reports no loss" in warning for warning in job.warnings)}
    assert expected == {"train-1"}


def test_a_rank_that_reports_nothing_beside_one_that_does_is_no_matter() -> None:
    ranks = [
        a_pod(f"train-{rank}", a_container(running_since_seconds=START), owner=JOB, annotations={INDEX: str(rank)})
        for rank in range(2)
    ]
    series: dict[str, Any] = {"train-0": REPORTS}
    here = world(*ranks, **series)
    here.look()
    here.clock.seconds += GRACE_SECONDS
    assert {job.missing_evaluation for job in here.look().jobs} == {None}
