"""Policies as users write them: files with a mistake, or none, each under a name of its own.

A name belongs to one file as long as a process lives, and tests share one.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from slopewise.own_policies.template import template

_numbers = itertools.count(1)

HEAD = """\
'''A policy of a test. Source: none.'''
from __future__ import annotations
from dataclasses import replace
from slopewise.policy_api import *
"""

PARAMETERS = "class Parameters(PolicyParameters):\n    '''None.'''\n"


def deciding(*lines: str) -> str:
    """A policy whose `decide` is these lines, in which `fair` is an answer that leaves everything alone."""
    body = "\n".join(f"        {line}" for line in lines)
    return f"""{HEAD}
{PARAMETERS}
class Policy:
    def __init__(self, parameters, setting):
        self.setting = setting

    def fair(self, snapshot, memory):
        nodes = {{
            name: NodeMemory(frozenset(job.uid for job in jobs), snapshot.taken_at_seconds, 20.0)
            for name, jobs in snapshot.jobs_by_node().items()
        }}
        reasons = {{job.uid: "unchanged" for job in snapshot.jobs if not job.state.ended}}
        return Decisions("mine", (), reasons, replace(memory, nodes=nodes))

    def decide(self, snapshot, memory):
        fair = self.fair(snapshot, memory)
{body}
"""


def failing(line: str) -> str:
    """A policy that cannot be loaded, because of this line, its first."""
    return f"{line}\nclass Policy: ...\n"


def a_name() -> str:
    """A name that no other test's policy has."""
    return f"mine-{next(_numbers)}"


def a_file(folder: Path, text: str | None = None, name: str | None = None) -> Path:
    """A policy's file in the folder, with this text or that of a new one."""
    name = name or a_name()
    path = folder / f"{name.replace('-', '_')}.py"
    path.write_text(template(name) if text is None else text)
    return path
