"""Draws one `Instance` of a scenario from a seed: the same jobs for every policy, the same again for the same seed.

Only the seed and what is drawn decide: not the scenario's name, so two scenarios that differ in their nodes draw the
same jobs. Arrivals, models, works and promises have a stream of random numbers each: a change of one does not shift the
others. Nothing but uniform numbers is asked of numpy, whose other distributions may change with its version, and so
would every committed result.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from itertools import accumulate
from statistics import NormalDist

import numpy as np

from slopewise.model import CpuAllocation
from slopewise.simulator.curves import Recorded
from slopewise.simulator.scenario.builtin_models import (
    SERVED,
    CpuSeconds,
    ModelSettings,
    SpikeSettings,
)
from slopewise.simulator.scenario.curve_settings import CurveSettings
from slopewise.simulator.scenario.generate_settings import Arrivals, DeadlineGenerator, Generate, QoeGenerator
from slopewise.simulator.scenario.parts import JobSettings, threads_of
from slopewise.simulator.scenario.scenario import Scenario, ScenarioSpec
from slopewise.simulator.world.accelerators import Accelerator
from slopewise.simulator.world.model import Curve, Instance, Physics, SimJob, SimNode, Spike

GIB = 2**30

NEEDED_CORES = (0.1, 0.8)
"""What a served model needs to meet its objective, before all are scaled to the generator's `totalCores`."""


class _Uniform:
    """One stream of uniform numbers, and what is made of them."""

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self._generator = np.random.default_rng(seed)

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * float(self._generator.random())

    def exponential(self, rate: float) -> float:
        return -math.log1p(-self.between(0.0, 1.0)) / rate

    def normal(self) -> float:
        # Away from 0, where the normal distribution ends at minus infinity.
        return NormalDist().inv_cdf(self.between(2.0**-53, 1.0))

    def choice(self, weights: dict[str, float]) -> str:
        bounds = list(accumulate(weights.values()))
        return list(weights)[bisect_right(bounds, self.between(0.0, bounds[-1]), hi=len(bounds) - 1)]


class _Streams:
    """The streams of one seed."""

    def __init__(self, seed: int) -> None:
        parts = map(_Uniform, np.random.SeedSequence(seed).spawn(8))
        self.explicit, self.arrivals, self.models, self.works, *others = parts
        self.objectives, self.spikes, self.plans, self.history = others


def draw(scenario: Scenario, seed: int) -> Instance:
    """The instance of this scenario and seed (0 or more); nodes in the file's order, jobs by arrival, then name."""
    spec, streams = scenario.spec, _Streams(seed)
    explicit = [_explicit(job, spec, streams.explicit) for job in spec.jobs]
    jobs = [_with_threads(job, spec, settings) for job, settings in zip(explicit, spec.jobs, strict=True)]
    if spec.generate is not None:
        jobs += [_with_threads(job, spec) for job in _generated(spec.generate, spec, streams)]
    jobs = [_with_spikes(job, spec.model(job.model).spikes, streams.spikes) for job in jobs]
    jobs = [_with_plan(job, spec.model(job.model).plan_ratio or spec.plan_ratio, streams.plans) for job in jobs]
    history = _history(spec, {job.model for job in jobs}, streams)
    return Instance(
        scenario=scenario.metadata.name,
        seed=seed,
        nodes=_nodes(spec),
        jobs=tuple(sorted(jobs, key=lambda job: (job.arrive_seconds, job.name))),
        physics=Physics(**{each.name: getattr(spec, each.name) for each in fields(Physics)}),
        duration_seconds=spec.duration_seconds,
        history=history,
        default_scheduler=spec.default_scheduler,
    )


def _nodes(spec: ScenarioSpec) -> tuple[SimNode, ...]:
    return tuple(
        SimNode(name, node.cpu / 1000, round(node.memory_gib * GIB), node.speed, node.requests_max, node.accelerators)
        for node in spec.nodes
        for name in node.names
    )


def _explicit(job: JobSettings, spec: ScenarioSpec, uniform: _Uniform) -> SimJob:
    """An explicit job; it always draws the same number of random numbers."""
    arrive_seconds, drawn = uniform.between(*job.arrive_seconds), uniform.between(0.0, 1.0)
    accelerator = job.accelerator or spec.model(job.model).accelerator
    work = job.work_cpu_seconds or job.request_cpu_seconds
    if work is None and accelerator is not None and job.steps is not None:
        work = (job.steps * accelerator.input_cpu_seconds,) * 2
    of_model = _job(job.name, job.model, arrive_seconds, drawn, spec, work, job.accelerator)
    promised = job.deadline_seconds
    return replace(
        of_model,
        parallelism_cores=job.parallelism or of_model.parallelism_cores,
        memory_bytes=_bytes(job.memory_gib) or of_model.memory_bytes,
        allocation=of_model.allocation if job.request is None else _allocation(job.request, of_model.accelerator, spec),
        steps_planned=job.steps or of_model.steps_planned,
        qoe_seconds=job.qoe_seconds,
        deadline_seconds=None if promised is None else arrive_seconds + promised,
        target_level=job.target_loss,
        deliverable_level=job.deliverable_loss,
        stops_at_target=job.at_target == "stop",
        weight=job.weight,
        reports=job.reports,
        migratable=job.migratable and of_model.migratable,
        checkpoint_seconds=job.checkpoint_seconds,
        restart_seconds=job.restart_seconds,
        crashes_at_done_ratio=tuple(sorted(job.crashes_at_done_ratio)),
    )


def _job(
    name: str,
    model_name: str,
    arrive_seconds: float,
    drawn: float,
    spec: ScenarioSpec,
    cpu_seconds: CpuSeconds | None = None,
    own_accelerator: Accelerator | None = None,
) -> SimJob:
    """A job as its model has it; `drawn`, 0 to 1, is its place in the range of its work, or of its requests' work.

    `cpu_seconds` is that range where the model's own does not hold, `own_accelerator` likewise.
    """
    model = spec.model(model_name)
    accelerator = own_accelerator or model.accelerator
    low, high = cpu_seconds or _range_of(model_name, model, spec)
    value = low + (high - low) * drawn
    work = math.inf if model.served else value
    curve = _curve(model.curve)
    ends_at = model.ends_at if spec.ends_at is None else spec.ends_at
    first, best = (curve.first, curve.best) if isinstance(curve, Recorded) else (1.0, ends_at)
    return SimJob(
        name=name,
        model=model_name,
        arrive_seconds=arrive_seconds,
        work_cpu_seconds=work,
        curve=curve,
        reported_curve=_curve(model.reported_curve),
        workload_class=None if spec.workload_classes else "",
        losses=(first, best),
        parallelism_cores=model.parallelism if accelerator is None else accelerator.most_cores(),
        accelerator=accelerator,
        migratable=accelerator is None,
        noise=model.noise_ratio if spec.noise is None else spec.noise,
        memory_bytes=_bytes(model.memory_gib),
        allocation=_allocation(_proportion(accelerator, spec), accelerator, spec),
        request_cpu_seconds=value if model.served else None,
        steps_planned=_steps(work, spec, accelerator),
    )


def _proportion(accelerator: Accelerator | None, spec: ScenarioSpec) -> int:
    """The request of a job that states none, in millicores: with accelerators, their part of the CPU of a node."""
    if accelerator is None:
        return min(1000, *(node.cpu for node in spec.nodes))
    return accelerator.count * min(node.cpu // node.accelerators for node in spec.nodes if node.accelerators)


def _allocation(request: int, accelerator: Accelerator | None, spec: ScenarioSpec) -> CpuAllocation:
    """A job with accelerators comes with its request as its limit, where limits count, as a Guaranteed pod does."""
    limited = accelerator is not None and spec.control == "limits"
    return CpuAllocation(request if limited else None, request)


def _with_threads(job: SimJob, spec: ScenarioSpec, settings: JobSettings | None = None) -> SimJob:
    """The job with the threads that it says, or the scenario's. One thread is what all other figures are of."""
    number, behaviour, library = (
        getattr(settings, name, None) or getattr(spec, name)
        for name in ("threads", "thread_behaviour", "thread_library")
    )
    if number == 1 or job.accelerator is not None or spec.model(job.model).served:
        return job
    return replace(job, parallelism_cores=float(number), threads=threads_of(number, behaviour, library))


def _with_spikes(job: SimJob, settings: SpikeSettings | None, uniform: _Uniform) -> SimJob:
    """The job with the steps whose loss is far off, in order."""
    if settings is None:
        return job
    spikes = []
    for number in range(settings.count):
        at_start = number == 0 and uniform.between(0.0, 1.0) < settings.first_batch_ratio
        begin, lasts = uniform.between(0.0, 1.0), uniform.between(*settings.lasts)
        size = 10.0 ** uniform.between(*map(math.log10, settings.size))
        sign = 1.0 if uniform.between(0.0, 1.0) < 0.5 else -1.0
        begin = 0.0 if at_start else begin
        spikes.append(Spike(begin, begin + lasts, sign * size))
    return replace(job, spikes=tuple(sorted(spikes, key=lambda spike: spike.from_ratio)))


def _with_plan(job: SimJob, ratio: tuple[float, float], uniform: _Uniform) -> SimJob:
    """The job with the steps that it says it plans, where they are not those that it takes."""
    drawn = uniform.between(*ratio)
    if job.steps_planned is None or drawn == 1.0:
        return job
    planned = max(1, round(drawn * job.steps_planned))
    return replace(job, steps_planned=planned, plan_ratio=planned / job.steps_planned)


def _history(spec: ScenarioSpec, models: Collection[str], streams: _Streams) -> tuple[SimJob, ...]:
    """Jobs of each trained model that ended before the run: they arrive one after another, at half of the CPU."""
    cores = math.fsum(node.cpu / 1000 * node.speed * node.count for node in spec.nodes)
    jobs: list[SimJob] = []
    arrival = 0.0
    for number in range(1, spec.history_jobs + 1):
        for model in sorted(model for model in models if not spec.model(model).served):
            job = _job(f"history-{model}-{number}", model, arrival, streams.history.between(0.0, 1.0), spec)
            if spec.generate is not None and spec.generate.sizes is not None:
                job = _resized(job, _size(spec.generate.sizes.lognormal, streams.history), spec)
            jobs.append(
                _with_plan(_with_threads(job, spec), spec.model(model).plan_ratio or spec.plan_ratio, streams.history)
            )
            arrival += 2 * job.work_cpu_seconds / cores
    return tuple(jobs)


def _range_of(name: str, model: ModelSettings, spec: ScenarioSpec) -> tuple[float, float]:
    """Core-seconds of a job, or of a request of a served model; a built-in training varies as the scenario says."""
    low, high = model.work_cpu_seconds or model.request_cpu_seconds or (0.0, 0.0)
    if name in spec.models or model.served:
        return low, high
    return low * (1 - spec.variation), high * (1 + spec.variation)


def _curve(settings: CurveSettings | None) -> Curve | None:
    return settings.build() if settings else None


def _bytes(gib: float | None) -> float | None:
    return None if gib is None else gib * GIB


def _steps(work_cpu_seconds: float, spec: ScenarioSpec, accelerator: Accelerator | None = None) -> int | None:
    """The steps that it takes; a served model, and a job without a plan, has none."""
    if spec.steps_per_cpu_second is None or math.isinf(work_cpu_seconds):
        return None
    steps = spec.steps_per_cpu_second if accelerator is None else 1 / accelerator.input_cpu_seconds
    return max(1, round(work_cpu_seconds * steps))


def _generated(generate: Generate, spec: ScenarioSpec, streams: _Streams) -> list[SimJob]:
    arrivals = _arrivals(generate.arrivals, generate.jobs_count, streams.arrivals)
    names = generate.names
    if generate.qoe is not None:
        return _served(generate.qoe, names, arrivals, spec, streams)
    models = [streams.models.choice(generate.mix) for _ in names]
    jobs = [
        _job(name, model, arrival, streams.works.between(0.0, 1.0), spec)
        for name, model, arrival in zip(names, models, arrivals, strict=True)
    ]
    if generate.sizes is not None:
        jobs = [_resized(job, _size(generate.sizes.lognormal, streams.works), spec) for job in jobs]
    return _with_deadlines(generate.deadlines, jobs, spec, streams.objectives) if generate.deadlines else jobs


def _arrivals(arrivals: Arrivals, count: int, uniform: _Uniform) -> list[float]:
    """When each job arrives, ascending."""
    if arrivals.every is not None:
        return [number * arrivals.every for number in range(count)]
    if arrivals.poisson is not None:
        return list(accumulate(uniform.exponential(arrivals.poisson) for _ in range(count)))
    if arrivals.bursts is not None:
        bursts = arrivals.bursts
        return sorted(
            number % bursts.count * bursts.every_seconds + uniform.between(0.0, bursts.within_seconds)
            for number in range(count)
        )
    earliest, latest = arrivals.uniform or (0.0, 0.0)
    return sorted(uniform.between(earliest, latest) for _ in range(count))


def _size(sigma: float, uniform: _Uniform) -> float:
    """A log-normal factor of mean 1: with sigma 1.2 half of the jobs have less than 0.49, one in 20 more than 3.5."""
    return math.exp(sigma * uniform.normal() - sigma**2 / 2)


def _resized(job: SimJob, factor: float, spec: ScenarioSpec) -> SimJob:
    work = job.work_cpu_seconds * factor
    return replace(job, work_cpu_seconds=work, steps_planned=_steps(work, spec, job.accelerator))


def _served(
    qoe: QoeGenerator, names: Sequence[str], arrivals: Sequence[float], spec: ScenarioSpec, streams: _Streams
) -> list[SimJob]:
    """Served models whose objective is what c* cores would give them, all c* together `totalCores`.

    A request of 1.2 core-seconds and c* = 0.4 make an objective of 3 s. Scaled to a scarce total, a c* may exceed the
    one core that a served model uses: such an objective cannot be met, and costs more than any best subset pays.
    """
    needed = [streams.objectives.between(*NEEDED_CORES) for _ in names]
    scale = qoe.total_cores / sum(needed)
    jobs = []
    for name, arrival, cores in zip(names, arrivals, needed, strict=True):
        job = _job(name, SERVED, arrival, 0.0, spec)
        request = streams.works.between(*qoe.request_cpu_seconds)
        jobs.append(replace(job, request_cpu_seconds=request, qoe_seconds=request / (cores * scale)))
    return jobs


def _with_deadlines(
    deadlines: DeadlineGenerator, jobs: Sequence[SimJob], spec: ScenarioSpec, uniform: _Uniform
) -> list[SimJob]:
    """Deadlines from the works as drawn; then the works are scaled to `load` of the CPU until the last deadline.

    In this order, because scaling both is no way to a scarce load: a deadline that grows with its work keeps the load
    under `sum(work) / (cores x largest of work x factor)`, 0.8 or so for 20 mixed jobs on 4 cores, at any scale. A
    job that uses less than a core is measured by how long it takes on its own.
    """
    by = [
        job.arrive_seconds + job.work_cpu_seconds / min(1.0, job.parallelism_cores) * uniform.between(*deadlines.factor)
        for job in jobs
    ]
    cpu_seconds = max(by) * sum(node.cpu / 1000 * node.speed * node.count for node in spec.nodes)
    scale = deadlines.load * cpu_seconds / sum(job.work_cpu_seconds for job in jobs)
    return [
        replace(_resized(job, scale, spec), deadline_seconds=deadline) for job, deadline in zip(jobs, by, strict=True)
    ]
