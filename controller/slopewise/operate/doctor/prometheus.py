"""Checks of Prometheus: answer, targets, clock, and series that name no pod."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.prometheus.client import PrometheusHttp, Target
from slopewise.adapters.prometheus.queries import checked_label_name, checked_metric_name
from slopewise.config.metric_mappings import EvaluationMapping
from slopewise.errors import ObservationError
from slopewise.operate.doctor.findings import Finding, grouped
from slopewise.operate.doctor.server import CLOCK_NOTE_SECONDS, clock_finding
from slopewise.reports.wording import counted
from slopewise.text import bounded

TIMEOUT_SECONDS = 10.0
LOOKBACK_SECONDS = 300.0
"""How old a sample may be that Prometheus still counts as present, by default."""

MAX_AGE_SCRAPES = 3.0
"""The newest sample of all targets is one scrape old at most; three leave room for a slow one."""

_NEWEST = "max(timestamp(up))"
_MAX_ERROR = 100


def check_prometheus(endpoint: Endpoint, scrape_interval_seconds: float, now_seconds: float) -> Iterator[Finding]:
    """Whether it answers, and the time of its newest samples; the first finding says whether to go on."""
    http = PrometheusHttp(endpoint, TIMEOUT_SECONDS)
    try:
        http.begin()
        newest = [row.value for row in http.ask(_NEWEST, now_seconds)]
        # A sample from the future is not seen by a query of now.
        later = [row.value for row in http.ask(_NEWEST, now_seconds + LOOKBACK_SECONDS - 1)]
    except ObservationError as error:
        yield Finding("Prometheus", "unreachable", without_pass(error))
        return
    finally:
        http.close()
    yield Finding("Prometheus", "ok", f"{http.shown_url} answers")
    yield _clock(newest, later, scrape_interval_seconds, now_seconds)


def _clock(newest: Sequence[float], later: Sequence[float], scrape_seconds: float, now_seconds: float) -> Finding:
    """Worked example: with a newest sample at 12:05 while it is 12:00 here, its clock is 5 minutes ahead or more."""
    ahead = max((value - now_seconds for value in later), default=0.0)
    if ahead > CLOCK_NOTE_SECONDS:
        return clock_finding("the clock of Prometheus", ahead)
    if not newest:
        text = f"the newest sample is older than {LOOKBACK_SECONDS:.0f} s, or there is none"
        remedy = "see whether Prometheus scrapes anything, and its clock"
        return Finding("clocks", "failed", text, remedy)
    age, bound = now_seconds - max(newest), MAX_AGE_SCRAPES * scrape_seconds + CLOCK_NOTE_SECONDS
    if age > bound:
        text = f"the newest sample of all targets is {age:.0f} s old, bound {bound:.0f} s"
        return Finding("clocks", "note", text, "see the clock of Prometheus, and --scrape-interval")
    return Finding("clocks", "ok", f"the newest sample is {max(0.0, age):.0f} s old")


def without_pass(error: ObservationError) -> str:
    """The message of an error without what it says about a pass: there is none."""
    return str(error).replace("; nothing is changed meanwhile", "").rstrip(".")


def check_targets(read: Callable[[], Sequence[Target]], named: Callable[[Mapping[str, str]], str]) -> list[Finding]:
    """The targets that matter, which `named` names by their labels, empty for others: those that are down, and why."""
    try:
        targets = read()
    except ObservationError as error:
        return [Finding("targets", "unchecked", f"its targets cannot be listed: {without_pass(error)}")]
    ours = [(name, each) for each in targets if (name := named(each.labels))]
    unnamed = "Prometheus names no error"
    down = [
        (name, f"down: {bounded(each.last_error, _MAX_ERROR) or unnamed}")
        for name, each in ours
        if each.health == "down"
    ]
    if down:
        return grouped("targets", "failed", down)
    return [Finding("targets", "ok", f"{counted(len(ours), 'target')} of managed jobs, none is down")]


def check_labels(
    endpoint: Endpoint, evaluations: Collection[EvaluationMapping], now_seconds: float
) -> Iterator[Finding]:
    """Series of losses that name no pod: no job can be found by them."""
    http = PrometheusHttp(endpoint, TIMEOUT_SECONDS)
    try:
        http.begin()
        for one in evaluations:
            metric, label = checked_metric_name(one.metric), checked_label_name(one.pod_labels.pod)
            exported = "" if label != "pod" else ', exported_pod=""'
            rows = http.ask(f'count by (job) ({metric}{{{label}=""{exported}}})', now_seconds)
            for row in rows:
                text = f"{row.value:.0f} series of {metric} of the scrape job {row.labels.get('job', '')} name no pod"
                yield Finding(
                    "series", "note", text, f"write the label {label} by relabelling, or name it as podLabels"
                )
    except ObservationError as error:
        yield Finding("series", "unchecked", without_pass(error))
    finally:
        http.close()
