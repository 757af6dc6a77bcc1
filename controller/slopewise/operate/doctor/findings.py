"""What `slopewise doctor` prints: one line a check, with the remedy where one is needed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from rich.text import Text

from slopewise.reports.wording import listed, plain

Verdict = Literal["ok", "note", "failed", "unreachable", "unchecked"]
"""`note`: it works, and something is lost; `unreachable`: it does not answer; `unchecked`: it could not be checked."""

FAILED_EXIT_CODE, UNREACHABLE_EXIT_CODE = 1, 4

_STYLES: dict[Verdict, str] = {
    "ok": "green",
    "note": "yellow",
    "failed": "bold red",
    "unreachable": "bold red",
    "unchecked": "dim",
}
_VERDICT_WIDTH, _CHECK_WIDTH = 11, 11
"""The longest words are `unreachable` and `checkpoints`."""


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    verdict: Verdict
    text: str
    """What was found."""
    remedy: str = ""
    """What to do about it; empty: nothing."""


def line(finding: Finding) -> Text:
    """`failed      targets     2 of 12 are down; see whether they listen`. Foreign text is text and never markup."""
    text = Text(f"{finding.verdict:<{_VERDICT_WIDTH}} ", style=_STYLES[finding.verdict])
    text.append(f"{finding.check:<{_CHECK_WIDTH}} ", style="bold")
    text.append(plain(sentence(finding)), style="default")
    return text


def sentence(finding: Finding) -> str:
    """What was found, and the remedy."""
    return f"{finding.text}; {finding.remedy}" if finding.remedy else finding.text


def exit_code(findings: Iterable[Finding]) -> int:
    """4 where something does not answer, else 1 where something fails, else 0."""
    verdicts = {finding.verdict for finding in findings}
    if "unreachable" in verdicts:
        return UNREACHABLE_EXIT_CODE
    return FAILED_EXIT_CODE if "failed" in verdicts else 0


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """For `--output json`."""
    return [finding._asdict() for finding in findings]


def grouped(check: str, verdict: Verdict, causes: Iterable[tuple[str, str]], *, at_most: int = 5) -> list[Finding]:
    """One finding for each cause, with the names that have it; `causes`: names and their causes.

    Worked example: a and b have no target, c refuses: two lines, `a, b: no target` and `c: refuses`.
    """
    names: dict[str, list[str]] = {}
    for name, cause in causes:
        names.setdefault(cause, []).append(name)
    found = [Finding(check, verdict, f"{listed(named, at_most=3)}: {cause}") for cause, named in names.items()]
    left = found[at_most:]
    return found[:at_most] + ([Finding(check, verdict, f"and {len(left)} more causes")] if left else [])
