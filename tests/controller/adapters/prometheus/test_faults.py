"""Every way in which Prometheus can fail us becomes one sentence, soon, and never a smaller world."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest
from support.fake_prometheus import EMPTY, FakePrometheus, answer, text, vector
from support.loopback import Respond, send

from slopewise.adapters.local.prometheus_server import free_loopback_port
from slopewise.adapters.prometheus.client import PrometheusHttp
from slopewise.adapters.prometheus.queries import AnyOf
from slopewise.adapters.prometheus.reader import PrometheusReader, Scope
from slopewise.config.training_policy import EvaluationSettings
from slopewise.errors import ObservationError, UsageError

NOW = 1_700_000_000.0


def reader(url: str, evaluations: int = 1, timeout_seconds: float = 5.0) -> PrometheusReader:
    mappings = [EvaluationSettings(metric=f"loss_{number}") for number in range(evaluations)]
    return PrometheusReader(url, {"namespace": "flowcon"}, 1.0, mappings, 10, timeout_seconds)


def reported(url: str, timeout_seconds: float = 5.0) -> str:
    """The sentence of a reading that must fail."""
    with reader(url, timeout_seconds=timeout_seconds) as one, pytest.raises(ObservationError) as caught:
        one.read(NOW)
    assert url in str(caught.value)
    assert str(caught.value).endswith(".")
    return str(caught.value)


def test_no_server_there_is_reported_as_refused() -> None:
    assert "connection refused" in reported(f"http://127.0.0.1:{free_loopback_port()}")


@pytest.mark.parametrize(
    ("respond", "outcome"),
    [
        (answer(EMPTY), "answered"),
        (text(b"<html>a login page</html>"), "failed"),
        (answer({**EMPTY, "warnings": ["a store is gone"]}), "failed"),
    ],
)
def test_each_query_is_reported_with_outcome_and_time(fake: FakePrometheus, respond: Respond, outcome: str) -> None:
    fake.respond = respond
    seen: list[tuple[str, float]] = []
    http = PrometheusHttp(fake.url, 5.0, lambda *query: seen.append(query))
    http.begin()
    with suppress(ObservationError):
        http.ask("up", NOW)
    http.close()
    assert [each for each, _ in seen] == [outcome]
    assert 0 < seen[0][1] < 5


def test_one_that_drips_byte_by_byte_is_given_up_after_the_timeout(fake: FakePrometheus) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 200, b"", promised=1000)
        while not fake.released.wait(0.02):
            handler.wfile.write(b" ")

    fake.respond = drip
    assert "did not answer within 0.3 s" in reported(fake.url, timeout_seconds=0.3)


def breaks_off(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, b'{"status":', promised=1000)
    handler.close_connection = True


STRANGE = [
    [],
    {"status": "success", "data": {"resultType": "vector"}},
    vector({"metric": {"pod": "a"}}),
    vector({"metric": {}, "value": [NOW]}),
]


@pytest.mark.parametrize(
    ("respond", "said"),
    [
        (text(b"storage is on fire", status=500), "500 (storage is on fire)"),
        (answer({"status": "error", "error": "query timed out"}, status=503), "query timed out"),
        (text(json.dumps(EMPTY).encode()[:-9]), "cannot be read"),
        (text(b'{"more":' + b"[" * 1_000_000), "cannot be read"),
        (text(b"<html>Sign in</html>"), "login page"),
        (breaks_off, "broke in mid-answer"),
        (lambda handler: setattr(handler, "close_connection", True), "it closed the connection"),
        *((answer(document), "missing or strange fields") for document in STRANGE),
        (answer(vector({"metric": {}, "value": [NOW, "many"]})), "strange fields (Expected `float`, got `str`"),
        (
            answer(vector(warnings=["store-1 is unreachable"])),
            "a part of the answer and warned: store-1 is unreachable",
        ),
        (answer(vector(isPartial=True)), "gave a part of the answer and warned: isPartial"),  # VictoriaMetrics
    ],
)
def test_what_is_no_whole_answer_is_one_sentence_and_final(fake: FakePrometheus, respond: Respond, said: str) -> None:
    fake.respond = respond
    message = reported(fake.url)
    assert said in message
    assert len(message) < 500
    assert len(fake.asked) == 1


@pytest.mark.parametrize("seconds", [300, -300])
def test_an_answer_of_another_moment_is_no_answer(fake: FakePrometheus, seconds: int) -> None:
    """A cache in between gives what it was given five minutes ago."""
    row = {"metric": {"namespace": "flowcon", "pod": "a", "slopewise_value": "level"}, "value": [NOW - seconds, "1"]}
    fake.respond = answer(vector({**row, "value": [NOW - 5, "1"]}))
    with reader(fake.url) as one:
        assert one.read(NOW).jobs, "a moment that a server has rounded is the same"
    fake.respond = answer(vector(row))
    assert f"gave an answer of another moment ({seconds} s ago); see whether a cache lies in between" in reported(
        fake.url
    )


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_infinities_and_nan_are_values_and_labels_stay(fake: FakePrometheus, separators: tuple[str, str]) -> None:
    sent = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf, "1.5e-7": 1.5e-7, "0.1": 0.1}
    document = vector(*({"metric": {"le": "+Inf", "said": value}, "value": [NOW, value]} for value in sent))
    fake.respond = text(json.dumps(document, separators=separators).encode())
    http = PrometheusHttp(fake.url, 5.0)
    http.begin()
    rows = http.ask("up", NOW)
    http.close()
    assert [row.labels for row in rows] == [{"le": "+Inf", "said": value} for value in sent]
    assert [str(row.value) for row in rows] == [str(value) for value in sent.values()]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"isPartial": False, "stats": {"seriesFetched": "0"}},
        {"infos": ["metric might not be a counter"], "warnings": []},  # Prometheus 3
    ],
)
def test_an_answer_without_series_is_a_reading_without_jobs(fake: FakePrometheus, more: dict[str, object]) -> None:
    fake.respond = answer(vector(**more))
    with reader(fake.url) as one:
        assert one.read(NOW).jobs == {}
        labels = {"namespace": "flowcon", "pod": "a", "warnings": "oh", "slopewise_value": "up"}
        fake.respond = answer(vector({"metric": labels, "value": [NOW, "1"]}, **more))
        assert ("flowcon", "a") in one.read(NOW).jobs, "a label called warnings is no warning"


def test_a_pass_of_marginal_asks_six_queries_also_about_twenty_namespaces(fake: FakePrometheus) -> None:
    namespaces = tuple(f"team-{number}" for number in range(20))
    with PrometheusReader(
        fake.url, {"pod": AnyOf()}, 15.0, [EvaluationSettings()], 60.0, resource_matchers={}, points_seconds=120.0
    ) as one:
        one.read(NOW, Scope(namespaces, ("trainer",)))
        one.use_of_others(NOW, namespaces, set())
    assert len(fake.asked) == 6


def test_all_queries_of_a_reading_are_asked_for_the_same_moment_and_namespace(fake: FakePrometheus) -> None:
    with reader(fake.url, evaluations=2) as one:
        one.read(NOW + 0.25)
    assert {asked["time"] for asked in fake.asked} == {"1700000000.250"}
    assert all('namespace="flowcon"' in asked["query"] for asked in fake.asked)


def test_a_curve_longer_than_prometheus_allows_is_fetched_in_parts(fake: FakePrometheus) -> None:
    fake.respond = answer({"status": "success", "data": {"resultType": "matrix", "result": []}})
    with reader(fake.url) as one:
        assert one.range_curve(NOW, NOW + 12_000, 0.5) == {}
    starts_and_ends = [(float(asked["start"]) - NOW, float(asked["end"]) - NOW) for asked in fake.asked]
    assert starts_and_ends == [(0, 5499.5), (5500, 10_999.5), (11_000, 12_000)]


def test_a_window_holds_at_least_four_scrapes(fake: FakePrometheus) -> None:
    with PrometheusReader(fake.url, {"namespace": "x"}, 5.0, [EvaluationSettings()], window_seconds=10) as one:
        one.read(NOW)
    assert "[20000ms]" in fake.asked[0]["query"]


@pytest.mark.parametrize("url", ["", "localhost:9090", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999"])
def test_what_is_no_url_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(UsageError, match="is not the URL of a Prometheus"):
        reader(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@127.0.0.1:9090",
        "me:hunter2@127.0.0.1:9090",
        "https://prometheus/?token=hunter2",
    ],
)
def test_a_secret_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="write it without, and those as basic_auth") as caught:
        reader(url)
    assert "hunter2" not in str(caught.value)


def test_without_a_forced_matcher_nothing_is_read(fake: FakePrometheus) -> None:
    with pytest.raises(UsageError, match="name at least one label"):
        PrometheusReader(fake.url, {}, 1.0, [EvaluationSettings()], 10)


@pytest.mark.parametrize("respond", [answer({"error": "x"}, 404), text(b"<html>"), answer({"data": {}})])
def test_a_server_without_a_target_api_is_reported_in_one_sentence(fake: FakePrometheus, respond: Respond) -> None:
    fake.respond = respond
    reader = PrometheusReader(fake.url, {"namespace": "a"}, 1.0, [EvaluationSettings()], 4.0)
    with reader, pytest.raises(ObservationError, match=f"^Prometheus at {fake.url} "):
        reader.targets()


def test_after_passes_without_an_answer_raw_points_are_asked_back_to_the_bound(fake: FakePrometheus) -> None:
    evaluations = [EvaluationSettings()]
    with PrometheusReader(fake.url, {"namespace": "a"}, 15.0, evaluations, 60.0, points_seconds=120.0) as one:
        for held in range(5):
            fake.respond = answer(EMPTY) if held == 0 else text(b"storage is on fire", status=500)
            with suppress(ObservationError):
                one.read(NOW + 60 * held)
        fake.asked.clear()
        fake.respond = answer(EMPTY)
        one.read(NOW + 60 * 5)
        first = windows_of(fake)
        fake.asked.clear()
        one.read(NOW + 60 * 6)
    assert max(first) == 120
    assert max(windows_of(fake)) == 75, "since the last reading, and one scrape before it"


def test_the_raw_points_of_a_reading_whose_last_query_fails_are_read_again(fake: FakePrometheus) -> None:
    rows = [
        {"metric": {"namespace": "a", "pod": f"{'long-name-' * 4}{number}"}, "value": [NOW + 60, "99999"]}
        for number in range(8)
    ]

    def crowded(handler: BaseHTTPRequestHandler) -> None:
        function = fake.asked[-1]["query"].partition(" ")[0]
        of_pods = {"count": answer(vector(*rows)), "group": text(b"storage is on fire", status=500)}
        of_pods.get(function, answer(EMPTY))(handler)

    evaluations = [EvaluationSettings()]
    with PrometheusReader(fake.url, {"namespace": "a"}, 15.0, evaluations, 60.0, points_seconds=300.0) as one:
        one.read(NOW)
        fake.respond = crowded
        with pytest.raises(ObservationError, match="storage is on fire"):
            one.read(NOW + 60)
        fake.asked.clear()
        fake.respond = answer(EMPTY)
        one.read(NOW + 120)
    assert max(windows_of(fake)) == 135, "since the last whole reading, and one scrape before it"


def windows_of(fake: FakePrometheus) -> set[float]:
    """The windows of all queries, in seconds."""
    return {int(found) / 1000 for asked in fake.asked for found in re.findall(r"\[(\d+)ms\]", asked["query"])} - {300.0}
