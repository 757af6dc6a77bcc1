"""What a user may write: the `TrainingPolicy` document, validated by one schema wherever it is used.

The same document, as a file, drives `slopewise demo --policy-file` and `slopewise run --policy-file`. Keys are
camelCase as in Kubernetes, units are in the names, unknown keys are refused by name. Every mistake is told in
one sentence: where, what, what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

from controller.errors import UsageError
from controller.model import CpuControl, Objective
from controller.own_policies import catalogue
from controller.own_policies.loading import FAILURES, described
from controller.policies import PolicyParameters
from controller.texts import nearest

_CPU_QUANTITY = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<milli>m?)")
METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def parse_cpu_millicores(value: object) -> int:
    """Read a Kubernetes CPU quantity (`250m`, `"2"`, `0.5`) as millicores; ValueError with what to write."""
    match = _CPU_QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a CPU quantity; write millicores as 250m or cores as 0.25")
    number = float(match["number"])
    millicores = round(number if match["milli"] else number * 1000)
    if millicores < 1:
        raise ValueError(f"{value!r} is less than the smallest CPU quantity; write at least 1m")
    return millicores


def cpu_quantity(millicores: int) -> str:
    """Millicores as Kubernetes itself prints them: 250 is `250m`, 2000 is `2`."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def _metric_name(value: str) -> str:
    if not METRIC_NAME.fullmatch(value):
        raise ValueError(f"{value!r} is not a metric name; use letters, digits, _ and : (PromQL is not accepted)")
    return value


def _label_names(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if not LABEL_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a label name; use letters, digits and _ (PromQL is not accepted)")
    return value


CpuMillicores = Annotated[
    int, BeforeValidator(parse_cpu_millicores), WithJsonSchema({"type": "string", "format": "cpu-quantity"})
]
"""The formats of these three are names for rules: `crds/rules.py` has each of them as CEL."""
MetricName = Annotated[
    str,
    BeforeValidator(_metric_name),
    WithJsonSchema({"type": "string", "format": "metric-name", "maxLength": 200}),
    Field(max_length=200),
]
Model = TypeVar("Model", bound=BaseModel)
LabelMatchers = Annotated[
    dict[str, str],
    BeforeValidator(_label_names),
    WithJsonSchema(
        {
            "type": "object",
            "format": "label-names",
            "maxProperties": 16,
            "additionalProperties": {"type": "string", "maxLength": 500},
        }
    ),
    Field(max_length=16),
]


class Document(BaseModel):
    """Base of all that a user writes: camelCase keys, unknown ones refused, nothing changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


PolicyName = Annotated[str, Field(max_length=4096), WithJsonSchema({"type": "string", "maxLength": 63})]
"""In a file of this machine it may be a path, which is read as one before anything else (`named_policy`)."""


class PolicyChoice(Document):
    """Which policy decides, and its own parameters (`slopewise policies NAME` lists them)."""

    name: PolicyName = Field("flowcon", description="`slopewise policies` lists them")
    parameters: dict[str, Any] = Field(default_factory=dict, description="the policy's own; each has a default")


class EvaluationSettings(Document):
    """Which series tells how well a job does."""

    metric: MetricName = Field("training_loss", description="metric name, never PromQL")
    labels: LabelMatchers = Field(
        default_factory=dict,
        description="label matchers, compared as text; empty: the best of stage eval, train_ema, train",
    )
    objective: Objective = Field("min", description="min or max; the job's own training_info overrides")
    normaliser: Literal["range", "first", "none"] = Field(
        "range", description="what a change is divided by: |first - best|, |first|, or nothing"
    )
    progress: Literal["signed", "absolute"] = Field(
        "signed", description="absolute counts a rising loss as progress, as the papers print it"
    )


FORGOTTEN_UNIT_CORES = 100
"""From so many cores on a floor that is above its ceiling was meant as millicores."""


class CpuBounds(Document):
    """The least and the most CPU a job may be given."""

    min: CpuMillicores = Field(250, description="floor")
    max: CpuMillicores = Field(64_000, description="ceiling")

    @model_validator(mode="after")
    def _ordered(self) -> CpuBounds:
        if self.min > self.max:
            above = f"min {cpu_quantity(self.min)} is above max {cpu_quantity(self.max)}"
            raise ValueError(f"{above}; {self._meant()}")
        return self

    def _meant(self) -> str:
        """A hundred cores and more are nobody's floor: the unit was left out. `crds/rules.py` asks the same."""
        cores = self.min // 1000
        left_out = not self.min % 1000 and FORGOTTEN_UNIT_CORES <= cores <= self.max
        return f"did you mean {cores}m?" if left_out else "swap them"


class ResourceSettings(Document):
    """Which resource is changed, how, and within which bounds."""

    control: CpuControl = Field("limits", description="limits are hard; requests are shares, work-conserving")
    cpu: CpuBounds = CpuBounds()
    lower_requests: bool = Field(
        False, description="lower a request with its limit; without it a limit never goes below its request"
    )
    add_limits: bool = Field(
        False, description="give a limit to containers that have none; a limit once added cannot be removed"
    )
    memory: Literal["Ignore"] = Field("Ignore", description="memory is never changed")


class Behaviour(Document):
    """How fast and how far the controller may move."""

    interval_seconds: float = Field(60.0, ge=1.0, le=86_400, description="s between two looks at a node")
    cooldown_seconds: float = Field(120.0, ge=0.0, le=86_400, description="s in which a job is not resized again")
    max_step_ratio: float = Field(2.0, gt=1.0, le=1000.0, description="largest factor of one change")
    min_change_ratio: float = Field(0.1, ge=0.0, lt=1.0, description="smaller changes are not worth a call")
    deferred_deadline_seconds: float = Field(
        120.0, ge=1.0, le=86_400, description="s after which a resize that waits for room is taken back"
    )
    leave_alone_seconds: float = Field(
        600.0, ge=0.0, le=604_800, description="s for which a job that a change has harmed is left alone"
    )
    canary_ratio: float = Field(0.1, gt=0.0, le=1.0, description="share of the jobs that mode Canary changes")

    @model_validator(mode="after")
    def _can_move(self) -> Behaviour:
        largest_decrease = 1 - 1 / self.max_step_ratio
        if largest_decrease <= self.min_change_ratio:
            raise ValueError(
                f"maxStepRatio {self.max_step_ratio:g} allows decreases of {largest_decrease:.0%} at most, and "
                f"minChangeRatio {self.min_change_ratio:g} forbids them; raise the first or lower the second"
            )
        return self


class Migration(Document):
    """Whether running jobs may be moved, and how often at most; arriving jobs are placed by their own gate."""

    enabled: bool = Field(False, description="move running jobs that say they are migratable")
    max_per_node_per_hour: int = Field(2, ge=1, le=1000, description="moves away from one node within an hour")
    max_concurrent: int = Field(1, ge=1, le=1000, description="moves under way at the same time")
    min_stay_seconds: float = Field(
        600.0, ge=0.0, le=604_800, description="s that a job stays on a node before it is moved (again)"
    )
    max_checkpoint_age_seconds: float = Field(
        300.0, ge=1.0, le=604_800, description="s of work that a move may cost a job that does not save on SIGTERM"
    )
    horizon_seconds: float = Field(
        600.0, ge=1.0, le=604_800, description="s within which a move must gain more than it costs"
    )


Mode = Literal["Observe", "Recommend", "Canary", "Auto"]
"""How much the controller may do; `spec.mode` says what each means."""


class LabelRequirement(Document):
    """One `matchExpressions` entry of a Kubernetes label selector."""

    key: str = Field(max_length=317)
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[Annotated[str, Field(max_length=63)], ...] = Field((), max_length=64)

    @model_validator(mode="after")
    def _values_fit_operator(self) -> LabelRequirement:
        if (self.operator in ("In", "NotIn")) != bool(self.values):
            remedy = "needs values" if self.operator in ("In", "NotIn") else "takes no values"
            raise ValueError(f"operator {self.operator} {remedy}")
        return self


class LabelSelector(Document):
    """A Kubernetes label selector; an empty one selects everything."""

    match_labels: dict[str, str] = Field(default_factory=dict, max_length=64)
    match_expressions: tuple[LabelRequirement, ...] = Field((), max_length=16)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected; all parts must agree."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _meets(requirement, labels) for requirement in self.match_expressions
        )


def _meets(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    if requirement.operator == "Exists":
        return requirement.key in labels
    if requirement.operator == "DoesNotExist":
        return requirement.key not in labels
    return (labels.get(requirement.key) in requirement.values) == (requirement.operator == "In")


class Selection(Document):
    """Which pods of a cluster are managed: all parts must agree, and the pod must carry `slopewise.dev/managed`."""

    namespaces: LabelSelector = Field(LabelSelector(), description="by the labels of the namespace; empty: all")
    pods: LabelSelector = Field(LabelSelector(), description="by the labels of the pod; empty: all")
    nodes: LabelSelector = Field(LabelSelector(), description="by the labels of the node; empty: all")
    container: str | None = Field(
        None,
        max_length=63,
        description="the trainer's container; else the pod's annotation slopewise.dev/container, or its only one",
    )


class Tenancy(Document):
    """What a job may ask for; reporters and annotations are tenants'."""

    max_weight: float = Field(10.0, gt=0.0, le=1000.0, description="largest weight that an annotation may ask for")


class TrainingPolicySpec(Document):
    """The part of the document that says what to do."""

    mode: Mode = Field(
        "Recommend",
        description="Observe measures, Recommend decides and changes nothing, Canary acts on a share, Auto on all",
    )
    selector: Selection = Selection()
    policy: PolicyChoice = PolicyChoice()
    evaluation: EvaluationSettings = EvaluationSettings()
    resources: ResourceSettings = ResourceSettings()
    behaviour: Behaviour = Behaviour()
    migration: Migration = Migration()
    tenancy: Tenancy = Tenancy()


class Metadata(Document):
    """The name under which the policy is reported."""

    name: str = Field("default", description="in every log line, metric and table")


class TrainingPolicy(Document):
    """The platform engineer's document: `slopewise.dev/v1alpha1`, kind `TrainingPolicy`."""

    api_version: Literal["slopewise.dev/v1alpha1"] = Field("slopewise.dev/v1alpha1", description="of this document")
    kind: Literal["TrainingPolicy"] = Field("TrainingPolicy", description="of this document")
    metadata: Metadata = Metadata()
    spec: TrainingPolicySpec = TrainingPolicySpec()


def load_training_policy(path: Path) -> TrainingPolicy:
    """Read and validate a policy file, down to its policy's own parameters; UsageError with one sentence.

    A policy that it names by its path, relative to the file, has its name in what is returned.
    """
    document = validate(TrainingPolicy, load_yaml(path), where=str(path))
    choice = named_policy(document.spec.policy, beside=path.parent, where=f"{path}: spec.policy")
    policy_parameters(choice, where=f"{path}: spec.policy")
    return document.model_copy(update={"spec": document.spec.model_copy(update={"policy": choice})})


Choice = TypeVar("Choice", bound=PolicyChoice)


def named_policy(choice: Choice, *, beside: Path, where: str) -> Choice:
    """The same choice, by the policy's name where it gave the path of its file; UsageError says where a mistake is.

    Only for what this machine's user wrote: see `own_policies/catalogue.py`.
    """
    try:
        return choice.model_copy(update={"name": catalogue.name_of(choice.name, beside)})
    except UsageError as error:
        raise UsageError(f"{where}.name: {error}") from error


def policy_parameters(choice: PolicyChoice, *, where: str) -> PolicyParameters:
    """The typed parameters of the policy that was chosen; UsageError says where a mistake is."""
    try:
        policy = catalogue.find(choice.name)
    except UsageError as error:
        raise UsageError(f"{where}.name: {error}") from error
    try:
        return validate(policy.parameters, choice.parameters, where=where, under="parameters")
    except UsageError:
        raise
    except FAILURES as error:  # a validator in a file of the user's
        raise UsageError(f"{where}.parameters: {described(error, policy.origin)}.") from error


def load_yaml(path: Path) -> object:
    """Read a YAML file; UsageError when it is missing, unreadable or not YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{path}: cannot be read ({detail}); give the path of a readable YAML file.") from error
    return parse_yaml(text, where=str(path))


def parse_yaml(text: str, *, where: str) -> object:
    """The document in a text that was read from `where`; UsageError when it is not YAML."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise UsageError(f"{where}:{line} is not valid YAML; correct its syntax.") from error


def validate(model: type[Model], document: object, *, where: str, under: str = "") -> Model:
    """Validate `document` as `model`; UsageError tells the first mistake in one sentence, and how many follow.

    `where` is the file (and the place in it), `under` the key below it whose value `document` is.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise UsageError(sentence(error, model, where, under)) from error


def sentence(error: ValidationError, model: type[BaseModel], where: str, under: str = "") -> str:
    """One sentence for a failed validation, e.g. `p.yaml: spec.behaviour.interval: unknown key; remove it …`."""
    # A mistyped key is also a missing one: the key that was written is the better hint.
    first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    location = ".".join(str(part) for part in (under, *first["loc"]) if part != "")
    separator = "." if under else ": "
    place = f"{where}{separator}{location}" if location else where
    others = error.error_count() - 1
    more = f" ({others} more mistake{'s' if others > 1 else ''} after it)" if others else ""
    what = f"{_what_and_remedy(first, model)}{more}"
    return f"{place}: {what}" if what.endswith("?") else f"{place}: {what}."


def _what_and_remedy(first: Any, model: type[BaseModel]) -> str:
    if first["type"] == "extra_forbidden":
        return _unknown_key(str(first["loc"][-1]), _keys_beside(model, first["loc"]))
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "missing":
        return "is required; add it"
    if first["type"] in ("model_type", "dict_type"):
        return f"must be a mapping of keys to values, not {type(first['input']).__name__}; see the README's example"
    message = str(first["msg"]).replace("Input should be", "must be").replace("a valid tuple", "a list")
    if model.model_config.get("hide_input_in_errors"):  # what was written may be a secret
        return f"{message}; write it in quotes" if first["type"] == "string_type" else message
    return f"{message}, not {first['input']!r}{_meant_word(first)}"


def _unknown_key(key: str, known: Sequence[str]) -> str:
    meant = nearest(key, known)
    return (
        f"unknown key; did you mean {meant!r}?" if meant else f"unknown key; remove it or use one of {', '.join(known)}"
    )


def _meant_word(first: Any) -> str:
    """Which of a few words was probably meant; empty where none is near, or any text may stand."""
    if first["type"] != "literal_error" or not isinstance(first["input"], str):
        return ""
    words = re.findall(r"'([^']*)'", first["ctx"]["expected"])
    meant = nearest(first["input"], words) if len(words) > 1 else None
    return f"; did you mean {meant!r}?" if meant else ""


def _keys_beside(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys that are known where an unknown one was found; lists and mappings of models are seen through."""
    here: type[BaseModel] = model
    parts = iter(location[:-1])
    for part in parts:
        field = next((f for f in here.model_fields.values() if f.alias == part), None)
        inner = _model_in(field.annotation) if field else None
        if field is None or inner is None:
            break
        here = inner
        if _holds_many(field.annotation):
            next(parts, None)  # the place in the list, or the key in the mapping
    return sorted(field.alias or name for name, field in here.model_fields.items())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation such as `list[Model] | None` is about."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for each in get_args(annotation) if (model := _model_in(each))), None)


def _holds_many(annotation: Any) -> bool:
    return any(get_origin(each) in (list, dict) for each in (annotation, *get_args(annotation)))
