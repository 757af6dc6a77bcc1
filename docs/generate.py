"""Writes the references of the jobs file, the TrainingPolicy and the command line; `--check` compares them instead.

The sources are the models that validate jobs files and TrainingPolicies, the policies' parameters, and the command
line. The same code gives the same bytes.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import typer.main
from pydantic import BaseModel

from slopewise import policies
from slopewise.commands.app import app
from slopewise.config.job_entry import OWN_VARIABLES, JobEntry
from slopewise.config.quantities import cpu_quantity
from slopewise.config.training_policy import LabelSelector, TrainingPolicy
from slopewise.guards.memory import MIN_SAMPLES, REFUSED_SECONDS
from slopewise.memory_sizing import HEADROOM, LIMIT_STEP, NEAR_LIMIT
from slopewise.model.learning import RELEASES_MEMORY
from slopewise.policy_listing import describe

HERE = Path(__file__).resolve().parent
_FOOT = "\n<!-- Written by docs/generate.py from {source}: change that, then `make generate`. -->\n"
_EXAMPLES = re.compile(r"\s*Examples?:\s.*", re.DOTALL)
"""The end of a command's help; the pages have examples of all."""

COMMON_TIMES = 2
"""An option that as many commands have in the same words stands once, above all commands."""

_JOBS_FILE = f"""\
# The jobs file

A jobs file is a YAML list of jobs for `slopewise run --local --jobs FILE` and `slopewise demo --jobs FILE`. Each job
is a command that is started [on this machine](local.md). `--jobs -` reads the list from standard input. A mistake
is refused before anything starts.

```yaml
- name: resnet
  command: python train.py --epochs 30
  workingDirectory: vision
  env: {{OMP_NUM_THREADS: "2", DATA: /srv/images}}
- name: tuner
  command: [sh, -c, "python prepare.py && exec python tune.py > tune.txt"]
  arriveSeconds: 60
```

The program is searched on the `PATH`, or, with a slash in it, from the folder in which the command runs.

A command is started without a shell. Syntax that only a shell interprets (`>`, `&&`, `|`, `$X`, `*`, `~` …) is refused
with a replacement, unless quoted. `[sh, -c, "…"]` runs a shell; begin its last command with `exec`, so that it
receives SIGTERM. The output of a command is under `~/.local/state/slopewise/logs`.

A command needs no line of Slopewise: [what it imports or prints](exporters-no-code.md) is reported. One with a `port`
and without a `lossPattern` is started as it is.

Slopewise sets {", ".join(f"`{name}`" for name in sorted(OWN_VARIABLES) if "EXPORTER" in name)}, which `env` cannot
set; `port` chooses the port.
"""

_TRAINING_POLICY = """\
# TrainingPolicy

A TrainingPolicy (`slopewise.dev/v1alpha1`) selects jobs, names the policy that decides their CPU, and sets the
bounds. The same document is a file for `slopewise run --policy-file` and `slopewise demo --policy-file`, and an
object of a cluster ([an example of each](../examples)). Every key that is not `required` has a default.
`kubectl explain trainingpolicy.spec` prints the same.
"""

_MEMORY = f"""\
## Memory requests and limits

`spec.resources.memory` says what of memory is changed, on a cluster only. Figures and reasons are in the JobGrowth
(`memory`, `memoryReason`, the column Memory of `kubectl get growth -o wide`), in events and in the history.

- **`Requests`** lowers the memory request of jobs that need little, those of the classes
  {" and ".join(f"`{name}`" for name in sorted(RELEASES_MEMORY))}, to {HEADROOM:g} × their
  [peak](glossary.md#memory-peak). That cannot kill, because a kernel kills by limits. It is raised again, without a
  cooldown, as soon as the peak is above it or has grown by `minChangeRatio`, and goes back to its original when the
  job leaves that class or the key becomes `Ignore`.
- **`Limits`** does that too, and raises the limit of any job by a factor of {LIMIT_STEP:g} once its working set is at
  {NEAR_LIMIT:g} of it, as far as its node has room: what the node's managed jobs neither request nor use. A limit is
  never lowered below its original. A raised one goes back only where the peak is not near the original.

The memory of these pods is never changed: Guaranteed ones; those without a memory request, or with resources for the
whole pod; those with `resizePolicy` RestartContainer for memory; those that another controller or a
VerticalPodAutoscaler sizes; those whose owner a HorizontalPodAutoscaler scales by memory or by CPU; those on nodes
that report swap.

Nothing is lowered with a working set that is too old or of fewer than {MIN_SAMPLES} samples, or within the cooldown, or
on a node with the condition MemoryPressure. A change that a kubelet does not carry out is taken back in the next pass,
and the memory of that pod then stays for {REFUSED_SECONDS:.0f} s. Pods of other owners are not counted in the room of a
node.
"""

_PARAMETERS = """\
## spec.policy.parameters, spec.placement.parameters

The keys that each policy has; [policies](policies.md) explains what they do.
"""

_COMMAND_LINE = """\
# The command line

Data goes to stdout, messages and progress to stderr. Exit codes: 0 ok, 1 error, 2 usage, 4 data source unreachable,
128 + signal when stopped. `NO_COLOR` switches colours off. Tables fit the width of the terminal; without one nothing is
animated. `slopewise --install-completion` installs completion of commands and options in your shell.
"""


_MAPPINGS = """
`evaluation` and `responses` have the keys of [spec.evaluation](training-policy.md#specevaluation), but for
`normaliser`, `progress` and `targetHits`, and of [spec.responses](training-policy.md#specresponses), and take their
place for this job ([examples](exporters-mappings.md)).
"""


def jobs_file() -> str:
    """The reference of the jobs file."""
    return (
        _JOBS_FILE
        + "\n## Keys\n\n"
        + _key_table(JobEntry)
        + _MAPPINGS
        + _FOOT.format(source="controller/slopewise/config/job_entry.py")
    )


def training_policy() -> str:
    """The reference of the TrainingPolicy, with the parameters of every policy."""
    sections = _sections(TrainingPolicy)
    parameters = [_PARAMETERS]
    shipped = [describe(name.replace("_", "-"))[0] for name in policies.names()]
    first: dict[str, str] = {}
    parameters += [
        _parameters(policy, first.setdefault(repr(policy["parameters"]), policy["name"]))
        for policy in shipped
        if not policy["simulator_only"]
    ]
    foot = _FOOT.format(source="controller/slopewise/config/training_policy.py")
    return "\n".join([_TRAINING_POLICY, *sections, _MEMORY, *parameters]) + foot


def command_line() -> str:
    """The reference of every command with its options."""
    commands = list(_commands("slopewise", typer.main.get_command(app)))
    times = Counter(record for path, each in commands for record in _records(path, each))
    common = {name: text for (name, text), count in times.items() if count >= COMMON_TIMES}
    rows = [f"- `{name}`: {text}" for name, text in common.items()]
    shared = "\n".join(["## Options of several commands", "", *rows, ""])
    sections = [_command(path, each, common) for path, each in commands]
    return "\n".join([_COMMAND_LINE, shared, *sections]) + _FOOT.format(source="controller/slopewise/commands")


PAGES: dict[str, Callable[[], str]] = {
    "jobs-file.md": jobs_file,
    "training-policy.md": training_policy,
    "command-line.md": command_line,
}


def _sections(document: type[BaseModel]) -> list[str]:
    """The table of each document in a document, under all keys that it stands at; the document itself first."""
    paths: dict[type[BaseModel], list[str]] = {}
    for path, model in _documents("", document):
        paths.setdefault(model, []).append(path)
    return [_section(", ".join(found), model) for model, found in paths.items()]


def _documents(path: str, model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The document and every document in it, each with the key that it is under."""
    yield path, model
    for name, field in model.model_fields.items():
        for inner in (field.annotation, *get_args(field.annotation)):
            if inspect.isclass(inner) and issubclass(inner, BaseModel) and inner is not LabelSelector:
                yield from _documents(f"{path}.{field.alias or name}".lstrip("."), inner)


def _section(path: str, model: type[BaseModel]) -> str:
    return f"## {path or 'Keys'}\n\n{_key_table(model)}"


def _key_table(model: type[BaseModel]) -> str:
    schema = model.model_json_schema(by_alias=True)
    required = set(schema.get("required", ()))
    rows = ["| key | value | default | |", "|---|---|---|---|"]
    for key, value in schema["properties"].items():
        default = "required" if key in required else _default(value)
        rows.append(_row(f"`{key}`", _kind(value, schema), default, _meaning(value, schema)))
    return "\n".join(rows) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _meaning(value: dict[str, Any], schema: dict[str, Any]) -> str:
    return str(value.get("description") or _resolved(value, schema).get("description", ""))


def _resolved(value: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Behind a reference, and what there is beside null."""
    kinds = [each for each in value.get("anyOf", [value]) if each.get("type") != "null"]
    found: dict[str, Any] = kinds[0]
    return schema["$defs"][found["$ref"].rpartition("/")[2]] if "$ref" in found else found


def _kind(value: dict[str, Any], schema: dict[str, Any]) -> str:
    """E.g. `number, 1 to 86400`, `CPU, such as 250m`, `min or max`."""
    one = _resolved(value, schema)
    if "enum" in one or "const" in one:
        return " or ".join(f"`{each}`" for each in one.get("enum", [one.get("const")]))
    if one.get("format") == "cpu-quantity":
        return "CPU, such as `250m`, `0.25` or `2`"
    if one.get("title") == LabelSelector.__name__:
        return "Kubernetes label selector"
    if "properties" in one:
        return "mapping, see below"
    if one["type"] == "object":
        values = one.get("additionalProperties")
        if not isinstance(values, dict):
            return "mapping"
        return "mapping of names to lists" if values.get("type") == "array" else "mapping of names to texts"
    if one["type"] == "array":
        return "text, or list of texts" if one.get("format") == "command" else "list"
    names = {"string": "text", "number": "number", "integer": "whole number", "boolean": "`true` or `false`"}
    if {"minimum", "maximum"} <= one.keys():
        return f"{names[one['type']]}, {one['minimum']:g} to {one['maximum']:.0f}"
    return ", ".join([names[one["type"]], *_bounds(one)])


def _bounds(value: dict[str, Any]) -> list[str]:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return [f"{sign} {value[key]:g}" if abs(value[key]) < 1e6 else f"{sign} {value[key]:.0f}"
            for key, sign in signs.items() if key in value]  # fmt: skip


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    if default is None or default in ({}, [], "") or isinstance(default, dict):
        return ""
    if value.get("format") == "cpu-quantity":
        return f"`{cpu_quantity(default)}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default)}`"


def _parameters(policy: dict[str, Any], first: str) -> str:
    """A table; in words where there are none, or where they are those of the policy `first`."""
    name = policy["name"]
    if not policy["parameters"]:
        return f"### {name}\n\nNone.\n"
    if name != first:
        return f"### {name}\n\nThose of [{first}](#{first}).\n"
    rows = ["| key | default | bounds | unit | |", "|---|---|---|---|---|"]
    rows += [
        _row(f"`{each['name']}`", _default(each), each["bounds"], each["unit"], each["description"])
        for each in policy["parameters"]
    ]
    return f"### {name}\n\n" + "\n".join(rows) + "\n"


def _commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its words."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, each in command.commands.items():
        yield from _commands(f"{path} {name}", each)


def _records(path: str, command: Any) -> list[tuple[str, str]]:
    """Each option with its meaning."""
    context = command.make_context(path, [], resilient_parsing=True)
    return [record for each in command.params if (record := each.get_help_record(context)) is not None]


def _command(path: str, command: Any, common: Mapping[str, str]) -> str:
    usage = " ".join([path, *command.collect_usage_pieces(command.make_context(path, [], resilient_parsing=True))])
    records = _records(path, command)
    lines = [f"## {path}", "", *([] if usage == f"{path} [OPTIONS]" else [f"`{usage}`", ""])]
    lines += [_EXAMPLES.sub("", inspect.cleandoc(command.help or "")).rstrip(), ""]
    if own := [f"- `{name}`: {text}" for name, text in records if common.get(name) != text]:
        lines += [*own, ""]
    if also := [f"`{name.split(' <')[0]}`" for name, text in records if common.get(name) == text]:
        lines += [f"Also {', '.join(also)}.", ""]
    return "\n".join(lines)


def outdated(folder: Path) -> dict[Path, str]:
    """What is to be written, by file: the files in `folder` whose content is not what the code generates now."""
    wanted = {folder / name: page() for name, page in PAGES.items()}
    return {
        path: text for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when done or up to date, 1 when `--check` found a file that is not."""
    parser = argparse.ArgumentParser(description="Write the references of files and commands.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    parser.add_argument("--folder", type=Path, default=HERE, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    stale = outdated(options.folder)
    for path, text in stale.items():
        if options.check:
            print(f"{path} is out of date; run make generate and commit the result.", file=sys.stderr)
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}", file=sys.stderr)
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
