"""Replays of recorded groups: against fair sharing over the same jobs, with their uncertainty."""

from __future__ import annotations

import pytest
import yaml
from support.kubernetes_fields import mistakes_by_definition
from support.past_jobs import START, past

from slopewise.adapters.prometheus.history import Resources
from slopewise.advise.findings import finding
from slopewise.advise.proposal import proposal, proposed_policy
from slopewise.advise.replay import PolicyReplay, Replayer, Replays, chosen
from slopewise.advise.scenarios.groups import Group, groups_of
from slopewise.advise.scenarios.recorded_jobs import RecordedJob, recorded_job
from slopewise.reports.estimates import Estimate


def group(node: str = "node-a", cores: float = 1.0, hours: float = 2.0) -> Group:
    """A short job that arrives late beside two long ones on one core."""
    histories = [
        past("long-0", hours=hours, cores=1.0, node=node),
        past("long-1", hours=hours, cores=1.0, node=node),
        past("short-0", hours=hours / 4, cores=1.0, node=node, start=START + 600),
    ]
    first = 10 * ord(node[-1])  # no two jobs of a history have one number
    jobs = [job for number, each in enumerate(histories, first) if (job := recorded_job(each, number)) is not None]
    return groups_of(jobs, {node: cores})[0]


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> Replays:
    """Two groups in which CPU was short, one in which it was not."""
    groups = [group("node-a"), group("node-b"), group("node-c", cores=8.0)]
    replayer = Replayer(groups, ["srpt-oracle", "las"], at_most=10, seeds=2)
    assert replayer.runs == 2 * 2 * 4
    replayer.run(tmp_path_factory.mktemp("replays"), 1)
    return replayer.replays


def test_only_groups_in_which_cpu_was_short_are_replayed(replays: Replays) -> None:
    assert (replays.groups, replays.contended, replays.replayed, replays.jobs) == (3, 2, 2, 6)


def test_the_bound_ends_jobs_sooner_than_fair_sharing(replays: Replays) -> None:
    """What it gives first to the shortest job makes that end sooner, and the others hardly later."""
    oracle = replays.policies[0]
    assert oracle.policy == "srpt-oracle"
    assert (oracle.ratios["jct_mean_seconds"].mean or 1) < 0.95
    assert oracle.ratios["jct_mean_seconds"].count == 2, "groups are the evidence, and not their seeds"
    assert oracle.jobs_sooner >= 2
    assert oracle.jobs == 6
    # Three cores were used of one, so the replayed jobs take up to three times as long as was recorded.
    assert 0.5 < (replays.fair_error_ratio or 0.0) < 2


def test_of_many_groups_some_are_drawn_and_always_the_same() -> None:
    groups = [group(f"node-{number}") for number in range(6)]
    found = chosen(groups, 3)
    assert len(found) == 3
    assert found == chosen(groups, 3)
    assert chosen(groups, 0) == []


def with_gpu(
    pod: str, wait_ratio: float, used: float, limit: float, number: int, node: str = "node-a", gpus: float = 1.0
) -> RecordedJob:
    history = past(
        pod, hours=1, loss=None, cores=used, gpus=gpus, wait_ratio=wait_ratio, limits=Resources(limit, None), node=node
    )
    found = recorded_job(history, number)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def by_need(tmp_path_factory: pytest.TempPathFactory) -> Replays:
    """A GPU that waits for its CPU beside one that does not; one whose loader is slow whatever the CPU; one alone."""
    jobs = [
        with_gpu("waits", 5 / 9, 3.0, 3.0, 1),
        with_gpu("has-enough", 0.0, 1.0, 3.0, 2, gpus=2000.0),  # of a plug-in that counts shares of a GPU
        with_gpu("slow-loader", 0.6, 1.0, 3.0, 3, node="node-b"),
        with_gpu("alone", 5 / 9, 3.0, 3.0, 4, node="node-c"),
        with_gpu("who-knows", 5 / 9, 3.0, 3.0, 5, node="node-d"),  # whose CPU is not known: it may have some idle
    ]
    groups = groups_of(jobs, {"node-a": 6.0, "node-b": 24.0, "node-c": 24.0}, requested={})
    replayer = Replayer(groups, (), at_most=10, seeds=1, by_need=True)
    replayer.run(tmp_path_factory.mktemp("by_need"), 1)
    return replayer.replays


def test_of_jobs_with_gpus_those_groups_are_replayed_in_which_one_waited_for_its_cpu(by_need: Replays) -> None:
    assert (by_need.groups, by_need.contended, by_need.replayed) == (3, 2, 2)
    assert [each.policy for each in by_need.policies] == ["Raise", "Share"]
    assert {key for each in by_need.policies for key in each.ratios} == {"jct_mean_seconds", "makespan_seconds"}


def test_a_job_whose_gpu_waits_ends_sooner_by_idle_cpu_and_sooner_still_by_what_another_does_not_use(
    by_need: Replays,
) -> None:
    """5/9 of the time waited: at best a job takes 0.44 of its time, with 6.75 cores."""
    raised, shared = ({name: each.mean or 9 for name, each in policy.job_ratios.items()} for policy in by_need.policies)
    assert raised["alone-4"] == shared["alone-4"] == pytest.approx(0.46, abs=0.03)
    assert raised["waits-1"] == pytest.approx(1, abs=0.03)  # its node has 6 cores, and each came with 3
    assert 0.55 < shared["waits-1"] < 0.75  # 3 / (6 - 1.2 * 1) is 0.63
    assert [raised["has-enough-2"], shared["has-enough-2"]] == pytest.approx([1, 1], abs=0.03)


def test_a_loader_that_its_cpu_does_not_hold_back_can_use_no_more() -> None:
    devices = with_gpu("slow-loader", 0.6, 1.0, 3.0, 1).devices
    assert devices is not None
    assert not devices.waits_for_cpu
    assert devices.settings() == {"count": 1, "stepSeconds": 0.4, "inputCpuSeconds": 1.0, "maxLoaderCores": 1.0}
    assert "maxLoaderCores" not in (with_gpu("waits", 5 / 9, 3.0, 3.0, 1).devices or devices).settings()


# --- the proposal -------------------------------------------------------------------------------------------


def replayed(name: str, mean: float, worst: float = 1.0, half: float = 0.01) -> PolicyReplay:
    ratio = Estimate(mean, mean - half, mean + half, 8)
    ratios = dict.fromkeys(("jct_mean_seconds", "time_to_90_seconds", "makespan_seconds"), ratio)
    return PolicyReplay(name, ratios, Estimate(worst, worst, worst, 8), 10, 5, 0, {})


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([replayed("flowcon", 0.9), replayed("marginal", 0.8)], "marginal"),
        ([replayed("flowcon", 0.9), replayed("marginal", 0.8, worst=1.4)], "flowcon"),
        ([replayed("flowcon", 0.9), replayed("las", 0.8)], "flowcon"),
        ([replayed("flowcon", 0.9, half=0.2)], None),
        ([replayed("flowcon", 1.2)], None),
        ([], None),
    ],
)
def test_a_policy_is_proposed_where_it_is_better_and_no_job_ends_much_later(
    policies: list[PolicyReplay], expected: str | None
) -> None:
    found = proposed_policy(Replays(1, 1, 1, 10, tuple(policies)))
    assert (None if found is None else found.policy) == expected


@pytest.mark.parametrize(
    ("requests", "namespace"),
    [([0.5, 4.0], "team"), ([None], "team"), ([0.01], "team"), ([500.0], "</script>"), ([0.5], "x" * 64)],
)
def test_what_is_proposed_is_valid_to_the_custom_resource(requests: list[float | None], namespace: str) -> None:
    findings = [finding(past(request=each, namespace=namespace)) for each in requests]
    document, text = proposal(findings, Replays(1, 1, 1, 2, (replayed("marginal", 0.8),)), "val_accuracy", "max")
    written = yaml.safe_load(text)
    assert mistakes_by_definition(written) == []
    assert (document.spec.mode, document.spec.policy.name) == ("Recommend", "marginal")
    assert (document.spec.evaluation.metric, document.spec.evaluation.objective) == ("val_accuracy", "max")
    assert ("namespaces" in written["spec"].get("selector", {})) == (namespace == "team")
    assert text.startswith("# marginal: the replayed jobs end 20% sooner on average than under fair sharing.\n")
    assert document.spec.resources.cpu.min <= document.spec.resources.cpu.max
