"""Runs every seed under every policy in worker processes, and collects the figures.

A task is one run: a policy over the instance of a seed, or the fair runs with other tie-breaks that the worst job is
measured by. Each task draws its own instance, which costs less than sending it. Tasks are read in the order in which
they were given out, so that results depend neither on the number of workers nor on who was ready first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from slopewise.errors import SlopewiseError
from slopewise.signals import Interrupted
from slopewise.simulator import engine, workload
from slopewise.simulator.results.measures import Figures, figures
from slopewise.simulator.results.sweep_result import SweepResult
from slopewise.simulator.scenario.scenario import Scenario, policy_runs
from slopewise.simulator.workers import WorkerStopped, carry_out, signals_held_back, worker_pool
from slopewise.simulator.world.model import Instance, PolicyRun, RunOutcome

FAIR_RUNS = 8
"""Fair runs with other tie-breaks, whose mean is what a job's completion time is measured by."""


OnDone = Callable[[], object]


def unseen() -> None:
    """Ignore that a run is done."""


def runs_of(seeds: int, policies: int) -> int:
    """How many runs a sweep makes, the baseline being one of the policies; the fair runs of a seed count as one."""
    return seeds * (policies + 1)


@dataclass(frozen=True, slots=True)
class Simulator:
    """The functions that a sweep calls, in its workers: what it is given must be importable there."""

    draw: Callable[[Scenario, int], Instance] = workload.draw
    run: Callable[..., RunOutcome] = engine.run
    run_unmanaged: Callable[[Instance, int], RunOutcome] = engine.run_unmanaged


def simulate(
    scenario: Scenario,
    seeds: Sequence[int],
    workers: int,
    *,
    policies: Sequence[str] = (),
    placement: str | None = None,
    keep_runs_of: Collection[int] = (),
    on_run: Callable[[RunOutcome], None] | None = None,
    simulator: Simulator | None = None,
    pool: Executor | None = None,
    on_done: OnDone = unseen,
) -> SweepResult:
    """Run the scenario's policies, or `policies` instead, over each of `seeds` in so many processes.

    With `placement`, each of them runs once more, beside that policy (`policy_runs`).

    The runs of the seeds in `keep_runs_of` are in the result. `on_run` is given each policy's run in order, with its
    trace. `pool`: a `worker_pool` that several sweeps share, because starting one takes seconds. `on_done` is called
    once a run, from any thread. SlopewiseError from any run ends the sweep. `Interrupted` ends it too, and the seeds
    that are whole by then are returned with `stopped` set.
    """
    asked = policy_runs(scenario, list(policies), placement)
    collected = _Collected(keep_runs_of, on_run)
    tasks = _tasks(scenario, asked, seeds, simulator or Simulator(), trace=on_run is not None)
    stopped = _work(tasks, workers, pool, on_done, collected.add)
    whole = [seed for seed in seeds if collected.has_all(seed, asked)]
    return SweepResult(
        scenario=scenario.metadata.name,
        policies=tuple(each.label for each in asked),
        seeds_asked=tuple(seeds),
        seeds=tuple(whole),
        figures={each.label: [collected.figures[each.label, seed] for seed in whole] for each in asked},
        runs={key: run for key, run in collected.runs.items() if key[1] in whole},
        stopped=stopped,
        tuned_on=scenario.spec.tuning,
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """One run of one seed. `policy` None: the fair runs, which give each job's mean completion time."""

    simulator: Simulator
    scenario: Scenario
    seed: int
    policy: PolicyRun | None
    trace: bool

    def __call__(self) -> RunOutcome | dict[str, float]:
        instance = self.simulator.draw(self.scenario, self.seed)
        if self.policy is None:
            return _mean_jct_seconds([self.simulator.run_unmanaged(instance, each) for each in _tie_breaks(self.seed)])
        return self.simulator.run(instance, self.policy, trace=self.trace)


def _tasks(
    scenario: Scenario, policies: Sequence[PolicyRun], seeds: Sequence[int], simulator: Simulator, *, trace: bool
) -> list[_Task]:
    """Seed by seed, so that whole seeds are there early; of each the fair runs first and the baseline next."""
    return [
        _Task(simulator, scenario, seed, policy, trace and policy is not None)
        for seed in seeds
        for policy in (None, *policies)
    ]


def _tie_breaks(seed: int) -> list[int]:
    """Tie-breaks of the fair runs. The runs that are measured by them break ties by the seed, which is left out."""
    return [each for each in range(FAIR_RUNS + 1) if each != seed][:FAIR_RUNS]


def _mean_jct_seconds(runs: Sequence[RunOutcome]) -> dict[str, float]:
    """By job, over the runs in which it ended."""
    times: dict[str, list[float]] = {}
    for run in runs:
        for job in run.jobs:
            if job.jct_seconds is not None:
                times.setdefault(job.name, []).append(job.jct_seconds)
    return {name: fmean(of_job) for name, of_job in times.items()}


class _Collected:
    """What the tasks gave so far. A run is turned into figures at once and dropped, unless it is to be kept."""

    def __init__(self, keep_runs_of: Collection[int], on_run: Callable[[RunOutcome], None] | None) -> None:
        self.figures: dict[tuple[str, int], Figures] = {}
        self.runs: dict[tuple[str, int], RunOutcome] = {}
        self._keep_runs_of = keep_runs_of
        self._on_run = on_run
        self._fair: RunOutcome | None = None
        self._fair_jct_seconds: Mapping[str, float] = {}

    def add(self, task: _Task, made: RunOutcome | dict[str, float]) -> None:
        """In the order of the tasks: of each seed the fair runs, the baseline, then the other policies."""
        if isinstance(made, dict):
            self._fair_jct_seconds, self._fair = made, None
            return
        if self._on_run is not None:
            self._on_run(made)
        self._fair = self._fair or made
        key = made.policy, task.seed
        self.figures[key] = figures(made, self._fair, self._fair_jct_seconds)
        if task.seed in self._keep_runs_of:
            self.runs[key] = made

    def has_all(self, seed: int, policies: Sequence[PolicyRun]) -> bool:
        return all((each.label, seed) in self.figures for each in policies)


_Add = Callable[[_Task, RunOutcome | dict[str, float]], None]


def _work(
    tasks: Sequence[_Task], workers: int, pool: Executor | None, on_done: OnDone, add: _Add
) -> Interrupted | None:
    """Carry the tasks out and `add` each one's outcome in their order; what interrupted it, if anything did."""
    try:
        if pool is not None:
            _in_pool(tasks, pool, on_done, add)
        elif workers == 1:
            _in_this_process(tasks, on_done, add)
        else:
            with worker_pool(min(workers, len(tasks))) as own:
                _in_pool(tasks, own, on_done, add)
    except Interrupted as stop:
        return stop
    except (BrokenProcessPool, WorkerStopped) as error:
        raise SlopewiseError(
            "A worker of the sweep was ended, probably for want of memory; use fewer --workers."
        ) from error
    return None


def _in_this_process(tasks: Sequence[_Task], on_done: OnDone, add: _Add) -> None:
    for task in tasks:
        add(task, task())
        on_done()


def _in_pool(tasks: Sequence[_Task], pool: Executor, on_done: OnDone, add: _Add) -> None:
    with signals_held_back():
        futures = deque((task, pool.submit(carry_out, task)) for task in tasks)
    for _, future in futures:
        future.add_done_callback(partial(_report_run, on_done))
    try:
        while futures:
            add(futures[0][0], futures[0][1].result())
            futures.popleft()  # with its outcome, which may be large
    except Interrupted:
        _add_what_is_done(futures, add)
        raise


def _report_run(on_done: OnDone, future: Future[RunOutcome | dict[str, float]]) -> None:
    if not future.cancelled() and future.exception() is None:
        on_done()


def _add_what_is_done(futures: Sequence[tuple[_Task, Future[RunOutcome | dict[str, float]]]], add: _Add) -> None:
    """Seeds beyond the one that was waited for may be whole: other workers had them."""
    unfinished = {futures[0][0].seed} if futures else set()
    for task, future in futures:
        if task.seed in unfinished or not future.done() or future.exception() is not None:
            unfinished.add(task.seed)
        else:
            add(task, future.result())
