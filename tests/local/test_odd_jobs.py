"""One real run of jobs that each go a way of their own: what becomes of each, while the others go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from local.conftest import (
    a_policy,
    after_passes,
    marked_processes,
    observed,
    observed_jobs,
    reasons,
    resizes,
    running,
    states,
    tiny,
)
from support.waiting import eventually

from slopewise.config.jobs_file import JobSpec
from slopewise.config.metric_mappings import EvaluationMapping, OwnMappings
from slopewise.local.live import live_rows
from slopewise.local.plan import REMEDIES
from slopewise.local.session import Session
from slopewise.local.workshop import Workshop
from slopewise.model import Job, PassReport, Resize

pytestmark = pytest.mark.processes

LONG_SECONDS = 600.0
OWN_NAMES = EvaluationMapping.model_validate(
    {
        "metric": "my_score",
        "labels": {"split": "val"},
        "objective": "max",
        "stepsTotal": {"metric": "global_step"},
        "stepsPlanned": {"metric": "max_steps"},
    }
)


@pytest.fixture(scope="module")
def session(shared_workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    program = tmp_path_factory.mktemp("programs") / "train.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    jobs = [
        tiny("well", LONG_SECONDS),
        tiny("bad", 0.5, "crash"),
        tiny("nan", 45, "nan"),
        tiny("again", 16, "restart"),
        tiny("steps", LONG_SECONDS, "step-label"),
        replace(tiny("own-names", LONG_SECONDS, "my-steps"), mappings=OwnMappings(OWN_NAMES)),
        tiny("quiet", LONG_SECONDS, "silent"),
        tiny("other-metric", LONG_SECONDS, "my-metric"),
        tiny("silent", 2, "silent"),
        JobSpec("strays", ["/bin/sh", "-c", "setsid sleep 77 & sleep 0.3"], 0.0),
        JobSpec("environment", ["/bin/sh", "-c", "echo threads=$OMP_NUM_THREADS"], 0.0),
        JobSpec("gone", [str(program)], 1.0),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "7")
        with running(shared_workshop, a_policy(), *jobs) as session:
            program.unlink()
            after_passes(session, lambda: any(job.restarted for job in observed_jobs(session, "again")))
            yield session


def newest(session: Session, name: str) -> Job:
    return observed_jobs(session, name)[-1]


def last_output(session: Session, name: str) -> str:
    return session.supervisor.records[name].last_output_lines


def test_a_job_that_crashes_is_reported_with_its_last_words_and_the_others_go_on(session: Session) -> None:
    assert eventually(lambda: states(session)["bad"] == "failed")
    assert "the data ran out of the window" in last_output(session, "bad")
    assert states(session)["well"] == "running"


def test_a_job_that_cannot_be_started_has_failed(session: Session) -> None:
    assert eventually(lambda: states(session)["gone"] == "failed")
    assert "is not an executable file" in last_output(session, "gone")


def test_a_job_that_diverges_is_named_as_not_finite_and_gets_no_more_cpu(session: Session) -> None:
    def decided() -> list[PassReport]:
        """The passes that knew that it had diverged."""
        said = "its loss is not finite"
        return [each for each in observed(session) if each.decisions and said in each.decisions.reasons.get("nan", "")]

    after_passes(session, lambda: len(decided()) >= 3)
    changes = [[each.decision for each in report.results.of(Resize)] for report in decided()]
    first, *later = [[decision for decision in of_pass if decision.job_uid == "nan"] for of_pass in changes]
    assert not [decision for decision in first if decision.raises]
    assert not any(later)


def test_a_job_that_restarts_itself_is_seen_as_restarted_and_not_as_a_jump_in_quality(session: Session) -> None:
    assert any(job.restarted for job in observed_jobs(session, "again"))
    assert not any(job.restarted for job in observed_jobs(session, "well"))


def test_a_metric_with_a_step_label_is_named_and_nothing_is_decided_on_it(session: Session) -> None:
    after_passes(session, lambda: newest(session, "steps").warnings)
    job = newest(session, "steps")
    assert "step" in job.warnings[0]
    assert job.evaluation is None


def test_a_job_with_metrics_of_its_own_names_is_managed_by_them_beside_one_with_ours(session: Session) -> None:
    after_passes(session, lambda: newest(session, "own-names").evaluation and newest(session, "well").evaluation)
    job, ours = newest(session, "own-names"), newest(session, "well")
    assert job.evaluation is not None
    assert (job.evaluation.objective, job.evaluation.series) == ("max", 'my_score{split="val"}')
    assert job.steps_planned == 4000
    assert (job.steps_total or 0) > 0
    assert ours.steps_planned != 4000
    after_passes(session, lambda: any("improves" in each for each in reasons(session, "own-names")))


def test_why_a_job_reports_no_loss_is_found_out_and_shown(session: Session) -> None:
    # As if it had had the time in which libraries and data are loaded.
    session.supervisor.records["quiet"].started_at_seconds = session.clock.now() - REMEDIES.failing_seconds
    after_passes(session, lambda: newest(session, "other-metric").missing_evaluation)
    after_passes(session, lambda: newest(session, "quiet").missing_evaluation)
    ports = {name: record.port for name, record in session.supervisor.records.items()}
    assert message_of(newest(session, "quiet")).startswith(
        f"port {ports['quiet']} refuses; if its output has a loss, find it"
    )
    assert message_of(newest(session, "other-metric")) == (
        f"port {ports['other-metric']} answers, but has no training_loss; it has my_val_loss, learning_rate; "
        "if one of them is the loss, write spec.evaluation.metric: my_val_loss"
    )
    assert newest(session, "well").missing_evaluation is None
    shown = {row.name: row.state for row in live_rows(session)}
    assert [shown[name] for name in ("quiet", "other-metric", "well")] == ["no loss", "no loss", "training"]


def message_of(job: Job) -> str:
    assert job.missing_evaluation is not None
    return job.missing_evaluation.message


def test_a_job_without_metrics_runs_to_its_end_with_the_cpu_that_it_came_with(session: Session) -> None:
    assert eventually(lambda: states(session)["silent"] == "finished")
    assert "reports no loss" in reasons(session, "silent")[0]
    assert "silent" not in [outcome.decision.job_uid for outcome in resizes(session)]


def test_a_process_that_a_job_left_in_a_session_of_its_own_ends_with_the_job(session: Session) -> None:
    assert eventually(lambda: states(session)["strays"] == "finished")
    assert eventually(lambda: not [each for each in marked_processes() if each.cmdline()[:1] == ["sleep"]])


def test_a_job_of_ours_has_one_thread_whatever_the_users_environment_says(session: Session) -> None:
    assert eventually(lambda: states(session)["environment"] == "finished")
    assert (session.supervisor.processes.folder / "environment.log").read_text() == "threads=1\n"
