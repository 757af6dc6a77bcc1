"""The page of marginal's figures: what it says of a result, what is kept of a run, and that its settings can be run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from replication import marginal_published
from replication.marginal import NAMES, PAGE, main, rendered
from replication.marginal_page import TABLES
from replication.marginal_runs import LIARS_WORST, RATIOS, WORST, Kept, load, load_scenarios, run, save
from replication.marginal_settings import FIFO, MARGINAL, OURS, SETTINGS, TUNING_SEEDS, Setting
from replication.run import SETTINGS as OF_PAPERS
from slopewise.simulator.scenario.scenario import policy_runs
from slopewise.simulator.sweep import simulate

AGAIN = "run `python -m replication.marginal --render`, or the section again"

BY_NAME = {setting.name: setting for setting in SETTINGS}


def command(*options: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, list(options))
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
class TestEverySetting:
    def test_is_on_the_page_with_all_of_its_policies_or_listed_as_not_run(self, setting: Setting) -> None:
        kept, text = load(setting.name), rendered()[1]
        (missing,) = re.findall(r"^Not run yet: (.*)\.$", text, re.MULTILINE) or [""]
        assert (f"`{setting.name}`" in missing) == (kept is None), AGAIN
        assert (f'<a id="{setting.name}"></a>' in text) == (kept is not None), AGAIN
        assert kept is None or set(kept.policies) == {"fair", *setting.policies}, AGAIN
        assert not setting.baselines_of or BY_NAME[setting.baselines_of].scenario == setting.scenario


@pytest.mark.parametrize(
    "setting", [setting for setting in SETTINGS if not setting.external], ids=lambda each: each.name
)
def test_a_setting_whose_files_are_here_can_be_run(setting: Setting) -> None:
    (scenario,) = load_scenarios(setting)
    asked = [policy for policy in setting.policies if policy not in OURS] or [MARGINAL]
    assert [each.label for each in policy_runs(scenario, asked)][1:] == asked


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if load(setting.name)], ids=lambda each: each.name)
def test_what_is_kept_has_enough_seeds_and_none_that_was_tuned_on(setting: Setting) -> None:
    kept = load(setting.name)
    assert kept is not None
    assert not set(kept.seeds) & set(TUNING_SEEDS)
    assert len(kept.seeds) >= setting.seeds
    runs = len(kept.seeds) * len(kept.scenarios)
    assert {len(values) for of in kept.policies.values() for values in of.values()} == {runs}


def test_the_pages_are_those_of_what_is_kept() -> None:
    short, long = rendered()
    assert PAGE.read_text(encoding="utf-8") == short, AGAIN
    assert (PAGE.parent / TABLES).read_text(encoding="utf-8") == long, AGAIN


def test_every_published_setting_is_beside_its_papers_policy() -> None:
    theirs = {setting.scenario for setting in OF_PAPERS.values() if not setting.name.endswith(("-causes", "-grid"))}
    assert {setting.scenario for setting in marginal_published.SETTINGS} == theirs
    kept = marginal_published.load()
    assert (kept is None) == ("`published`" in rendered()[1].partition("Not run yet: ")[2]), AGAIN
    if kept is None:
        return
    seeds, rows = kept
    assert len(seeds) >= marginal_published.SEEDS
    assert [(row.setting, row.measure) for row in rows] == [
        (setting.title, measure.what) for setting in marginal_published.SETTINGS for measure in setting.measures
    ], AGAIN


class TestRuns:
    def test_figures_are_those_that_the_simulator_gives_and_of_liars_the_worst_job_is_an_honest_one(
        self, tmp_path: Path
    ) -> None:
        setting, seeds = BY_NAME["liars"], range(1, 3)
        kept = run(setting, seeds, 1, policies=["las"])
        save("liars", kept, tmp_path)
        again = load("liars", tmp_path)
        assert again is not None
        assert (list(again.seeds), again.policies) == ([1, 2], kept.policies)
        result = simulate(load_scenarios(setting)[0], seeds, 1, policies=["las"])
        for measure in RATIOS:
            assert again.of("las", measure).mean == pytest.approx(result.ratio_to_fair()["las"][measure].mean, abs=1e-4)
        for place, figures in enumerate(result.figures["las"]):
            both = [kept.policies["las"][measure][place] or 0.0 for measure in (WORST, LIARS_WORST)]
            assert max(both) == pytest.approx(figures.values[WORST], abs=1e-3)
        assert set(kept.policies["fair"][WORST]) == {1.0}

    def test_contention_is_measured_as_cpu_that_did_no_work(self) -> None:
        """Two jobs nearly all of the time, 5 % lost to each."""
        of = Setting("x", "x", "flowcon-fixed", overrides={"contentionRatio": 0.05})
        lost = run(of, [1], 1, policies=[FIFO]).policies
        assert 0.02 < (lost["fair"]["cpu_lost_ratio"][0] or 0) < 0.1
        assert lost[FIFO]["cpu_lost_ratio"] == [0.0]  # one job after another

    def test_a_policy_can_be_run_again_alone_on_the_same_seeds_only(self) -> None:
        before = Kept(["a"], [1, 2], {"fair": {}, "x": {"m": [1.0, 2.0]}, "y": {"m": [1.0, 2.0]}})
        after = before.merged(Kept(["a"], [1, 2], {"fair": {}, "x": {"m": [3.0, 4.0]}}))
        assert after.policies == {"fair": {}, "x": {"m": [3.0, 4.0]}, "y": {"m": [1.0, 2.0]}}
        with pytest.raises(ValueError, match="is of a, seeds 1 to 2, and the new figures are of a, seeds 1 to 3"):
            before.merged(Kept(["a"], [1, 2, 3], {}))

    def test_a_mistake_is_answered_in_one_sentence(self, tmp_path: Path) -> None:
        code, output = command("--section", "nonsense")
        assert code == 2
        assert "--section nonsense: there is no such section; use one of " in output
        assert all(name in output for name in NAMES)
        code, output = command("--section", "pollux", "--out", str(tmp_path))
        assert code == 2
        assert "pollux: needs --external, the folder that `python -m replication.pollux` has written." in output


class TestPublished:
    def test_a_seed_gives_each_measure_for_both_policies_and_without_a_plan(self) -> None:
        (number,) = [at for at, each in enumerate(marginal_published.SETTINGS) if each.scenario == "flowcon-fixed"]
        values = marginal_published.of_seed(number, 1)
        assert len(values) == len(marginal_published.SETTINGS[number].measures)
        assert all(None not in figures for figures in values)
        mnist = values[1]
        assert mnist[1] is not None
        assert mnist[1] > 20  # the shortest job of three, which has a plan
