"""Validates models of jobs in a scenario (`ModelSettings`), and defines the built-in ones.

`scenario.py` reads more of them from a file, `workload.py` draws jobs from both. Works of VAE-PyTorch and the MNISTs
follow from FlowCon's published fixed run (thesis 6.1.3), the shapes of VAE, Bi-RNN and GRU and what an LSTM-CRF can use
from its published curves; the other works and rates are chosen, and so is the noise, which no paper prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from slopewise.config.validation import Document
from slopewise.simulator.scenario.curve_settings import CurveSettings, RecordedSettings
from slopewise.simulator.world.accelerators import Accelerator

LARGEST = 1e9
"""Thirty years of seconds, or of core-seconds: more is a mistyped unit."""

Range = tuple[float, float]


def _range(value: object) -> object:
    """One number stands for a range without width."""
    pair = value if isinstance(value, list | tuple) else (value, value)
    numbers = [float(each) for each in pair if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(pair) != 2 or len(numbers) != 2:
        raise ValueError(f"must be a number or [lowest, highest], not {value!r}")
    if numbers[0] > numbers[1]:
        raise ValueError(f"lowest {numbers[0]:g} is above highest {numbers[1]:g}; swap them")
    return tuple(numbers)


def _within(least: float, most: float, *, above: bool = False, below: bool = False, note: str = "") -> AfterValidator:
    """From `least` to `most`, or `above` the one and `below` the other; `note`: what the bounds are of."""

    def checked(value: Range) -> Range:
        is_low_right = value[0] > least if above else value[0] >= least
        if not is_low_right or not (value[1] < most if below else value[1] <= most):
            bounds = f"{'above' if above else 'at least'} {least:g} and {'below' if below else 'at most'} {most:g}"
            raise ValueError(f"must be {bounds}{note}, not {value[is_low_right]:g}")
        return value

    return AfterValidator(checked)


PositiveRange = Annotated[Range, BeforeValidator(_range), _within(0, LARGEST, above=True)]
"""A number, or `[lowest, highest]`, from which one is drawn uniformly."""

CpuSeconds = PositiveRange
"""Core-seconds."""

Seconds = Annotated[Range, BeforeValidator(_range), _within(0, LARGEST)]
"""A time from the start of the run: a number, or `[earliest, latest]`, from which one is drawn uniformly."""


EndsAt = Annotated[float, Field(ge=0.0, le=0.99)]
"""A loss that falls by less than a hundredth of its first value is hidden by the noise of its observations."""

MAX_SPIKE = 1e15
"""In ranges of a curve: more, and a float could not hold the loss beside it."""


MIN_PLAN_RATIO, MAX_PLAN_RATIO = 0.001, 1000.0

PlanRatio = Annotated[Range, BeforeValidator(_range), _within(MIN_PLAN_RATIO, MAX_PLAN_RATIO)]
"""Steps that a job says it plans, over those that it takes; 1 is the truth."""


class SpikeSettings(Document):
    """Steps whose loss is far off, as of mixed precision or a broken batch; drawn from the seed for each job."""

    count: int = Field(3, ge=1, le=1000)
    size: Annotated[Range, BeforeValidator(_range), _within(0, MAX_SPIKE, above=True)] = Field(
        (20.0, 1e12), description="in ranges of the curve, up or down, evenly over its powers of ten"
    )
    lasts: Annotated[
        Range, BeforeValidator(_range), _within(0, 1, above=True, below=True, note=", a part of the work")
    ] = Field((0.001, 0.02), description="for how much of the work that loss is the last one")
    first_batch_ratio: float = Field(0.5, ge=0.0, le=1.0, description="the part of jobs whose first step is one")


DEFAULT_NOISE = 0.01


class ModelSettings(Document):
    """What jobs of one model are like: trained (`workCpuSeconds`, `curve`) or served (`requestCpuSeconds`)."""

    work_cpu_seconds: CpuSeconds | None = None
    curve: CurveSettings | None = None
    reported_curve: CurveSettings | None = Field(None, description="what it reports instead of its curve")
    request_cpu_seconds: CpuSeconds | None = None
    parallelism: float = Field(1.0, gt=0.0, le=1024.0, description="cores a job can use at once")
    accelerator: Accelerator | None = Field(None, description="of a job that computes on one")
    noise: float | None = Field(None, ge=0.0, le=1.0, description="s.d. of a loss, as a fraction of its first value")
    ends_at: EndsAt = Field(0.0, description="the best loss, as a fraction of the first value")
    memory_gib: float | None = Field(None, alias="memoryGiB", gt=0.0, le=65_536.0)
    spikes: SpikeSettings | None = None
    plan_ratio: PlanRatio | None = Field(None, description="default: the scenario's")

    @model_validator(mode="after")
    def _trained_or_served(self) -> ModelSettings:
        given = tuple(each is not None for each in (self.work_cpu_seconds, self.curve, self.request_cpu_seconds))
        if given not in ((True, True, False), (False, False, True)):
            raise ValueError(
                "give workCpuSeconds and curve (a model that is trained), or requestCpuSeconds without them (one that "
                "is served)"
            )
        if self.served and self.reported_curve is not None:
            raise ValueError("a model that is served reports no loss; remove reportedCurve")
        if self.served and self.accelerator is not None:
            raise ValueError("an accelerator waits for the batches of a training; remove it from a served model")
        return self

    @property
    def noise_ratio(self) -> float:
        """The noise that is added; a recorded loss has its own."""
        if self.noise is not None:
            return self.noise
        return 0.0 if self.curve is not None and self.curve.recorded is not None else DEFAULT_NOISE

    @property
    def served(self) -> bool:
        """True for a model that answers requests until the run ends, and has no loss."""
        return self.request_cpu_seconds is not None


def _trained(work_cpu_seconds: float, parallelism: float = 1.0, **curve: object) -> ModelSettings:
    return ModelSettings.model_validate(
        {"workCpuSeconds": work_cpu_seconds, "parallelism": parallelism, "curve": curve}
    )


_VAE = {"k": 5.198}
"""65 % of the improvement in the first fifth: 1 - e^(-k/5) = 0.65 (1 - e^(-k))."""

_BIRNN = {"k": 19.56}
"""98 % in the first fifth, by the same equation."""

_GRU = [
    [0.0, 1.0], [0.02, 0.794], [0.04, 0.631], [0.06, 0.501], [0.08, 0.398], [0.1, 0.316], [0.12, 0.251],
    [0.14, 0.2], [0.16, 0.158], [0.18, 0.126], [0.2, 0.1], [0.22, 0.0518], [0.24, 0.0268], [0.27, 0.01],
    [0.35, 0.006], [0.5, 0.003], [1.0, 0.0],
]  # fmt: skip
"""90 % at 20 % and 99 % at 27 % of the work, exponential before, between and after: one exponential fits only one."""

SERVED = "served"
"""The built-in model that answers requests: what `generate.qoe` draws, and a job that names no model."""

BUILT_IN: Mapping[str, ModelSettings] = {
    "vae-pytorch": _trained(260, exponential=_VAE),
    "vae-tensorflow": _trained(200, exponential=_VAE),
    "mnist-pytorch": _trained(106, exponential={"k": 14}),
    "mnist-tensorflow": _trained(28, exponential={"k": 12}),
    "gru": _trained(150, points=_GRU),
    "birnn": _trained(120, exponential=_BIRNN),
    "lstm-crf": _trained(180, parallelism=0.19, exponential={"k": 8}),
    "rnn": _trained(90, exponential={"k": 16}),
    "dynamic-rnn": _trained(140, exponential={"k": 9}),
    SERVED: ModelSettings.model_validate({"requestCpuSeconds": [0.2, 2.0]}),
}
"""By name. Works in core-seconds of a core of speed 1, of which the papers' machines are one (`cpu: 1`)."""

RECORDED: Mapping[str, str] = {
    "vae-pytorch": "vae-pytorch",
    "vae-tensorflow": "vae-keras",
    "mnist-pytorch": "mnist-pytorch",
    "mnist-tensorflow": "mnist-keras",
    "gru": "gru-keras",
    "birnn": "birnn-keras",
    "lstm-crf": "lstm-crf-pytorch",
    "rnn": "rnn-pytorch",
    "dynamic-rnn": "dynamic-rnn-pytorch",
}
"""The recorded loss of each built-in training: in Keras where the thesis has TensorFlow alone (table 6.1)."""


@cache
def built_in(name: str, recorded_stage: str | None) -> ModelSettings:
    """The built-in model; with a stage, the one whose curve is that stage of its recorded loss, all else alike."""
    model = BUILT_IN[name]
    if recorded_stage is None or model.served:
        return model
    curve = CurveSettings(recorded=RecordedSettings(name=RECORDED[name], stage=recorded_stage))
    return model.model_copy(update={"curve": curve})
