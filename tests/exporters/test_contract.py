"""What a scrape must contain: docs/metrics.md, name by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from support.training_fixtures import Fetch, MakeReporter, Scrape

from slopewise_exporter import Reporter
from slopewise_exporter.threads.following import following

TYPES = {
    "training_loss": "gauge",
    "training_steps": "counter",
    "training_samples": "counter",
    "training_epochs": "counter",
    "training_steps_planned": "gauge",
    "training_steps_planned_is_upper_bound": "gauge",
    "training_unsaved_steps": "gauge",
    "training_wait_seconds": "counter",
    "training_step_duration_seconds": "histogram",
    "training_first_step_timestamp_seconds": "gauge",
    "training_last_step_timestamp_seconds": "gauge",
    "training_checkpoint_timestamp_seconds": "gauge",
    "training_checkpoint_duration_seconds": "gauge",
    "training_checkpoint_on_sigterm": "gauge",
    "training_threads": "gauge",
    "training_threads_wanted": "gauge",
    "training_threads_useful": "gauge",
    "training_cpu_in_effect_cores": "gauge",
    "training_nonfinite_loss": "counter",
    "training_outlier_loss": "counter",
    "training_info": "gauge",
    "training_study": "gauge",
    "training_state": "gauge",
    "process_start_time_seconds": "gauge",
    "process_cpu_seconds": "counter",
    "process_resident_memory_bytes": "gauge",
}
LABELLED = {
    "training_loss": [f'{{stage="{stage}"}}' for stage in ("train", "train_ema", "eval")],
    "training_info": ['{framework="pytorch",model="mlp",objective="max"}'],
    "training_study": ['{study="lr search"}'],
    "training_state": [
        f'{{state="{state}"}}' for state in ("starting", "training", "checkpointing", "finished", "failed")
    ],
}
SUFFIXES = {"counter": ["_total"], "histogram": ["_sum", "_count"]}
SERIES = {f"{name}{end}" for name, kind in TYPES.items() for end in LABELLED.get(name) or SUFFIXES.get(kind) or [""]}
PARSERS: dict[str, Callable[[str], Iterable[Any]]] = {
    "text/plain": parse_text,
    "application/openmetrics-text;version=1.0.0": parse_openmetrics,
}


@pytest.fixture
def busy_port(make_reporter: MakeReporter, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """The port of a reporter that has been told everything once."""
    for name, value in {"wanted": 1, "applied": 1, "threads": 2, "cores": 0.5}.items():
        monkeypatch.setattr(following, name, value)
    monkeypatch.setattr(type(following), "useful", 3)
    reporter = make_reporter(planned_steps=100, objective="max", framework="pytorch", model="mlp", study="lr search")
    reporter.step(loss=2.0, samples=32)
    reporter.step(loss=1.0, samples=32)
    reporter.epoch()
    reporter.evaluate(0.5)
    with reporter.checkpoint():
        pass
    reporter.saves_on_sigterm = True
    return reporter.port


def test_every_series_of_the_contract_is_served_and_no_other_training_series(
    busy_port: int | None, scrape: Scrape
) -> None:
    served = {name for name in scrape(busy_port) if "_bucket{" not in name}
    assert served >= SERIES
    assert {name for name in served if name.startswith("training_")} <= SERIES


@pytest.mark.parametrize("accept", PARSERS)
def test_every_metric_has_its_type_in_both_formats(busy_port: int | None, fetch: Fetch, accept: str) -> None:
    families = {family.name: family.type for family in PARSERS[accept](fetch(busy_port, accept))}
    assert {name: families.get(name) for name in TYPES} == TYPES


def test_the_values_are_those_that_were_told(busy_port: int | None, scrape: Scrape) -> None:
    now = scrape(busy_port)
    assert now['training_loss{stage="train"}'] == 1.0
    assert now['training_loss{stage="eval"}'] == 0.5
    assert now["training_steps_total"] == 2
    assert now["training_samples_total"] == 64
    assert now["training_epochs_total"] == 1
    assert now["training_steps_planned"] == 100
    assert (now["training_threads"], now["training_threads_wanted"], now["training_threads_useful"]) == (2, 1, 3)
    assert now["training_cpu_in_effect_cores"] == 0.5
    assert now["training_step_duration_seconds_count"] == 1


def test_the_buckets_reach_from_5_milliseconds_to_30_seconds(busy_port: int | None, scrape: Scrape) -> None:
    bounds = [
        float(match[1])
        for name in scrape(busy_port)
        if (match := re.match(r'training_step_duration_seconds_bucket\{le="(.+)"\}', name))
    ]
    assert bounds == sorted(bounds)
    assert (bounds[0], bounds[-2], bounds[-1]) == (0.005, 30.0, float("inf"))


def test_the_page_of_metrics_names_everything_that_is_served_of_a_training() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text().split("## What the controller exports")[0]
    for name, kind in TYPES.items():
        if name.startswith("training_"):
            assert (f"{name}_total" if kind == "counter" else name) in page


def test_one_metric_can_be_asked_for_by_name(busy_port: int | None, fetch: Fetch) -> None:
    text = fetch(f"{busy_port}/?name[]=training_steps_total&ignored=")
    assert "training_steps_total 2.0" in text
    assert "training_loss" not in text


def test_before_the_first_step_the_state_is_starting_and_there_is_no_loss(reporter: Reporter, scrape: Scrape) -> None:
    now = scrape(reporter.port)
    assert now['training_state{state="starting"}'] == 1
    assert not [name for name in now if name.startswith(("training_loss", "training_last_step"))]
    assert "training_steps_planned" not in now
    assert not [name for name in now if name.startswith(("training_checkpoint", "training_threads", "training_cpu"))]
