"""What a request to the API server gives, and that nothing a server does holds it for ever or sends it twice."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from support.api_server import ApiServer, Drip, Drop, Fault, Half, Hang, Reply, refusal
from support.waiting import eventually

from slopewise.adapters.kube.client.client import ApiError, KubeApi
from slopewise.adapters.kube.client.protocol import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from slopewise.adapters.kube.client.transport import Transport, load_configuration
from slopewise.errors import UsageError

PODS = "/api/v1/namespaces/team-a/pods"
RESIZE = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"cpu": "2"}}}]}}


@pytest.fixture
def server(server: ApiServer) -> ApiServer:
    containers = [{"name": "sidecar"}, {"name": "trainer", "image": "i"}]
    server.put(PODS, {"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"containers": containers}})
    return server


def failure(call: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()  # type: ignore[operator]
    return caught.value


@pytest.mark.parametrize("minor", ["36", "36+"])
def test_the_version_of_the_server_is_asked_for_until_it_can_be_read(server: ApiServer, minor: str) -> None:
    server.minor_version = minor
    server.fault(Reply(200, {"gitVersion": "devel"}), path="^/version$")
    api = server.client()

    assert "/version says" in failure(api.server_version).message
    assert [api.server_version(), api.server_version()] == [(1, 36), (1, 36)]
    assert len(server.asked("GET", "^/version$")) == 2


def test_what_the_server_refuses_is_reported_in_its_own_words(server: ApiServer) -> None:
    api = server.client()
    old = api.get(f"{PODS}/p")
    server.put(PODS, {**old, "spec": {}})
    conflict = failure(lambda: api.replace(f"{PODS}/p", old))
    assert conflict.is_conflict
    assert not conflict.already_exists
    assert failure(lambda: api.create(PODS, {"metadata": {"name": "p"}})).already_exists
    cause = {"reason": "NodeCapacity", "message": "not\nenough", "field": "spec"}
    server.fault(refusal(403, "Forbidden", "pod cannot be resized", (cause,)))
    forbidden = failure(lambda: api.patch(f"{PODS}/p/resize", RESIZE, STRATEGIC_MERGE_PATCH))
    assert forbidden.is_forbidden
    assert forbidden.causes == (("NodeCapacity", "not enough", "spec"),)
    assert str(forbidden) == (
        "The API server answered 403 Forbidden to patch /api/v1/namespaces/team-a/pods/p/resize: pod cannot be resized"
    )
    assert not forbidden.maybe_done


def test_an_answer_of_something_else_than_an_api_server_is_one_bounded_line(server: ApiServer) -> None:
    server.fault(Reply(502, b"<html>\n" + b"x" * 10_000))
    error = failure(lambda: server.client().get(PODS))
    assert error.status == 502
    assert "\n" not in error.message
    assert len(error.message) < 500
    server.fault(Reply(200, b"<html>welcome</html>"))
    assert "not a JSON object" in failure(lambda: server.client().get(PODS)).message


def test_how_long_to_wait_is_taken_from_the_header_or_the_status(server: ApiServer) -> None:
    server.fault(Reply(429, {"reason": "TooManyRequests", "details": {"retryAfterSeconds": 7}}))
    server.fault(Reply(503, {}, {"Retry-After": "3"}))
    found = [failure(lambda: server.client().get(PODS)) for _ in range(2)]
    assert [(each.is_throttled, each.retry_after_seconds) for each in found] == [(True, 7), (False, 3)]


@pytest.mark.parametrize("method", ["get", "patch"])
@pytest.mark.parametrize("fault", [Drop(), Reply(503, {}, {"Retry-After": "0"}), Reply(500, {})], ids=str)
def test_nothing_is_sent_twice(server: ApiServer, method: str, fault: Drop | Reply) -> None:
    api = server.client()
    api.get(PODS)  # so that a pooled connection is used, which is what urllib3 would retry on
    server.fault(fault)
    calls = {"get": lambda: api.get(f"{PODS}/p"), "patch": lambda: api.patch(f"{PODS}/p", {}, MERGE_PATCH)}
    error = failure(calls[method])
    assert len(server.requests) == 2
    assert error.maybe_done == (method != "get")


def test_of_a_write_without_an_answer_it_is_reported_whether_it_may_have_been_done(server: ApiServer) -> None:
    server.fault(Drop(after=True))
    api = server.client()
    error = failure(lambda: api.patch(f"{PODS}/p/resize", RESIZE, STRATEGIC_MERGE_PATCH))
    assert (error.status, error.maybe_done, error.message) == (0, True, "it closed the connection")
    assert api.get(f"{PODS}/p")["spec"]["containers"][1]["resources"] == {"limits": {"cpu": "2"}}
    server.stop()
    error = failure(lambda: api.patch(f"{PODS}/p", {}, MERGE_PATCH))
    assert (error.status, error.maybe_done, error.message) == (0, False, "connection refused")
    server.restart()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Hang(), "nothing came in time"),
        (Drip(), "nothing came in time"),
        (Drip(headers=True), "nothing came in time"),
        (Half(), "mid-answer"),
        (Reply(307, {}, {"Location": f"{PODS}/p"}), "307"),
    ],
    ids=str,
)
def test_a_server_that_misbehaves_does_not_hold_a_request(server: ApiServer, fault: Fault, expected: str) -> None:
    server.fault(fault)
    done: list[ApiError] = []
    api = server.client(timeout_seconds=0.3)
    thread = threading.Thread(target=lambda: done.append(failure(lambda: api.get(PODS))), daemon=True)
    thread.start()
    assert eventually(lambda: done)
    assert expected in str(done[0])
    assert len(server.requests) == 1


def test_each_request_is_counted_with_its_verb_resource_and_code(server: ApiServer) -> None:
    seen: list[tuple[str, str, int]] = []
    api = server.client()
    api = KubeApi(api._transport, on_request=lambda verb, resource, code, _: seen.append((verb, resource, code)))
    api.get(PODS)
    api.get(f"{PODS}/p")
    failure(lambda: api.get(f"{PODS}/other"))
    api.patch(f"{PODS}/p/resize", RESIZE, STRATEGIC_MERGE_PATCH)
    api.watch(PODS, {}, read_timeout_seconds=1).close()
    server.fault(Drop())
    failure(lambda: api.get("/api/v1/namespaces/team-a"))
    assert seen == [
        ("list", "pods", 200),
        ("get", "pods", 200),
        ("get", "pods", 404),
        ("patch", "pods/resize", 200),
        ("watch", "pods", 200),
        ("get", "namespaces", 0),
    ]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b'{"type": "ADDED", "obj\n', "the watch broke"),
        (b'{"type": "ADDED"}\n', "without type and object"),
        (b'{"type": "ADDED"', "middle of an event"),
        (None, "nothing came in time"),
    ],
)
def test_an_unreadable_event_and_silence_break_the_watch(server: ApiServer, said: bytes | None, expected: str) -> None:
    timeout = 0.2 if said is None else 2
    version = {"resourceVersion": str(server.objects.version)}
    events = server.client().watch(PODS, version, read_timeout_seconds=timeout)
    assert eventually(lambda: server.streams)
    if said is not None:
        server.say(said)
    if expected == "middle of an event":
        time.sleep(0.2)  # the watch is not to end before it has said that
        server.end_watches()
    assert expected in failure(lambda: next(events)).message


def kubeconfig(folder: Path, text: str) -> str:
    path = folder / "config"
    path.write_text(text)
    return str(path)


def test_a_kubeconfig_says_where_and_with_which_token(server: ApiServer, tmp_path: Path) -> None:
    api = KubeApi.connect(kubeconfig=kubeconfig(tmp_path, server.kubeconfig))
    api.get(PODS)
    assert server.requests[0].headers["Authorization"] == "Bearer test-token"
    assert server.requests[0].headers["User-Agent"].startswith("slopewise/")
    assert api.host == server.url
    with pytest.raises(UsageError, match="with name nowhere in"):
        KubeApi.connect(kubeconfig=kubeconfig(tmp_path, server.kubeconfig), context="nowhere")


def test_a_token_file_is_read_again_after_a_401(server: ApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    content = json.loads(server.kubeconfig)
    content["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
    path = kubeconfig(tmp_path, json.dumps(content))
    api = KubeApi(Transport(lambda: load_configuration(path, None), reload_seconds=0.0))
    (tmp_path / "token").write_text("new")
    server.fault(refusal(401, "Unauthorized", "Unauthorized"))
    assert failure(lambda: api.get(PODS)).status == 401
    api.get(PODS)
    assert [each.headers["Authorization"] for each in server.requests] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize(("fresh_seconds", "sent"), [(1000.0, ["first", "first"]), (0.0, ["first", "second"])])
def test_a_token_is_asked_for_again_after_a_while_and_not_for_each_request(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, fresh_seconds: float, sent: list[str]
) -> None:
    tokens = iter(["first", "second"])

    def refresh(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {next(tokens)}"

    monkeypatch.setattr("slopewise.adapters.kube.client.transport.FRESH_SECONDS", fresh_seconds)
    configuration = Configuration(host=server.url, proxy="", api_key={"BearerToken": "Bearer old"})
    configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]  # its stub knows no hook
    api = KubeApi(configuration)
    api.get(PODS)
    api.get(PODS)
    assert [each.headers["Authorization"] for each in server.requests] == [f"Bearer {token}" for token in sent]


def test_a_token_that_cannot_be_had_is_reported_and_nothing_is_sent(server: ApiServer) -> None:
    def refresh(configuration: Configuration) -> None:
        raise ConfigException("Token file does not exist.")

    configuration = Configuration(host=server.url, proxy="", api_key={"BearerToken": "Bearer old"})
    configuration.refresh_api_key_hook = refresh  # type: ignore[assignment]  # its stub knows no hook
    error = failure(lambda: KubeApi(configuration).patch(f"{PODS}/p", {}, MERGE_PATCH))
    assert "no credentials could be had (Token file does not exist.)" in str(error)
    assert not error.maybe_done
    assert server.requests == []


WITHOUT_SERVER = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k"}}],
    "clusters": [{"name": "k", "cluster": {"name": "x"}}],
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is empty"),
        ("a: b", "cannot be used"),
        (json.dumps(WITHOUT_SERVER), "has no server"),
    ],
)
def test_a_broken_kubeconfig_is_a_mistake_in_one_sentence(tmp_path: Path, text: str, expected: str) -> None:
    path = kubeconfig(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        KubeApi.connect(kubeconfig=path)
    assert str(caught.value).startswith(path)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no such kubeconfig"):
        KubeApi.connect(kubeconfig=str(tmp_path / "nothing"))


def test_which_proxy_is_asked(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert KubeApi.connect(kubeconfig=kubeconfig(tmp_path, server.kubeconfig)).get(PODS)["items"]
    content = json.loads(server.kubeconfig)
    content["clusters"][0]["cluster"] = {"server": "http://far.invalid", "proxy-url": server.url}
    api = KubeApi.connect(kubeconfig=kubeconfig(tmp_path, json.dumps(content)))
    server.fault(Reply(200, {"through": "the proxy"}))
    assert api.get(PODS) == {"through": "the proxy"}
