import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from slopewise.config.jobs_file import JobSpec, expanded, load_jobs, read_jobs
from slopewise.errors import UsageError
from slopewise.model import NO_OBJECTIVES, Objectives

ONE_JOB = "- {name: mine, command: python train.py}\n"


def _jobs_file(folder: Path, text: str) -> Path:
    file = folder / "jobs.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def _mistake(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_jobs(_jobs_file(folder, text))
    return str(caught.value)


def test_jobs_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = _jobs_file(
        tmp_path,
        """
        - name: resnet-50
          command: python train.py --name "a b"
          arriveSeconds: 12.5
          maxUsefulCpu: 1500m
          port: 9500
        - name: bert
          command: [python, "train.py", "--epochs", "5"]
        """,
    )

    assert load_jobs(file) == [
        JobSpec("resnet-50", ["python", "train.py", "--name", "a b"], 12.5, 1500, 9500, working_directory=tmp_path),
        JobSpec("bert", ["python", "train.py", "--epochs", "5"], 0.0, working_directory=tmp_path),
    ]


def test_what_is_asked_for_a_job_is_read_and_its_deadline_counts_from_its_arrival(tmp_path: Path) -> None:
    keys = "deadlineSeconds: 60, qoeSeconds: 0.2, targetLoss: 0.1, deliverableLoss: 0.5, weight: 2, migratable: true"
    asking, other = load_jobs(_jobs_file(tmp_path, f"- {{name: a, command: x, {keys}}}\n- {{name: 2-b, command: x}}"))
    asked = Objectives(qoe_seconds=0.2, target_level=0.1, deliverable_level=0.5, weight=2.0)
    assert (asking.objectives, asking.deadline_seconds) == (asked, 60.0)
    assert asking.objectives_at(1000.0) == replace(asked, deadline_at_seconds=1060.0)
    assert other.objectives_at(1000.0) == NO_OBJECTIVES
    assert (asking.migratable, other.migratable) == (True, False)


def test_a_pattern_for_the_loss_is_read_and_one_that_is_none_is_refused(tmp_path: Path) -> None:
    pattern = r"round \d+. cost is (?P<loss>\S+)"
    file = _jobs_file(tmp_path, f"- {{name: a, command: x}}\n- name: b\n  command: x\n  lossPattern: {pattern}\n")

    assert [job.loss_pattern for job in load_jobs(file)] == [None, pattern]
    for wrong, reason in (("'('", "RE2 cannot use the pattern '('"), ("7", "must be a valid string")):
        message = _mistake(tmp_path, f"- {{name: a, command: x, lossPattern: {wrong}}}")
        assert message.startswith(f"{tmp_path / 'jobs.yaml'}: job 1: lossPattern: ")
        assert reason in message


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("{name: b, command: x, arrive: 5}", "job 2: arrive: unknown key; did you mean 'arriveSeconds'?"),
        (
            "{name: b, command: x, gpus: 5}",
            "job 2: gpus: unknown key; remove it or use one of after, arriveSeconds, atTarget, class",
        ),
        ("{command: x}", "job 2: name: is required; add it"),
        ("{name: b}", "job 2: command: is required; add it"),
        ("just text", "job 2: must be a mapping of keys to values, not str"),
        ("{name: My_Job, command: x}", "job 2: name: 'My_Job' cannot be a job's name; use up to 63 lower-case"),
        ('{name: "b\\n", command: x}', "cannot be a job's name"),
        ("{name: b, command: x, arriveSeconds: .inf}", "job 2: arriveSeconds: must be a finite number, not inf"),
        ("{name: b, command: ''}", "job 2: command: is empty; write the program to start"),
        ("{name: b, command: [sleep, 5]}", "job 2: command.1: must be a valid string, not 5"),
        ("{name: b, command: 'echo \"a'}", "cannot be split into words (No closing quotation); close its quotes"),
        ("{name: b, command: x, maxUsefulCpu: lots}", "job 2: maxUsefulCpu: 'lots' is not a CPU quantity"),
        ("{name: b, command: x, port: 70000}", "job 2: port: must be less than or equal to 65535, not 70000"),
        ("{name: b, command: x, deadlineSeconds: 0}", "job 2: deadlineSeconds: must be greater than 0, not 0"),
        ("{name: b, command: x, targetLoss: .nan}", "job 2: targetLoss: must be a finite number, not nan"),
        ("{name: b, command: x, qoeSeconds: 1e9}", "job 2: qoeSeconds: must be less than or equal to 3162"),
        ("{name: b, command: x, deadlineSeconds: 2h}", "job 2: deadlineSeconds: must be a valid number"),
        (
            "{name: b, command: x, atTarget: stop}",
            "job 2: atTarget: stop needs a target; state targetLoss, or leave atTarget out",
        ),
        ("{name: b, command: x, env: [A]}", "job 2: env: must be a mapping of names to texts, such as {SEED: "),
        ("{name: b, command: x, env: {A: 0.10}}", "job 2: env: A is no text; write it in quotes, as in A: '0.1'"),
        ("{name: b, command: x, env: {A=B: x}}", "job 2: env: 'A=B' cannot be the name of a variable; use letters"),
        ('{name: b, command: [x, "\\0"]}', "job 2: command: holds a zero byte, which no argument can; remove it"),
        ('{name: b, command: x, env: {A: "\\0"}}', "job 2: env: A holds a zero byte, which no variable can; remove it"),
        (
            "{name: b, command: x, env: {SLOPEWISE_EXPORTER_PORT: 9}}",
            "job 2: env: SLOPEWISE_EXPORTER_PORT is set by slopewise; remove it, and write `port` to choose the port",
        ),
        ("{name: b, command: x, workingDirectory: ''}", "job 2: workingDirectory: is empty; write a folder"),
        ("{name: mine, command: x}", "more than one job is named 'mine'; give each a name of its own"),
        (
            "{name: b, command: x, port: 9500}\n- {name: c, command: x, port: 9500}",
            "more than one job has port 9500; give each a port of its own",
        ),
    ],
)
def test_a_mistake_in_a_job_is_one_sentence_with_its_place(tmp_path: Path, entry: str, sentence: str) -> None:
    message = _mistake(tmp_path, f"{ONE_JOB}- {entry}\n")

    assert message.startswith(f"{tmp_path / 'jobs.yaml'}: ")
    assert sentence in message
    assert message.endswith((".", "?"))
    assert "\n" not in message


@pytest.mark.parametrize("text", ["", "[]", "{jobs: []}", "text"])
def test_a_file_that_is_no_list_of_jobs_is_reported_with_an_example(tmp_path: Path, text: str) -> None:
    assert "must be a list of at least one job; write for example `- {name:" in _mistake(tmp_path, text)


def test_a_missing_file_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml: cannot be read \(No such file or directory\)"):
        load_jobs(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("written", "folder"), [("", "."), ("runs/one", "runs/one"), ("./one/../two", "one/../two"), ("/srv", "/srv")]
)
def test_a_command_runs_in_its_files_folder_or_in_one_beside_it(tmp_path: Path, written: str, folder: str) -> None:
    more = f", workingDirectory: {written}" if written else ""

    (job,) = load_jobs(_jobs_file(tmp_path, f"[{{name: a, command: x{more}}}]"))

    assert job.working_directory == tmp_path / folder


def test_the_environment_is_texts_and_whole_numbers_are_taken_for_texts(tmp_path: Path) -> None:
    file = _jobs_file(tmp_path, "[{name: a, command: x, env: {OMP_NUM_THREADS: 4, DATA: /srv/data, EMPTY: ''}}]")

    (job,) = load_jobs(file)

    assert job.environment == {"OMP_NUM_THREADS": "4", "DATA": "/srv/data", "EMPTY": ""}


def test_the_jobs_may_come_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("- {name: a, command: x}"))
    (job,) = load_jobs(Path("-"))
    assert (job.name, job.working_directory) == ("a", tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO("- {name: a"))
    with pytest.raises(UsageError, match=r"standard input: line 1 .*is not valid YAML"):
        load_jobs(Path("-"))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python a.py > log.txt", "'>' is for a shell, and there is none: put it in single quotes, or leave"),
        ("python a.py && python b.py", "'&&' is for a shell"),
        ("cd x; python a.py", "';' is for a shell"),
        ("(python a.py)", "'(' is for a shell"),
        ("python a.py --data $DATA", "'$DATA' is for a shell"),
        ("python a.py $(nproc)", "'$(' is for a shell"),
        ('python a.py "$HOME/x"', "'$HOME' is for a shell, and there is none: put it in single quotes"),
        ("python a.py `nproc`", "'`' is for a shell"),
        ("OMP_NUM_THREADS=4 python a.py", "'OMP_NUM_THREADS=' is for a shell, and there is none: write it under `env`"),
        ("python ~/a.py", "'~' is for a shell"),
        ("python a.py data/*.csv", "'*' is for a shell"),
        ("python a.py # the first", "'#' is for a shell"),
        ("python a.py\npython b.py", "a new line is for a shell"),
    ],
)
def test_what_only_a_shell_understands_is_refused_with_advice(tmp_path: Path, command: str, expected: str) -> None:
    message = _mistake(tmp_path, json.dumps([{"name": "a", "command": command}]))

    assert f"job 1: command: {expected}" in message
    assert "command: [sh, -c, " in message


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["sh", "-c", "python a.py > $X && echo"], ["sh", "-c", "python a.py > $X && echo"]),
        ("python a.py --note 'a > b && $X *'", ["python", "a.py", "--note", "a > b && $X *"]),
        (r"python a.py \> \$X", ["python", "a.py", ">", "$X"]),
        ("python a.py --lr=1e-3 --layers=[1,2] a#b x~", ["python", "a.py", "--lr=1e-3", "--layers=[1,2]", "a#b", "x~"]),
        ("python a.py 5$ A=b", ["python", "a.py", "5$", "A=b"]),
        ("python a.py \\\n  --steps 5\n", ["python", "a.py", "--steps", "5"]),
    ],
)
def test_a_list_and_what_is_quoted_or_means_nothing_to_a_shell_are_taken_as_they_are(
    tmp_path: Path, command: str | list[str], words: list[str]
) -> None:
    (job,) = load_jobs(_jobs_file(tmp_path, json.dumps([{"name": "a", "command": command}])))

    assert job.command == words


class TestMatrix:
    def test_it_makes_a_job_of_each_combination_with_its_values_in_all_texts(self, tmp_path: Path) -> None:
        text = """
- name: sweep
  command: python train.py --lr {lr} --seed {seed} --json {"a":1}
  env: {OUT: "out-{seed}"}
  matrix: {lr: ["0.10", 0.01], seed: [1, 2]}
"""
        jobs = load_jobs(_jobs_file(tmp_path, text))
        assert [job.name for job in jobs] == ["sweep-1", "sweep-2", "sweep-3", "sweep-4"]
        assert {job.queueing.study for job in jobs} == {job.workload_class for job in jobs} == {"sweep"}
        assert jobs[1].command == ["python", "train.py", "--lr", "0.10", "--seed", "2", "--json", "{a:1}"]
        assert jobs[3].environment == {"OUT": "out-2"}

    def test_a_name_with_a_value_in_it_gets_no_number(self, tmp_path: Path) -> None:
        jobs = load_jobs(_jobs_file(tmp_path, "[{name: 's-{seed}', command: x, matrix: {seed: [1, 2]}, study: s}]"))
        assert [(job.name, job.queueing.study) for job in jobs] == [("s-1", "s"), ("s-2", "s")]

    @pytest.mark.parametrize("matrix", ["[1]", "{}", "{a: 1}", "{a: []}", "{a: [true]}", "{a: [[1]]}"])
    def test_what_is_none_is_refused(self, tmp_path: Path, matrix: str) -> None:
        message = _mistake(tmp_path, f"[{{name: a, command: x, matrix: {matrix}}}]")
        assert "job 1: matrix: must be lists of texts or numbers by name, such as {lr: [0.1, 0.01]}." in message

    def test_a_mistake_names_the_values_and_too_many_jobs_are_refused(self, tmp_path: Path) -> None:
        message = _mistake(tmp_path, "[{name: 'A-{x}', command: x, matrix: {x: [1]}}]")
        assert "job 1 (x=1): name: 'A-1' cannot be a job's name" in message
        many = json.dumps(list(range(1001)))
        assert "makes 1001 jobs" in _mistake(tmp_path, f"[{{name: a, command: x, matrix: {{x: {many}}}}}]")
        axes = ", ".join(f"x{number}: {many}" for number in range(10))  # which nothing may write out
        assert f"makes {1001**10} jobs" in _mistake(tmp_path, f"[{{name: a, command: x, matrix: {{{axes}}}}}]")


class TestSweep:
    def test_a_grid_is_a_job_of_one_study_for_each_combination_with_a_name(self, tmp_path: Path) -> None:
        text = """
- name: digits
  command: python mlp.py --width {width} --lr {lr} --activation {activation}
  sweep: {grid: {width: [16, 64], lr: [0.01], activation: [relu]}, maxRunning: 4}
  favour: best
"""
        first, second = load_jobs(_jobs_file(tmp_path, text))
        assert (first.name, second.name) == ("digits-1-width16-lr0-01-relu", "digits-2-width64-lr0-01-relu")
        assert second.command == ["python", "mlp.py", "--width", "64", "--lr", "0.01", "--activation", "relu"]
        assert second.arguments == {"width": "64", "lr": "0.01", "activation": "relu"}
        assert (first.queueing.study, first.queueing.max_running, first.workload_class) == ("digits", 4, "digits")
        assert (first.objectives.study, first.objectives.favours_best) == ("digits", True)

    def test_a_list_and_a_csv_file_beside_the_jobs_file_have_a_row_a_trial(self, tmp_path: Path) -> None:
        (tmp_path / "trials.csv").write_text("lr, seed\n0.10, 1\n1e-3, 2\n", encoding="utf-8")
        text = """
- {name: a, command: "x --lr {lr} --seed {seed}", sweep: {csv: trials.csv}}
- {name: b, command: "x --lr {lr}", sweep: {list: [{lr: 0.1}, {lr: 0.1}]}}
"""
        listed = load_jobs(_jobs_file(tmp_path, text))
        words = [" ".join(each.command) for each in listed]
        assert words == ["x --lr 0.10 --seed 1", "x --lr 1e-3 --seed 2", "x --lr 0.1", "x --lr 0.1"]
        assert [each.name for each in listed] == ["a-1-lr0-10-seed1", "a-2-lr1e-3-seed2", "b-1-lr0-1", "b-2-lr0-1"]

    def test_a_csv_file_is_read_as_spreadsheets_and_notebooks_write_it(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text('\ufeff,learning-rate , tag\r\n0,0.1 ,"a\u2028b"\r\n , ,\r\n', encoding="utf-8")
        text = '- {name: a, command: [x, "{learning-rate}", "{tag}", "{}", "{{other}}"], sweep: {csv: t.csv}}'
        (job,) = load_jobs(_jobs_file(tmp_path, text))
        assert job.command == ["x", "0.1", "a\u2028b", "{}", "{other}"]

    def test_a_value_is_one_argument_and_one_part_of_a_word_whatever_is_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("the tag,note\na b; 'c,\n", encoding="utf-8")
        text = """- {name: a, command: 'x --tag={the tag} "{the tag}" {note} {{other}}', sweep: {csv: t.csv}}"""
        (job,) = load_jobs(_jobs_file(tmp_path, text))
        assert job.command == ["x", "--tag=a b; 'c", "a b; 'c", "", "{other}"]
        message = _mistake(tmp_path, "[{name: a, command: 'x {y} > z', sweep: {grid: {y: [1]}}}]")
        assert "'>' is for a shell" in message

    def test_a_word_in_braces_that_is_no_value_is_refused_and_other_braces_stay(self, tmp_path: Path) -> None:
        text = """- {name: a, command: %s, sweep: {grid: {lr: [1], the tag: [x]}}}"""
        message = _mistake(tmp_path, text % "'x --lr {l}'")
        assert "job 1: command: {l} is no value of a trial; write {lr} or {the tag}, or" in message
        message = _mistake(tmp_path, "[{name: a, command: x, env: {LR: '{l}'}, matrix: {lr: ['1']}}]")
        assert "env: {l} is no value of a trial; write {lr}, or {{l}} for these braces." in message
        stays = """[sh, -c, '{"o": {"lr": {lr}}} ${HOME} ${lr} {a,b} {} {0} {{lr}} {{print}} {{ a }} {{the tag}}']"""
        (job,) = load_jobs(_jobs_file(tmp_path, text % stays))
        assert job.command[2] == '{"o": {"lr": 1}} ${HOME} $1 {a,b} {} {0} {lr} {print} {{ a }} {the tag}'

    def test_long_arguments_are_cut_and_names_stay_apart(self, tmp_path: Path) -> None:
        long = json.dumps(["x" * 80, "x" * 81])
        first, second = load_jobs(_jobs_file(tmp_path, f"[{{name: a, command: x, sweep: {{grid: {{y: {long}}}}}}}]"))
        assert len(first.name) == len(second.name) == 63
        assert (first.name[:4], second.name[:4]) == ("a-1-", "a-2-")

    def test_a_trial_is_read_again_as_it_was_made(self, tmp_path: Path) -> None:
        """As a session does that has stored it."""
        text = "[{name: a, command: 'x {lr}', sweep: {grid: {lr: [1, 2]}, maxRunning: 1}}]"
        made = load_jobs(_jobs_file(tmp_path, text))
        stored = [entry for _, entry in expanded(yaml.safe_load(text), "x")]
        assert read_jobs(stored, "x", tmp_path, {}) == made

    @pytest.mark.parametrize(
        ("sweep", "sentence"),
        [
            ("{}", "sweep: needs one of grid, list and csv, such as {grid: {lr: [0.1, 0.01]}}."),
            ("{grid: {a: [1]}, list: [{a: 1}]}", "sweep: needs one of grid, list and csv"),
            ("{csv: t.csv, list: [{a: 1}]}", "sweep: has list and csv; leave one of them out."),
            ("{grid: {a: 1}}", "sweep.grid: must be lists of texts or numbers by name"),
            ("{grid: {a: [1]}, maxRunning: 0}", "sweep: maxRunning: must be greater than or equal to 1, not 0."),
            ("{grid: {a: [1]}, favor: best}", "sweep: favor: unknown key; remove it or use one of"),
            ("{list: []}", "sweep.list: must be a list of at least one trial, such as [{lr: 0.1}, {lr: 0.01}]."),
            ("{list: [{a: 1}, {b: 1}]}", "sweep.list: trial 2: must have the names of trial 1"),
            ("{csv: none.csv}", "none.csv cannot be read (No such file or directory); name a CSV file with a row"),
            ("{csv: many.csv}", "job 1: sweep.csv: makes 1001 jobs; leave at most 1000."),
            ("{csv: twice.csv}", "twice.csv has one name in line 1 twice; correct it."),
            ("{csv: short.csv}", "short.csv line 4 has not a value for each name of line 1; correct it."),
            ("{csv: head.csv}", "head.csv has no trial; write the names of arguments in line 1, and a row a trial."),
            ("{list: [{a: 1}]}, matrix: {b: [1]}", "has matrix and sweep; leave one of them out."),
            ("3", "sweep: must be a mapping of keys to values, not int"),
        ],
    )
    def test_a_mistake_is_one_sentence_with_its_place(self, tmp_path: Path, sweep: str, sentence: str) -> None:
        (tmp_path / "short.csv").write_text("a,b\n1,2\n\n1\n", encoding="utf-8")
        (tmp_path / "many.csv").write_text("a\n" + "1\n" * 1001, encoding="utf-8")
        (tmp_path / "twice.csv").write_text("a,b,a\n1,2,3\n", encoding="utf-8")
        (tmp_path / "head.csv").write_text("a,b\n", encoding="utf-8")
        message = _mistake(tmp_path, f"[{{name: a, command: x, sweep: {sweep}}}]")
        assert "job 1: " in message
        assert sentence in message

    def test_the_study_of_optuna_is_that_of_its_jobs(self, tmp_path: Path) -> None:
        text = """
- {name: a, command: x, env: {OPTUNA_STUDY: My study}}
- {name: b, command: x, env: {OPTUNA_STUDY: theirs}, study: own}
"""
        assert [job.queueing.study for job in load_jobs(_jobs_file(tmp_path, text))] == ["my-study", "own"]


class TestQueueing:
    def test_what_a_queue_needs_to_know_is_read(self, tmp_path: Path) -> None:
        text = """
- {name: a, command: x, study: nets, class: resnet, plannedSteps: 500, memory: 1.5Gi}
- {name: b, command: x, after: a, restart: {onFailure: 3}}
- {name: c, command: x, after: [nets, b]}
"""
        a, b, c = load_jobs(_jobs_file(tmp_path, text))
        assert (a.queueing.study, a.workload_class, a.planned_steps) == ("nets", "resnet", 500)
        assert a.queueing.memory_bytes == 1.5 * 2**30
        assert (b.queueing.after, b.queueing.restarts) == (("a",), 3)
        assert c.queueing.after == ("nets", "b")

    @pytest.mark.parametrize(
        ("keys", "sentence"),
        [
            ("after: nets", "a: after: there is no job or study 'nets'; correct its name."),
            ("after: a", "a come after one another; remove one `after`."),
            ("memory: 4G", "job 1: memory: '4G' is no amount of memory; write it like 512Mi or 4Gi."),
            ("restart: {onFailure: -1}", "job 1: restart.onFailure: must be greater than or equal to 0, not -1."),
        ],
    )
    def test_a_mistake_is_one_sentence(self, tmp_path: Path, keys: str, sentence: str) -> None:
        assert sentence in _mistake(tmp_path, f"[{{name: a, command: x, {keys}}}]")
