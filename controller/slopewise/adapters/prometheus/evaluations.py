"""Chooses one evaluation per job from the rows of LEVELS: which of several series counts, and what is wrong with it.

Nothing here does I/O. Preference: an evaluation on held-out data first, then a smoothed training loss. The loss of
the last minibatch comes last: late in training its trend has the wrong sign in about half of all short windows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

import msgspec

from slopewise.adapters.prometheus.client import Row
from slopewise.adapters.prometheus.moving_labels import MovingLabels, SeriesRows
from slopewise.adapters.prometheus.queries import STEP_LABELS, VALUE_LABEL
from slopewise.config.metric_mappings import EvaluationMapping, PodLabels
from slopewise.model import Evaluation, Objective
from slopewise.model.reported import is_level

STAGE_PREFERENCE: Mapping[str, int] = {"eval": 0, "train_ema": 1, "train": 2}
_ANY_OTHER_STAGE = len(STAGE_PREFERENCE)

TARGET_LABELS = frozenset(
    {"__name__", "namespace", "pod", "job", "instance", "node", "container", "endpoint", "service", "prometheus"}
)
"""Labels of the scrape, which are not part of a series' name: a job that restarts on another port reports the same
`training_loss{stage="eval"}`. A scrape that copies the pod's labels onto its target (the `labelmap` of many
configurations) adds more; the target's `up` has them (`Facts.target_labels`)."""

MAX_SERIES_TEXT = 300
"""Characters of a series' name, which is stored with its job. A label's value may have any length: a longer name is
cut, and its digest distinguishes it."""

_NOT_ITS_NAME = TARGET_LABELS | {VALUE_LABEL}

SCRAPE_LABELS = PodLabels()
"""The labels that the scrape itself writes."""

_NO_TARGETS: Mapping[str, frozenset[str]] = {}


class JobKey(NamedTuple):
    """A job as the scrape's own labels name it; the process cannot choose them (`honor_labels: false`)."""

    namespace: str
    pod: str


class SeriesWindow(msgspec.Struct, frozen=True, gc=False):
    """One loss series over the window that ends with the reading. The level is NaN where a sample is not finite."""

    text: str
    stage_rank: int
    instance: str
    level: float
    sample_count: int
    last: float
    lowest: float
    sampled_at_seconds: float


class Candidates(msgspec.Struct, frozen=True, gc=False):
    """All series of one job that one mapping matches."""

    objective: Objective
    windows: tuple[SeriesWindow, ...]
    warnings: tuple[str, ...]


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """The chosen series of a job, and the warnings for its owner."""

    window: SeriesWindow | None = None
    objective: Objective = "min"
    warnings: tuple[str, ...] = ()


def job_key(labels: Mapping[str, str], names: PodLabels = SCRAPE_LABELS) -> JobKey | None:
    """The job that a series belongs to; None for a series without a namespace or a pod."""
    namespace, pod = labels.get(names.namespace), labels.get(names.pod)
    return tuple.__new__(JobKey, (namespace, pod)) if namespace and pod else None  # its own takes twice as long


def series_text(metric: str, labels: Mapping[str, str], target_labels: frozenset[str] = TARGET_LABELS) -> str:
    """The canonical name of a series, e.g. `training_loss{stage="eval"}`: sorted, without the scrape's labels."""
    return _series_text(metric, tuple([(name, labels[name]) for name in _own_names(tuple(labels), target_labels)]))


@lru_cache(maxsize=1024)
def _own_names(names: tuple[str, ...], target_labels: frozenset[str]) -> tuple[str, ...]:
    """Nearly all series have the same labels, whatever their values: they are sorted once and not once a series."""
    return tuple(sorted(set(names) - _NOT_ITS_NAME - target_labels))


@lru_cache(maxsize=1024)
def _series_text(metric: str, own: tuple[tuple[str, str], ...]) -> str:
    """Nearly all jobs report the same few series: one text for all of them."""
    inner = ",".join(f'{name}="{_quoted(value)}"' for name, value in own)
    text = f"{metric}{{{inner}}}" if inner else metric
    if len(text) <= MAX_SERIES_TEXT:
        return text
    digest = sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{text[: MAX_SERIES_TEXT - 18]}…#{digest}"


def stage_rank(labels: Mapping[str, str]) -> int:
    """0 for the stage that is preferred most; series without a known stage come last."""
    return STAGE_PREFERENCE.get(labels.get("stage", ""), _ANY_OTHER_STAGE)


def candidates_by_job(
    mapping: EvaluationMapping,
    rows: Iterable[Row],
    oldest_seconds: float,
    target_labels: Callable[[JobKey], Mapping[str, frozenset[str]]] = lambda _: _NO_TARGETS,
    moving: MovingLabels[JobKey] | None = None,
) -> dict[JobKey, Candidates]:
    """The rows of one mapping, grouped by job and series. `oldest_seconds` is the start of the window.

    `target_labels`: the names of the scrape's own labels by instance, for each of a job's targets. `moving`: what
    former readings have seen of labels that grow with the training.
    """
    alive, warnings = _alive_series(mapping, rows, oldest_seconds)
    for key, labels_of_steps in (moving.of_jobs(alive) if moving else {}).items():
        warnings[key].update(_step_warning(mapping.metric, label) for label in labels_of_steps)
        alive[key] = [one for one in alive[key] if labels_of_steps.isdisjoint(one.labels)]
    found = {key: Candidates(mapping.objective, (), tuple(sorted(of_job))) for key, of_job in warnings.items()}
    for key, of_job in alive.items():
        of_targets, windows = target_labels(key), []
        for one in of_job:
            of_target = of_targets.get(one.labels.get("instance", ""), TARGET_LABELS)
            windows.append(_window(series_text(mapping.metric, one.labels, of_target), one, oldest_seconds))
        warned = found[key].warnings if key in found else ()
        found[key] = Candidates(mapping.objective, tuple(windows), warned)
    return found


def _alive_series(
    mapping: EvaluationMapping, rows: Iterable[Row], oldest_seconds: float
) -> tuple[dict[JobKey, list[SeriesRows]], dict[JobKey, set[str]]]:
    """The series of each job that have a sample in the window, and warnings about series that were left out.

    Nearly all jobs have one series: it is found by comparing labels, which takes a quarter of the time of a hash.
    """
    firsts: dict[JobKey, SeriesRows] = {}
    others: dict[frozenset[tuple[str, str]], tuple[JobKey, SeriesRows]] = {}
    warnings: dict[JobKey, set[str]] = defaultdict(set)
    names = scrape_labels_if_equal(mapping.pod_labels)
    for row in rows:
        labels = dict(with_scrape_labels(row.labels, names))
        kind = labels.pop(VALUE_LABEL, "")
        labels.pop("__name__", None)
        if (key := job_key(labels)) is None:
            continue
        if kind in STEP_LABELS:
            warnings[key].add(_step_warning(mapping.metric, kind))
            continue
        if (known := firsts.get(key)) is None:
            known = firsts[key] = SeriesRows(labels, {})
        elif known.labels != labels:
            _, known = others.setdefault(frozenset(labels.items()), (key, SeriesRows(labels, {})))
        known.values[kind] = row.sample[1]
    alive: dict[JobKey, list[SeriesRows]] = {}
    for key, one in (*firsts.items(), *others.values()):
        if not _is_over(one.values, oldest_seconds):
            alive.setdefault(key, []).append(one)
    return alive, warnings


def scrape_labels_if_equal(names: PodLabels) -> PodLabels:
    """`SCRAPE_LABELS` itself where these are equal: to compare two by their fields takes longer than to read a row."""
    return SCRAPE_LABELS if names == SCRAPE_LABELS else names


def with_scrape_labels(labels: Mapping[str, str], names: PodLabels) -> Mapping[str, str]:
    """The labels of a series, with its pod under the names that a scrape uses (`scrape_labels_if_equal`)."""
    if names is SCRAPE_LABELS:
        return labels
    named = {"namespace": labels.get(names.namespace, ""), "pod": labels.get(names.pod, "")}
    return {name: each for name, each in labels.items() if name not in (names.namespace, names.pod)} | named


def choose(mappings: Sequence[Candidates], latest_instance: str | None, scrape_interval_seconds: float) -> Chosen:
    """One series for one job: of the first mapping that has any. The warnings of all mappings are kept.

    `latest_instance` is the address of the job's latest process, where that is known: while a restart on another
    port is within the window, the series of the former process are there too.
    """
    speaker = next((one for one in mappings if one.windows), None)
    warnings = [warning for one in mappings for warning in one.warnings]
    if speaker is None:
        return Chosen(warnings=tuple(warnings))
    of_latest = [window for window in speaker.windows if window.instance == latest_instance]
    best = _best(of_latest or speaker.windows, scrape_interval_seconds)
    if len(best) > 1:
        warnings.append(_duplicate_warning(best))
    return Chosen(best[0], speaker.objective, tuple(warnings))


def evaluation(chosen: Chosen, objective: Objective | None, *, diverged: bool) -> Evaluation | None:
    """The level as the decision core takes it; None without a series.

    `objective` is the job's own and overrides the mapping's. `diverged`: the reporter counted a NaN or Inf in this
    window. Without a finite level it is the last finite value, else the lowest, else NaN.
    """
    if (window := chosen.window) is None:
        return None
    finite = is_level(window.level)
    shown = (window.last, window.lowest)
    return Evaluation(
        level=window.level if finite else next((value for value in shown if is_level(value)), math.nan),
        sample_count=window.sample_count,
        sampled_at_seconds=window.sampled_at_seconds,
        series=window.text,
        objective=objective or chosen.objective,
        finite=finite and not diverged,
    )


def _is_over(values: Mapping[str, float], oldest_seconds: float) -> bool:
    """True when the window holds no sample and only the last one is returned.

    Prometheus returns it for five minutes when there is no staleness marker.
    """
    return "level" not in values and values.get("sampled_at", oldest_seconds) < oldest_seconds


def _window(text: str, series: SeriesRows, oldest_seconds: float) -> SeriesWindow:
    labels, values = series.labels, series.values
    diverged = "last" in values  # this row is only there for a window that holds a NaN or an infinity
    return SeriesWindow(
        text=text,
        stage_rank=stage_rank(labels),
        instance=labels.get("instance", ""),
        level=math.nan if diverged else values.get("level", math.nan),
        sample_count=series.sample_count,
        last=values.get("last", math.nan),
        lowest=values.get("lowest", math.nan),
        # A series that vanished between two steps of the subquery counts as old as possible, never as fresh.
        sampled_at_seconds=values.get("sampled_at", oldest_seconds),
    )


def _best(windows: Sequence[SeriesWindow], scrape_interval_seconds: float) -> list[SeriesWindow]:
    """The live series of the best stage, in the order of their names, so that passes do not alternate.

    Live first: an `eval` that has gone must not win over a `train_ema` that is still reported.
    """
    if len(windows) == 1:
        return list(windows)
    newest = max(window.sampled_at_seconds for window in windows)
    live = [window for window in windows if window.sampled_at_seconds >= newest - 2 * scrape_interval_seconds]
    best_rank = min(window.stage_rank for window in live)
    best = [window for window in live if window.stage_rank == best_rank]
    return sorted(best, key=lambda window: (window.text, window.instance))


OTHERS_NAMED = 3
"""One pod may report thousands of series: their names would fill the log and the decision record of all jobs."""


def _duplicate_warning(best: Sequence[SeriesWindow]) -> str:
    texts = list(dict.fromkeys(window.text for window in best[1:]))
    more = f" and {len(texts) - OTHERS_NAMED} more" if len(texts) > OTHERS_NAMED else ""
    others = ", ".join(texts[:OTHERS_NAMED]) + more
    return (
        f"{len(best)} series match: {best[0].text} of {best[0].instance} is used, not {others}; report from one "
        "process only, or narrow spec.evaluation.labels to one series"
    )


def _step_warning(metric: str, label: str) -> str:
    return (
        f"{metric} carries the label `{label}`: every {label} makes a new series and no window fills, so such series "
        f"are not used; report the {label} as a value of its own, or drop the label with metricRelabelings"
    )


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
