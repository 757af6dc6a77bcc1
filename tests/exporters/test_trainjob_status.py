"""Progress, remaining time and loss for the status of a Kubeflow TrainJob, posted over TLS with a token."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.certificates import LOOPBACK, Authority
from support.receivers import HTML, Answer, PushReceiver
from support.training_fixtures import MakeReporter
from support.waiting import eventually

from slopewise_exporter.record import Snapshot, TrainingRecord
from slopewise_exporter.trainjob_status import (
    CA_CERT,
    MAX_SECONDS,
    SERVER_URL,
    TOKEN,
    Pace,
    TrainJobStatus,
    trainer_status,
)

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/digits/status"


def snapshot(steps: int = 0, planned: float | None = 100, **changed: Any) -> Snapshot:
    record = TrainingRecord(0.98)
    record.steps_planned = planned
    return record.snapshot()._replace(steps=steps, **changed)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[PushReceiver]:
    with PushReceiver(authority.sign("server", *LOOPBACK)) as receiver:
        yield receiver


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first-token\n")
    return path


@pytest.fixture
def variables(server: PushReceiver, authority: Authority, token_file: Path) -> dict[str, str]:
    """Those that Kubeflow Trainer gives each container of a TrainJob."""
    return {
        SERVER_URL: f"{server.url}{PATH}",
        CA_CERT: str(authority.certificate),
        TOKEN: str(token_file),
    }


@pytest.fixture
def train(make_reporter: MakeReporter, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> MakeReporter:
    """Makes a reporter that posts twenty times a second."""
    monkeypatch.setattr(TrainJobStatus, "every_seconds", 0.05)

    def make(**arguments: object) -> object:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return make_reporter(**arguments)

    return make  # type: ignore[return-value]  # the reporter of `make_reporter`


def statuses(server: PushReceiver) -> list[dict[str, Any]]:
    return [json.loads(each.body)["trainerStatus"] for each in server.pushed]


def metrics(status: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in status["metrics"]}


def test_a_training_posts_its_progress_and_at_the_end_that_it_is_over(
    train: MakeReporter, server: PushReceiver
) -> None:
    with train(planned_steps=4) as reporter:
        reporter.step(loss=2.0)
        assert eventually(lambda: statuses(server)[-1:] and statuses(server)[-1].get("progressPercentage") == 25)
        running = statuses(server)[-1]
        reporter.evaluate(0.5)
    over = statuses(server)[-1]
    assert metrics(running) == {"loss": "2", "steps": "1", "steps_planned": "4"}
    assert (over["progressPercentage"], over["estimatedRemainingSeconds"]) == (100, 0)
    assert metrics(over)["eval_loss"] == "0.5"
    assert over["lastUpdatedTime"].endswith("Z")
    assert {(each.path, each.headers["Authorization"]) for each in server.pushed} == {(PATH, "Bearer first-token")}


def test_a_training_that_fails_is_not_shown_as_complete(train: MakeReporter, server: PushReceiver) -> None:
    reporter = train(planned_steps=4)
    reporter.step(loss=2.0)
    reporter.end(failed=True)
    assert statuses(server)[-1]["progressPercentage"] == 25


def test_a_token_that_was_replaced_is_read_again(train: MakeReporter, server: PushReceiver, token_file: Path) -> None:
    with train():
        assert eventually(lambda: server.pushed)
        token_file.write_text("second-token\n")
        assert eventually(lambda: server.pushed[-1].headers["Authorization"] == "Bearer second-token")


def test_other_ranks_post_nothing(train: MakeReporter, server: PushReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    with train(planned_steps=2) as reporter:
        reporter.step(loss=1.0)
    assert server.pushed == []


FORBIDDEN = Answer(403, b'{"kind": "Status", "message": "Forbidden", "code": 403}')
PAGE_404 = Answer(404, b"<html>no such page</html>", {"Content-Type": "text/html"})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HTML, "is no status server of Kubeflow Trainer ('<html>Log in to go on</html>')"),
        (Answer(204, b""), "is no status server of Kubeflow Trainer (an empty answer)"),
        (Answer(200, b"\xff\xfe" * 40_000), "is no status server of Kubeflow Trainer"),
        (FORBIDDEN, "the status server answered 403 (Forbidden)"),
        (PAGE_404, "the status server answered 404 ('<html>no such page</html>')"),
        (Answer(500, b"[]"), "the status server answered 500 ('[]')"),
    ],
)
def test_an_answer_that_is_a_refusal_is_in_the_log_once_and_the_training_goes_on(
    train: MakeReporter, server: PushReceiver, caplog: pytest.LogCaptureFixture, answer: Answer, reason: str
) -> None:
    server.answer = answer
    with train(planned_steps=4) as reporter:
        reporter.step(loss=1.0)
        assert eventually(lambda: len(server.pushed) > 2)
    (line,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert line.startswith("progress and loss for the TrainJob's status are not sent: ")
    assert reason in line
    assert line.endswith("; it is tried every 0.05 s, and the training goes on")


def test_a_redirect_is_not_followed_with_the_token(
    train: MakeReporter, server: PushReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = Answer(302, b"", {"Location": f"{server.url}/elsewhere"})
    with train():
        assert eventually(lambda: len(server.pushed) > 2)
    assert {each.path for each in server.pushed} == {PATH}
    assert "the status server answered 302" in caplog.text


def test_it_is_in_the_log_when_posts_work_again(
    train: MakeReporter, server: PushReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "slopewise_exporter")
    server.answer = HTML
    with train():
        assert eventually(lambda: "are not sent" in caplog.text)
        server.answer = Answer()
        assert eventually(lambda: "are sent again" in caplog.text)


def test_a_server_that_does_not_answer_holds_up_neither_steps_nor_the_end(
    train: MakeReporter, server: PushReceiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slopewise_exporter.push.FLUSH_SECONDS", 0.2)
    server.hold()
    with train(planned_steps=1000) as reporter:
        assert eventually(lambda: server.pushed)
        for _ in range(1000):
            reporter.step(loss=1.0)
        assert len(server.pushed) == 1
    assert "are given up: no answer within 0.2 s" in caplog.text


def test_a_server_that_is_slow_is_given_up_and_tried_again(
    train: MakeReporter, server: PushReceiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slopewise_exporter.trainjob_status.TIMEOUT_SECONDS", 0.1)
    server.hold()
    with train():
        assert eventually(lambda: len(server.pushed) > 1)
        assert "timed out" in caplog.text
        server.release()


@pytest.mark.parametrize(
    ("variable", "reason"),
    [(SERVER_URL, "cannot be reached"), (CA_CERT, "its certificate does not fit the CA in")],
    ids=["no server", "another authority"],
)
def test_a_server_that_cannot_be_spoken_to(
    train: MakeReporter,
    server: PushReceiver,
    variables: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    reason: str,
) -> None:
    others = {SERVER_URL: f"https://127.0.0.1:9{PATH}", CA_CERT: str(Authority(tmp_path / "other").certificate)}
    variables[variable] = others[variable]
    with train() as reporter:
        reporter.step(loss=1.0)
        assert eventually(lambda: reason in caplog.text)
    assert server.pushed == []


@pytest.mark.parametrize(
    ("variable", "content", "reason"),
    [
        (TOKEN, None, "No such file or directory"),
        (TOKEN, b"", "holds no token"),
        (TOKEN, b"two words", "holds no token"),
        (TOKEN, b"a\r\nHeader: b", "holds no token"),
        (TOKEN, b"\xff\x00", "holds no token"),
        (CA_CERT, None, "No such file or directory"),
        (CA_CERT, b"no certificate", "holds no CA certificate"),
    ],
)
def test_a_file_that_cannot_be_used(
    train: MakeReporter,
    server: PushReceiver,
    variables: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    content: bytes | None,
    reason: str,
) -> None:
    path = tmp_path / "file"
    variables[variable] = str(path)
    if content is not None:
        path.write_bytes(content)
    with train() as reporter:
        reporter.step(loss=1.0)
        assert eventually(lambda: caplog.records)
    (line,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert reason in line
    assert "Header" not in line
    assert server.pushed == []


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({SERVER_URL: "http://127.0.0.1/status"}, "a token is not sent without encryption"),
        ({TOKEN: ""}, "does not name the file of a token"),
    ],
)
def test_variables_that_are_none_of_kubeflows_end_the_posts(
    train: MakeReporter,
    server: PushReceiver,
    variables: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    changed: dict[str, str],
    reason: str,
) -> None:
    variables.update(changed)
    with train() as reporter:
        reporter.step(loss=1.0)
        assert eventually(lambda: reason in caplog.text)
    assert server.pushed == []


def test_the_percentage_is_rounded_down_and_100_is_for_the_end() -> None:
    steps = (0, 1, 50, 99, 100, 120)
    shown = [trainer_status(snapshot(each), None, "eval_loss")["progressPercentage"] for each in steps]
    assert shown == [0, 1, 50, 99, 99, 99]
    assert trainer_status(snapshot(20, state="finished"), 0.0, "eval_loss")["progressPercentage"] == 100


def test_what_is_not_known_is_left_out() -> None:
    status = trainer_status(snapshot(7, planned=None), None, "eval_loss")
    assert set(status) == {"lastUpdatedTime", "metrics"}
    assert metrics(status) == {"steps": "7"}


def test_values_of_metrics_are_short_texts() -> None:
    status = trainer_status(snapshot(3, train_loss_ema=1 / 3, eval_loss=1.5e300), 1e12, "eval_score")
    assert metrics(status)["loss"] == "0.3333333333"
    assert metrics(status)["eval_score"] == "1.5e+300"
    assert all(len(each["value"]) <= 64 for each in status["metrics"])
    assert status["estimatedRemainingSeconds"] == MAX_SECONDS


def test_the_remaining_time_is_that_of_the_last_posts_and_a_resume_begins_it_again() -> None:
    pace = Pace()
    assert pace.remaining_seconds(snapshot(10), 0.0) is None
    assert pace.remaining_seconds(snapshot(20), 5.0) == 40.0
    # It got a quarter of its CPU: after 20 posts nothing is left of the former pace.
    for number in range(1, 21):
        last = pace.remaining_seconds(snapshot(20 + number), 5.0 + 2.0 * number)
    assert last == pytest.approx(120.0)
    assert pace.remaining_seconds(snapshot(20), 50.0) is None
    assert pace.remaining_seconds(snapshot(30), 55.0) == 35.0


def test_more_steps_than_planned_leave_no_time() -> None:
    pace = Pace()
    pace.remaining_seconds(snapshot(90), 0.0)
    assert pace.remaining_seconds(snapshot(110), 5.0) == 0.0
    assert Pace().remaining_seconds(snapshot(10, state="finished"), 0.0) == 0.0
    assert Pace().remaining_seconds(snapshot(10, planned=None), 0.0) is None
