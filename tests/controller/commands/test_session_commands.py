"""The commands that ask the session on this machine: what they send, what they print, and their exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.answering import answering, with_jobs
from support.command_line import slopewise
from support.printing import words

from slopewise.adapters.local.session_requests import Answer, Attach, Cancel, JobAnswer, Jobs, Request, SetMode, Submit
from slopewise.commands import console
from slopewise.commands.service import name_of
from slopewise.reports.trials import Trial

HOSTILE = "why\x1b[2J\u202e<b>[red]x"
ACTION = {
    "time": "2026-11-26T12:00:00Z",
    "slot": "",
    "action": "Resize",
    "change": "requests 1 to 500m",
    "result": "applied",
    "detail": "first: its end is near",
}
TRAINS = JobAnswer(
    "train", "training", study="nets", started_at_seconds=1e9, steps=5, steps_planned=10, loss_first=1.0, loss_last=0.5,
    reason="first: its end is near", status={"state": "Training", "cpu": "0.5", "history": [ACTION]},
)  # fmt: skip
FAILED = JobAnswer(
    "bad", "failed", finished_at_seconds=1e9, exit_status=3, reason=f"ended with status 3: {HOSTILE}",
    status={"state": "Training", "cpu": "0.5", "progress": "98%", "eta": "2s"},
)  # fmt: skip


@pytest.fixture(autouse=True)
def own_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # Not COLUMNS: where a test has set it while the console was first imported, its width stays that.
    monkeypatch.setattr(console.out, "_width", 120)


def taking(*names: str) -> Callable[[Request], Answer]:
    return lambda _: Answer(names=list(names))


class TestSubmit:
    def test_a_command_comes_with_its_options_its_folder_and_its_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GREETING", "hello")
        options = ("--study", "nets", "--class", "resnet", "--planned-steps", "9", "--after", "a", "--restart", "2")
        with answering(taking("train")) as asked:
            done = slopewise(
                "submit", *options, "--memory", "4Gi", "--", "python", "train.py", "--lr", "1", cwd=tmp_path
            )
        assert (done.returncode, done.stdout) == (0, "submitted: train\n")
        (request,) = asked
        assert isinstance(request, Submit)
        assert request.document == [
            {
                "name": "train",
                "command": ["python", "train.py", "--lr", "1"],
                "study": "nets",
                "class": "resnet",
                "plannedSteps": 9,
                "after": ["a"],
                "restart": {"onFailure": 2},
                "memory": "4Gi",
            }
        ]
        assert (request.folder, request.renames) == (os.path.realpath(tmp_path), True)
        assert request.environment["GREETING"] == "hello"

    def test_an_option_of_the_command_is_none_of_ours(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.argv", ["slopewise", "submit", "--", "train", "--json-logs"])
        assert not console.wants_json()
        monkeypatch.setattr("sys.argv", ["slopewise", "up", "--json-logs"])
        assert console.wants_json()

    def test_a_jobs_file_is_sent_as_it_is_with_its_own_folder(self, tmp_path: Path) -> None:
        path = tmp_path / "jobs.yaml"
        path.write_text("[{name: a, command: x, matrix: {lr: [1, 2]}}]")
        with answering(taking("a-1", "a-2")) as asked:
            assert json.loads(slopewise("submit", str(path), "-o", "json").stdout) == {"submitted": ["a-1", "a-2"]}
        (request,) = asked
        assert isinstance(request, Submit)
        assert (request.where, request.folder, request.renames) == (str(path), str(tmp_path), False)
        assert request.document == [{"name": "a", "command": "x", "matrix": {"lr": [1, 2]}}]

    def test_what_the_session_has_forgotten_meanwhile_is_as_it_was_last_listed(self) -> None:
        running = JobAnswer("ok", "training")
        answers = [Answer(names=["bad", "ok"]), with_jobs(FAILED, running)(Jobs())]
        done = with_jobs(replace(running, state="finished", finished_at_seconds=1e9))(Jobs())
        with answering(lambda _: answers.pop(0) if answers else done):
            ended = slopewise("submit", "--wait", "-o", "json", "--", "x")
        listed = {job["name"]: job["state"] for job in json.loads(ended.stdout)}
        assert (ended.returncode, listed) == (1, {"bad": "failed", "ok": "finished"})

    def test_what_the_session_never_lists_has_not_succeeded(self) -> None:
        answers = [Answer(names=["gone"])]
        with answering(lambda _: answers.pop(0) if answers else with_jobs()(Jobs())):
            assert slopewise("submit", "--wait", "--", "x").returncode == 1

    def test_what_is_no_text_is_left_out_of_the_environment_and_refused_in_a_command(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ODD", os.fsdecode(b"\xff"))
        with answering(taking("x")) as asked:
            done = slopewise("submit", "--", "x")
            refused = slopewise("submit", "--", "x", os.fsdecode(b"\xff"))
        assert (done.returncode, "left out of the environment, since they are not UTF-8: 'ODD'" in done.stderr) == (
            0,
            True,
        )
        (request,) = asked
        assert isinstance(request, Submit)
        assert "ODD" not in request.environment
        assert (refused.returncode, "is not UTF-8 text" in refused.stderr) == (2, True)

    def test_options_of_a_command_beside_a_file_are_refused(self) -> None:
        ended = slopewise("submit", "jobs.yaml", "--name", "a")
        assert (ended.returncode, "a jobs file has these keys itself" in ended.stderr) == (2, True)

    def test_the_sessions_refusal_is_the_commands_with_its_exit_code(self) -> None:
        with answering(lambda _: Answer("a is running already.", 2)):
            ended = slopewise("submit", "--name", "a", "--", "x")
        assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "slopewise: a is running already.\n")

    @pytest.mark.parametrize(
        ("command", "name"),
        [
            ("python3 -u src/train_net.py --lr 1", "train-net"),
            ("/usr/bin/python3.11 -m torch.distributed.run", "torch-distributed"),
            ("./Tune.sh", "tune"),
            ("python", "python"),
            ("...", "job"),
        ],
    )
    def test_a_command_without_a_name_is_called_by_its_script(self, command: str, name: str) -> None:
        assert name_of(command.split()) == name


class TestStudy:
    TRIALS = (
        JobAnswer("s-1", "training", study="s", trial=Trial("s-1", "training", 0.5, 3.0, arguments={"lr": "1"})),
        JobAnswer("other", "training"),
        JobAnswer("s-2", "training", study="s", trial=Trial("s-2", "training", 0.25, 7.0, reason="best so far")),
    )

    def test_its_jobs_come_with_their_arguments_the_best_first(self) -> None:
        with answering(with_jobs(*self.TRIALS)):
            table = slopewise("jobs", "--study", "s").stdout
            as_json = json.loads(slopewise("jobs", "--study", "s", "-o", "json").stdout)
            as_csv = slopewise("jobs", "--study", "s", "-o", "csv").stdout
            unknown = slopewise("jobs", "--study", "t")
            refused = slopewise("jobs", "-o", "csv")
        assert table.index("s-2") < table.index("s-1")
        assert [job["name"] for job in as_json] == ["s-2", "s-1"]
        assert as_json[1]["trial"]["arguments"] == {"lr": "1"}
        assert as_csv.splitlines()[1] == "s,1,s-2,,0.25,training,7.0,,best so far,"
        assert (refused.returncode, "--study NAME" in refused.stderr) == (2, True)
        assert (unknown.returncode, "there is no study 't'" in unknown.stderr) == (2, True)

    def test_its_status_says_what_was_spent_on_the_best_and_on_the_others(self) -> None:
        with answering(with_jobs(*self.TRIALS)):
            text = slopewise("status", "--local", "--study", "s").stdout
            (study,) = json.loads(slopewise("status", "--local", "--study", "s", "-o", "json").stdout)["studies"]
            unknown = slopewise("status", "--local", "--study", "t")
        assert "study s: the best so far of 2 trials is s-2, loss 0.25, training\nCPU: 7 core-s on it, 3 on the" in text
        assert (study["cpu_seconds_of_best"], study["cpu_seconds_of_rest"]) == (7.0, 3.0)
        assert (unknown.returncode, "there is no study 't'" in unknown.stderr) == (2, True)

    def test_a_command_is_one_of_optunas_study_unless_another_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPTUNA_STUDY", "My study")
        with answering(taking("x")) as asked:
            slopewise("submit", "--", "x")
            slopewise("submit", "--study", "own", "--", "x")
            monkeypatch.setenv("OPTUNA_STUDY", "研究")
            slopewise("submit", "--", "x")
        studies = [each.document[0].get("study") for each in asked if isinstance(each, Submit)]
        assert studies == ["my-study", "own", None], "a name of which no letter is left is none, as in a jobs file"


class TestAttach:
    def test_a_process_comes_with_its_command_a_name_from_it_and_its_options(self) -> None:
        with subprocess.Popen(["sleep", "600"]) as process:
            with answering(taking("sleep-2")) as asked:
                done = slopewise("attach", str(process.pid), "--class", "resnet", "--planned-steps", "9")
                as_json = slopewise("attach", str(process.pid), "--name", "mine", "-o", "json")
            process.kill()
        assert done.stdout == "attached: sleep-2; it serves no metrics, and keeps its share\n"
        assert json.loads(as_json.stdout) == {"attached": ["sleep-2"], "port": None}
        first, second = asked
        keys = {"name": "sleep", "command": ["sleep", "600"], "class": "resnet", "plannedSteps": 9}
        assert first == Attach(process.pid, keys, renames=True)
        assert second == Attach(process.pid, {"name": "mine", "command": ["sleep", "600"]})

    def test_what_is_no_pid_is_refused(self) -> None:
        assert slopewise("attach", "train").returncode == 2


class TestJobs:
    def test_the_table_has_a_row_for_each_and_foreign_text_drives_no_terminal(self) -> None:
        with answering(with_jobs(TRAINS, FAILED)):
            lines = slopewise("jobs").stdout.splitlines()
        assert words(lines[0]) == "JOB STATE TIME LOSS STEPS CPU REASON"
        assert words(lines[1]).startswith("train training")
        assert "1 → 0.5 5 of 10 0.5 first: its end is near" in words(lines[1])
        assert words(lines[2]).startswith("bad failed – – – – ended with status 3: why")
        assert "\x1b" not in lines[2]
        assert "\u202e" not in lines[2]

    def test_at_80_columns_what_a_job_waits_for_and_when_it_ends_goes_on_in_the_next_line(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(console.out, "_width", 80)
        reason = "waits for xgb, back in about 20s; ends about 14:02, under fair sharing 14:05"
        with answering(with_jobs(replace(TRAINS, reason=reason))):
            text = slopewise("jobs").stdout
        assert max(map(len, text.splitlines())) <= 80
        rows = [line[text.index("REASON") :].strip() for line in text.splitlines()[1:]]
        assert " ".join(rows) == reason

    def test_json_has_every_key_of_each_job_and_a_study_is_chosen(self) -> None:
        with answering(with_jobs(replace(TRAINS, trial=Trial("train", "training", 0.5, 3.0)), FAILED)):
            (found,) = json.loads(slopewise("jobs", "--study", "nets", "-o", "json").stdout)
        assert found["name"] == "train"
        assert set(found) == set(JobAnswer.__struct_fields__)

    def test_no_jobs_is_a_sentence_and_no_session_exit_code_4(self) -> None:
        with answering(with_jobs()):
            assert "There are no jobs; `slopewise submit" in slopewise("jobs").stdout
        ended = slopewise("jobs")
        assert (ended.returncode, "start one with `slopewise up`" in ended.stderr) == (4, True)


class TestTheOthers:
    def test_jobs_are_cancelled_by_name_by_study_or_all(self) -> None:
        with answering(taking("a", "b")) as asked:
            assert slopewise("cancel", "a", "b").stdout == "cancelled: a, b\n"
            slopewise("cancel", "--study", "nets")
            assert json.loads(slopewise("cancel", "--all", "-o", "json").stdout) == {"cancelled": ["a", "b"]}
        assert asked == [Cancel(["a", "b"]), Cancel(study="nets"), Cancel(everything=True)]
        nothing = slopewise("cancel")
        assert (nothing.returncode, "name jobs, or add --study NAME or --all." in nothing.stderr) == (2, True)

    def test_the_mode_is_asked_for_and_what_it_is_then_is_printed(self) -> None:
        with answering(with_jobs()) as asked:
            assert slopewise("mode", "auto").stdout == "mode is Auto\n"
        assert asked == [SetMode("auto")]

    def test_logs_are_those_of_the_job_and_a_wrong_name_is_exit_code_2(self, tmp_path: Path) -> None:
        log = tmp_path / "train.log"
        log.write_bytes(b"epoch 1\n\xff\n")
        ended = JobAnswer("train", "finished", finished_at_seconds=1.0, log=str(log))
        waits = JobAnswer("later", "waiting", reason="waits for the end of train", log=str(tmp_path / "none"))
        with answering(with_jobs(ended, waits)):
            assert slopewise("logs", "train", "-f").stdout.startswith("epoch 1\n")
            assert "later has written nothing: it is waiting, waits for" in words(slopewise("logs", "later").stdout)
            wrong = slopewise("logs", "trian")
        assert (wrong.returncode, "did you mean 'train'?" in wrong.stderr) == (2, True)

    def test_logs_of_a_job_that_waits_are_followed_from_its_start_or_until_it_is_cancelled(
        self, tmp_path: Path
    ) -> None:
        waits = JobAnswer("later", "waiting", reason="waits for a place", log=str(tmp_path / "later.log"))
        asked: list[Request] = []

        def answer(request: Request) -> Answer:
            asked.append(request)
            if len(asked) == 1:
                return with_jobs(waits)(request)
            (tmp_path / "later.log").write_text("epoch 1\n")
            return with_jobs(replace(waits, state="finished", finished_at_seconds=1.0))(request)

        with answering(answer):
            followed = slopewise("logs", "later", "-f")
        assert (followed.stdout, "later is waiting, waits for a place" in followed.stderr) == ("epoch 1\n", True)

        gone = replace(waits, log=str(tmp_path / "none"))
        answers = [gone, replace(gone, state="cancelled", finished_at_seconds=1.0)]
        with answering(lambda request: with_jobs(answers.pop(0))(request)):
            assert "later has written nothing: it is cancelled" in words(slopewise("logs", "later", "-f").stdout)

    def test_status_explain_and_history_speak_of_the_session_with_one_name_for_each_state(self) -> None:
        with answering(with_jobs(TRAINS, FAILED)):
            status = slopewise("status", "--local").stdout
            explained = slopewise("explain", "train", "--local").stdout
            history = json.loads(slopewise("history", "train", "--local", "-o", "json").stdout)
            wrong = slopewise("explain", "trian", "--local")
            counted = json.loads(slopewise("status", "--local", "-o", "json").stdout)
        assert "policy: marginal, mode Auto; 3 passes" in status
        assert "jobs: 1 training, 1 failed" in status
        assert "train: first: its end is near" in status
        assert "brought: 1 job took 3s" in status
        assert "bad: ended with status 3" in status
        assert "training on" not in explained
        assert words(explained).startswith("job local/train training")
        assert "decision first: its end is near" in words(explained)
        assert [(line["workload"], line["change"]) for line in history] == [("train", "requests 1 to 500m")]
        assert (wrong.returncode, "did you mean 'train'?" in wrong.stderr) == (2, True)
        assert counted["jobs"] == {"training": 1, "failed": 1}

    def test_of_a_job_that_has_ended_neither_cpu_nor_time_left_is_said(self) -> None:
        with answering(with_jobs(FAILED)):
            text = words(slopewise("explain", "bad", "--local").stdout)
        assert "98% of its planned steps" in text
        assert ("CPU" in text, "left at this pace" in text) == (False, False)

    def test_explain_has_the_policys_reason_in_full_and_what_comes_next_in_everyday_words(self) -> None:
        status = {"state": "Training", "reason": "waits: 2 in order, its end is 20 core-s away"}
        job = replace(TRAINS, reason="waits for xgb; ends about 14:02", status=status)
        with answering(with_jobs(job)):
            text = words(slopewise("explain", "train", "--local").stdout)
        assert "decision waits: 2 in order, its end is 20 core-s away" in text
        assert "next waits for xgb; ends about 14:02" in text

    def test_the_unit_of_systemd_has_the_options_and_leaves_the_jobs_when_it_is_stopped(self, tmp_path: Path) -> None:
        unit = slopewise("up", "--systemd", "--max-running", "3", "--policy-file", "p.yaml", cwd=tmp_path).stdout
        assert f"-m slopewise up --policy-file {os.path.realpath(tmp_path)}/p.yaml --max-running 3" in unit
        own = slopewise("up", "--systemd", "--json-logs", "--policy", "./mine.py", cwd=tmp_path).stdout
        assert f"-m slopewise up --policy {os.path.realpath(tmp_path)}/mine.py --actuator auto" in own
        assert " --json-logs\n" in own
        assert "KillMode=process\n" in unit
        assert "Delegate=yes\n" in unit
