"""Scenarios of recorded trainings, from small tables of the same layout, and the pages that are made of their runs."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from replication import outside_curves, outside_pages
from replication.flat_runs import in_first_half
from replication.marginal_runs import Kept
from replication.outside import app
from replication.outside_curves import NO_PLAN, OWN_STEPS, TRIAL_SECONDS, Cluster, Trainings
from replication.outside_pages import ALGOPERF, HERE, KEPT, STUDIES, TASKSET, Study, load_all, page
from slopewise.simulator.world.model import Instance

NAMES = [name for name in map(str, range(40)) if in_first_half(name)][:6]
HELD_BACK = next(name for name in map(str, range(40)) if not in_first_half(name))
OTHER_UNIT = NAMES[5]


@pytest.fixture
def algoperf(tmp_path: Path) -> Path:
    """Runs of 10,000 s; the first is at its target after half of it, the others never; one counts other steps."""
    runs, curves = ["run,reached,reached_seconds,end_seconds,end_step,step_hint"], ["run,seconds,train_loss"]
    for name in [*NAMES, HELD_BACK]:
        reached = "1,5000" if name == NAMES[0] else "0,"
        runs.append(f"{name},{reached},10000,{10 if name == OTHER_UNIT else 400},800")
        curves += [f"{name},{seconds},{loss}" for seconds, loss in ((1000, 8), (5000, 4), (10000, 2))]
    (tmp_path / "runs.csv").write_text("\n".join(runs))
    (tmp_path / "curves.csv.gz").write_bytes(gzip.compress("\n".join(curves).encode()))
    return tmp_path


def sweep(*trials: tuple[Sequence[object], Sequence[object]]) -> bytes:
    """A table of trials, each with its training and its validation losses."""
    looks = len(trials[0][0])
    columns = ["trial", *(f"{stage}_{look}" for stage in ("train", "valid") for look in range(looks))]
    rows: list[list[object]] = [[number, *train, *valid] for number, (train, valid) in enumerate(trials)]
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    return gzip.compress("\n".join(lines).encode())


def drawn(study: Study, trainings: Trainings, jobs: int) -> Instance:
    scenario = outside_pages.load_scenario_of(study, "x", trainings, Cluster(1, jobs, 0.0))
    return outside_curves.draw(trainings, scenario, 1)


class TestAlgoperf:
    def test_runs_that_are_held_back_or_count_other_steps_are_not_read(self, algoperf: Path) -> None:
        assert list(ALGOPERF.read(algoperf)["algoperf"]) == NAMES[:5]

    def test_a_job_reports_the_recorded_loss_over_its_first_value_and_is_at_its_target_when_the_run_was(
        self, algoperf: Path
    ) -> None:
        trainings = ALGOPERF.read(algoperf)["algoperf"]
        (job,) = drawn(ALGOPERF, {NAMES[0]: trainings[NAMES[0]]}, 1).jobs
        assert job.reported_curve is not None
        assert [job.loss_at(job.reported_curve.at(done)) for done in (0, 0.1, 0.3, 0.5, 1)] == pytest.approx(
            [1, 1, 0.75, 0.5, 0.25]
        )
        assert (job.work_cpu_seconds, job.noise) == (10_000, 0)
        assert job.curve is not None
        assert job.curve.reached(1 - (job.target_level or 0)) == pytest.approx(0.5)
        (other,) = drawn(ALGOPERF, {NAMES[1]: trainings[NAMES[1]]}, 1).jobs
        assert other.target_level is None

    def test_a_job_plans_the_workloads_length_its_own_steps_or_nothing(self, algoperf: Path) -> None:
        (job,) = drawn(ALGOPERF, {NAMES[0]: ALGOPERF.read(algoperf)["algoperf"][NAMES[0]]}, 1).jobs
        assert (job.steps_planned, job.plan_ratio) == (200_000, 2)
        own, none = (outside_curves.planned(job, label) for label in (OWN_STEPS, NO_PLAN))
        assert (own.steps_planned, own.plan_ratio, none.steps_planned) == (100_000, 1, None)


class TestTaskset:
    def trainings(self, folder: Path) -> Trainings:
        trials = ([2, 1, 0.5], [2, 0.4, 0.6]), ([2, "", ""], [2, "", ""]), ([1, 1, 3], [2, 2, 2])
        (folder / "a.csv.gz").write_bytes(sweep(*trials))
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patched:
            patched.setattr(outside_curves, "in_first_half", lambda name: True)
            return TASKSET.read(folder)["a"]

    def test_of_the_drawn_trials_the_best_alone_has_a_target_its_lowest_validation_loss(self, tmp_path: Path) -> None:
        trainings = self.trainings(tmp_path)
        jobs = drawn(TASKSET, trainings, 8).jobs
        assert {job.model for job in jobs if job.target_level is not None} == {"a-0"}
        best = next(job for job in jobs if job.model == "a-0")
        assert best.curve is not None
        assert best.curve.reached(1.0) == pytest.approx(0.5)
        assert {job.work_cpu_seconds for job in jobs} == {TRIAL_SECONDS}


def test_the_command_keeps_the_figures_of_all_policies_and_writes_the_page(
    algoperf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_pages, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(outside_pages, "HERE", tmp_path)
    small = {"one node": Cluster(1, 4, 0.0), "four nodes": Cluster(4, 6, 0.0)}
    monkeypatch.setattr(outside_pages, "ALGOPERF", replace(ALGOPERF, clusters=small))
    (tmp_path / "images").mkdir()
    result = CliRunner().invoke(app, ["algoperf", "--data", str(algoperf), "--seeds", "2"])
    assert result.exit_code == 0, result.output
    one, four = (load_all(ALGOPERF, tmp_path / "kept")[cluster] for cluster in ("one node", "four nodes"))
    common = ["fair", "marginal", OWN_STEPS, NO_PLAN, "flowcon", "las", "fifo", "srpt-oracle"]
    assert list(one.policies) == common
    assert set(four.policies) == {*common, "specon"}
    assert one.policies["fair"]["jct_mean_seconds"] == [1, 1]
    assert all(value is not None and value < 1 for value in one.policies[OWN_STEPS]["jct_mean_seconds"])
    text = (tmp_path / "algoperf.md").read_text()
    assert text == page(ALGOPERF, {"one node": one, "four nodes": four})
    assert "| one node, 2 draws | `fair` | 1 | 1 |" in text
    assert (tmp_path / "images/algoperf.svg").stat().st_size > 1000
    result = CliRunner().invoke(app, ["algoperf", "--data", str(algoperf), "--seeds", "3", "--go-on"])
    more = load_all(ALGOPERF, tmp_path / "kept")["one node"]
    assert (result.output.count("draw 3"), result.output.count("draw 1"), more.seeds) == (2, 0, [1, 2, 3])
    assert {name: figures[:2] for name, figures in more.policies["flowcon"].items()} == one.policies["flowcon"]


def test_a_folder_without_the_tables_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for study, missing in (("algoperf", "curves.csv.gz"), ("taskset", "no file is named *.csv.gz")):
        result = CliRunner().invoke(app, [study, "--data", str(tmp_path)])
        assert result.exit_code == 2
        assert missing in result.output
        assert f"replication/{study}.md says what the folder holds." in " ".join(result.output.split())


def test_more_draws_follow_those_of_their_own_sweep() -> None:
    before = Kept(["a", "b"], [1, 2], {"fair": {"m": [1.0, 2.0, 10.0, None]}})
    after = before.joined(Kept(["a", "b"], [3], {"fair": {"m": [3.0, 30.0]}}))
    assert after == Kept(["a", "b"], [1, 2, 3], {"fair": {"m": [1.0, 2.0, 3.0, 10.0, None, 30.0]}})
    for others in (
        Kept(["a", "c"], [3], {"fair": {"m": [3.0, 30.0]}}),
        Kept(["a", "b"], [3], {"fair": {"m": [3.0, 30.0]}, "new": {"m": [3.0, 30.0]}}),
        Kept(["a", "b"], [3], {"fair": {"m": [3.0, 30.0], "n": [3.0, 30.0]}}),
    ):
        with pytest.raises(ValueError, match=r"seeds 1 to 2\) is of other .*; run all"):
            before.joined(others)


def test_fewer_draws_than_sweeps_are_refused_before_what_is_kept_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_pages, "KEPT", tmp_path / "kept")
    for name in "abc":
        (tmp_path / f"{name}.csv.gz").write_bytes(sweep(*[([2, 1], [2, 1])] * 20))
    result = CliRunner().invoke(app, ["taskset", "--data", str(tmp_path), "--seeds", "2"])
    assert result.exit_code == 2
    assert "--seeds 2" in result.output
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_the_page_is_what_the_kept_figures_make(study: Study) -> None:
    assert (HERE / f"{study.name}.md").read_text(encoding="utf-8") == page(study, load_all(study, KEPT))
