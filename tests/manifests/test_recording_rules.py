"""What the recording rules record agrees with what a pass computes: a real Prometheus, and passes that read it.

Docs/metrics.md states the tolerance. Here a minute is two seconds (`support/recorded_rules.py`), and the interval of
the passes is one minute.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from support.recorded_rules import FASTER, RULES, Page, RulesPrometheus, Since
from support.worlds import FakeActuator, FakeMemory, a_node

from grafana.queries import metric_names
from slopewise.adapters.clock import SystemClock
from slopewise.adapters.local.prometheus_server import PrometheusBinaries
from slopewise.adapters.prometheus.container_usage import ContainerKey
from slopewise.adapters.prometheus.reader import PrometheusReader
from slopewise.config.training_policy import EvaluationSettings
from slopewise.estimators.growth import IDLE_CORES, MIN_RANGE_RATIO, SCRAPES_PER_WINDOW, Measuring
from slopewise.feedback.pass_settings import PassSettings
from slopewise.feedback.rollback import RollbackSettings
from slopewise.model import (
    Bounds,
    ClusterSnapshot,
    CpuAllocation,
    Decisions,
    Job,
    MemoryState,
    Objectives,
    Observation,
    PassReport,
)
from slopewise.ports import Ports
from slopewise.reconcile import reconcile
from slopewise.telemetry.metrics import Telemetry

ROOT = Path(__file__).resolve().parents[2]
GROUPS: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
RECORDS = {rule["record"]: rule["expr"] for group in GROUPS for rule in group["rules"] if "record" in rule}
GROWTH, PER_CORE, CORES, QOE = (
    "namespace_pod:training_growth:deriv2m",
    "namespace_pod:training_growth_per_core:ratio2m",
    "namespace_pod:training_cpu_cores:rate2m",
    "namespace_pod:qoe_deviation:ratio2m",
)
MINUTE = 60 / FASTER
NODE_CORES = 4.0
TEAM = {"namespace": "team", "job": "trainers"}


def tolerance() -> float:
    """Of the page, so that what it says is what is tested."""
    found = re.search(r"within (\d+) %", (ROOT / "docs/metrics.md").read_text().split("## Recording rules")[1])
    assert found
    return int(found[1]) / 100


# --- the jobs -------------------------------------------------------------------------------------------------

LOSSES: Mapping[str, Callable[[float], float]] = {
    "falls": lambda seconds: 3 - 0.02 * seconds,
    "decays": lambda seconds: 0.5 + 2 * math.exp(-seconds / 40),
    "beyond-half": lambda seconds: 3 - 0.1 * seconds,
    "worse": lambda seconds: 1 + 0.02 * seconds,
}
USED_CORES = {"falls": 0.5, "decays": 1.5, "beyond-half": 1.0, "worse": 2.0}
STEPS_PER_SECOND = {"falls": 5.0, "decays": 8.0}
ASKED_SECONDS = {"falls": 0.25, "decays": 0.1, "serves": 0.5}


def training(pod: str, since: Since) -> str:
    seconds = since()
    lines = [
        f'training_loss{{stage="train_ema"}} {LOSSES[pod](seconds)}',
        f'training_loss{{stage="train"}} {1 + seconds % 1}',
        'training_state{state="training"} 1',
        "process_start_time_seconds 1000",
    ]
    if pod in STEPS_PER_SECOND:
        lines.append(f"training_steps_total {math.floor(STEPS_PER_SECOND[pod] * seconds)}")
    return "\n".join(lines) + "\n"


def served(since: Since) -> str:
    name, count = "inference_response_duration_seconds", math.floor(10 * since())
    of = {'outcome="ok"': (count, 0.8 * count), 'outcome="failed"': (9 * count, 0.01 * count)}
    lines = [f"# TYPE {name} histogram"]
    for labels, (answered, seconds) in of.items():
        lines += [f'{name}_bucket{{{labels},le="+Inf"}} {answered}', f"{name}_sum{{{labels}}} {seconds}"]
        lines += [f"{name}_count{{{labels}}} {answered}"]
    return "\n".join([*lines, "process_start_time_seconds 1000"]) + "\n"


def kubelet(since: Since) -> str:
    return "".join(
        f'container_cpu_usage_seconds_total{{namespace="team",pod="{pod}",container="trainer"}} {cores * since()}\n'
        for pod, cores in USED_CORES.items()
    )


# --- the passes -----------------------------------------------------------------------------------------------


class Reading:
    """An Observer of what Prometheus has of the jobs."""

    def __init__(self, reader: PrometheusReader, started_at_seconds: float) -> None:
        self._reader = reader
        self._started_at_seconds = started_at_seconds

    def observe(self) -> Observation:
        now = time.time()
        reading = self._reader.read(now)
        jobs = []
        for key, series in reading.jobs.items():
            used = reading.resources.get(ContainerKey(key.namespace, key.pod, "trainer"))
            job = Job(
                uid=key.pod,
                name=key.pod,
                namespace=key.namespace,
                node="n1",
                state=series.reported_state,
                started_at_seconds=self._started_at_seconds,
                allocation=CpuAllocation(None, 1000),
                evaluation=series.evaluation,
                usage=used.usage if used else None,
                steps_total=series.steps_total,
                responses=series.responses,
                objectives=Objectives(qoe_seconds=ASKED_SECONDS.get(key.pod)),
                process_started_at_seconds=series.process_started_at_seconds,
            )
            jobs.append(job)
        nodes = (a_node(cpu_cores=NODE_CORES),)
        return Observation(ClusterSnapshot(now, nodes, tuple(jobs), scrape_interval_seconds=0.5))


class ChangesNothing:
    """A policy that only measures."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        return Decisions("measures", (), {job.uid: "measured" for job in snapshot.jobs}, memory)


SETTINGS = PassSettings(
    "measures",
    Measuring(MINUTE),
    Bounds("Recommend", 1, 64_000, 10.0, 2.0, 0.1),
    RollbackSettings(MINUTE, 120.0, 600.0),
)


@dataclass
class Figures:
    """Pairs of what a pass has computed and what was recorded at that moment, by record and pod."""

    pairs: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    recorded: dict[str, dict[str, float]] = field(default_factory=dict)
    """The last of each rule."""
    health: Mapping[str, str] = field(default_factory=dict)
    """Of each rule at the end."""

    def add(self, report: PassReport, of: Mapping[str, Mapping[str, float]]) -> None:
        assert report.decisions is not None
        self.recorded = {record: dict(values) for record, values in of.items()}
        for pod, known in report.decisions.memory.jobs.items():
            growth, status = known.growth, report.objective_statuses.get(pod)
            efficiency = growth.cpu_efficiency if growth else None
            computed: dict[str, float | None] = {
                GROWTH: growth.progress_per_second if growth else None,
                PER_CORE: None if efficiency is None else efficiency / NODE_CORES,
                CORES: growth.cpu_cores if growth else None,
                QOE: status.qoe.deviation if status and status.qoe else None,
            }
            for record, figure in computed.items():
                if figure is not None and pod in of[record]:
                    self.pairs[record, pod].append((figure, of[record][pod]))


@pytest.fixture(scope="module")
def figures(prometheus_binaries: PrometheusBinaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Figures]:
    since, telemetry, found = Since(), Telemetry(control="requests", interval_seconds=MINUTE), Figures()
    pages: dict[str, Page] = {pod: ({**TEAM, "pod": pod}, partial(training, pod, since)) for pod in LOSSES}
    pages["serves"] = {**TEAM, "pod": "serves"}, partial(served, since)
    pages["nan"] = {**TEAM, "pod": "nan"}, lambda: 'training_loss{stage="eval"} NaN\n'
    pages["rises"] = (
        {**TEAM, "pod": "rises"},
        lambda: f'training_loss{{stage="eval"}} {since()}\ntraining_info{{objective="max"}} 1\n',
    )
    pages["kubelet"] = {"job": "kubelet"}, partial(kubelet, since)
    controller = {"namespace": "slopewise-system", "pod": "controller", "job": "slopewise"}
    pages["controller"] = controller, lambda: generate_latest(telemetry.registry).decode()
    with (
        RulesPrometheus(prometheus_binaries, tmp_path_factory.mktemp("rules"), pages) as server,
        PrometheusReader(
            server.url, {"namespace": "team"}, 0.5, [EvaluationSettings()], 4 * 0.5, resource_matchers={}
        ) as reader,
    ):
        server.wait_for_targets()
        ports = Ports(Reading(reader, time.time()), FakeActuator(), FakeMemory(), SystemClock())
        warm_at, end_at = time.time() + 4 * MINUTE, time.time() + 11 * MINUTE
        while time.time() < end_at:
            report = reconcile(ports, ChangesNothing(), SETTINGS)
            assert report.held is None
            telemetry.record(report)
            if time.time() >= warm_at:
                found.add(report, {record: server.values(record, time.time()) for record in RECORDS})
            time.sleep(0.5)
        found.health = server.health()
        yield found


def computed_and_recorded(figures: Figures, record: str, pod: str) -> tuple[float, float]:
    """Means over the passes: an interval of two seconds has the change of four scrapes or of five."""
    pairs = figures.pairs[record, pod]
    assert len(pairs) >= 8
    return statistics.fmean(one for one, _ in pairs), statistics.fmean(other for _, other in pairs)


@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.parametrize("record", [GROWTH, PER_CORE, CORES])
@pytest.mark.parametrize("pod", ["falls", "decays", "beyond-half"])
def test_growth_and_use_are_those_that_a_pass_computes(figures: Figures, record: str, pod: str) -> None:
    computed, recorded = computed_and_recorded(figures, record, pod)

    assert computed > 0
    assert recorded == pytest.approx(computed, rel=tolerance())


@pytest.mark.alone
@pytest.mark.processes
def test_what_gets_worse_does_not_grow(figures: Figures) -> None:
    assert computed_and_recorded(figures, GROWTH, "worse") == (0.0, 0.0)


@pytest.mark.alone
@pytest.mark.processes
@pytest.mark.parametrize("pod", list(ASKED_SECONDS))
def test_the_deviation_from_an_objective_is_that_of_a_pass(figures: Figures, pod: str) -> None:
    computed, recorded = computed_and_recorded(figures, QOE, pod)

    assert abs(computed) > 0.1
    assert 1 - recorded == pytest.approx(1 - computed, rel=tolerance())


@pytest.mark.alone
@pytest.mark.processes
def test_a_loss_that_is_no_number_or_is_to_rise_has_no_growth(figures: Figures) -> None:
    assert figures.recorded[GROWTH].keys() == LOSSES.keys()


@pytest.mark.alone
@pytest.mark.processes
def test_prometheus_evaluates_every_rule_without_an_error(figures: Figures) -> None:
    rules = [rule.get("record") or rule["alert"] for group in GROUPS for rule in group["rules"]]

    assert figures.health == dict.fromkeys(rules, "ok")


# --- what the rules share with the code ------------------------------------------------------------------------


def test_the_rules_use_the_figures_of_the_code() -> None:
    scrape_seconds = 15
    assert f"> {MIN_RANGE_RATIO:g} * abs(" in RECORDS["namespace_pod:training_loss:range"]
    assert f"> {IDLE_CORES:g})" in RECORDS[PER_CORE]
    assert f"[{SCRAPES_PER_WINDOW * scrape_seconds // 60}m]" in RECORDS["namespace_pod:training_loss:median1m"]


def test_the_name_of_a_rule_has_its_level_its_metric_and_its_operation_with_the_window() -> None:
    for record, expression in RECORDS.items():
        level, _, operation = record.split(":")
        assert level in ("namespace_pod", "job_namespace")
        windows = set(re.findall(r"\[(\d+[mh])\]", expression))
        if windows and "last_over_time" not in expression:
            assert windows == {re.sub(r"^[a-z]+", "", operation)}


def test_the_page_counts_the_series_of_a_job() -> None:
    of_a_job = [record for record in RECORDS if record.startswith("namespace_pod:")]

    assert len(of_a_job) == 9
    assert "The rules of a job are nine series." in (ROOT / "docs/metrics.md").read_text(encoding="utf-8")


def test_nothing_but_dashboards_reads_what_the_rules_record() -> None:
    sources = [path for path in (ROOT / "controller").rglob("*.py") if ".venv" not in path.parts]
    alerts = [rule["expr"] for group in GROUPS for rule in group["rules"] if "alert" in rule]

    assert len(sources) > 300
    assert [path for path in sources for record in RECORDS if record in path.read_text(encoding="utf-8")] == []
    assert [name for expression in alerts for name in metric_names(expression) if ":" in name] == []
