"""Which of several series speaks for a job, and what its process says of itself: rows in, one answer out."""

from __future__ import annotations

import math

from support.rows import row_of

from slopewise.adapters.prometheus.client import Row
from slopewise.adapters.prometheus.evaluations import (
    MAX_SERIES_TEXT,
    Chosen,
    JobKey,
    candidates_by_job,
    choose,
    evaluation,
    series_text,
)
from slopewise.adapters.prometheus.process_facts import facts_by_job, latest_process
from slopewise.config.training_policy import EvaluationSettings

KEY = JobKey("flowcon", "job-a")
LOSS = EvaluationSettings()
NOW = 1000.0
WINDOW_START = 990.0


def rows(
    level: float = 0.5,
    *,
    sampled_at: float | None = NOW,
    last: float | None = None,
    lowest: float | None = None,
    **labels: str,
) -> list[Row]:
    values = {"level": level, "samples": 8.0}
    if not math.isfinite(level) or last is not None:  # else there are no such rows
        values |= {"last": level if last is None else last, "lowest": level if lowest is None else lowest}
    if sampled_at is not None:
        values["sampled_at"] = sampled_at
    base = {"namespace": "flowcon", "pod": "job-a", "instance": "127.0.0.1:1", "job": "slopewise", **labels}
    return [row_of({**base, "slopewise_value": kind}, value) for kind, value in values.items()]


def chosen(*series: list[Row], settings: EvaluationSettings = LOSS, latest: str | None = None) -> Chosen:
    found = candidates_by_job(settings, [row for one in series for row in one], WINDOW_START)
    return choose([found[KEY]], latest, 1.0)


def chosen_text(*series: list[Row], latest: str | None = None) -> str | None:
    window = chosen(*series, latest=latest).window
    return window.text if window else None


def fact(name: str, value: float, *, instance: str = "a:1", **labels: str) -> Row:
    return row_of({"__name__": name, "namespace": "flowcon", "pod": "job-a", "instance": instance, **labels}, value)


def event(kind: str, *, instance: str = "a:1") -> Row:
    return row_of({"namespace": "flowcon", "pod": "job-a", "instance": instance, "slopewise_value": kind}, 1)


def test_stages_are_preferred_eval_then_average_then_minibatch_then_any_other() -> None:
    every = [rows(stage=stage) for stage in ("test", "train", "train_ema", "eval")]
    assert chosen_text(*every) == 'training_loss{stage="eval"}'
    assert chosen_text(*every[:3]) == 'training_loss{stage="train_ema"}'
    assert chosen_text(*every[:2]) == 'training_loss{stage="train"}'
    assert chosen_text(every[0], rows(stage="another")) == 'training_loss{stage="another"}'


def test_a_window_is_full_unless_it_is_said_how_many_samples_it_has() -> None:
    by_kind = {row.labels["slopewise_value"]: row for row in rows()}
    message = by_kind.pop("samples")
    windows = [
        chosen([*by_kind.values(), row_of(message.labels, 3)]).window,
        chosen(list(by_kind.values())).window,
        chosen([row for kind, row in by_kind.items() if kind != "level"]).window,
    ]
    assert [window and window.sample_count for window in windows] == [3, 4, 0]


def test_a_series_whose_window_is_empty_is_none_although_its_last_sample_is_still_shown() -> None:
    """A server that was down when a target went, or VictoriaMetrics, shows it for five minutes."""
    gone = [row for row in rows(sampled_at=WINDOW_START - 1) if row.labels["slopewise_value"] == "sampled_at"]
    assert candidates_by_job(LOSS, gone, WINDOW_START) == {}


def test_a_series_is_named_without_the_labels_of_the_scrape_and_a_long_name_is_cut() -> None:
    labels = {"stage": "eval", "head": 'a"b', "pod": "job-a", "instance": "x:1", "__name__": "training_loss"}
    assert series_text("training_loss", labels) == 'training_loss{head="a\\"b",stage="eval"}'
    assert series_text("trainer_loss", {"pod": "job-a"}) == "trainer_loss"
    long = {"stage": "eval", "run": "x" * 100_000}
    first, second = (series_text("training_loss", {**long, "z": end}) for end in "ab")
    assert len(first) == MAX_SERIES_TEXT
    assert first.startswith('training_loss{run="xxx')
    assert first != second
    assert first == series_text("training_loss", {**long, "z": "a"}), "the same in every process"


def test_two_series_of_one_stage_give_the_same_choice_in_any_order_and_a_warning() -> None:
    first, second = rows(stage="eval", head="a"), rows(stage="eval", head="b")
    assert chosen_text(first, second) == chosen_text(second, first) == 'training_loss{head="a",stage="eval"}'
    (warning,) = chosen(first, second).warnings
    assert 'not training_loss{head="b",stage="eval"}' in warning
    assert "narrow spec.evaluation.labels" in warning
    (of_thousands,) = chosen(*(rows(stage="eval", head=f"{number:04}") for number in range(2000))).warnings
    assert 'head="0003",stage="eval"} and 1996 more;' in of_thousands


def test_a_series_that_is_gone_does_not_win_over_a_live_one() -> None:
    gone = rows(stage="eval", instance="127.0.0.1:1", sampled_at=NOW - 5)
    live = rows(stage="train_ema", instance="127.0.0.1:2")
    assert chosen_text(gone, live) == 'training_loss{stage="train_ema"}'


def test_the_latest_process_speaks_where_both_lives_are_in_the_window() -> None:
    former, latest = rows(0.5, stage="eval", instance="z:1"), rows(0.9, stage="train", instance="a:2")
    both = chosen(former, latest, latest="a:2")
    assert both.window is not None
    assert (both.window.level, both.warnings) == (0.9, ())
    assert chosen_text(former, latest, latest="elsewhere:3") == 'training_loss{stage="eval"}'


def test_a_level_that_is_not_finite_shows_the_last_finite_value_else_the_lowest_else_nan() -> None:
    def shown(last: float, lowest: float) -> tuple[float, bool]:
        found = evaluation(chosen(rows(math.nan, last=last, lowest=lowest)), None, diverged=False)
        assert found is not None
        return found.level, found.finite

    assert shown(0.3, 0.2) == (0.3, False)
    assert shown(math.inf, 0.2) == (0.2, False)
    level, finite = shown(math.nan, math.nan)
    assert math.isnan(level)
    assert not finite
    no_sum_takes_it = evaluation(chosen(rows(1.7e308, last=-1.7e308, lowest=0.4)), None, diverged=False)
    assert no_sum_takes_it is not None
    assert (no_sum_takes_it.level, no_sum_takes_it.finite) == (0.4, False)


def test_what_the_job_says_of_its_objective_overrides_the_mapping() -> None:
    mapped = chosen(rows(), settings=EvaluationSettings(objective="max"))
    found = [evaluation(mapped, says, diverged=False) for says in (None, "min")]
    assert [one and one.objective for one in found] == ["max", "min"]


def test_the_first_mapping_with_a_series_speaks_and_the_warnings_of_all_are_kept() -> None:
    step = row_of({"namespace": "flowcon", "pod": "job-a", "slopewise_value": "step"}, 40)
    first = candidates_by_job(LOSS, [step], WINDOW_START)[KEY]
    second = candidates_by_job(EvaluationSettings(metric="trainer_loss"), rows(), WINDOW_START)[KEY]
    speaker = choose([first, second], None, 1.0)
    assert speaker.window is not None
    assert speaker.window.text == "trainer_loss"
    assert "training_loss carries the label `step`" in speaker.warnings[0]
    assert choose([first], None, 1.0).window is None


def test_series_without_a_pod_belong_to_no_job() -> None:
    assert candidates_by_job(LOSS, rows(pod=""), WINDOW_START) == {}
    assert facts_by_job([row_of({"__name__": "training_steps_total", "namespace": "x"}, 1), row_of({}, 1)]) == {}


def test_two_ranks_that_started_apart_long_ago_are_no_restart() -> None:
    processes = [fact("process_start_time_seconds", at, instance=name) for name, at in (("a:1", 100), ("b:2", 103))]
    steps = [fact("training_steps_total", 7, instance=name) for name in ("a:1", "b:2")]
    facts = facts_by_job(processes + steps)[KEY]
    assert not facts.restarted(facts.working_processes(frozenset()), since_seconds=WINDOW_START)


def test_the_restart_of_a_sidecar_is_not_the_jobs() -> None:
    own = [fact("process_start_time_seconds", 100), fact("training_steps_total", 7)]
    sidecar = [fact("process_start_time_seconds", 999, instance="sidecar:9")]
    facts = facts_by_job([*own, *sidecar, event("starts", instance="sidecar:9")])[KEY]
    assert not facts.restarted(facts.working_processes(frozenset()), since_seconds=WINDOW_START)
    assert facts.restarted(facts.working_processes({"sidecar:9"}), since_seconds=WINDOW_START)


def test_a_study_that_a_job_names_itself_has_the_letters_of_a_name() -> None:
    rows = [fact("training_steps_total", steps, study=study) for study, steps in (("a", 3), ("b", 7), ("c", 5))]
    facts = facts_by_job([*rows, fact("training_study", 1, study="LR search\n")])[KEY]
    _, process = latest_process(facts.working_processes(frozenset()))
    assert process.study == "lr-search"
    assert process.numbers["training_steps_total"] == 7, "the most, where its steps are labelled with studies"


def test_states_and_objectives_that_the_contract_does_not_know_are_left_out() -> None:
    facts = facts_by_job(
        [
            fact("training_state", 1, state="meditating"),
            fact("training_state", 0, state="failed"),
            fact("training_info", 1, objective="sideways"),
            fact("training_steps_planned", math.nan),
        ]
    )[KEY]
    instance, process = latest_process(facts.working_processes(frozenset()))
    assert (instance, process.state, process.objective, process.numbers) == (None, None, None, {})
