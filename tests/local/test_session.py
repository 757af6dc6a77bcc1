"""Real runs on this machine, and everything that goes wrong in them: jobs, Prometheus, limits."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from local.conftest import a_policy, eventually, marked_processes, own_prometheus, running, tiny
from support import fake_grafana
from support.panel_rows import PanelRows, all_queries, of_a_local_run

from slopewise.adapters.grafana.annotations import GrafanaAccess
from slopewise.adapters.local.limiters.base import UNLIMITED
from slopewise.config.jobs_file import JobSpec
from slopewise.config.metric_mappings import EvaluationMapping, OwnMappings
from slopewise.errors import UsageError
from slopewise.local.live import live_rows
from slopewise.local.plan import SessionPlan
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import Job, Objectives, Outcome, PassReport, Resize

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("nothing_left")]


ASKED = Objectives(qoe_seconds=0.05, deliverable_level=0.5, target_level=0.1)


def observed(session: Session) -> list[PassReport]:
    return [report for report in session.all_reports() if report.snapshot is not None]


def newest_level(session: Session, name: str) -> float | None:
    for report in reversed(observed(session)):
        for job in report.snapshot.jobs if report.snapshot else ():
            if job.name == name and job.evaluation is not None:
                return job.evaluation.level
    return None


def states(session: Session) -> dict[str, str]:
    return {name: record.state for name, record in session.supervisor.records.items()}


def reasons(session: Session, name: str) -> list[str]:
    return [report.decisions.reasons.get(name, "") for report in observed(session) if report.decisions]


@pytest.mark.cgroups
def test_limits_move_in_the_cgroups_and_come_back_when_the_session_is_left(workshop: Workshop) -> None:
    if "requests" not in workshop.limiter.controls:
        pytest.skip("no right to make cgroups here")
    with running(workshop, a_policy(), tiny("fast", 60), tiny("slow", 60), tiny("late", 60, arrive=6)) as session:
        # A pass between the two readings would change what is compared; a job that has not arrived would not be ended.
        eventually(lambda: states(session)["late"] == "running" and bool(_outcomes(session)))
        session.loop.stop()
        changed = {o.decision.job_uid: o.decision.to_millicores for o in _outcomes(session)}
        limits = {uid: workshop.limiter.read(uid).limit_millicores for uid in changed}
        assert limits == changed
        session.restore_originals()
        assert {workshop.limiter.read(uid) for uid in changed} == {UNLIMITED}
    assert set(states(session).values()) == {"failed"}  # the test ended them


def _outcomes(session: Session) -> list[Outcome[Resize]]:
    return [outcome for report in observed(session) for outcome in report.results.of(Resize)]


def test_a_whole_run_ends_by_itself_with_every_job_finished_and_its_cpu_counted(workshop: Workshop) -> None:
    with running(workshop, a_policy("fair"), tiny("a", 1.5, busy=True), tiny("b", 1.0, arrive=1, busy=True)) as session:
        eventually(session.supervisor.all_ended)
        assert states(session) == {"a": "finished", "b": "finished"}
        for record in session.supervisor.records.values():
            assert record.cpu_seconds is not None
            assert record.cpu_seconds >= 0.9


@pytest.mark.parametrize("control", ["limits", "requests"])
def test_every_panel_has_rows_against_the_prometheus_of_a_run_but_those_of_clusters(
    workshop: Workshop, control: str
) -> None:
    if control not in workshop.limiter.controls:
        pytest.skip("no right to make cgroups here")
    # Busy: jobs that use no CPU have nothing to take turns for. The panels of promises need a job that has some.
    asked = replace(tiny("a", 90, busy=True), objectives=ASKED, deadline_seconds=600)
    with running(workshop, a_policy("marginal", control=control), asked, tiny("b", 90, busy=True)) as session:
        eventually(lambda: any(report.count("applied") for report in observed(session)))
        PanelRows(session.prometheus.url, of_a_local_run(all_queries("20s"))).wait(seconds=60)


def test_decisions_are_annotated_in_grafana_with_the_job_and_the_policy(workshop: Workshop) -> None:
    with fake_grafana.running(fake_grafana.FakeGrafana()) as grafana:
        access = GrafanaAccess(grafana.url, fake_grafana.TOKEN)
        with running(workshop, a_policy(), tiny("fast", 60), tiny("slow", 60), annotated=access):
            eventually(lambda: grafana.annotations)
    tags = grafana.annotations[0]["tags"]
    assert {"slopewise", "resize", "namespace:test", "policy:default"} <= set(tags)
    assert {"job:fast", "job:slow"} & set(tags)


def test_a_job_that_crashes_is_reported_with_its_last_words_and_the_others_go_on(workshop: Workshop) -> None:
    with running(workshop, a_policy(), tiny("bad", 0.5, "crash"), tiny("good", 3)) as session:
        eventually(session.supervisor.all_ended)
        assert states(session) == {"bad": "failed", "good": "finished"}
        assert "the data ran out of the window" in session.supervisor.records["bad"].last_output_lines


def test_a_job_that_diverges_is_held_and_named_as_not_finite(workshop: Workshop) -> None:
    with running(workshop, a_policy(), tiny("nan", 24, "nan"), tiny("well", 30)) as session:
        eventually(lambda: _job_is(session, "nan", lambda job: job.evaluation and not job.evaluation.finite))
        held_from = len(session.all_reports())
        eventually(lambda: len(session.all_reports()) >= held_from + 2)
        later = [o.decision.job_uid for r in session.all_reports()[held_from:] for o in r.results.of(Resize)]
        assert "nan" not in later
        assert any("growth unknown" in reason for reason in reasons(session, "nan"))


def _job_is(session: Session, name: str, true_of: object) -> bool:
    report = observed(session)[-1] if observed(session) else None
    jobs = report.snapshot.jobs if report and report.snapshot else ()
    return any(bool(true_of(job)) for job in jobs if job.name == name)  # type: ignore[operator]


def _job_is_after_another_pass(session: Session, name: str, true_of: object) -> bool:
    session.loop.trigger()
    return _job_is(session, name, true_of)


def message_of(job: Job) -> str:
    assert job.missing_evaluation is not None
    return job.missing_evaluation.message


def test_a_job_that_restarts_itself_is_seen_as_restarted_and_not_as_a_jump_in_quality(workshop: Workshop) -> None:
    with running(workshop, a_policy(), tiny("again", 16, "restart"), tiny("well", 20)) as session:
        # Looked at all the time: the window in which a restart shows is four seconds.
        eventually(lambda: _job_is_after_another_pass(session, "again", lambda job: job.restarted))


def test_a_metric_with_a_step_label_is_named_and_nothing_is_decided_on_it(workshop: Workshop) -> None:
    with running(workshop, a_policy(), tiny("steps", 20, "step-label")) as session:
        eventually(lambda: _job_is(session, "steps", lambda job: job.warnings))
        job = observed(session)[-1].snapshot.jobs[0]  # type: ignore[union-attr]
        assert "step" in job.warnings[0]
        assert job.evaluation is None


def test_a_job_with_metrics_of_its_own_names_is_managed_by_them_beside_one_with_ours(workshop: Workshop) -> None:
    written = {
        "metric": "my_score",
        "labels": {"split": "val"},
        "objective": "max",
        "stepsTotal": {"metric": "global_step"},
        "stepsPlanned": {"metric": "max_steps"},
    }
    mappings = OwnMappings(EvaluationMapping.model_validate(written))
    other = replace(tiny("other", 90, "my-steps"), mappings=mappings)
    with running(workshop, a_policy(), other, tiny("ours", 90)) as session:
        eventually(lambda: _job_is(session, "other", lambda job: job.evaluation is not None))
        eventually(lambda: _job_is(session, "ours", lambda job: job.evaluation is not None))
        jobs = {job.name: job for job in observed(session)[-1].snapshot.jobs}  # type: ignore[union-attr]
        evaluation = jobs["other"].evaluation
        assert evaluation is not None
        assert (evaluation.objective, evaluation.series) == ("max", 'my_score{split="val"}')
        assert jobs["other"].steps_planned == 4000
        assert (jobs["other"].steps_total or 0) > 0
        eventually(lambda: any("growth" in each for each in reasons(session, "other")))
        assert jobs["ours"].steps_planned != 4000


def test_why_a_job_reports_no_loss_is_found_out_and_shown(workshop: Workshop) -> None:
    quiet, other = tiny("quiet", 90, "silent"), tiny("other", 90, "my-metric")
    with running(workshop, a_policy(), quiet, other, tiny("well", 90)) as session:
        eventually(lambda: _job_is(session, "other", lambda job: job.missing_evaluation))
        eventually(lambda: _job_is(session, "quiet", lambda job: job.missing_evaluation))
        jobs = {job.name: job for job in observed(session)[-1].snapshot.jobs}  # type: ignore[union-attr]
        ports = {name: record.port for name, record in session.supervisor.records.items()}
        assert message_of(jobs["quiet"]).startswith(f"port {ports['quiet']} refuses; if its output has a loss, find it")
        assert message_of(jobs["other"]) == (
            f"port {ports['other']} answers, but has no training_loss; it has my_val_loss, learning_rate; "
            "if one of them is the loss, write spec.evaluation.metric: my_val_loss"
        )
        assert jobs["well"].missing_evaluation is None
        assert {row.name: row.state for row in live_rows(session)} == {
            "quiet": "no loss",
            "other": "no loss",
            "well": "training",
        }


def test_a_job_without_metrics_runs_to_its_end_with_the_cpu_that_it_came_with(workshop: Workshop) -> None:
    with running(workshop, a_policy(), tiny("silent", 2, "silent")) as session:
        eventually(session.supervisor.all_ended)
        assert states(session) == {"silent": "finished"}
        passes = observed(session)
        assert "reports no loss" in passes[0].decisions.reasons["silent"]  # type: ignore[union-attr]
        assert not any(report.decisions.resizes for report in passes)  # type: ignore[union-attr]


def test_prometheus_killed_in_mid_run_holds_everything_until_it_is_back(workshop: Workshop) -> None:
    with running(workshop, a_policy(), tiny("a", 60), tiny("b", 60)) as session:
        eventually(lambda: newest_level(session, "a"))
        session.revive_at_seconds = float("inf")  # not before we have looked
        own_prometheus(session).kill()
        before = {uid: workshop.limiter.read(uid) for uid in ("a", "b")}
        session.loop.trigger()
        eventually(lambda: session.all_reports()[-1].held)
        assert session.all_reports()[-1].results.of(Resize) == ()
        assert {uid: workshop.limiter.read(uid) for uid in ("a", "b")} == before
        assert session.loop.is_alive()
        session.revive_at_seconds = 0.0
        eventually(lambda: session.all_reports()[-1].held is None)
        assert states(session) == {"a": "running", "b": "running"}


@pytest.mark.cgroups
def test_an_outage_of_three_intervals_restores_every_job_until_a_pass_observes(workshop: Workshop) -> None:
    if "requests" not in workshop.limiter.controls:
        pytest.skip("no right to make cgroups here")
    with running(workshop, a_policy(), tiny("fast", 90), tiny("slow", 90)) as session:
        eventually(lambda: _outcomes(session))
        changed = {outcome.decision.job_uid for outcome in _outcomes(session)}
        session.revive_at_seconds = float("inf")
        own_prometheus(session).kill()
        eventually(lambda: "original resources are restored" in (session.all_reports()[-1].held or ""))
        assert {workshop.limiter.read(uid) for uid in changed} == {UNLIMITED}
        session.revive_at_seconds = 0.0
        eventually(lambda: session.all_reports()[-1].held is None)


def test_a_prometheus_that_hangs_holds_the_pass_for_seconds_and_not_for_ever(workshop: Workshop) -> None:
    with running(workshop, a_policy(), tiny("a", 60)) as session:
        eventually(lambda: newest_level(session, "a"))
        pid = own_prometheus(session).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            session.loop.trigger()
            eventually(lambda: session.all_reports()[-1].held)
        finally:
            os.kill(pid, signal.SIGCONT)
        session.loop.trigger()
        eventually(lambda: session.all_reports()[-1].held is None)


def test_a_command_that_there_is_not_is_one_sentence_before_anything_starts(workshop: Workshop) -> None:
    plan = SessionPlan(a_policy(), [tiny("a", 60), JobSpec("typo", ["pyton", "x.py"], 0.5)], namespace="test")
    with pytest.raises(UsageError, match="typo: its command 'pyton' is not an executable"), Session(workshop, plan):
        pytest.fail("it was started")


def test_a_job_that_cannot_be_started_has_failed_and_the_others_go_on(workshop: Workshop, tmp_path: Path) -> None:
    program = tmp_path / "train.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    late = JobSpec("late", [str(program)], 1.0)
    with running(workshop, a_policy("fair"), tiny("a", 2), late) as session:
        program.unlink()
        eventually(session.supervisor.all_ended)
        assert states(session) == {"a": "finished", "late": "failed"}
        assert "is not an executable file" in session.supervisor.records["late"].last_output_lines


def test_a_process_that_a_job_left_in_a_session_of_its_own_ends_with_the_job(workshop: Workshop) -> None:
    job = JobSpec("strays", ["/bin/sh", "-c", "setsid sleep 77 & sleep 0.3"], 0.0)
    with running(workshop, a_policy("fair"), job) as session:
        eventually(session.supervisor.all_ended)
        assert states(session) == {"strays": "finished"}
        eventually(lambda: not [each for each in marked_processes() if each.cmdline()[:1] == ["sleep"]])


def test_an_interval_of_less_than_four_scrapes_is_refused(workshop: Workshop) -> None:
    policy = a_policy(behaviour={"intervalSeconds": 2})
    with pytest.raises(UsageError, match="intervalSeconds: 2 s is less than 4 scrapes of 1 s; write 4 or more"):
        Session(workshop, SessionPlan(policy, [tiny("a", 1)], namespace="test"))


@pytest.mark.parametrize(("ours", "threads"), [(False, "7"), (True, "1")])
def test_a_users_environment_is_left_alone_and_the_output_of_a_users_command_stays(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, ours: bool, threads: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    job = JobSpec("env", ["/bin/sh", "-c", "echo threads=$OMP_NUM_THREADS"], 0.0)
    with Session(workshop, SessionPlan(a_policy("fair"), [job], namespace="test", ours=ours)) as session:
        session.run()
        log = session.supervisor.folder / "env.log"
        assert log.read_text() == f"threads={threads}\n"
    workshop.__exit__(None, None, None)
    assert log.exists() is not ours
