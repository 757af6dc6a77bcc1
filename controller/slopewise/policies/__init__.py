"""The policies: one file, or one folder, is one policy, found by its name.

A policy file holds a module docstring (what it computes, its source), a class `Parameters` (a pydantic model:
every field made by `parameter`, with unit, default, bounds and source) and a class `Policy`:

    class Policy:
        def __init__(self, parameters: Parameters, setting: Setting) -> None: ...
        def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions: ...

A file says `PURPOSE`, what one would choose it for in a few words, and `ACTIONS`, what its policy may decide: `resize`
jobs, `place` arriving ones, `migrate` running ones (`("resize",)` where it does not say). It may say

- `SIMULATOR_ONLY = "why, and what to write instead"`: it decides about no real job, and is told the work left;
- `DECIDES_ON = "reports"`: its policy decides on something else than a loss;
- `READS_POINTS = True`: it reads raw points (`Job.points`);
- `IN_TURNS = True`: it serves jobs one after another, so that a cut is a wait, and lower growth in it is no regression;
- `ACCELERATORS = True`: it changes jobs with accelerators where their owner asks for it (`shared/accelerators.py`);
- `STUDIES = True`: it serves a study's best trial first where its owner asks for it (`marginal/studies.py`);
- `SOFT_LIMITS = True`: its limits are ceilings of single jobs and may add up to more than the node.

Code that several policies share lies in `shared/`.

`decide` is pure: no clock (time is `snapshot.taken_at_seconds`), no I/O, no randomness. `memory` was brought up to
the snapshot by `growth.measure`. It gives a reason for every job, also for unchanged ones. Policies do not depend on
guards, nor on how a decision is carried out. `tests/controller/policies/test_contract.py` holds
every file in this folder to that. Policies of the user's, which lie elsewhere, are found by `own_policies`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from slopewise.errors import UsageError
from slopewise.model import AcceleratorControl, ClusterSnapshot, CpuControl, Decisions, MemoryState, StudyControl
from slopewise.text import unknown_name


class PolicyParameters(BaseModel):
    """Base of every policy's parameters: camelCase in files, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


def parameter(
    default: Any,
    *,
    unit: str,
    source: str,
    description: str,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Any:
    """A parameter of a policy, with all that `slopewise policies` prints of it."""
    extra: dict[str, JsonValue] = {"unit": unit, "source": source}
    return Field(default, ge=ge, gt=gt, le=le, lt=lt, description=description, json_schema_extra=extra)


@dataclass(frozen=True, slots=True)
class Setting:
    """The user's settings that every policy gets besides its own parameters."""

    interval_seconds: float
    control: CpuControl
    accelerators: AcceleratorControl = "Ignore"
    """Whether jobs with accelerators are changed (`shared/accelerators.py`)."""
    studies: StudyControl = "Fair"
    """Whom the CPU of a study goes to."""


class PolicyProtocol(Protocol):
    """What a pass needs of a policy."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """What to change, why, and what to remember; pure."""
        ...


DecidesOn = Literal["loss", "reports"]
"""What a job must have reported before a policy may change it: a loss, or anything (steps, responses, a loss)."""

Action = Literal["resize", "place", "migrate"]
"""What a policy may decide: CPU of running jobs, nodes of arriving jobs, other nodes for running jobs.

To restore what a job came with is no action.
"""

ACTIONS: frozenset[Action] = frozenset(get_args(Action))

CHOOSING_NODES: frozenset[Action] = frozenset({"place", "migrate"})

Build = Callable[[PolicyParameters, Setting], PolicyProtocol]


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One policy, and what its file says of it."""

    name: str
    summary: str
    description: str
    parameters: type[PolicyParameters]
    simulator_only: str
    """Why it decides about no real job, and what to write instead; empty: it does."""
    build: Build
    purpose: str = ""
    """What one would choose it for, in a few words; its summary where the file does not say."""
    origin: str = ""
    """Where a policy of the user's was found: its file, or its package; empty for those of this folder."""
    decides_on: DecidesOn = "loss"
    reads_points: bool = False
    """It reads the raw points of jobs (`Job.points`), which cost one more query a pass."""
    in_turns: bool = False
    """It serves jobs one after another: a cut is a wait, judged by kills and restarts (`feedback/rollback.py`)."""
    accelerators: bool = False
    """It changes jobs with accelerators where `spec.resources.accelerators` says so."""
    studies: bool = False
    """It serves a study's best trial first where `spec.studies` says so."""
    soft_limits: bool = False
    """Its limits may add up to more than the node."""
    file: str | None = None
    """The file of a policy that is a single one of the user's, by which another process finds it."""
    actions: frozenset[Action] = frozenset({"resize"})
    """What it may decide; empty: it only restores what jobs came with."""

    @property
    def chooses_nodes(self) -> bool:
        """Whether it can be the policy of `spec.placement`."""
        return not self.actions.isdisjoint(CHOOSING_NODES)

    @property
    def only_chooses_nodes(self) -> bool:
        """Whether nothing of it would be carried out beside a policy of `spec.placement`."""
        return bool(self.actions) and self.actions <= CHOOSING_NODES

    @classmethod
    def of(cls, name: str, module: ModuleType, build: Build, origin: str = "", file: str | None = None) -> PolicyFile:
        """What the module says of its policy."""
        description = (module.__doc__ or "").strip()
        summary = description.partition("\n")[0]
        return cls(
            name,
            summary,
            description,
            parameters=module.Parameters,
            simulator_only=getattr(module, "SIMULATOR_ONLY", "") or "",
            build=build,
            purpose=str(getattr(module, "PURPOSE", summary)),
            decides_on=getattr(module, "DECIDES_ON", "loss"),
            reads_points=bool(getattr(module, "READS_POINTS", False)),
            in_turns=bool(getattr(module, "IN_TURNS", False)),
            accelerators=bool(getattr(module, "ACCELERATORS", False)),
            studies=bool(getattr(module, "STUDIES", False)),
            soft_limits=bool(getattr(module, "SOFT_LIMITS", False)),
            origin=origin,
            file=file,
            actions=frozenset(getattr(module, "ACTIONS", ("resize",))),
        )


SHARED = "shared"
"""The folder of what several policies share, which is none."""


def names() -> list[str]:
    """The names of all policies, which are the names of their files or folders."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith(("_", SHARED)))


def find(name: str) -> PolicyFile:
    """The policy of that name (`flowcon`, `kube-default`); UsageError names those there are."""
    file_name = name.replace("-", "_")
    if file_name not in names():
        raise UsageError(unknown_name("policy", name, [known.replace("_", "-") for known in names()]))
    module = importlib.import_module(f"{__name__}.{file_name}")
    return PolicyFile.of(name, module, module.Policy)


def build(name: str, parameters: PolicyParameters, setting: Setting) -> PolicyProtocol:
    """The policy of that name with these parameters, ready to decide."""
    return find(name).build(parameters, setting)
