"""Checks a user's policy against the contract (`slopewise policies check FILE`).

The first failing check ends them. Random worlds are the same in every run, and a failing one is shrunk.
"""

from __future__ import annotations

import ast
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import hypothesis
import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky

from slopewise import policies
from slopewise.errors import PolicyError, UsageError
from slopewise.model import (
    Arrival,
    ClusterSnapshot,
    CpuAllocation,
    CpuControl,
    Decisions,
    Evaluation,
    Growth,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryState,
    Node,
    PolicyMemory,
    Usage,
)
from slopewise.own_policies import contract, drawn_worlds
from slopewise.own_policies.catalogue import name_file
from slopewise.own_policies.contract import ContractError, Make
from slopewise.own_policies.drawn_worlds import INTERVAL, START
from slopewise.own_policies.loading import EndlessError, LimitedPolicy, limited
from slopewise.policies import PolicyFile, PolicyProtocol, Setting

API = "slopewise.policy_api"

IMPURE = frozenset({
    "asyncio", "datetime", "http", "io", "multiprocessing", "os", "pathlib", "psutil", "random", "requests", "secrets",
    "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
})  # fmt: skip
"""A policy that needs one of these is not pure: another answer to the same question, or a pass that waits."""

IMPURE_CALLS = frozenset({"breakpoint", "input", "open", "print"})

WORLDS = 200
"""A usual policy takes seconds for so many random worlds."""

CONTROLS: tuple[CpuControl, ...] = get_args(CpuControl)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check has found. `mistake` is None where it found nothing."""

    check: str
    mistake: str | None = None
    world: str | None = None
    """The smallest world in which it happens, as Python would write it."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """All that was found, in the order of the checks; the first mistake ends them."""

    policy: str
    file: str
    findings: tuple[Finding, ...]

    @property
    def kept(self) -> bool:
        """Whether the policy keeps to the contract."""
        return all(finding.mistake is None for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """For `--output json`."""
        return asdict(self) | {"kept": self.kept}


def check_file(path: Path, worlds: int = WORLDS) -> CheckResult:
    """Hold the policy in this file to the contract; UsageError where it cannot even be loaded."""
    try:
        with limited(path):
            policy = name_file(path)
    except EndlessError as error:
        raise UsageError(f"{path}: cannot be loaded: it {error}; mend it.") from error
    found: list[Finding] = []
    with _hypothesis_elsewhere():
        for check in _checks(policy, Path(policy.file or path), worlds):
            found.append(check())
            if found[-1].mistake is not None:
                break
    return CheckResult(policy.name, str(path), tuple(found))


@contextmanager
def _hypothesis_elsewhere() -> Iterator[None]:
    """What it keeps is not written into the folder of the user, which may be one that cannot be written to."""
    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)


def _checks(policy: PolicyFile, path: Path, worlds: int) -> Iterator[Callable[[], Finding]]:
    yield lambda: Finding("what it imports and calls", next(_impure(path), None))
    yield lambda: Finding("what it says of itself", next(_description(policy), None))
    yield lambda: _tried("ordinary worlds", policy, _ordinary)
    yield lambda: _tried("worlds one after another", policy, _in_turn)
    yield lambda: _tried("jobs that fit nowhere", policy, _fits_nowhere)
    yield lambda: _random(policy, worlds)
    yield lambda: _adds_up(policy, worlds)
    yield lambda: _tried("many jobs", policy, _many)


# --- the file -------------------------------------------------------------------------------------------------


def _impure(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield f"line {node.lineno} calls {node.func.id}; decide is pure: what it has to say is in its reasons"
        for module in _imported(node):
            line = getattr(node, "lineno", 0)
            if module.split(".")[0] == "slopewise" and module != API:
                yield f"line {line} imports {module}, which may move or change; what policies need is in {API}"
            elif module.split(".")[0] in IMPURE:
                yield f"line {line} imports {module}; decide is pure: no clock, no files, no network, no randomness"


def _imported(node: ast.AST) -> Sequence[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        whole = node.module or ""
        return [API if f"{whole}.{alias.name}" == API else whole for alias in node.names]
    return []


def _description(policy: PolicyFile) -> Iterator[str]:
    if not policy.summary:
        yield "the file does not begin with a docstring; its first line says what the policy computes"
    if "Source:" not in policy.description:
        yield "the docstring has no `Source:`; say where the rule is from, or that it is your own"
    for name, field in policy.parameters.model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if not field.description or not {"unit", "source"} <= set(extra):
            yield f"Parameters.{name} has no description, unit or source; make it with parameter(...)"
    shipped = {key: kind for name in policies.names() for key, kind in _types(policies.find(name)).items()}
    for key, kind in _types(policy).items():
        if kind != (known := shipped.get(key, kind)):
            yield f"Parameters.{key} is a {kind}, and a {known} in shipped policies; a key has one type, so rename it"


def _types(policy: PolicyFile) -> Mapping[str, str]:
    """The JSON type of each parameter, by its key; a cluster's API server knows one type for each key."""
    found = policy.parameters.model_json_schema(by_alias=True).get("properties", {})
    return {key: str(schema["type"]) for key, schema in found.items() if "type" in schema}


# --- what it decides ------------------------------------------------------------------------------------------


def _maker(policy: PolicyFile, control: CpuControl) -> Make:
    file = Path(policy.file or "")

    def make() -> PolicyProtocol:
        with limited(file):
            return LimitedPolicy(policy.build(policy.parameters(), Setting(INTERVAL, control)), file)

    return make


def _everything(policy: PolicyFile, control: CpuControl, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
    make = _maker(policy, control)
    return contract.check_everything(make, control, snapshot, memory, policy.decides_on, policy.actions)


Hold = Callable[[PolicyFile, CpuControl], None]

BROKEN = (ContractError, PolicyError, EndlessError)
"""What a check raises of a policy that breaks the contract."""


def _tried(check: str, policy: PolicyFile, hold: Hold) -> Finding:
    try:
        for control in CONTROLS:
            hold(policy, control)
    except BROKEN as error:
        return Finding(check, _sentence(error))
    return Finding(check)


def _sentence(error: BaseException) -> str:
    return f"decide {error}" if isinstance(error, EndlessError) else str(error)


def _ordinary(policy: PolicyFile, control: CpuControl) -> None:
    alone = replace(a_busy_world()[0], jobs=a_busy_world()[0].jobs[:1])
    for snapshot, memory in (
        (replace(alone, jobs=()), MemoryState()),
        (replace(alone, jobs=(), nodes=()), MemoryState()),
        (alone, MemoryState()),
        a_busy_world(),
    ):
        _everything(policy, control, snapshot, memory)


def _in_turn(policy: PolicyFile, control: CpuControl) -> None:
    snapshot, memory = a_busy_world()
    for _ in range(4):
        memory = _everything(policy, control, snapshot, memory).memory
        snapshot = replace(snapshot, taken_at_seconds=snapshot.taken_at_seconds + INTERVAL)


def _fits_nowhere(policy: PolicyFile, control: CpuControl) -> None:
    huge = Arrival("huge", "huge", "team", START, 1000, memory_request_bytes=2.0**50)
    for nodes in ((), a_busy_world()[0].nodes):
        snapshot = ClusterSnapshot(START, nodes, (), waiting=(huge,))
        if contract.decide(_maker(policy, control)(), snapshot, MemoryState()).moves:
            raise ContractError("places a job whose memory fits nowhere; leave it to the default scheduler")


def _random(policy: PolicyFile, worlds: int) -> Finding:
    def hold(snapshot: ClusterSnapshot, memory: MemoryState) -> None:
        for control in CONTROLS:
            _everything(policy, control, snapshot, memory)

    mistake, world = search(hold, worlds) or (None, None)
    return Finding(f"{worlds} random worlds", mistake, world)


def _adds_up(policy: PolicyFile, worlds: int) -> Finding:
    def hold(snapshot: ClusterSnapshot, memory: MemoryState) -> None:
        for control in CONTROLS:
            contract.check_limits_add_up(_maker(policy, control), snapshot, memory, soft=policy.soft_limits)

    if found := search(hold, worlds):
        return Finding("limits that add up", *found)
    # What is drawn differs with the modules that are loaded, and may have no node of several jobs: here is one.
    busy = a_busy_world()
    try:
        hold(*busy)
    except BROKEN as error:
        return Finding("limits that add up", _sentence(error), _written_world(busy))
    return Finding("limits that add up")


def search(hold: Callable[[ClusterSnapshot, MemoryState], object], worlds: int) -> tuple[str, str] | None:
    """The smallest world in which `hold` raises, and what it says there; None: it holds in all that were tried."""
    smallest: list[tuple[str, str]] = []

    @settings(
        max_examples=worlds,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @given(world=drawn_worlds.worlds())
    def holds(world: tuple[ClusterSnapshot, MemoryState]) -> None:
        try:
            hold(*world)
        except BROKEN as error:
            smallest[:] = [(_sentence(error), _written_world(world))]
            raise

    try:
        holds()
    except (*BROKEN, Flaky):  # flaky: it does not fail again in the same world; an endless one is not shrunk
        return smallest[0]
    return None


def _many(policy: PolicyFile, control: CpuControl) -> None:
    jobs = tuple(_a_job(f"job-{number}").altered(node=f"n{number % 50}") for number in range(1000))
    snapshot = ClusterSnapshot(START, tuple(_a_node(f"n{number}") for number in range(50)), jobs)
    contract.decide(_maker(policy, control)(), snapshot, MemoryState())


# --- worlds ---------------------------------------------------------------------------------------------------


def a_busy_world() -> tuple[ClusterSnapshot, MemoryState]:
    """Two nodes, and jobs that grow, have converged, have diverged, and say nothing."""
    jobs = (
        _a_job("fast", cpu_seconds=20.0),
        _a_job("slow", cpu_seconds=15.0),
        _a_job("diverged").altered(evaluation=_an_evaluation(float("nan"))),
        _a_job("silent").altered(evaluation=None, usage=None),
        _a_job("other").altered(node="n2"),
        _a_job("ended").altered(state=JobState.FINISHED),
    )
    memory = {"fast": _known(0.05, None), "slow": _known(0.0001, 0.5), "diverged": _known(0.02, None)}
    return ClusterSnapshot(START, (_a_node("n1", 2.0), _a_node("n2", 4.0)), jobs), MemoryState(memory)


def _a_node(name: str, cpu_cores: float = 8.0) -> Node:
    return Node(name, cpu_cores, 8 * 2**30)


def _an_evaluation(level: float) -> Evaluation:
    return Evaluation(level, 4, START, "training_loss", finite=math.isfinite(level))


def _a_job(uid: str, cpu_seconds: float = 10.0) -> Job:
    allocation = CpuAllocation(1000, 500)
    usage = Usage(START, cpu_seconds_total=cpu_seconds)
    return Job(
        uid, uid, "team", "n1", JobState.TRAINING, START - 100, allocation, _an_evaluation(1.0), usage,
        steps_total=40.0, steps_planned=100.0,
    )  # fmt: skip


def _known(efficiency: float, wanted_cores: float | None) -> JobMemory:
    growth = Growth(START, INTERVAL, efficiency, 1.0, {"cpu": efficiency})
    levels, decided = Levels("training_loss", 2.0, 1.0), PolicyMemory(wanted_cores=wanted_cores)
    return JobMemory(levels, growth, decided=decided, original=CpuAllocation(1000, 500))


def _written_world(world: tuple[ClusterSnapshot, MemoryState]) -> str:
    return "\n".join(map(written, world))


LINE = 100
"""Characters of a line of a world that is shown."""


def written(value: object, indent: int = 0) -> str:
    """As Python would write it, without what has its default; on several lines where one would be too long."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    begin, parts, end = _parts(value)
    if not begin:
        return repr(value)
    line = begin + ", ".join(name + written(part) for name, part in parts) + end
    if indent + len(line) <= LINE:
        return line
    inner = indent + 4
    lines = [f"{' ' * inner}{name}{written(part, inner)}," for name, part in parts]
    return "\n".join((begin, *lines, " " * indent + end))


def _parts(value: object) -> tuple[str, list[tuple[str, object]], str]:
    """How a value that has parts begins, its parts with what is written before each, and how it ends."""
    if (is_dataclass(value) and not isinstance(value, type)) or isinstance(value, msgspec.Struct):
        named = msgspec.structs.fields(value) if isinstance(value, msgspec.Struct) else fields(value)
        shown = [(field, getattr(value, field.name)) for field in named]
        parts = [(f"{field.name}=", has) for field, has in shown if has != field.default and has not in ((), {})]
        return f"{type(value).__name__}(", parts, ")"
    if isinstance(value, tuple):
        return "(", [("", each) for each in value], ",)" if len(value) == 1 else ")"
    if isinstance(value, Mapping):
        return "{", [(f"{key!r}: ", has) for key, has in value.items()], "}"
    return "", [], ""
