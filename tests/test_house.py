"""The rules of the house: sizes of rooms, modules, classes and records, users of shared modules, constants of policies.

A figure in an exception is that of the day on which it was written, and a bound: it may fall, and never rises.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = ("slopewise.policies.shared", "slopewise.estimators", "slopewise.reports")
POLICIES = ROOT / "controller/slopewise/policies"

MAX_LINES = 350
MIN_LINES = 60
SMALL_MODULES = 34
"""How many modules are below `MIN_LINES`; `__init__.py` and `__main__.py` do not count."""
MAX_PARAMETERS = 7
MAX_ATTRIBUTES = 14
MAX_FIELDS = 20
MAX_CONSTANTS = 20
RECORD_BASES = {"Struct", "NamedTuple", "Record"}
NO_EXCEPTIONS: Mapping[str, int] = {}

LONG_MODULES: Mapping[str, int] = {
    "controller/slopewise/adapters/kube/cache/records.py": 374,
    "controller/slopewise/adapters/kube/observer.py": 389,
    "controller/slopewise/adapters/kube/reporting/pass_reporter.py": 363,
    "controller/slopewise/adapters/kube/resize/actuator.py": 355,
    "controller/slopewise/adapters/local/launcher.py": 376,
    "controller/slopewise/adapters/prometheus/history.py": 428,
    "controller/slopewise/adapters/prometheus/queries.py": 388,
    "controller/slopewise/adapters/prometheus/reader.py": 439,
    "controller/slopewise/crds/growth_status.py": 447,
    "controller/slopewise/estimators/growth.py": 383,
    "controller/slopewise/feedback/rollback.py": 365,
    "controller/slopewise/local/session.py": 421,
    "controller/slopewise/manager/policy_runner.py": 384,
    "controller/slopewise/own_policies/check.py": 374,
    "exporters/slopewise_exporter/reporter.py": 398,
}
MANY_PARAMETERS: Mapping[str, int] = {
    "controller/slopewise/adapters/kube/leader_election.py:Elector": 8,
    "controller/slopewise/adapters/kube/moves/evict/controller.py:EvictionController": 10,
    "controller/slopewise/adapters/kube/moves/gated_pods.py:GatedPodController": 11,
    "controller/slopewise/adapters/kube/observer.py:KubeObserver": 12,
    "controller/slopewise/adapters/kube/reporting/pass_reporter.py:StatusReporter": 9,
    "controller/slopewise/adapters/kube/resize/actuator.py:KubeActuator": 10,
    "controller/slopewise/adapters/kube/restorer.py:Restorer": 8,
    "controller/slopewise/adapters/prometheus/reader.py:PrometheusReader": 13,
    "exporters/slopewise_exporter/checkpoints.py:Checkpoints": 9,
    "exporters/slopewise_exporter/reporter.py:Reporter": 9,
}
MANY_ATTRIBUTES: Mapping[str, int] = {
    "controller/slopewise/adapters/kube/cache/reflector.py:Reflector": 19,
    "controller/slopewise/adapters/kube/leader_election.py:Elector": 19,
    "controller/slopewise/adapters/kube/moves/evict/controller.py:EvictionController": 15,
    "controller/slopewise/adapters/kube/moves/gated_pods.py:GatedPodController": 22,
    "controller/slopewise/adapters/kube/observer.py:KubeObserver": 20,
    "controller/slopewise/adapters/kube/reporting/pass_reporter.py:StatusReporter": 24,
    "controller/slopewise/adapters/kube/state/status_writer.py:StatusWriter": 15,
    "controller/slopewise/local/session.py:Session": 25,
    "controller/slopewise/loop.py:ControllerLoop": 15,
    "controller/slopewise/manager/finalization.py:Finalization": 15,
    "controller/slopewise/manager/policy_runner.py:PolicyRunner": 26,
    "controller/slopewise/simulator/world/running.py:RunningJob": 26,
    "controller/slopewise/simulator/world/world.py:World": 23,
    "controller/slopewise/telemetry/metrics.py:Instruments": 18,
    "exporters/slopewise_exporter/checkpoints.py:Checkpoints": 18,
    "exporters/slopewise_exporter/logs/tracker.py:Tracker": 18,
    "exporters/slopewise_exporter/record.py:TrainingRecord": 24,
}
MANY_FIELDS: Mapping[str, int] = {
    "controller/slopewise/adapters/kube/cache/records.py:PodRecord": 25,
    "controller/slopewise/adapters/local/job_record.py:JobRecord": 22,
    "controller/slopewise/advise/findings.py:JobFinding": 27,
    "controller/slopewise/manager/shared.py:SharedState": 22,
    "controller/slopewise/model/jobs.py:Job": 42,
    "controller/slopewise/simulator/world/model.py:SimJob": 30,
}
ONE_USER = {
    # Its user, growth.py, is over 350 lines without it.
    "slopewise.estimators.memory_use",
}


@cache
def sources() -> Mapping[str, str]:
    """The text of each module of the product, by its path from the root."""
    folders = (ROOT / "controller/slopewise", ROOT / "exporters/slopewise_exporter")
    files = sorted(file for folder in folders for file in folder.rglob("*.py"))
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


@cache
def trees() -> Mapping[str, ast.Module]:
    gc.disable()  # collecting while the trees grow makes 1.6 s of 0.5 s
    try:
        return {path: ast.parse(text) for path, text in sources().items()}
    finally:
        gc.enable()


def lines_of(path: str) -> int:
    return sources()[path].count("\n")


@cache
def classes() -> Mapping[str, ast.ClassDef]:
    """Each class that is not within another one, by `path:name`."""
    return {
        f"{path}:{node.name}": node
        for path, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


@cache
def rooms() -> Mapping[str, int]:
    """The rooms of docs/architecture.md and their sizes in lines: `path | what | size`, or `size (plan's size)`."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/.]+)` \|.*\| ([\d,]+)(?: \([\d,]+\))? \|$", page, re.MULTILINE)
    return {room: int(size.replace(",", "")) for room, size in rows}


def room_of(path: str) -> str | None:
    """The innermost room that holds a module; one with rooms within it holds its own modules alone."""
    for room in sorted(rooms(), key=len, reverse=True):
        if path.startswith(room):
            is_parent = any(other.startswith(room) for other in rooms() if other != room)
            return room if not is_parent or "/" not in path.removeprefix(room) else None
    return None


def over(found: Mapping[str, int], most: int, remedy: str, exceptions: Mapping[str, int] = NO_EXCEPTIONS) -> list[str]:
    """A sentence for what is over its bound, and for an exception that nothing needs any more."""
    bounds = {name: exceptions.get(name, most) for name in found}
    sentences = [
        f"{name} has {figure:,}, {figure - bounds[name]:,} over its {bounds[name]:,}: {remedy}."
        for name, figure in found.items()
        if figure > bounds[name]
    ]
    unneeded = [name for name in exceptions if found.get(name, 0) <= most]
    return sentences + [
        f"{name} is within {most:,}: remove its exception from tests/test_house.py." for name in unneeded
    ]


def hold(sentences: list[str]) -> None:
    assert not sentences, "\n".join(sentences)


def test_every_module_has_a_room_and_no_room_is_over_its_size() -> None:
    lines = dict.fromkeys(rooms(), 0)
    homeless = []
    for path in sources():
        room = room_of(path)
        if room is None:
            homeless.append(path)
        else:
            lines[room] += lines_of(path)
    assert homeless == []
    assert [room for room, figure in lines.items() if not figure] == []
    remedy = "move something out, or raise the size in docs/architecture.md and say why in the commit"
    sizes = rooms()
    hold([sentence for room in lines for sentence in over({room: lines[room]}, sizes[room], remedy)])


def test_a_module_has_at_most_350_lines() -> None:
    found = {path: lines_of(path) for path in sources()}
    hold(over(found, MAX_LINES, "split it by what it says", LONG_MODULES))


def test_the_number_of_modules_under_60_lines_only_falls() -> None:
    small = [path for path in sources() if not path.endswith("__.py") and lines_of(path) < MIN_LINES]
    remedy = "merge a small module into its importer"
    assert len(small) <= SMALL_MODULES, f"{len(small)} modules are under 60 lines, {SMALL_MODULES} were: {remedy}."


IMPORT = re.compile(r"^ *from (slopewise[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def imported(path: str) -> Iterator[str]:
    """The modules of the product that a module imports, and the names that it imports from them, dotted."""
    for module, names in IMPORT.findall(sources()[path]):
        yield module
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))


def test_a_shared_module_has_two_users() -> None:
    users: dict[str, set[str]] = {}
    for path in sources():
        name = path.removeprefix("controller/").removesuffix(".py").replace("/", ".")
        if name.startswith(SHARED) and not path.endswith("__init__.py"):
            users[name] = set()
    for path in sources():
        for name in set(imported(path)) & set(users):
            users[name].add(path)
    alone = {name: sorted(paths) for name, paths in users.items() if len(paths) < 2}
    assert set(alone) == ONE_USER, f"Move what has one user beside it, or merge it: {alone}."


def constructor_parameters(node: ast.ClassDef) -> int:
    """Of `__init__`, without `self`; 0 where it has none of its own."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            arguments = each.args
            return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
    return 0


def test_a_constructor_takes_at_most_7_parameters() -> None:
    found = {name: constructor_parameters(node) for name, node in classes().items()}
    hold(over(found, MAX_PARAMETERS, "group what belongs together into a record", MANY_PARAMETERS))


def attributes(node: ast.ClassDef) -> set[str]:
    """What its methods assign to `self`."""
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def test_a_class_holds_at_most_14_attributes() -> None:
    found = {name: len(attributes(node)) for name, node in classes().items()}
    hold(over(found, MAX_ATTRIBUTES, "give part of it to a class of its own", MANY_ATTRIBUTES))


def called(node: ast.expr) -> str:
    """`dataclass` of `@dataclass(frozen=True)`, `Struct` of `msgspec.Struct`."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def is_record(node: ast.ClassDef) -> bool:
    return "dataclass" in map(called, node.decorator_list) or not RECORD_BASES.isdisjoint(map(called, node.bases))


def fields(node: ast.ClassDef) -> int:
    return sum(isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation) for each in node.body)


def test_a_record_has_at_most_20_fields() -> None:
    found = {name: fields(node) for name, node in classes().items() if is_record(node)}
    assert len(found) > 100
    hold(over(found, MAX_FIELDS, "make a record of the fields that are set together", MANY_FIELDS))


def is_number(node: ast.expr | None) -> bool:
    """A number, or an expression or a tuple of numbers alone."""
    parts = [] if node is None else [each for each in ast.walk(node) if isinstance(each, ast.expr)]
    values = [each.value for each in parts if isinstance(each, ast.Constant)]
    return (
        bool(values)
        and all(type(value) in (int, float) for value in values)
        and all(isinstance(each, ast.Constant | ast.Tuple | ast.UnaryOp | ast.BinOp) for each in parts)
    )


def constants(path: str) -> Iterator[tuple[str, bool]]:
    """The numbers that a module names, and whether each has a comment or a docstring beside it."""
    body, text = trees()[path].body, sources()[path].splitlines()
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_number(node.value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            above, beside = text[node.lineno - 2], text[node.lineno - 1 : node.end_lineno]
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            yield ast.unparse(target), documented or above.startswith("#") or any("  # " in line for line in beside)


POLICY_FILES = {
    file.stem: sorted(str(each.relative_to(ROOT)) for each in ([file] if file.is_file() else file.glob("*.py")))
    for file in POLICIES.iterdir()
    if file.suffix == ".py" or (file.is_dir() and file.name != "__pycache__")
}


@pytest.mark.parametrize("policy", sorted(POLICY_FILES))
def test_a_policy_has_at_most_20_constants_and_a_reason_beside_each(policy: str) -> None:
    found = [(f"{path}: {name}", reason) for path in POLICY_FILES[policy] for name, reason in constants(path)]
    hold(over({policy: len(found)}, MAX_CONSTANTS, "remove what no figure needs"))
    hold([f"{name} needs a comment or a docstring with its reason." for name, reason in found if not reason])
