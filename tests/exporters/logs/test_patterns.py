"""Patterns of the user, by RE2 and by Python's `re`: what they find, what is refused, and that time stays bounded."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from slopewise_exporter.logs import Found, LineParser, PatternError
from slopewise_exporter.logs.patterns import engine_name, explodes

KATIB = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
"""The default of Katib's metricsFormat."""

NAMED = r"round (?P<step>\d+) of (?P<steps_planned>\d+): cost (?P<loss>\S+)"


@pytest.fixture(params=["RE2", "re"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both of them; without RE2 as if it were not installed."""
    before = signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if request.param == "re":
        monkeypatch.setitem(sys.modules, "re2", None)
    assert engine_name() == request.param
    yield request.param
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (KATIB, "step=120 loss=0.5 lr=3", {"step": 120, "loss": 0.5}),
        (KATIB, "loss = 1e-05", {"loss": 1e-05}),
        (r"([\w-]+)\s*[:=]\s*(\S+)", "loss: nan step: 3,", {"loss": "nan", "step": 3}),
        (r"([\w-]+)\s*[:=]\s*(\S+)", "loss=1E-05; val-loss=+2.5", {"loss": 1e-05, "evaluation": 2.5}),
        (r"(\w+)\|(\d+)", "loss|3", {"loss": 3}),
        (NAMED, "round 3 of 70: cost 0.25", {"step": 3, "steps_planned": 70, "loss": 0.25}),
        (NAMED, "step=3 loss=4", {}),
        (r"cost (?P<loss>\S+) and ([a-z]+)", "cost 0.5 and more", {"loss": 0.5}),
        (r"é (?P<loss>\d+)", "naïve é 5", {"loss": 5}),
        (r"cost (?P<loss>\S+)", "cost none", {}),
        (r"step (?P<step>\S+)", "step -5", {}),
        (r"cost is (\S+)", "cost is 0.5,", {"loss": 0.5}),
        (r"cost is ([\d.]+)", "loss=3", {}),
    ],
)
def test_what_a_pattern_finds(pattern: str, line: str, expected: dict[str, object]) -> None:
    found = LineParser([pattern]).parse(line) or Found()
    assert {name: "nan" if math.isnan(value) else value for name, value in found.said.items()} == expected


@pytest.mark.usefixtures("engine")
def test_several_patterns() -> None:
    parser = LineParser([r"cost (?P<loss>\S+)", r"round (?P<step>\d+)"])
    assert parser.parse("round 3 cost 4") == Found(loss=4, step=3)


@pytest.mark.usefixtures("engine")
def test_names_of_the_user_go_with_katibs_form() -> None:
    parser = LineParser([r"(\S+)=(\S+)"], names={"loss": ["nll"]})
    assert parser.parse("nll=0.5 loss=7") == Found(loss=0.5)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(loss", r"missing \)|no regular expression"),
        ("loss", "needs one group, which is the loss, two groups, a name and its value, or groups called loss, "),
        ("loss=(?P<lost>.*)", "or groups called loss, "),
        ("*", "no regular expression|no argument for repetition"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_in_one_sentence(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason) as refused:
        LineParser([pattern])
    assert "\n" not in str(refused.value)
    assert repr(pattern) in str(refused.value)


def test_what_re2_does_not_have_is_said(engine: str) -> None:
    if engine == "RE2":
        with pytest.raises(PatternError, match="no lookahead, lookbehind and backreferences"):
            LineParser([r"(?P<loss>\d+)(?=x)"])
    else:
        assert LineParser([r"(?P<loss>\d+)(?=x)"]).parse("7x") == Found(loss=7)


CATASTROPHIC = [r"(a+)+(b)$", r"((a|a)*)(b)", r"(\w+\s*)+=(\d+)", r"(.*)*=(\d+)", r"(?:(x+x+)+y)(\d)"]
HARMLESS = [KATIB, NAMED, r"(\w+): (\d+(?:\.\d+)?)", r".*loss: (\S+).*step (\d+)", r"(a{2,5})+(b)", r"(?:ab)+(\d)(\d)"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_patterns_that_may_take_exponential_time_are_refused_without_re2(pattern: str, without_re2: None) -> None:
    assert explodes(pattern)
    with pytest.raises(PatternError, match=r"slopewise-exporter\[re2\]"):
        LineParser([pattern])


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_re2_takes_the_same_patterns_and_no_time(pattern: str) -> None:
    parser = LineParser([pattern])
    started = time.process_time()
    parser.parse("a" * 60_000)
    parser.parse("x" * 60_000 + "!")
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize("pattern", [each for each in HARMLESS if each != r"(a{2,5})+(b)"])
def test_patterns_of_daily_life_are_not_refused(pattern: str) -> None:
    assert not explodes(pattern)


def test_a_match_that_takes_too_long_is_given_up_without_re2(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    """Cubic time and more, which no look at the pattern forbids: 4,096 characters would take hours."""
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals arrive in the main thread")
    parser = LineParser([r"(.*)x.*x.*x.*x.*x.*=(\d+)"], may_use_signals=True)
    for _ in range(3):
        assert parser.parse("x" * 100_000) is None
    assert parser.parse("step=3 xxxxx=5") is None
    assert len([record for record in caplog.records if "longer than" in record.message]) == (engine == "re")


def test_within_a_training_no_signal_is_used_and_time_is_bounded_too(without_re2: None) -> None:
    before = signal.getsignal(signal.SIGALRM)
    assert LineParser([r"(.*)x.*x.*=(\d+)"])
    parser = LineParser([r"(.*)x.*=(\d+)"])
    assert signal.getsignal(signal.SIGALRM) == before
    assert parser.parse("x" * 1_000_000) is None  # quadratic: a day, were the line not cut
    assert signal.getitimer(signal.ITIMER_REAL)[1] == 0.0  # pytest-timeout's has no interval
    with pytest.raises(PatternError, match=r"slopewise-exporter\[re2\]"):
        LineParser([r"(.*)x.*x.*x.*=(\d+)"])


def test_the_timer_stops_when_no_lines_come(without_re2: None) -> None:
    script = """
import signal, sys, time
sys.modules["re2"] = None
from slopewise_exporter.logs import LineParser
parser = LineParser([r"(\\w+)=(\\d+)"], may_use_signals=True)
assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
assert parser.parse("loss=3").loss == 3
assert signal.getitimer(signal.ITIMER_REAL)[1] > 0
deadline = time.monotonic() + 60
while signal.getitimer(signal.ITIMER_REAL)[1] and time.monotonic() < deadline:
    time.sleep(0.1)
print(signal.getitimer(signal.ITIMER_REAL)[1], parser.parse("loss=4").loss)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0.0", "4"]
