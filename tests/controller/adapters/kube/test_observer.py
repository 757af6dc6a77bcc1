"""Pods, nodes and what Prometheus knows of them become one snapshot; what cannot be seen whole is held or named."""

from __future__ import annotations

from dataclasses import replace
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
from support.observed_cluster import World, world
from support.worlds import START

from slopewise.adapters.kube.cache.records import ContainerRecord, NodeRecord, OtherPod, PodPending, PodRecord
from slopewise.adapters.kube.observer import Stores
from slopewise.adapters.kube.snapshot import GRACE_SECONDS
from slopewise.adapters.kube.workloads.autoscalers import AutoscalerRecord
from slopewise.adapters.prometheus.container_usage import ContainerUse, Machine
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.reader import JobSeries, Scope
from slopewise.config.training_policy import Selection
from slopewise.errors import ObservationError
from slopewise.model import (
    ClusterSnapshot,
    ContainerHealth,
    CpuAllocation,
    Evaluation,
    JobState,
    MemoryAllocation,
    Node,
    Objectives,
    PendingResize,
    Responses,
    Unconfirmed,
    Usage,
)
from slopewise.reports.trials import training_of

JOB = owned_by("Job", "train", "job-1")
INDEX = "batch.kubernetes.io/job-completion-index"
LEVEL = Evaluation(0.5, 4, START - 1, 'training_loss{stage="eval"}')
DOWN = JobSeries(up=False, instances=frozenset({"10.0.0.1:9464"}))
REPORTS = JobSeries(evaluation=LEVEL, steps_total=10, steps_planned=100, state=JobState.TRAINING, up=True)


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
    for accelerators, cores in ((0.0, 1.0), (2.0, 1.5)):  # its threads bound the CPU of one without GPUs
        threads = world(structs.replace(pod, accelerators=accelerators), p=structs.replace(REPORTS, useful_threads=1.0))
        assert threads.job().useful_parallelism_cores == cores
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
    waits = PodPending("Deferred", START - 5, "no memory")
    for reported, pending in ((MemoryAllocation(GIB // 4, 2 * GIB), True), (MemoryAllocation(GIB, 2 * GIB), False)):
        job = world(a_pod("p", a_container(reported_memory=reported), pending=waits)).job()
        assert job.pending is not None
        assert job.pending.actual_memory == (reported if pending else None), "what is in effect of a pending change"


def test_a_job_with_gpus_is_reported_with_what_it_waited_and_whether_its_request_follows() -> None:
    container = a_container(limit=6000, request=6000, memory_limit_bytes=GIB)
    pod = a_pod("p", container, qos_class="Guaranteed", accelerators=2.0)
    share = {"resources": {"control": "limits", "accelerators": "Share"}}
    here = world(pod, spec=share, p=structs.replace(REPORTS, wait_ratio=0.5, waited_seconds_total=40.0))
    here.reader.uses["p"] = ContainerUse(Usage(START - 3, 100.0), 40, 30, 2.5)
    job = here.job()
    assert (job.accelerators, job.wait_ratio, job.waited_seconds_total) == (2, 0.5, 40)
    assert job.request_follows_limit
    assert job.container_health == ContainerHealth(0, None, 40, 30, 2.5)
    assert (job.ineligible_reason, job.memory_ineligible_reason is None) == (None, False)
    assert not world(pod).job().request_follows_limit
    originals = {job.uid: CpuAllocation(7000, 7000)}.get
    worlds = [world(pod, original=originals), world(pod), world(pod, spec=share, original=originals)]
    assert {each.job().uid for each in worlds} == {job.uid}
    # It is ineligible once consent is withdrawn, so no resize of a policy could restore it where it was changed.
    assert [bool(each.notes.given_up) for each in worlds] == [True, False, False]


def test_a_snapshot_has_the_selected_nodes_with_what_they_have_to_give_and_those_of_jobs() -> None:
    pool = {"pool": "cpu"}
    nodes = (
        a_node_record(cpu=1930, memory_pressure=True, labels=pool),
        a_node_record("n2", unschedulable=True, labels=pool),
        a_node_record("n3", ready=False, labels=pool),
        a_node_record("n4", labels=pool),
        a_node_record("n5"),
        a_node_record("n6", ready=False, labels=pool),
    )
    here = world(a_pod(), a_pod("q", node="n6"), nodes=nodes, spec={"selector": {"nodes": {"matchLabels": pool}}})
    assert [(node.name, node.cpu_cores, node.memory_pressure) for node in here.observe().nodes] == [
        ("n1", 1.93, True), ("n4", 4.0, False), ("n6", 4.0, False)
    ]  # fmt: skip


class TestCapacity:
    """What is left of a node of 4 cores."""

    SYSTEM = OtherPod("kube-system", "dns", "n1", 1000)

    def left(self, here: World) -> float | None:
        (node,) = here.observe().nodes
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
        for used, left in (({"n1": 2.25}, 1.75), ({"n1": 0.25}, 2.3), (ObservationError("Prometheus is gone"), 2.3)):
            here.reader.others = used
            assert self.left(here) == pytest.approx(left), "use counts where it is more than what is requested"
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

    @pytest.mark.parametrize("others", [None, FakeStore[OtherPod]((SYSTEM,), synced=False)])
    def test_without_any_figure_all_of_it_counts_and_that_is_said(self, others: FakeStore[OtherPod] | None) -> None:
        here = world(a_pod("mine", owner=JOB), others=others)
        assert self.left(here) is None
        assert here.notes.capacities["n1"].note == (
            "what other pods request and use is not known, so all of its CPU counts"
        )


def test_only_what_is_asked_for_of_selected_pods_is_read_and_what_cannot_be_placed_is_left_out_and_named() -> None:
    jobset = owned_by("JobSet", "s", "set-1", "jobset.x-k8s.io/v1alpha2")
    path = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/s"
    pods = [
        a_pod("a", a_container("pytorch"), namespace="x"),
        a_pod("b"),
        a_pod("waiting", node=None, phase="Pending"),
        a_pod("not selected", namespace="y"),
        a_pod("of an owner", owner=jobset),
        a_pod("on a new node", node="n9"),
    ]
    here = world(*pods, select=lambda pod: pod.name != "not selected", api=FakeOwnersApi({path: 500}))
    assert names(here.observe()) == ["a", "b"]
    assert here.reader.asked == [Scope(("team", "x"), ("pytorch", "trainer"))]
    assert list(here.notes.left_out) == ["team/of an owner", "team/on a new node"]
    assert here.notes.left_out["team/on a new node"] == "the size of its node n9 is not known"
    assert world().observe().jobs == ()


def test_a_rank_that_reports_nothing_is_judged_by_the_rank_that_does_and_a_pod_of_its_own_is_not() -> None:
    ranks = [a_pod(f"r{rank}", owner=JOB, labels={INDEX: f"{rank}"}) for rank in range(11)]
    late = structs.replace(REPORTS, evaluation=LEVEL.altered(level=0.9))
    here = world(*ranks, a_pod("bare"), r2=REPORTS, r10=late, r3=JobSeries(responses=Responses(1, 1.0)))
    jobs = {job.name: job for job in here.observe().jobs}
    assert jobs["r0"].evaluation == LEVEL
    assert (jobs["r0"].steps_total, jobs["r0"].state) == (10, JobState.TRAINING)
    assert jobs["r10"].evaluation == late.evaluation
    assert jobs["r3"].evaluation is None
    assert jobs["bare"].evaluation is None


def test_a_study_that_a_training_names_itself_is_that_of_its_job_unless_its_owner_names_one() -> None:
    names = structs.replace(REPORTS, study="own")
    labelled = a_pod("b", labels={"slopewise.dev/study": "s"})
    jobs = {job.name: job for job in world(a_pod("a"), labelled, a=names, b=names).observe().jobs}
    assert {name: job.objectives.study for name, job in jobs.items()} == {"a": "own", "b": "s"}
    indices = [a_pod(f"r{index}", owner=JOB, labels={INDEX: f"{index}"}) for index in (0, 1)]
    jobs = {job.name: job for job in world(*indices, r0=names).observe().jobs}
    assert (jobs["r0"].evaluation, jobs["r1"].evaluation) == (LEVEL, None), "an index of a study is a trial"


def test_ranks_of_an_indexed_job_are_one_training_also_in_a_study() -> None:
    trainer = a_container(is_rank=True)
    labels = {"slopewise.dev/study": "s"}
    pods = [a_pod(f"r{index}", trainer, owner=JOB, labels={INDEX: f"{index}", **labels}) for index in (0, 1)]
    jobs = {job.name: job for job in world(*pods, r0=REPORTS).observe().jobs}
    assert jobs["r0"].evaluation == jobs["r1"].evaluation == LEVEL
    assert training_of(jobs["r0"]) == training_of(jobs["r1"])


def test_a_job_is_warned_that_its_best_cannot_be_favoured_once_it_reports() -> None:
    """Before that it may still name its study itself."""
    pod, spec = a_pod("p", annotations={"slopewise.dev/favour": "best"}), {"policy": {"name": "fair"}}
    jobs = [world(pod, spec=spec).job(), world(pod, spec=spec, p=structs.replace(REPORTS, study="s")).job()]
    said = [[each for each in job.warnings if each.startswith("favour")] for job in jobs]
    why = "policy fair favours no trial of a study; use marginal"
    assert said == [[], [f"favour: best has no effect: {why}"]]


@pytest.mark.parametrize(
    ("pod", "series", "state"),
    [
        (a_pod(phase="Failed"), REPORTS, JobState.FAILED),
        (a_pod("p", a_container(running_since_seconds=None)), REPORTS, JobState.STARTING),
        (a_pod(), JobSeries(), JobState.STARTING),
        (a_pod(), JobSeries(responses=Responses(1, 1.0)), JobState.TRAINING),
    ],
)
def test_the_state_is_how_the_pod_ended_or_the_job_says(pod: PodRecord, series: JobSeries, state: JobState) -> None:
    assert world(pod, p=series).job().state is state


def test_a_job_that_has_ended_is_shown_for_a_while() -> None:
    here = world(a_pod(phase="Succeeded"))
    assert names(here.observe()) == ["p"]
    here.clock.seconds += 599
    assert names(here.observe()) == ["p"]
    here.clock.seconds += 2
    assert names(here.observe()) == []
    assert names(here.observe()) == []


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
    assert here.observer.with_cpu(job) == job.altered(actual=job.allocation, unconfirmed=None)
    assert here.observer.workloads_of({"uid-p"}) == {"uid-p"}
    here.pods.put(a_pod(uid="of another pod of that name"))
    assert here.observer.with_cpu(job) is None


def test_of_a_kubelet_that_defers_a_resize_or_reports_nothing_none_is_waited_for() -> None:
    container = a_container(limit=3000, reported=CpuAllocation(2000, 500))
    waits = PodPending("Deferred", START, "no room")
    deferred = world(a_pod("p", container, pending=waits), waited=lambda _: 600.0).job()
    assert (deferred.actual, deferred.unconfirmed) == (CpuAllocation(2000, 500), None)
    silent = world(a_pod("p", a_container(reported=None))).job()
    assert (silent.actual, silent.unconfirmed) == (None, None)
    behind = world(a_pod(unobserved=True)).job()
    assert behind.actual == behind.allocation
    assert "it has not seen the last change" in (behind.unconfirmed.detail if behind.unconfirmed else "")


def test_pods_whose_owner_somebody_scales_by_cpu_are_left_alone_as_long_as_that_is_so() -> None:
    scales = AutoscalerRecord("team", "web", "Job", "train", counts_cpu=True)
    others = (
        AutoscalerRecord("team", "by-queue", "Job", "train", counts_cpu=False),
        AutoscalerRecord("another", "web", "Job", "train", counts_cpu=True),
    )
    store = FakeStore(others)
    here = world(a_pod(owner=JOB), autoscalers=store)
    assert here.job().ineligible_reason is None
    original = MemoryAllocation(GIB, 2 * GIB)
    changed = world(a_pod(owner=JOB), autoscalers=store, original_memory=lambda _: original)
    store.put(*others, replace(scales, counts_cpu=False, counts_memory=True))
    job = here.job()
    assert (job.memory_ineligible_reason or "").startswith("HorizontalPodAutoscaler web scales it by memory")
    assert (job.ineligible_reason, here.notes.given_up) == (None, frozenset())
    assert changed.job().uid in changed.notes.given_up, "its memory was changed, and is restored"
    store.put(*others, scales)
    job = here.job()
    assert job.ineligible_reason == (
        "HorizontalPodAutoscaler web scales it by CPU, which a resize changes; scale it by another metric, or set "
        "slopewise.dev/managed to 'false'"
    )
    assert here.notes.given_up == {job.uid}
    store.records = others
    assert here.job().ineligible_reason is None
    assert here.notes.given_up == frozenset()


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (JobSeries(), "reports no loss: Prometheus has no target for it; give its container a port named metrics"),
        (DOWN, "reports no loss: port 9464 refuses; see whether its exporter listens and answers"),
        (structs.replace(REPORTS, up=False), "Prometheus cannot scrape it; see whether its exporter listens"),
        (REPORTS, None),
    ],
)
def test_what_cannot_be_measured_is_reported_later_with_a_remedy(series: JobSeries, expected: str | None) -> None:
    here = world(a_pod("p", a_container(running_since_seconds=START)), p=series)
    assert here.job().warnings == ()
    here.clock.seconds += GRACE_SECONDS
    warnings = here.job().warnings
    (no_use,) = [warning for warning in warnings if warning.startswith("no kubelet reports its usage; scrape")]
    others = [warning for warning in warnings if warning != no_use]
    assert [warning.startswith(expected or "") for warning in others] == [True] * (expected is not None)


OF_TWO = a_container("a"), a_container("c")


@pytest.mark.parametrize(
    ("containers", "owners", "policys", "container", "unclear"),
    [
        (OF_TWO, "c", None, "c", None),
        (OF_TWO, "a", "c", "c", None),
        ((a_container("only"), a_container("side", init=True)), None, "other", "only", None),
        (OF_TWO, None, None, None, "which container trains is not known; name one of a, c in slopewise.dev/container"),
        (OF_TWO, "x", None, None, "annotation slopewise.dev/container names 'x', and the pod has a, c"),
    ],
)
def test_the_trainer_is_the_policys_container_then_the_owners_then_the_only_one(
    containers: tuple[ContainerRecord, ...],
    owners: str | None,
    policys: str | None,
    container: str | None,
    unclear: str | None,
) -> None:
    pod = a_pod("p", *containers, annotations={"slopewise.dev/container": owners} if owners else {})
    here = world(pod, spec={"selector": {"container": policys}} if policys else {})
    job = here.job()
    assert job.ineligible_reason == unclear
    managed = here.index.find(job.uid)
    assert managed is not None
    assert container in (managed.container.name, None)


def test_requests_may_add_up_to_what_they_were_before_we_came() -> None:
    pods = [a_pod(name, a_container(request=700)) for name in ("a", "b", "c")]
    originals = {"uid-a:0": CpuAllocation(2000, 500), "uid-b:0": CpuAllocation(2000, 300)}
    here = world(*pods, spec={"resources": {"control": "requests"}}, original=originals.get)
    (node,) = here.observe().nodes
    assert node.requests_max_millicores == 500 + 300 + 700 + 2


@pytest.mark.parametrize("what", ["pods", "nodes", "jobs"])
def test_an_api_server_that_is_silent_holds_the_pass(what: str) -> None:
    here = world(a_pod())
    store = getattr(here, what)
    store.silent = 121.0
    with pytest.raises(ObservationError, match=f"sent nothing about {what} for 121 s, bound 120 s"):
        here.observe()
    store.synced = False
    with pytest.raises(ObservationError, match=f"The {what} of the cluster are not read yet"):
        here.observe()
    assert here.reader.asked == []


def test_a_pod_with_too_many_series_is_named_and_stays_a_job_without_a_loss() -> None:
    here = world(a_pod("a"), a_pod("b"))
    here.reader.jobs = {"a": REPORTS, "b": JobSeries(warnings=("left out: it exports 100000 series",))}
    here.reader.left_out = {JobKey("team", "b"): 100_000}
    _, job = here.observe().jobs
    assert (job.name, job.evaluation, job.warnings[0]) == ("b", None, "left out: it exports 100000 series")
    assert here.notes.left_out == {"team/b": "it exports 100000 series"}


def test_without_the_right_to_read_nodes_prometheus_shows_their_size() -> None:
    here = world(a_pod(), nodes=None)
    here.reader.sizes = {"n1": Machine(2.0, GIB), "n2": Machine(4.0, GIB)}
    snapshot = here.observe()
    assert snapshot.nodes == (Node("n1", 2.0, GIB),)
    assert snapshot.jobs[0].ineligible_reason is None
    with pytest.raises(
        ObservationError, match=r"The size of no node is known \(n1 …\).* grant the right to read nodes"
    ):
        world(a_pod(), nodes=None).observe()


def test_the_index_finds_the_newest_pod_of_a_job_before_the_first_pass_and_whatever_is_selected() -> None:
    here = world(a_pod("old", owner=JOB), a_pod(), select=lambda _: False)

    def found(uid: str) -> str | None:
        managed = here.index.find(uid)
        return None if managed is None else f"{managed.pod.name} {managed.pod.resource_version}"

    assert (found("job-1:0"), found("uid-p:0")) == ("old 1", "p 1")
    here.pods.put(a_pod(resource_version="2"))
    assert found("uid-p:0") == "p 2"
    here.pods.put(a_pod(uid="another"))
    assert (found("uid-p:0"), found("another:0")) == (None, "p 1")
    here.pods.drop("old")
    here.pods.put(a_pod("new", owner=JOB))
    assert found("job-1:0") == "new 1"


def test_a_changed_pod_or_original_is_read_again() -> None:
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
    assert here.job().ineligible_reason == "node n1 is not ready; changes go on when it is"


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ({}, True),
        ({"pods": {"matchLabels": {"team": "a"}}}, False),
        ({"namespaces": {"matchLabels": {"env": "lab"}}}, True),
        ({"namespaces": {"matchLabels": {"env": "another"}}}, False),
        ({"nodes": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}}, False),
    ],
)
def test_a_selection_picks_by_pod_namespace_and_node(selection: dict[str, Any], selected: bool) -> None:
    namespace = structs.replace(an_object("team", "u", namespace=""), labels={"env": "lab"})
    stores = Stores(FakeStore(), FakeStore((a_node_record(),)), FakeStore((namespace,)))
    assert stores.selects(Selection.model_validate(selection), a_pod()) is selected
    assert stores.selects(Selection.model_validate(selection), a_pod(node=None)) is (selected or "nodes" in selection)


def test_a_workload_that_reports_no_loss_says_so_once_and_all_of_its_pods_know_why() -> None:
    ranks = [
        a_pod(
            f"train-{rank}", a_container(running_since_seconds=START), owner=JOB, annotations={INDEX: str(rank)},
        )
        for rank in range(3)
    ]  # fmt: skip
    series: dict[str, Any] = {"train-1": DOWN}
    here = world(*ranks, **series)
    here.observe()
    here.clock.seconds += GRACE_SECONDS
    jobs = here.observe().jobs
    causes = {job.missing_evaluation for job in jobs}
    assert [cause.reason for cause in causes if cause] == ["ScrapeFails"]
    expected = {job.name for job in jobs if any("reports no loss" in warning for warning in job.warnings)}
    assert expected == {"train-1"}
    here.reader.jobs["train-0"] = REPORTS
    assert {job.missing_evaluation for job in here.observe().jobs} == {None}, "one that reports is enough"
