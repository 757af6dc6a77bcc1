"""Names and messages of others, in every output of the command line: none drives a terminal, and none is markup."""

from __future__ import annotations

import io
import json

import pytest
import structlog
from rich.console import Console, RenderableType
from support.api_server import ApiServer, refusal
from support.command_line import slopewise
from support.stored import action, condition, put_growth

from slopewise.adapters.kube.state.freezes import freeze_path
from slopewise.adapters.kube.state.training_policies import policy_path
from slopewise.commands import console
from slopewise.operate import restore, sweep
from slopewise.operate.doctor.findings import Finding, line
from slopewise.operate.status import Leader, leader_line
from slopewise.telemetry.log_lines import configure_logging

HOSTILE = 'x\x1b[2J\x9b31m\u202e<b>[/red]"} or vector(1)'
ACTS = ("\x1b", "\x9b", "\u202e")


@pytest.fixture
def hostile(server: ApiServer) -> None:
    """Everything that others may write is hostile."""
    warned = condition("Warned", "True", "R", HOSTILE)
    shown = dict.fromkeys(("state", "job_class", "reason", "node", "policy", "eta", "progress", "cpu"), HOSTILE)
    put_growth(server, "train", conditions=[warned], history=[action(HOSTILE, HOSTILE)], **shown)
    spec = {"mode": HOSTILE, "policy": {"name": HOSTILE}}
    server.put(policy_path(), {"metadata": {"name": "p"}, "spec": spec, "status": {"conditions": [warned]}})
    frozen = {"scope": "all", "reason": HOSTILE, "source": HOSTILE}
    server.put(freeze_path(), {"metadata": {"name": "f"}, "spec": frozen})
    server.fault(refusal(403, "Forbidden", HOSTILE), path="/leases", times=99)


COMMANDS = (
    ("status",), ("history",), ("history", "-o", "csv"), ("explain", "train"), ("top",), ("doctor",),
    ("status", "-o", "json"), ("history", "-o", "json"), ("explain", "train", "-o", "json"), ("top", "-o", "json"),
    ("doctor", "-o", "json"), ("freeze", "all", "--reason", HOSTILE),
)  # fmt: skip


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_output_about_a_cluster_has_a_character_that_acts(command: tuple[str, ...], reach: tuple[str, str]) -> None:
    ended = slopewise(*command, *reach)
    assert ended.returncode in (0, 1), ended.stderr
    text = ended.stdout + ended.stderr
    assert "<b>[/red]" in text, "what looks like markup is text"
    assert not [each for each in ACTS if each in text]
    if command[-1] == "json" and command[0] != "doctor":  # whose lines are made for people
        assert HOSTILE in _strings(json.loads(ended.stdout)), "a program reads the text as it is"


def _strings(data: object) -> str:
    """All texts of a document."""
    if isinstance(data, dict):
        return "\n".join(map(_strings, data.values()))
    return "\n".join(map(_strings, data)) if isinstance(data, list) else str(data)


def test_an_error_message_does_not_act(server: ApiServer, reach: tuple[str, str]) -> None:
    server.fault(refusal(403, "Forbidden", HOSTILE), path="/jobgrowths", times=9)
    ended = slopewise("history", *reach)
    assert ended.returncode == 4
    assert "<b>[/red]" in ended.stderr
    assert not [each for each in ACTS if each in ended.stderr]


@pytest.mark.parametrize(
    "shown",
    [
        sweep.listing(sweep.Swept(freed={HOSTILE: HOSTILE}, failed={"y": HOSTILE})),
        restore.listing(restore.Restoration({HOSTILE: HOSTILE}, policies=[HOSTILE], problems=[HOSTILE])),
        line(Finding("pods", "failed", HOSTILE, HOSTILE)),
        leader_line(Leader(HOSTILE, None)),
        leader_line(Leader("", None, HOSTILE)),
    ],
)
def test_what_a_command_prints_is_text(shown: RenderableType) -> None:
    file = io.StringIO()
    Console(file=file, width=200).print(shown, markup=False)
    assert "<b>[/red]" in file.getvalue()
    assert not [each for each in ACTS if each in file.getvalue()]


def test_a_line_of_the_log_does_not_act_and_keeps_the_lines_of_an_error() -> None:
    file = io.StringIO()
    configure_logging(stream=file)
    try:
        structlog.get_logger("slopewise").warning("job failed", job=HOSTILE.replace(" ", ""))
        try:
            json.loads(HOSTILE)
        except ValueError:
            structlog.get_logger("slopewise").exception("watch failed")
    finally:
        structlog.reset_defaults()
    assert "<b>[/red]" in file.getvalue()
    assert len(file.getvalue().splitlines()) > 3, "a trace has its lines"
    assert not [each for each in ACTS if each in file.getvalue()]


def test_several_lines_of_a_message_stay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console.announce("first\n  second \x1b[31mred")
    assert capsys.readouterr().err == "first\n  second \N{REPLACEMENT CHARACTER}[31mred\n"
