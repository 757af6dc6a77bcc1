"""Options of the command line: those that do not apply are refused. All in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from slopewise.commands.app import app
from slopewise.errors import UsageError

IN_A_CLUSTER = ("run", "--prometheus-url", "http://127.0.0.1:9")
LOCAL = ("run", "--local", "--jobs", "nowhere.yaml")


def refusal(*arguments: str) -> str:
    """What a command line is refused with, in a sentence."""
    with pytest.raises(UsageError) as refused:
        app([*arguments], standalone_mode=False)
    return str(refused.value)


def completed(line: str) -> list[str]:
    """What bash offers for the last word of a line."""
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    result = CliRunner().invoke(
        app, [], prog_name="slopewise", env={"_SLOPEWISE_COMPLETE": "complete_bash", **variables}
    )
    return result.output.split()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*IN_A_CLUSTER, "--jobs", "j.yaml"), "--jobs is for this machine; add --local, or leave it out."),
        ((*LOCAL, "--once"), "--once is for a cluster; leave it or --local out."),
        ((*LOCAL, "--lease-seconds", "15"), "--lease-seconds is for a cluster; leave it or --local out."),
        (
            (*LOCAL, "--scrape-interval", "15"),
            "--scrape-interval is for a Prometheus of your own; add --prometheus-url, or leave it out.",
        ),
        (("explain", "a", "--at", "2026-11-23T08:00:00"), "is for a decision record; add --record FILE"),
        (
            ("explain", "a", "--record", "x.jsonl", "--at", "yesterday"),
            "'yesterday' is not a time; write it like 2026-11-23T08:00:00",
        ),
        (("explain", "a", "--record", "x.jsonl", "--namespace", "a"), "is for a cluster; leave it or --record out"),
        (("explain", "a", "--local", "--at", "2026-11-23T08:00:00"), "--at is for a decision record"),
        (("history", "--local", "--withheld"), "--withheld is for a decision record"),
        (("history", "--withheld"), "--withheld is for a decision record; add --record FILE"),
        (("history", "--record", "x.jsonl", "--context", "c"), "--context is for a cluster; leave it or --record out"),
        *(
            ((*command, "--record", "x.jsonl"), "there is no such decision record")
            for command in (("explain", "a"), ("history",))
        ),
        (("replay", "x.jsonl"), "x.jsonl: there is no such decision record"),
        (("history", "--local", "--record", "r"), "--local is for a session that runs; leave it or --record out"),
        (("explain", "a", "--local", "--record", "r"), "--local is for a session that runs"),
        (("status", "--local", "--context", "c"), "--context is for a cluster; leave it or --local out"),
        (("top", "--local", "--context", "c"), "--context is for a cluster; leave it or --local out"),
        (("top", "-o", "json", "--count", "2"), "-o json prints one object; leave --count out"),
        (("doctor", "--jobs", "j.yaml"), "--jobs is for this machine; add --local"),
        (("doctor", "--local", "--context", "c"), "--context is for a cluster; leave it or --local out"),
        (("doctor", "--scrape-interval", "5"), "--scrape-interval is for a Prometheus; add --prometheus"),
        (("doctor", "--prometheus", "prometheus:9090"), "is not the URL of a Prometheus"),
        (("demo", "--jobs", "j.yaml", "--scale", "1"), "--scale is for the built-in jobs; leave it or --jobs out."),
        (("demo", "--jobs", "j.yaml", "--workload", "served"), "--workload and --jobs contradict each other"),
        (("demo", "--policy-file", "p.yaml", "--compare", "las"), "--compare and --policy-file contradict each other"),
    ],
)
def test_an_option_that_does_not_apply_is_refused_before_anything_starts(
    arguments: tuple[str, ...], message: str
) -> None:
    assert message in refusal(*arguments)


def test_what_the_environment_says_is_no_option_and_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod, or a shell that is used for a cluster too, has these set; only what is written counts."""
    monkeypatch.setenv("POD_NAMESPACE", "slopewise-system")
    monkeypatch.setenv("PROMETHEUS_URL", "http://prometheus:9090")
    assert "nowhere.yaml: cannot be read" in refusal(*LOCAL)


def test_a_prometheus_of_ones_own_may_be_named_with_its_scrape_interval(tmp_path: Path) -> None:
    url = ("--prometheus-url", "http://127.0.0.1:9", "--scrape-interval", "15")
    assert "nowhere.yaml: cannot be read" in refusal(*LOCAL, *url)
    (tmp_path / "j.yaml").write_text("- {name: a, command: 'true'}")
    jobs = ("run", "--local", "--jobs", str(tmp_path / "j.yaml"))
    assert "'prometheus:9090' is not the URL of a Prometheus" in refusal(*jobs, "--prometheus-url", "prometheus:9090")


def test_formats_are_completed() -> None:
    assert completed("slopewise history -o ") == ["table", "json", "csv"]
    assert completed("slopewise top --sort ") == ["growth", "cpu", "name"]
