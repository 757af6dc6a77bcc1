"""A real Prometheus sums the CPU that others use on each node, under each way of scraping kubelets."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

import pytest
from support.exporters import Scraped
from support.waiting import wait_for

from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.node_queries import USE_SECONDS
from slopewise.adapters.prometheus.queries import AnyOf

pytestmark = pytest.mark.processes

CADVISOR = {"job": "cadvisor", "instance": "node-a"}
RESOURCE = {"job": "resource", "instance": "node-a"}
OPERATOR = {"job": "kubelet", "instance": "10.0.0.2:10250", "namespace": "kube-system", "node": "node-b"}
EVIL = {"job": "pods", "instance": "10.1.0.1:9464", "namespace": "evil", "pod": "liar"}
EVERY_SECONDS = 15
AHEAD_SECONDS = 300
"""Samples of the time in which the tests run, since all of them are scraped at once."""


GONE_SECONDS = 120
"""Since when a container has ended: most of the window has its samples."""


def history(
    now: float,
    cores: float,
    *,
    namespace: str,
    pod: str,
    container: str = "main",
    key: str = "1",
    until: float = -AHEAD_SECONDS,
) -> str:
    """The counter of a container that has used so many cores all the time, up to so many seconds ago."""
    labels = f'container="{container}",id="/{key}",namespace="{namespace}",pod="{pod}"'
    ages = range(round(USE_SECONDS) + EVERY_SECONDS, round(until), -EVERY_SECONDS)
    series = f"container_cpu_usage_seconds_total{{{labels}}}"
    return "".join(f"{series} {1000 + cores * (2 * USE_SECONDS - age)} {round((now - age) * 1000)}\n" for age in ages)


@dataclass
class World:
    scraped: Scraped

    def others(self, namespaces: Collection[str], *ours: tuple[str, str]) -> dict[str, float]:
        with self.scraped.reader({"pod": AnyOf()}, resource_matchers={}) as reader:
            return reader.use_of_others(time.time(), namespaces, {JobKey(*each) for each in ours})


@pytest.fixture(scope="module")
def world(pages: Scraped) -> World:
    now = round(time.time(), 3)
    system = history(now, 0.5, namespace="kube-system", pod="dns")
    mine = history(now, 1.0, namespace="team", pod="mine")
    beside = history(now, 0.25, namespace="team", pod="beside")
    sandbox = history(now, 8.0, namespace="kube-system", pod="dns", container="POD", key="2")
    former = history(now, 0.1, namespace="kube-system", pod="dns", key="former")
    gone = history(now, 16.0, namespace="kube-system", pod="gone", until=GONE_SECONDS)
    ended = history(now, 16.0, namespace="team", pod="ended", until=GONE_SECONDS)
    pages.add(CADVISOR, system + mine + beside + sandbox + former + gone + ended)
    pages.add(RESOURCE, history(now, 0.5, namespace="kube-system", pod="dns", key="resource"))
    pages.add(OPERATOR, system + mine + beside)
    pages.add(EVIL, history(now, 64.0, namespace="kube-system", pod="dns"))
    pages.publish()
    # The samples of a page are stored with its `up`.
    wait_for("a scrape of every target", lambda: pages.rows("up == 1"), lambda rows: len(rows) == len(pages.targets))
    return World(pages)


def test_what_is_not_a_jobs_counts_once_and_what_a_pod_says_does_not(world: World) -> None:
    too_many_for_a_url = {"team", *(f"a-namespace-with-a-long-name-{number}" for number in range(20))}
    for namespaces in ({"team"}, too_many_for_a_url):
        found = world.others(namespaces, ("team", "mine"))
        assert found == pytest.approx({"node-a": 0.75, "node-b": 0.75}, rel=0.05)
    assert world.others(()) == pytest.approx({"node-a": 1.75, "node-b": 1.75}, rel=0.05), "without jobs"
