"""The Job dashboard: one job's loss, growth, CPU, throttling, promises and moves, with its decisions as annotations."""

from __future__ import annotations

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from grafana.frame import frame
from grafana.overview import CORES, JOB, PER_SECOND
from grafana.panels import JOB_HEADINGS, Column, Query, lines, number, rows_now
from grafana.selectors import JOB_LABELS, OF_JOB, per_job, rate_per_job

UID = "slopewise-job"


def job() -> Dashboard:
    """The dashboard, ready to be written as JSON."""
    return frame(
        UID,
        "Job",
        "What does this job do, what was it given, and when was that changed?",
        {
            "Now": _now(),
            "Learning": _learning(),
            "CPU": _cpu(),
            "Memory, end": _memory(),
            "Promises": _promises(),
        },
        one_job=True,
    )


def _now() -> list[Builder[Panel]]:
    facts = f'max by ({JOB_LABELS}, policy, control) (slopewise_job_info{{{OF_JOB},policy=~"$policy"}})'
    return [
        rows_now(
            "The job",
            "Where does it run, under which policy, and as what does the policy treat it?",
            (
                Column(facts, "", "none"),
                Column(f"{per_job('slopewise_job_class', '', 'class')} == 1", "", "none"),
                Column(per_job("slopewise_job_moves_total"), "Moves", "none"),
            ),
            {**JOB_HEADINGS, "policy": "Policy", "control": "Control", "class": "Class"},
            height=4,
            width=12,
        ),
        number(
            "Reports a usable loss",
            "Is there a fresh, finite evaluation? 0: no, and the job keeps the CPU that it has.",
            "bool_yes_no",
            f"min({per_job('slopewise_job_metrics_available')})",
            width=4,
            alerts=["SlopewiseMetricsMissing"],
        ),
        number(
            "Its loss is NaN or infinite",
            "Has it diverged? It then uses CPU and learns nothing.",
            "bool_yes_no",
            f"max({per_job('slopewise_job_diverged')})",
            amber_from=1,
            red_from=1,
            width=4,
            alerts=["SlopewiseLossNotFinite"],
        ),
        number(
            "Since its CPU was changed",
            "How long ago was its CPU changed for the last time? No data: never.",
            "s",
            f"time() - max({per_job('slopewise_job_resized_timestamp_seconds')})",
            width=4,
        ),
    ]


def _learning() -> list[Builder[Panel]]:
    return [
        lines(
            "Loss",
            "Is it still falling? The level that the policy decided on, not a raw sample.",
            "none",
            Query(per_job("slopewise_job_evaluation"), JOB),
        ),
        lines(
            "Growth efficiency, by resource",
            "What does it make of what it uses? Progress per second and per whole node of each resource (Eq. 4.2).",
            PER_SECOND,
            Query(per_job("slopewise_job_growth_efficiency", "", "resource"), "{{resource}}"),
        ),
        lines(
            "Progress",
            "How much does it improve a second (Eq. 4.1)?",
            PER_SECOND,
            Query(per_job("slopewise_job_progress_per_second"), JOB),
        ),
        lines(
            "Class over time",
            "When did the policy begin to treat it as something else?",
            "none",
            Query(per_job("slopewise_job_class", "", "class"), "{{class}}"),
            stacked=True,
        ),
        lines(
            "Age of the evaluation",
            "How old is its newest loss sample? A climbing line is a job that stopped reporting.",
            "s",
            Query(per_job("slopewise_job_evaluation_age_seconds"), JOB),
            alerts=["SlopewiseMetricsMissing"],
        ),
        lines(
            "Node over time",
            "On which node did it run, and when was it moved?",
            "none",
            Query(f"max by (job_node) ({per_job('slopewise_job_metrics_available')}) * 0 + 1", "{{job_node}}"),
            stacked=True,
            alerts=["SlopewiseMoveFailed"],
        ),
    ]


def _cpu() -> list[Builder[Panel]]:
    throttled = rate_per_job("slopewise_job_cpu_throttled_periods_total")
    return [
        lines(
            "Limit against use",
            "Does it use what it was given, and has it what the policy wants? Allocated is in effect, accepted is what "
            "the API server has stored, wanted is the policy's limit.",
            CORES,
            Query(per_job("slopewise_job_cpu_usage_cores"), "used"),
            Query(per_job("slopewise_job_cpu_allocated_cores"), "allocated"),
            Query(per_job("slopewise_job_cpu_accepted_cores"), "accepted"),
            Query(per_job("slopewise_job_cpu_wanted_cores"), "wanted"),
            width=9,
        ),
        lines(
            "Throttling",
            "In which part of its periods was it stopped by its limit? No data on one machine, which has no kubelet.",
            "percentunit",
            Query(f"{throttled} / clamp_min({rate_per_job('slopewise_job_cpu_periods_total')}, 1e-9)", JOB),
            width=5,
        ),
        lines(
            "CPU of a step",
            "Does a step cost more CPU than at best, as where threads spin? 1 also where it never had enough CPU.",
            "none",
            Query(per_job("slopewise_job_cpu_per_step_ratio"), JOB),
            width=5,
            alerts=["SlopewiseJobOversubscribes"],
        ),
        lines(
            "Waits for batches",
            "Is it its data loader that is slow? The part of its steps' time in which they waited: from 25 % on it is "
            "input-bound. No data: it reports no waits.",
            "percentunit",
            Query(per_job("slopewise_job_wait_ratio"), JOB),
            width=5,
            red_from=0.25,
        ),
        lines(
            "CPU that its GPUs can use",
            "Would more CPU keep its GPUs busy? Below what it can use they wait. No data: it reports no waits.",
            "none",
            Query(per_job("slopewise_job_useful_cores"), "can use"),
            Query(per_job("slopewise_job_cpu_allocated_cores"), "has"),
            width=12,
            alerts=["SlopewiseGpuWaitsForCpu"],
        ),
        lines(
            "GPU-seconds won",
            "How many GPUs more does it keep busy than with its original CPU? Beside the part of the time in which "
            "they wait.",
            "none",
            Query(rate_per_job("slopewise_job_gpu_seconds_won_total"), "won"),
            Query(per_job("slopewise_job_gpu_wait_ratio"), "waits"),
            width=12,
        ),
    ]


def _memory() -> list[Builder[Panel]]:
    return [
        lines(
            "Memory",
            "How near is its working set to its request and its limit? A container without one has no line of it.",
            "bytes",
            Query(per_job("slopewise_job_memory_working_set_bytes"), "working set"),
            Query(per_job("slopewise_job_memory_request_bytes"), "request"),
            Query(per_job("slopewise_job_memory_limit_bytes"), "limit"),
        ),
        lines(
            "Expected end, against fair sharing",
            "How much sooner will it end than under fair sharing, and how sure is that? No data: its policy estimates "
            "no ends.",
            "s",
            Query(per_job("slopewise_job_saved_seconds", "", "bound"), "{{bound}}"),
        ),
        lines(
            "Time left to the expected end",
            "When does it end, and how sure is that? No data: its policy estimates no ends.",
            "s",
            Query(f"{per_job('slopewise_job_expected_end_timestamp_seconds', '', 'bound')} - time()", "{{bound}}"),
        ),
    ]


def _promises() -> list[Builder[Panel]]:
    return [
        lines(
            "Pace against the objective",
            "Does it take longer than its owner asks? Seconds a response, or a step.",
            "s",
            Query(per_job("slopewise_job_objective_took_seconds"), "took"),
            Query(per_job("slopewise_job_objective_seconds"), "asked"),
            alerts=["SlopewiseObjectiveMissed"],
        ),
        lines(
            "Deviation from the objective",
            "By how much is it faster or slower than asked? Below −10 % it is in class B, and the objective is missed "
            "after two intervals.",
            "percentunit",
            Query(per_job("slopewise_job_qoe_deviation_ratio"), "deviation"),
            Query(f"-0.1 * {per_job('slopewise_job_objective_missed')}", "missed"),
        ),
        lines(
            "Class by the objective",
            "Is it faster than asked (G), within 10 % (S) or slower (B)?",
            "none",
            Query(per_job("slopewise_job_qoe_class", "", "class"), "{{class}}"),
            stacked=True,
        ),
        lines(
            "Slack before the deadline",
            "How much time is left to spare at its present pace? Below 0: late by that.",
            "s",
            Query(per_job("slopewise_job_deadline_slack_seconds"), "slack"),
            Query(f"{per_job('slopewise_job_deadline_timestamp_seconds')} - time()", "until the deadline"),
        ),
        lines(
            "Deadline",
            "Can it be met at all, and is it missed already?",
            "bool_yes_no",
            Query(per_job("slopewise_job_deadline_hopeless"), "cannot be met"),
            Query(per_job("slopewise_job_deadline_missed"), "missed"),
            alerts=["SlopewiseDeadlineHopeless", "SlopewiseDeadlineMissed"],
        ),
        lines(
            "Targets",
            "Has it reached the loss that its owner needs?",
            "bool_yes_no",
            Query(per_job("slopewise_job_deliverable_reached"), "deliverable"),
            Query(per_job("slopewise_job_target_reached"), "target"),
        ),
    ]
