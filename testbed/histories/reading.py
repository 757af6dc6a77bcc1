"""Reads a history from a folder of files, each of JSON lines.

| files | lines |
|---|---|
| `audit*` | events of the API server's audit log, `audit.k8s.io/v1` |
| `records/*.jsonl` | decision records (docs/decision-record.md) |
| `cgroups*` | `{"at": seconds, "pod": uid, "limitMillicores": 500}`, null without a limit |
| `*/diary` | of each training: `{"at": …, "pod": …, "event": "goes on", "steps": 12}`, also `step` and `saved` |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from slopewise.adapters.kube.client.protocol import FIELD_MANAGER
from slopewise.decision_record import reader
from slopewise.decision_record.lines import Pass
from slopewise.errors import UsageError
from testbed.histories.events import Decided, Event, Json, Sample, Step, Write

LAST_PASS_SECONDS = 3600.0
"""The last pass of a record is over by then."""

_WRITES = ("create", "update", "patch", "delete", "deletecollection")


def read(folder: Path) -> list[Event]:
    """All events of a folder; UsageError where there are none, or where a line is not what it should be."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; name one with audit logs, records, cgroups and diaries.")
    replicas: set[str] = set()
    events: list[Event] = []
    for path in sorted(folder.glob("audit*")):
        events += _read_file(path, lambda line: _writes(line, replicas))
    for path in sorted(folder.glob("records/*.jsonl")):
        events += _decided([each.recorded for each in reader.read(path, lambda _: None)])
    for path in sorted(folder.glob("cgroups*")):
        events += _read_file(path, _samples)
    for path in sorted(folder.glob("*/diary")):
        events += _read_file(path, lambda line, name=path.parent.name: _steps(line, name))
    if not events:
        raise UsageError(f"{folder}: has no events; it needs audit*, records/*.jsonl, cgroups* or */diary.")
    return events


def _read_file(path: Path, parse: object) -> Iterator[Event]:
    for number, line in enumerate(_lines(path), start=1):
        try:
            yield from parse(line)  # type: ignore[operator]
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"{path}: line {number} is no event ({error!r}); see testbed/histories/reading.py."
            ) from error


def _lines(path: Path) -> Iterator[Json]:
    """The last line may be half a line: a process was killed while it wrote it."""
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}: line {number} is not JSON; remove it, or the file.") from error


def _writes(line: Json, replicas: set[str]) -> Iterator[Write]:
    if line.get("stage") != "ResponseComplete" or line["verb"] not in _WRITES or "objectRef" not in line:
        return
    at, query, body = line["objectRef"], parse_qs(urlsplit(line["requestURI"]).query), line.get("requestObject")
    if "dryRun" in query or ((body or {}).get("deleteOptions") or {}).get("dryRun"):
        return
    writer, kind = _writer(line), "/".join(filter(None, (at["resource"], at.get("subresource"))))
    if kind == "leases" and "slopewise" in at.get("name", ""):
        replicas.add(writer)
    answer = line.get("responseObject") or {}
    after = {} if answer.get("kind") in ("Status", "Eviction", "Binding") else answer
    yield Write(
        at_seconds=_seconds(line["requestReceivedTimestamp"]), until_seconds=_seconds(line["stageTimestamp"]),
        writer=writer, verb=line["verb"], kind=kind,
        namespace="" if kind == "namespaces" else at.get("namespace", ""),  # of a namespace it names that itself
        name=at.get("name") or (after.get("metadata") or {}).get("name", ""),
        code=(line.get("responseStatus") or {}).get("code", 0), body=body, after=after,
        ours=writer in replicas or FIELD_MANAGER in query.get("fieldManager", ()),
    )  # fmt: skip


def _writer(line: Json) -> str:
    """Replicas have one account; they differ by pod, or outside of a cluster by the agent that a gateway names."""
    user, agent = line["user"], str(line.get("userAgent", ""))
    pods = (user.get("extra") or {}).get("authentication.kubernetes.io/pod-name") or [user["username"]]
    return agent if agent.startswith("slopewise/") and pods[0] == user["username"] else str(pods[0])


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _decided(passes: Sequence[Pass]) -> Iterator[Decided]:
    """What a pass did is done by the time of the next one."""
    times = [each.taken_at_seconds for each in passes]
    ends = [*times[1:], *(each + LAST_PASS_SECONDS for each in times[-1:])]
    for line, at in zip(passes, ends, strict=True):
        for each in line.result.decided:
            if each.action == "resize" and each.result is not None and each.after is not None:
                yield Decided(at, line.policy, each.job, each.after, each.result, line.taken_at_seconds)


def _samples(line: Json) -> Iterator[Sample]:
    yield Sample(line["at"], line["pod"], line["limitMillicores"])


def _steps(line: Json, training: str) -> Iterator[Step]:
    if line["event"] in ("goes on", "step", "saved"):
        yield Step(line["at"], training, line["pod"], line["event"], line["steps"])
