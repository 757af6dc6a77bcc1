"""Writes the file of a new policy that works (`slopewise policies new NAME`)."""

from __future__ import annotations

from pathlib import Path

from slopewise.errors import UsageError
from slopewise.own_policies.catalogue import refuse_shipped
from slopewise.own_policies.loading import policy_name

_TEXT = '''\
"""__NAME__: CPU to the jobs that started last, each up to what it can use.

Source: an example, and no recommendation. Say here what the rule is, where it is from, and what was left open there.
"""

from __future__ import annotations

from collections.abc import Sequence

from slopewise.policy_api import (
    ClusterSnapshot,
    Decisions,
    Job,
    NodeDecision,
    MemoryState,
    Node,
    NodeMemory,
    PolicyParameters,
    Setting,
    Verdict,
    decide_by_node,
    down_the_order,
    parameter,
)

PURPOSE = "an example: the newest job is served first"
IN_TURNS = True  # a cut is a wait: lower growth in it is no regression


class Parameters(PolicyParameters):
    """What the older jobs are left."""

    floor_ratio: float = parameter(
        0.05,
        gt=0,
        le=1,
        unit="ratio of an even share, node / jobs",
        source="an example",
        description="what a job gets whose turn it is not",
    )


class Policy:
    """Per node: the youngest job first."""

    def __init__(self, parameters: Parameters, setting: Setting) -> None:
        self._floor_ratio = parameters.floor_ratio
        self._setting = setting

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        """Decide on every node whose interval is over or whose set of jobs changed."""

        def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
            order = sorted(jobs, key=lambda job: (-job.started_at_seconds, job.uid))  # the uid ends ties
            cores = down_the_order([[job] for job in order], node, self._floor_ratio)
            verdicts = {
                job.uid: Verdict(cores[job.uid], "in order", f"{place} in order of age")
                for place, job in enumerate(order, start=1)
            }
            return NodeDecision(verdicts, self._setting.interval_seconds)

        return decide_by_node("__NAME__", snapshot, memory, self._setting.control, decide_node)
'''


def template(name: str) -> str:
    """The text of a new policy's file; `name` with dashes."""
    return _TEXT.replace("__NAME__", name)


def write_new(name: str, folder: Path) -> Path:
    """Write a new policy into the folder; UsageError where the name cannot be one, or is taken."""
    dashed = policy_name(name.removesuffix(".py"), "slopewise policies new")
    path = folder / f"{dashed.replace('-', '_')}.py"
    refuse_shipped(dashed, str(path))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template(dashed))
    except FileExistsError as error:
        raise UsageError(f"{path}: is there already; give another name, or remove it first.") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); name another place with --folder.") from error
    return path
