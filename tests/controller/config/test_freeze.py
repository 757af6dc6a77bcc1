"""The Freeze document: its scopes, its message, and what is no scope."""

from __future__ import annotations

from typing import Any

import pytest

from slopewise.config.freeze import FreezeSpec, parse_scope
from slopewise.config.validation import validate
from slopewise.errors import UsageError


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("all", ("all", None)),
        ("namespace/team-a", ("namespace", "team-a")),
        ("node/ip-10-0-0-1.ec2.internal", ("node", "ip-10-0-0-1.ec2.internal")),
        ("policy/training", ("policy", "training")),
    ],
)
def test_scopes_of_the_command_line(text: str, scope: tuple[str, str | None]) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize("text", ["", "ALL", "namespace", "namespace/", "pod/a", "node/../x", "node/a b", "all/x", "a"])
def test_what_is_no_scope_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write all, namespace/NAME, node/NAME or policy/NAME"):
        parse_scope(text)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"scope": "all", "name": "a"}, "scope all takes no name"),
        ({"scope": "node"}, "scope node needs the name of what is frozen"),
        ({"scope": "pod", "name": "a"}, "must be 'all', 'namespace', 'node' or 'policy'"),
        ({"scope": "all", "until": "2026-11-23T10:00:00"}, "timezone"),
        ({"scope": "all", "untill": "x"}, "did you mean 'until'?"),
    ],
)
def test_mistakes_in_a_document(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        validate(FreezeSpec, spec, where="freeze")
    assert message in str(refused.value)


def test_its_message_has_scope_end_and_reason() -> None:
    spec = FreezeSpec.model_validate(
        {"scope": "node", "name": "n", "until": "2026-11-23T11:30:00+01:00", "effect": "Recommend", "reason": "fan"}
    )
    assert spec.message("f") == "Freeze f (node/n, as in mode Recommend, until 2026-11-23 10:30:00Z): fan"
    assert FreezeSpec(scope="all").message("f") == "Freeze f (all)"
