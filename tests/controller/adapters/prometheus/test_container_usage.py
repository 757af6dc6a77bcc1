"""A real Prometheus scrapes kubelets the ways people scrape them, and pods that lie about what containers use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import pytest
from support.exporters import Scraped
from support.rows import row_of
from support.waiting import wait_for

from slopewise.adapters.prometheus.container_usage import (
    ContainerKey,
    ContainerLabels,
    ContainerRow,
    Machine,
    machines_by_node,
    use_by_container,
    use_of_others,
)
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.queries import AnyOf
from slopewise.adapters.prometheus.reader import EVERYTHING, PrometheusReader, PrometheusReading, Scope

pytestmark = pytest.mark.processes


@cache
def started() -> float:
    """When the kubelets took their samples: not at the import, which may be minutes before Prometheus is there."""
    return round(time.time(), 3)


PLAIN = {"job": "kubernetes-cadvisor", "instance": "node-a", "kubernetes_io_arch": "amd64"}
PLAIN_RESOURCE = {"job": "kubernetes-resource", "instance": "node-a"}
OPERATOR = {
    "job": "kubelet",
    "instance": "10.0.0.2:10250",
    "namespace": "kube-system",
    "service": "kubelet",
    "endpoint": "https-metrics",
    "metrics_path": "/metrics/cadvisor",
    "node": "node-b",
}


def cpu(value: float, *, pod: str, after: float = 0.0, container: str = "trainer", container_id: str = "") -> str:
    """A sample of CPU time with its own time, as both of a kubelet's endpoints give it."""
    cadvisor = f'cpu="total",id="/kubepods/{container_id}",image="i",name="{container_id}",' if container_id else ""
    labels = f'container="{container}",{cadvisor}namespace="team",pod="{pod}"'
    return f"container_cpu_usage_seconds_total{{{labels}}} {value} {round((started() + after) * 1000)}\n"


def gauge(name: str, value: float, *, pod: str, extra: str = "", container: str = "trainer") -> str:
    of_container = f'container="{container}",id="/kubepods/1",' if container else 'id="/kubepods/0",'
    return f'{name}{{{of_container}namespace="team",pod="{pod}"{extra}}} {value} {round(started() * 1000)}\n'


def whole(pod: str) -> str:
    """All that cAdvisor says of a pod with one container."""
    return (
        cpu(100, pod=pod, container_id="1")
        + gauge("container_memory_working_set_bytes", 2**20, pod=pod)
        + gauge("container_cpu_cfs_periods_total", 40, pod=pod)
        + gauge("container_cpu_cfs_throttled_periods_total", 30, pod=pod)
        + gauge("container_pressure_cpu_waiting_seconds_total", 2.5, pod=pod)
        + gauge("container_fs_reads_bytes_total", 10, pod=pod, extra=',device="/dev/a"')
        + gauge("container_fs_reads_bytes_total", 20, pod=pod, extra=',device="/dev/b"')
        + gauge("container_fs_writes_bytes_total", 400, pod=pod, extra=',device="/dev/a"')
        + gauge("container_network_receive_bytes_total", 1000, pod=pod, extra=',interface="eth0"', container="")
        + gauge("container_network_transmit_bytes_total", 500, pod=pod, extra=',interface="eth0"', container="")
        + gauge("container_network_receive_bytes_total", 9e9, pod=pod, extra=',interface="lo"', container="")
    )


DEVICES = (
    ("DCGM_FI_DEV_GPU_UTIL", 0, 50, "plain"),
    ("DCGM_FI_DEV_GPU_UTIL", 1, 10, "plain"),
    ("DCGM_FI_DEV_GPU_UTIL", 2, 100, "operator"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 2, 0.4, "operator"),
    ("DCGM_FI_DEV_GPU_UTIL", 3, 7, ""),
)
"""Two devices of one pod, one of another with the profiling counter as well, and one of none."""


def device(name: str, gpu: int, value: float, *, pod: str) -> str:
    holder = f',exported_namespace="team",exported_pod="{pod}",exported_container="trainer"' if pod else ""
    return f'{name}{{gpu="{gpu}",UUID="GPU-{gpu}"{holder}}} {value}\n'


@dataclass
class World:
    """What is read of kubelets and pods, and what Prometheus itself says."""

    scraped: Scraped

    def reader(self, resource_matchers: Mapping[str, str]) -> PrometheusReader:
        return self.scraped.reader({"pod": AnyOf()}, resource_matchers=resource_matchers)

    def read(self, scope: Scope = EVERYTHING, **resource_matchers: str) -> PrometheusReading:
        with self.reader(resource_matchers) as reader:
            return reader.read(time.time(), scope)

    def wait_for(self, query: str, count: int) -> None:
        wait_for(query, lambda: self.scraped.rows(query), lambda rows: len(rows) == count)


@pytest.fixture(scope="module")
def world(pages: Scraped) -> World:
    world = World(pages)
    restarted = cpu(500, pod="restarted", after=-20, container_id="old") + cpu(5, pod="restarted", container_id="new")
    machine = f"machine_cpu_cores 2\nmachine_memory_bytes {2**33}\n"
    sandbox = cpu(7, pod="plain", container="", container_id="sandbox")
    side = cpu(8, pod="plain", container="side", container_id="side")
    pages.add(PLAIN, whole("plain") + sandbox + side + cpu(100, pod="both", container_id="2") + restarted + machine)
    pages.add(PLAIN_RESOURCE, cpu(103, pod="both", after=0.25) + cpu(77, pod="resource-only"))
    pages.add(OPERATOR, whole("operator") + machine)
    lie = cpu(9999, pod="plain", after=0.3)
    pages.add({"job": "pods", "instance": "10.1.0.1:9464", "namespace": "evil", "pod": "plain"}, lie)
    gone = pages.add(
        {"job": "pods", "instance": "10.1.0.2:9464", "namespace": "evil", "pod": "operator"},
        cpu(9999, pod="operator", after=0.3),
    )
    own = f'training_loss{{stage="eval"}} 0.5\n{cpu(9999, pod="plain", after=0.3)}'
    target = {"job": "pods", "instance": "10.1.0.3:9464", "namespace": "team", "pod": "plain", "app_kind": "x"}
    pages.add(target, own)
    dcgm = {"job": "dcgm", "instance": "10.1.0.4:9400", "namespace": "gpu-operator", "pod": "dcgm-1"}
    used = [device(name, gpu, value, pod=pod) for name, gpu, value, pod in DEVICES]
    pages.add(dcgm, "".join(used))
    pages.add({**dcgm, "pod": "dcgm-0"}, "".join(used))  # the exporter's pod before, on its node's address
    pages.publish()
    world.wait_for("container_cpu_usage_seconds_total", 12)
    pages.targets.remove(gone)
    pages.publish()
    world.wait_for("DCGM_FI_DEV_GPU_UTIL", 8)
    world.wait_for("up", 7)
    return world


def test_all_that_cadvisor_says_of_a_container_costs_one_query(world: World) -> None:
    reading = world.read()
    assert reading.queries == 4
    use = reading.resources[ContainerKey("team", "plain", "trainer")]
    assert (use.usage.cpu_seconds_total, use.usage.memory_bytes) == (100, 2**20)
    assert (use.usage.block_io_bytes_total, use.usage.network_io_bytes_total) == (430, 1500)
    assert (use.cpu_periods_total, use.cpu_throttled_periods_total) == (40, 30)
    assert use.cpu_waiting_seconds_total == 2.5
    assert use.gpu_use == pytest.approx(0.3)
    assert reading.resources[ContainerKey("team", "operator", "trainer")].gpu_use == 0.4
    assert reading.resources[ContainerKey("team", "both", "trainer")].gpu_use is None
    assert use.usage.sampled_at_seconds == started()


def test_each_way_of_scraping_a_kubelet_counts_a_container_once_under_its_own_namespace(world: World) -> None:
    """By the newer sample of two endpoints, and without the counter of its former life."""
    resources = world.read().resources
    assert {key.namespace for key in resources} == {"team"}
    used = {key.pod: use.usage for key, use in resources.items() if key.container == "trainer"}
    assert used["operator"].cpu_seconds_total == 100
    assert (used["both"].cpu_seconds_total, used["both"].sampled_at_seconds) == (103, started() + 0.25)
    assert (used["restarted"].cpu_seconds_total, used["restarted"].sampled_at_seconds) == (5, started())
    alone = resources[ContainerKey("team", "resource-only", "trainer")]
    assert (alone.usage.cpu_seconds_total, alone.cpu_periods_total) == (77, None)
    assert (alone.usage.block_io_bytes_total, alone.usage.network_io_bytes_total) == (None, None)


def test_what_a_pod_claims_of_containers_is_not_believed_also_once_its_target_has_gone(world: World) -> None:
    for claim in ('namespace="evil",pod="plain"', 'namespace="evil",pod="operator"', 'app_kind="x"'):
        assert [row.value for row in world.scraped.rows(f"container_cpu_usage_seconds_total{{{claim}}}")] == [9999]
    resources = world.read().resources
    assert resources[ContainerKey("team", "operator", "trainer")].usage.cpu_seconds_total == 100
    assert resources[ContainerKey("team", "plain", "trainer")].usage.cpu_seconds_total == 100
    assert ContainerKey("evil", "plain", "trainer") not in resources


def test_scopes_and_matchers_narrow_what_is_read(world: World) -> None:
    assert {key.container for key in world.read(Scope(containers=("trainer", "a.b|.*"))).resources} == {"trainer"}
    assert {key.container for key in world.read().resources} == {"trainer", "side"}
    assert {key.pod for key in world.read(job="kubelet").resources} == {"operator"}
    ((key, job),) = world.read(Scope(namespaces=("team", "other"))).jobs.items()
    assert job.evaluation is not None
    assert (key.pod, job.evaluation.series) == ("plain", 'training_loss{stage="eval"}'), "without copied labels"
    assert [key.namespace for key in world.read(Scope(namespaces=("other", "ev|.*"))).jobs] == []


def test_nodes_are_measured_by_their_kubelets_under_either_way_of_scraping(world: World) -> None:
    with world.reader({}) as reader:
        machines = reader.machines(time.time())
    assert machines == {"node-a": Machine(2.0, 2**33), "node-b": Machine(2.0, 2**33)}


def test_a_node_that_is_scraped_by_address_goes_by_it() -> None:
    labels = {"instance": "10.0.0.7:10250"}
    rows = [
        row_of({**labels, "__name__": "machine_cpu_cores"}, 4.0),
        row_of({**labels, "__name__": "machine_memory_bytes"}, 1e9),
    ]
    assert machines_by_node(rows) == {"10.0.0.7": Machine(4.0, 10**9)}


def test_a_container_without_a_figure_for_its_cpu_is_left_out() -> None:
    labels = {"namespace": "team", "pod": "p", "container": "c"}
    rows = [
        ContainerRow(ContainerLabels(**labels, metric="container_memory_working_set_bytes"), (0.0, 1.0)),
        ContainerRow(ContainerLabels(namespace="team", pod="p", kind="network_io"), (0.0, 2.0)),
    ]
    assert use_by_container(rows) == {}


def test_a_pod_beside_jobs_says_nothing_of_devices_in_other_namespaces() -> None:
    """A tenant could deny a rival's raise."""
    of_container = {"namespace": "team", "pod": "p", "container": "c"}
    forged = {"namespace": "rival", "exported_namespace": "team", "pod": "p", "kind": "gpu_use"}
    rows = [
        ContainerRow(ContainerLabels(**of_container, kind="cpu"), (0.0, 1.0)),
        ContainerRow(ContainerLabels(**of_container, kind="sampled_at"), (0.0, 2.0)),
        ContainerRow(
            ContainerLabels(namespace="gpu-operator", exported_namespace="team", pod="p", kind="gpu_use"), (0.0, 0.3)
        ),
        ContainerRow(ContainerLabels(**forged), (0.0, 1.0)),
    ]
    found = [use_by_container(rows, tenants).values() for tenants in ({"team", "rival"}, ())]
    assert [use.gpu_use for uses in found for use in uses] == [0.3, 1.0]


def test_a_node_with_its_jobs_alone_is_one_whose_others_use_nothing_and_others_count_by_their_own_namespace() -> None:
    rows = [
        row_of({"node": "a", "instance": "10.0.0.7:10250", "namespace": "team", "pod": "mine"}, 1.5),
        row_of({"instance": "b:10250", "namespace": "kube-system", "exported_namespace": "team", "pod": "mine"}, 1.5),
        row_of({"instance": "b:10250", "namespace": "kube-system", "exported_namespace": "team", "pod": "side"}, 0.5),
        row_of({"instance": "b:10250"}, 0.25),
    ]
    assert use_of_others(rows, {JobKey("team", "mine")}) == {"a": 0.0, "b": 0.75}
