"""The Overview dashboard: which jobs learn, who has the CPU, what that brought, and why the rest was left as it was.

Its lines are sums over the jobs of namespaces, which the variables cluster, policy and namespace filter; its tables
show single jobs, which node and job filter too. Lines of 5,000 jobs are neither read nor quick.
"""

from __future__ import annotations

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from grafana.benefit import brought, gpu_hours
from grafana.frame import frame
from grafana.panels import JOB_HEADINGS, Column, Link, Query, lines, number, rows_now
from grafana.selectors import JOB_LABELS, OF_CLUSTER, namespaces, newest, per_job, per_minute, per_node

UID = "slopewise-overview"
JOB = "{{job_namespace}}/{{job_name}}"
CORES = "suffix: cores"
PER_SECOND = "suffix:/s"
UNSEEN_FOR_SECONDS = f"time() - max(slopewise_last_pass_timestamp_seconds{{{OF_CLUSTER}}} > 0)"
"""Zero is a controller that has not finished a pass yet, not one that last passed in 1970."""
INTERVAL_SECONDS = f"clamp_min(max(slopewise_interval_seconds{{{OF_CLUSTER}}}), 60)"
"""As in the alert: with an interval of 5 s and scrapes 30 s apart, a healthy controller seems up to 35 s late."""

KEPT = "${datasource:queryparam}&${cluster:queryparam}&${policy:queryparam}&from=${__from}&to=${__to}"
"""What a link keeps of the dashboard that it is on."""
TO_THE_JOB = (
    "/d/slopewise-job?var-namespace=${__data.fields.Namespace:percentencode}"
    f"&var-job=${{__data.fields.Job:percentencode}}&{KEPT}"
)
"""Encoded, because names of jobs on one machine are whatever their user wrote."""


def overview() -> Dashboard:
    """The dashboard, ready to be written as JSON."""
    question = "Which jobs are learning, who has the CPU, what did that bring, and is anything wrong?"
    return frame(
        UID,
        "Overview",
        question,
        {
            "Is anything wrong?": _wrong(),
            "What did it bring?": brought(),
            "Jobs": _jobs(),
            "CPU": _cpu(),
            "Promises": _promises(),
            "Studies": _studies(),
            "Decisions": _decisions(),
        },
    )


def _wrong() -> list[Builder[Panel]]:
    return [
        number(
            "GPU-hours that waited for CPU",
            "For how many GPU-hours of the time shown did GPUs wait for batches? spec.resources.accelerators says "
            "whether CPU of neighbours may end that. No data: no job with a GPU reports its waits.",
            "suffix: h",
            gpu_hours("waiting"),
            width=4,
        ),
        number(
            "GPU-hours held",
            "Of how many? Those that managed jobs held over the time shown. No data: no job has a GPU.",
            "suffix: h",
            gpu_hours("held"),
            width=4,
        ),
        number(
            "Intervals since the last pass",
            "Does the controller make its passes? One that could observe should end once in each interval (one shorter "
            "than a minute counts as a minute); from 3 on the alert SlopewiseNoPass is pending. No data: no controller "
            "has finished a pass.",
            "short",
            f"({UNSEEN_FOR_SECONDS}) / {INTERVAL_SECONDS}",
            amber_from=2,
            red_from=3,
            width=4,
            alerts=["SlopewiseNoPass"],
        ),
        number(
            "Jobs without fresh metrics",
            "For how many jobs is there no fresh, finite evaluation? They keep what they have: no metrics, no "
            "action. No data: no managed jobs.",
            "none",
            f"sum({_jobs_in('without_metrics')})",
            amber_from=1,
            red_from=5,
            width=4,
            alerts=["SlopewiseMetricsMissing"],
        ),
        number(
            "Diverged jobs",
            "How many jobs report a loss that is NaN or infinite? They use CPU and learn nothing. No data: no "
            "managed jobs.",
            "none",
            f"sum({_jobs_in('diverged')})",
            amber_from=1,
            red_from=1,
            width=4,
            alerts=["SlopewiseLossNotFinite"],
        ),
        number(
            "Alerts",
            "How many alerts of Slopewise fire? The dashboard Controller health lists each with its panel and its "
            "runbook. 0 as well where Prometheus has not loaded our rules.",
            "none",
            f'count(ALERTS{{{OF_CLUSTER},alertname=~"Slopewise.+",alertstate="firing"}}) or vector(0)',
            amber_from=1,
            red_from=1,
            width=4,
        ),
    ]


def _jobs() -> list[Builder[Panel]]:
    efficiency = per_job("slopewise_job_growth_efficiency", ',resource="cpu"')
    return [
        lines(
            "Jobs by state",
            "How many managed jobs are there, and what are they doing?",
            "none",
            Query(newest("slopewise_jobs", "cluster, state"), "{{state}}"),
            stacked=True,
        ),
        lines(
            "Jobs by class",
            "Which jobs does the policy treat as still learning, slowing down or hardly growing (FlowCon: NL, WL, CL)?",
            "none",
            Query(namespaces("slopewise_namespace_jobs_of_class", "class"), "{{class}}"),
            stacked=True,
        ),
        lines(
            "Sum of growth efficiency",
            "Does the whole node learn faster? The papers' objective of each node (Eq. 4.3).",
            PER_SECOND,
            Query(per_node("slopewise_growth_efficiency_sum"), "{{job_node}}"),
        ),
        _top(
            "Highest growth efficiency of CPU",
            "Which ten jobs make most of their CPU? Progress per second and per whole node of CPU (Eq. 4.2).",
            f"topk(10, {efficiency})",
            "Growth efficiency",
            PER_SECOND,
            12,
        ),
        _top(
            "Oldest evaluations",
            "Which ten jobs have reported no loss for longest? They keep what they have.",
            f"topk(10, {per_job('slopewise_job_evaluation_age_seconds')})",
            "Age",
            "s",
            12,
        ),
        rows_now(
            "Jobs now",
            "Where does each job stand, and what does it have? A job's name leads to its own dashboard.",
            _JOB_COLUMNS,
            {**JOB_HEADINGS, "class": "Class", "policy": "Policy"},
            links=[_TO_THE_JOB],
            height=10,
        ),
    ]


def _cpu() -> list[Builder[Panel]]:
    return [
        lines(
            "CPU used, allocated, accepted and wanted",
            "Is CPU given that no job uses, and does what jobs have follow what the policy wants? Sum over the jobs of "
            "the chosen namespaces. Allocated is in effect, as kubelets report it; accepted is what the API server has "
            "stored: they stay apart where a kubelet is down. Wanted is the policy's limit; in mode Recommend it and "
            "accepted stay apart. They do so too under control: requests, where shares add up to the node and limits "
            "need not.",
            CORES,
            Query(namespaces("slopewise_namespace_cpu_cores", "kind"), "{{kind}}"),
        ),
        lines(
            "CPU used, by namespace",
            "Who uses the CPU? Average over the last measured interval, stacked.",
            CORES,
            Query(_cores_by_namespace("used"), "{{job_namespace}}"),
            stacked=True,
        ),
        lines(
            "CPU allocated, by namespace",
            "Who may use the CPU? The limits in effect, or under control: requests the shares of the node, stacked.",
            CORES,
            Query(_cores_by_namespace("allocated"), "{{job_namespace}}"),
            stacked=True,
        ),
    ]


def _promises() -> list[Builder[Panel]]:
    """Only jobs whose owners state something have these; the numbers are 0 where none does."""
    return [
        number(
            "Objectives missed",
            "How many jobs take more than 10 % longer than their owners ask, and have for two intervals? 0 as well "
            "where no owner states an objective.",
            "none",
            f"sum({_jobs_in('objective_missed')}) or vector(0)",
            amber_from=1,
            red_from=3,
            width=6,
            alerts=["SlopewiseObjectiveMissed"],
        ),
        number(
            "Jobs that cannot meet their deadline",
            "How many jobs would be late even with all CPU of the largest node, or are late already? 0 as well where "
            "no owner states a deadline.",
            "none",
            f"sum({_jobs_in('deadline_hopeless')}) or vector(0)",
            amber_from=1,
            red_from=3,
            width=6,
            alerts=["SlopewiseDeadlineHopeless"],
        ),
        number(
            "Deadlines missed",
            "How many jobs run on though their deadline has passed? 0 as well where no owner states a deadline.",
            "none",
            f"sum({_jobs_in('deadline_missed')}) or vector(0)",
            amber_from=1,
            red_from=3,
            width=6,
            alerts=["SlopewiseDeadlineMissed"],
        ),
        number(
            "Jobs late at their present pace",
            "How many jobs need more CPU to meet their deadline? 0 as well where no owner states a deadline.",
            "none",
            f"sum({_jobs_in('late')}) or vector(0)",
            amber_from=1,
            red_from=5,
            width=6,
        ),
        _top(
            "Worst deviations from the objective",
            "Which ten jobs are furthest behind what their owners ask? (asked − took) ÷ asked: below −10 % the "
            "objective is missed.",
            f"bottomk(10, {per_job('slopewise_job_qoe_deviation_ratio')})",
            "Deviation",
            "percentunit",
            8,
        ),
        _top(
            "Least slack before the deadline",
            "Which ten jobs have least time to spare at their present pace, and who is late by how much?",
            f"bottomk(10, {per_job('slopewise_job_deadline_slack_seconds')})",
            "Slack",
            "s",
            8,
        ),
        lines(
            "Targets reached",
            "How many jobs have reached the loss that their owners need, and could make room for others?",
            "none",
            Query(_jobs_in("deliverable"), "deliverable"),
            Query(_jobs_in("target_reached"), "target"),
        ),
    ]


def _studies() -> list[Builder[Panel]]:
    """No data: no job is a trial of a study."""
    study, by = "{{job_namespace}}/{{study}}", "cluster, job_namespace, study"
    return [
        lines(
            "Best so far of each study",
            "Which level has the best trial of a study reached in the time shown? The lowest, or the highest "
            "where larger is better. No data: no job is a trial of a study, or its trials report different metrics.",
            "none",
            Query(f"{_best_so_far('min', by)} or {_best_so_far('max', by)}", study),
        ),
        lines(
            "CPU of the best trial and of the others",
            "Does the CPU of a study go to its best trial? The areas are what was spent on it and on the others.",
            CORES,
            Query(namespaces("slopewise_study_cpu_cores", f"{by}, kind"), f"{study} {{{{kind}}}}"),
            stacked=True,
        ),
        lines(
            "Trials that run",
            "How many trials of each study run now?",
            "none",
            Query(namespaces("slopewise_study_trials", by), study),
            stacked=True,
        ),
    ]


def _best_so_far(objective: str, by: str) -> str:
    of = f'{OF_CLUSTER},policy=~"$policy",job_namespace=~"$namespace",objective="{objective}"'
    return f"{objective} by ({by}) ({objective}_over_time(slopewise_study_best_evaluation{{{of}}}[$__range]))"


def _decisions() -> list[Builder[Panel]]:
    return [
        lines(
            "Resizes by outcome",
            "What was the outcome of the resizes that were let through? Failed ones are tried again on the next pass.",
            "cpm",
            Query(per_minute("slopewise_resizes_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Withheld, by guard",
            "Why was the policy not followed? Resizes, moves and stops that each guard has withheld.",
            "cpm",
            Query(per_minute("slopewise_withheld_total", "guard"), "{{guard}}"),
            stacked=True,
        ),
        lines(
            "Moves by outcome",
            "How many arriving jobs were given a node, how many running ones another, and how did that go?",
            "cpm",
            Query(per_minute("slopewise_moves_total", "kind, outcome"), "{{kind}} {{outcome}}"),
            stacked=True,
        ),
        lines(
            "Stops at the target",
            "How many jobs were signalled to end because they have reached their target?",
            "cpm",
            Query(per_minute("slopewise_stops_total", "outcome"), "{{outcome}}"),
            stacked=True,
            width=24,
        ),
    ]


def _top(title: str, question: str, promql: str, heading: str, unit: str, width: int) -> Builder[Panel]:
    """Ten jobs, each with a link to its dashboard; as lines they would change their places all the time."""
    columns = [Column(promql, heading, unit)]
    return rows_now(title, question, columns, JOB_HEADINGS, links=[_TO_THE_JOB], width=width)


def _jobs_in(condition: str) -> str:
    matchers = f',condition="{condition}"'
    return namespaces("slopewise_namespace_jobs_in", "condition", matchers)


def _cores_by_namespace(kind: str) -> str:
    matchers = f',kind="{kind}"'
    return namespaces("slopewise_namespace_cpu_cores", "job_namespace", matchers)


_TO_THE_JOB = Link("Job", "This job", TO_THE_JOB)
_CLASS_OF_JOB = f"{per_job('slopewise_job_class', '', 'class')} == 1"
_POLICY_OF_JOB = (
    f'max by ({JOB_LABELS}, policy) (slopewise_job_info{{{OF_CLUSTER},policy=~"$policy",'
    'job_node=~"$node",job_namespace=~"$namespace",job_name=~"$job"})'
)
_JOB_COLUMNS = (
    Column(_POLICY_OF_JOB, "", "none"),
    Column(_CLASS_OF_JOB, "", "none"),
    Column(per_job("slopewise_job_evaluation"), "Loss", "none"),
    Column(per_job("slopewise_job_growth_efficiency", ',resource="cpu"'), "Growth efficiency", PER_SECOND),
    Column(per_job("slopewise_job_cpu_usage_cores"), "CPU used", CORES),
    Column(per_job("slopewise_job_cpu_allocated_cores"), "CPU allocated", CORES),
)
