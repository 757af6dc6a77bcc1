"""The row "What did it bring?" of the Overview: CPU that was freed and who got it, and time against fair sharing."""

from __future__ import annotations

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from grafana.panels import Query, lines, number
from grafana.selectors import OF_CLUSTER, SLOW, namespaces, newest, per_job

_CORES = "suffix: cores"
_CORE_HOURS = "suffix: core-h"
_OF_NAMESPACE = f'{OF_CLUSTER},job_namespace=~"$namespace"'
MOST = ',bound="most"'
_SAVED_TEXT = (
    "Of the selected jobs that run, against fair sharing of the same jobs, as the policy marginal "
    "expects it; other policies expect no ends."
)


def saved_seconds(bound: str) -> str:
    """By how much all jobs of the chosen namespaces end sooner than under fair sharing, for one of the bounds."""
    matchers = f',bound="{bound}"'
    return f"{namespaces('slopewise_namespace_saved_seconds', 'bound', matchers)} or vector(0)"


def gpu_hours(kind: str) -> str:
    """Those of the time shown that jobs of the chosen namespaces held, that waited, or that were won."""
    of_kind = f'{_OF_NAMESPACE},kind="{kind}"'
    return f"sum(increase(slopewise_gpu_seconds_total{{{of_kind}}}[$__range])) / 3600"


def brought() -> list[Builder[Panel]]:
    """The panels of the row."""
    slow = f'{_OF_NAMESPACE},class=~"{SLOW}"'
    return [
        number(
            "CPU freed from slow jobs",
            "How many core-hours did jobs that hardly grow, and those whose work can wait, leave to others over the "
            "time shown? Compared with what they came with; 0 in mode Recommend, which changes nothing.",
            _CORE_HOURS,
            f"(sum(increase(slopewise_freed_core_seconds_total{{{slow}}}[$__range])) or vector(0)) / 3600",
            width=4,
        ),
        number(
            "CPU that others received",
            "How many core-hours did jobs get above what they came with, over the time shown?",
            _CORE_HOURS,
            f"(sum(increase(slopewise_received_core_seconds_total{{{_OF_NAMESPACE}}}[$__range])) or vector(0)) / 3600",
            width=4,
        ),
        number(
            "GPU-hours won",
            "For how many GPU-hours of the time shown did GPUs not wait that would have waited with the CPU that their "
            "jobs came with? No data: no job has a GPU.",
            "suffix: h",
            gpu_hours("won"),
            width=4,
        ),
        number(
            "Time saved by jobs that run",
            f"How much sooner will jobs end, all together? {_SAVED_TEXT} Below 0: later.",
            "s",
            saved_seconds("expected"),
            width=4,
        ),
        number(
            "Time saved by jobs that have ended",
            "On one machine: how much less time have the jobs of the session taken, all together, than under fair "
            "sharing? Of jobs that reported a loss under the policy marginal in mode Auto. A cluster has no such sum.",
            "s",
            newest("slopewise_saved_seconds"),
            width=4,
        ),
        number(
            "Jobs that end later than under fair sharing",
            "How many jobs would end later than under fair sharing even if each were served alone from now on? "
            f"{_SAVED_TEXT}",
            "none",
            f"count({per_job('slopewise_job_saved_seconds', MOST)} < 0) or vector(0)",
            amber_from=1,
            red_from=5,
            width=4,
        ),
        lines(
            "CPU freed, by class",
            "Which classes of jobs leave CPU to others? Against what they came with.",
            _CORES,
            Query(_cores("freed", "class"), "{{class}}"),
            stacked=True,
        ),
        lines(
            "Who got it",
            "Which namespaces, and which classes of their jobs, have more CPU than they came with?",
            _CORES,
            Query(_cores("received", "job_namespace, class"), "{{job_namespace}} {{class}}"),
            stacked=True,
        ),
        lines(
            "Time saved, with its bounds",
            f"How much sooner do jobs end at most, and at least? {_SAVED_TEXT} At most: each served "
            "alone from now on; at least: as under fair sharing, or as expected where that is later.",
            "s",
            Query(saved_seconds("least"), "at least"),
            Query(saved_seconds("expected"), "expected"),
            Query(saved_seconds("most"), "at most"),
        ),
    ]


def _cores(what: str, by: str) -> str:
    return f"sum by ({by}) (rate(slopewise_{what}_core_seconds_total{{{_OF_NAMESPACE}}}[$__rate_interval]))"
