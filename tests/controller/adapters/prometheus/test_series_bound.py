"""A pod with thousands of series is counted and left out by name; a real Prometheus answers for everybody else."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote_plus

import pytest
from support.exporters import Scraped
from support.waiting import wait_for

from slopewise.adapters.prometheus import queries, series_bound
from slopewise.adapters.prometheus.evaluations import JobKey
from slopewise.adapters.prometheus.queries import AnyOf, NoneOf
from slopewise.adapters.prometheus.reader import EVERYTHING, PrometheusReader, PrometheusReading, Scope
from slopewise.errors import ObservationError

MANY, BOUND = 1_000, 100
NAMESPACES = ("team", "other")
LOUD, NEIGHBOUR, NAMESAKE = JobKey("team", "loud"), JobKey("team", "quiet"), JobKey("other", "loud")
CROWDED = "crowded"


def page(series: int, metric: str = "training_loss", label: str = "sample") -> str:
    many = (f'{metric}{{stage="train",{label}="s{number}"}} 1\n' for number in range(series - 1))
    return "".join(many) + 'training_loss{stage="eval"} 0.5\ntraining_steps_total 10\n'


@pytest.fixture(scope="module")
def pages(pages: Scraped) -> Scraped:
    pods = {LOUD: page(MANY), NEIGHBOUR: page(1), NAMESAKE: page(1)}
    pods[JobKey("other", "steps")] = page(MANY, label="step")
    pods[JobKey("other", "facts")] = page(MANY, metric="training_state", label="state")
    pods |= {JobKey(CROWDED, f"{'long-name-' * 4}{number}"): page(BOUND + 1) for number in range(8)}
    pods[JobKey(CROWDED, "innocent")] = page(1)
    for key, content in pods.items():
        pages.add({"namespace": key.namespace, "pod": key.pod, "instance": "a:1"}, content)
    pages.publish()
    with a_reader(pages, max_series=10 * MANY) as reader:
        wait_for(
            "samples of all pods",
            lambda: read(reader),
            lambda found: found and set(pods) <= {key for key, job in found.jobs.items() if job.up},
        )
    return pages


def a_reader(pages: Scraped, max_series: int = BOUND, **more: Any) -> PrometheusReader:
    return pages.reader({"pod": AnyOf()}, max_series=max_series, **more)


def read(reader: PrometheusReader, scope: Scope = EVERYTHING) -> PrometheusReading | None:
    """None: on a busy machine the answer took longer than a pass waits."""
    try:
        return reader.read(time.time(), scope)
    except ObservationError:
        return None


def reading(pages: Scraped, scope: Scope = EVERYTHING, **more: Any) -> PrometheusReading:
    """A reading in which the two that are served have a loss: on a busy machine a scrape fails now and then."""
    with a_reader(pages, **more) as reader:
        found = wait_for(
            "both losses",
            lambda: read(reader, scope),
            lambda found: (
                found and all(key in found.jobs and found.jobs[key].evaluation for key in (NEIGHBOUR, NAMESAKE))
            ),
        )
        assert found is not None
        return found


pytestmark = pytest.mark.processes


def test_a_pod_above_the_bound_is_left_out_by_name_and_all_others_are_served(pages: Scraped) -> None:
    reported: list[set[JobKey]] = []
    found = reading(
        pages, Scope(NAMESPACES), points_seconds=10.0, on_left_out=lambda series: reported.append(set(series))
    )
    assert reported[-1] == found.left_out.keys() == {LOUD, JobKey("other", "facts")}
    assert found.left_out[LOUD] == MANY
    loud = found.jobs[LOUD]
    assert (loud.evaluation, loud.points) == (None, ())
    assert f"left out: it exports {MANY} series of what is read, bound {BOUND}" in loud.warnings[0]
    for key in (NEIGHBOUR, NAMESAKE):
        job = found.jobs[key]
        assert (job.evaluation.level if job.evaluation else None, job.steps_total) == (0.5, 10)
        assert job.points, "raw points are asked with the same matchers"


def test_losses_with_a_step_label_do_not_count_because_no_query_reads_them(pages: Scraped) -> None:
    job = reading(pages, Scope(NAMESPACES)).jobs[JobKey("other", "steps")]
    assert job.evaluation is not None
    assert "step" in job.warnings[0]


def test_more_names_than_a_url_can_hold_leave_their_namespace_out_and_no_other(pages: Scraped) -> None:
    found = reading(pages)
    innocent = found.jobs[JobKey(CROWDED, "innocent")]
    assert innocent.evaluation is None
    assert "left out with its namespace: 8 pods there export more than 100 series" in innocent.warnings[0]
    assert found.jobs[NEIGHBOUR].evaluation is not None


def test_a_namespace_with_such_a_pod_is_a_part_of_its_own() -> None:
    assert (series_bound.parts((), ()), series_bound.parts(NAMESPACES, ())) == (
        [()],
        [(("namespace", AnyOf(NAMESPACES)),)],
    )
    assert series_bound.parts(NAMESPACES, [LOUD]) == [
        (("namespace", AnyOf(NAMESPACES)), ("namespace", NoneOf(("team",)))),
        (("namespace", "team"), ("pod", NoneOf(("loud",)))),
    ]
    assert series_bound.parts(("other",), [LOUD]) == [
        (("namespace", AnyOf(("other",))), ("namespace", NoneOf(("team",))))
    ], "the namespaces are a pattern that may be too long, so that the count sees others"


def test_more_namespaces_with_such_pods_than_a_url_can_name_are_left_by_naming_the_others() -> None:
    bad = [f"team-with-a-long-name-{number}" for number in range(20)]
    good = [f"quiet-{number}" for number in range(40)]
    found = series_bound.parts((*bad, *good), [JobKey(each, "p") for each in bad])
    listed = [value for part in found for name, value in part if name == "namespace"]
    assert {each for value in listed if isinstance(value, AnyOf) for each in value.values} == set(good)
    assert [value for value in listed if isinstance(value, str)] == sorted(bad)
    assert all(len(queries.pattern(each.values)) <= queries.MAX_PATTERN for each in listed if isinstance(each, AnyOf))


def test_the_longest_part_fits_into_a_url_that_proxies_let_through() -> None:
    pods = tuple(f"team-train-worker-{number:02}" for number in range(8))
    (_, part) = series_bound.parts((), [JobKey("team-with-a-long-name", pod) for pod in pods])
    forced = (("pod", AnyOf()), *part)
    assert len(quote_plus(queries.levels("training_loss", forced, 20, 5))) < 8 * 1024
