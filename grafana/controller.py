"""The Controller health dashboard: passes and their steps, API calls, watches, leadership, restores, moves, alerts."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from grafana.alert_panels import Shown, panel_by_alert
from grafana.alerts import alerts, bound_of, runbook_of
from grafana.frame import Rows, frame
from grafana.nodes import nodes
from grafana.overview import INTERVAL_SECONDS, UNSEEN_FOR_SECONDS, overview
from grafana.panels import Column, Query, lines, markdown, number, rows_now
from grafana.selectors import OF_CLUSTER, mean, newest, per_minute, quantile, rate

UID = "slopewise-controller"
ALERTS_PANEL = "Alerts, with their runbooks"


def controller() -> Dashboard:
    """The dashboard, ready to be written as JSON."""
    rows: Rows = {
        "Leadership": _leadership(),
        "Passes": _passes(),
        "API server": _api_server(),
        "Policies and restores": _policies(),
        "Moves": _moves(),
    }
    shown = panel_by_alert(alerts(), (overview(), nodes(), _frame(rows)))
    return _frame({**rows, "Alerts": _alerts(shown)})


def _frame(rows: Rows) -> Dashboard:
    question = "Is the controller at work, what does that cost, and what does it wait for?"
    return frame(UID, "Controller health", question, rows)


def _leadership() -> list[Builder[Panel]]:
    return [
        number(
            "Replicas that lead",
            "Does one replica lead? 0 for a moment when the leader changes; 2 is a fault. No data: no replica on a "
            "cluster is scraped.",
            "none",
            "sum(slopewise_leader{" + OF_CLUSTER + "})",
            red_from=2,
            width=6,
            alerts=["SlopewiseNoPass"],
        ),
        number(
            "Policies that are refused",
            "Is every TrainingPolicy obeyed? A refused one has the reason in its conditions.",
            "none",
            f"max({newest('slopewise_policies', matchers=_quoted('condition', 'refused'))}) or vector(0)",
            red_from=_above("SlopewisePolicyRefused"),
            width=6,
            alerts=["SlopewisePolicyRefused"],
        ),
        number(
            "Errors of the controller's own",
            "Has the leader failed on a fault of its own in the time shown? The log has the traceback.",
            "none",
            f"sum(increase(slopewise_manager_errors_total{{{OF_CLUSTER}}}[$__range])) or vector(0)",
            amber_from=1,
            red_from=5,
            width=6,
        ),
        rows_now(
            "Versions",
            "Which version runs on how many replicas?",
            (Column(f"count by (cluster, version) (slopewise_build_info{{{OF_CLUSTER}}})", "Replicas", "none"),),
            {"cluster": "Cluster", "version": "Version"},
            height=4,
            width=6,
        ),
    ]


def _passes() -> list[Builder[Panel]]:
    return [
        lines(
            "Passes",
            "Do passes end well? A held pass could not observe, or its policy failed, and changed nothing.",
            "cpm",
            Query(per_minute("slopewise_passes_total", "result"), "{{result}}"),
            stacked=True,
        ),
        lines(
            "Time of a pass",
            "Where does a pass spend its time? Mean of each step, timed by the pass itself, stacked. The queries to "
            "Prometheus are in observe, the writes to the API server in act.",
            "s",
            Query(mean("slopewise_pass_duration_seconds", "verb"), "{{verb}}"),
            stacked=True,
        ),
        lines(
            "Slowest steps of passes",
            "How long do the slowest steps take (99th percentile)?",
            "s",
            Query(quantile(0.99, "slopewise_pass_duration_seconds", "verb"), "{{verb}}"),
        ),
        lines(
            "Queries to Prometheus",
            "How many queries does the controller send, and do they fail? Their number does not grow with the jobs.",
            "cpm",
            Query(per_minute("slopewise_query_duration_seconds_count", "outcome"), "{{outcome}}"),
            stacked=True,
            width=12,
        ),
        lines(
            "Slowest queries to Prometheus",
            "How long does Prometheus take (99th percentile)? All queries of a pass together may take a quarter of its "
            "interval, 15 s at most.",
            "s",
            Query(quantile(0.99, "slopewise_query_duration_seconds", "outcome"), "{{outcome}}"),
            width=12,
        ),
        lines(
            "Time since the last pass",
            "Is the controller on time? Above its bound, three intervals and at least three minutes, "
            "SlopewiseNoPass is pending.",
            "s",
            Query(UNSEEN_FOR_SECONDS, "since the last pass"),
            Query(f"3 * {INTERVAL_SECONDS}", "bound of the alert"),
            width=12,
            alerts=["SlopewiseNoPass"],
        ),
        lines(
            "Time to the next pass",
            "When is the next pass planned? It is later while nothing changes, and soon after a change.",
            "s",
            Query(newest("slopewise_interval_seconds"), "interval"),
            width=12,
        ),
    ]


def _api_server() -> list[Builder[Panel]]:
    return [
        lines(
            "API requests",
            "What is asked of the API server, and does it refuse? Code 0: no answer; 429: it throttles us.",
            "reqps",
            Query(rate("slopewise_api_requests_total", "verb, code"), "{{verb}} {{code}}"),
            stacked=True,
        ),
        lines(
            "API requests, by resource",
            "Which resources are asked for?",
            "reqps",
            Query(rate("slopewise_api_requests_total", "resource"), "{{resource}}"),
            stacked=True,
        ),
        lines(
            "Slowest API requests",
            "How long does the API server take (99th percentile), without watches?",
            "s",
            Query(quantile(0.99, "slopewise_api_request_duration_seconds", "verb"), "{{verb}}"),
        ),
        lines(
            "Silence of watches",
            "Does each watch hear of changes? Up to 30 s for an idle one; above the red line SlopewiseWatchSilent is "
            "pending.",
            "s",
            Query(newest("slopewise_watch_silent_seconds", "resource"), "{{resource}}"),
            red_from=bound_of("SlopewiseWatchSilent"),
            alerts=["SlopewiseWatchSilent"],
        ),
        lines(
            "Watches started again",
            "Which watches break, and how often?",
            "cpm",
            Query(per_minute("slopewise_watch_restarts_total", "resource"), "{{resource}}"),
        ),
        lines(
            "Writes of statuses",
            "Are the statuses of custom resources written? Unchanged ones cost no request.",
            "cpm",
            Query(per_minute("slopewise_status_writes_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
    ]


def _policies() -> list[Builder[Panel]]:
    return [
        lines(
            "Policies by condition",
            "How many TrainingPolicies are obeyed, refused, being deleted?",
            "none",
            Query(newest("slopewise_policies", "condition"), "{{condition}}"),
            alerts=["SlopewisePolicyRefused"],
        ),
        lines(
            "Restores by outcome",
            "Do pods get their original resources back when a policy leaves Auto, or is deleted?",
            "cpm",
            Query(per_minute("slopewise_restores_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
        lines(
            "Pods to be restored",
            "Which policies have pods that are not restored yet? More than none for 15 minutes is "
            "SlopewiseRestorePending.",
            "none",
            Query(f"{newest('slopewise_restore_pending_pods', 'name')} or vector(0)", "{{name}}"),
            red_from=_above("SlopewiseRestorePending"),
            alerts=["SlopewiseRestorePending"],
        ),
        lines(
            "Freezes in force",
            "Is anything frozen, by hand, from Git or by an alert? `slopewise status` names each and its reason.",
            "none",
            Query(newest("slopewise_freezes", "scope, effect"), "{{effect}} of {{scope}}"),
        ),
        lines(
            "Alerts of the webhook",
            "What became of the alerts that Alertmanager sent? Refused ones have labels that cannot be used.",
            "cpm",
            Query(per_minute("slopewise_alerts_total", "result"), "{{result}}"),
            stacked=True,
        ),
        lines(
            "Calls of the webhook",
            "Does Alertmanager reach us with the right token? Other replicas take calls too.",
            "cpm",
            Query(per_minute("slopewise_alert_calls_total", "outcome"), "{{outcome}}"),
            stacked=True,
        ),
    ]


def _moves() -> list[Builder[Panel]]:
    return [
        lines(
            "Migrations by stage",
            "How far do migrations come, and do they fail?",
            "cpm",
            Query(per_minute("slopewise_migrations_total", "stage"), "{{stage}}"),
            stacked=True,
            alerts=["SlopewiseMoveFailed"],
        ),
        lines(
            "Moves under way",
            "How many jobs are on their way to another node?",
            "none",
            Query(newest("slopewise_moves_under_way"), "under way"),
        ),
        lines(
            "Oldest move",
            "For how long has the oldest move been under way? Its job does not train. Above the red line "
            "SlopewiseMoveStuck is pending.",
            "s",
            Query(newest("slopewise_oldest_move_seconds"), "oldest"),
            red_from=bound_of("SlopewiseMoveStuck"),
            alerts=["SlopewiseMoveStuck"],
        ),
        lines(
            "Mean pause of a move",
            "How long do moved jobs not train? From the begin of a move to the first step elsewhere; 0 without moves.",
            "s",
            Query(mean("slopewise_move_pause_seconds", "cluster"), "pause"),
            width=12,
        ),
        lines(
            "Steps done twice",
            "How much work do moves cost, in steps a minute that were repeated?",
            "none",
            Query(f"60 * {rate('slopewise_move_steps_lost_total')}", "steps a minute"),
            width=12,
        ),
        lines(
            "Pods behind our gate",
            "How many pods wait for a node?",
            "none",
            Query(newest("slopewise_gated_pods"), "gated"),
            width=12,
        ),
        lines(
            "Oldest gate",
            "For how long has the oldest of them waited? Above the red line SlopewisePodsGated is pending.",
            "s",
            Query(newest("slopewise_oldest_gate_seconds"), "oldest"),
            red_from=bound_of("SlopewisePodsGated"),
            alerts=["SlopewisePodsGated"],
            width=12,
        ),
    ]


def _alerts(shown: Mapping[str, Shown | None]) -> list[Builder[Panel]]:
    labels = "cluster, alertname, alertstate, severity, job_namespace, job_name, job_node"
    return [
        rows_now(
            "Alerts now",
            "Which alerts are pending or fire, and for which job? Empty where Prometheus has not loaded our rules.",
            (Column(f'count by ({labels}) (ALERTS{{{OF_CLUSTER},alertname=~"Slopewise.+"}})', "", "none"),),
            {
                "cluster": "Cluster", "alertname": "Alert", "alertstate": "State", "severity": "Severity",
                "job_namespace": "Namespace", "job_name": "Job", "job_node": "Node",
            },
        ),
        markdown(ALERTS_PANEL, _runbooks(shown), height=16),
    ]  # fmt: skip


def _runbooks(shown: Mapping[str, Shown | None]) -> str:
    rows = [
        f"| [{name}]({runbook_of(name)}) | {rule['labels']['severity']} | {rule['annotations']['summary']} | "
        f"{_leads_to(shown[name])} |"
        for name, rule in alerts().items()
    ]
    return "\n".join(["| alert and runbook | severity | what it says | panel |", "|---|---|---|---|", *rows])


def _leads_to(panel: Shown | None) -> str:
    return "–" if panel is None else f"[{panel.title}]({panel.path})"


def _above(alert: str) -> float:
    """From which whole number on an alert with the bound `> 0` is pending."""
    return bound_of(alert) + 1


def _quoted(label: str, value: str) -> str:
    return f',{label}="{value}"'
