import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.fake_grafana import TOKEN, FakeGrafana
from typer.testing import CliRunner

from slopewise.adapters.grafana import PushResult, dashboards_folder, export_dashboards, push_dashboards
from slopewise.commands.app import app
from slopewise.errors import DataSourceError, SlopewiseError, UsageError

NAMES = ["controller", "job", "nodes", "overview"]


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    with FakeGrafana() as server:
        yield server


@pytest.fixture
def dashboards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One dashboard in the place of those that are shipped."""
    (tmp_path / "one.json").write_text(json.dumps({"uid": "one", "title": "One", "id": 7, "panels": []}))
    monkeypatch.setattr("slopewise.adapters.grafana.push.dashboards_folder", lambda: tmp_path)
    return tmp_path


def test_a_first_push_makes_the_folder_and_creates_the_dashboard_in_it(grafana: FakeGrafana, dashboards: Path) -> None:
    results = push_dashboards(grafana.url, TOKEN, "Training")

    assert results == [PushResult(uid="one", title="One", url=f"{grafana.url}/d/one", created=True)]
    assert grafana.folders == [{"uid": "folder-0", "title": "Training"}]
    assert grafana.dashboards["one"]["folderUid"] == "folder-0"


def test_a_second_push_replaces_the_dashboard_in_the_same_folder(grafana: FakeGrafana, dashboards: Path) -> None:
    push_dashboards(grafana.url, TOKEN, "Training")

    results = push_dashboards(grafana.url, TOKEN, "Training")

    assert [result.created for result in results] == [False]
    assert [str(result) for result in results] == [f"replaced One: {grafana.url}/d/one"]
    assert len(grafana.folders) == 1
    assert grafana.dashboards["one"]["overwrite"] is True


def test_the_number_that_another_grafana_gave_a_dashboard_is_not_sent(grafana: FakeGrafana, dashboards: Path) -> None:
    push_dashboards(grafana.url, TOKEN)

    assert grafana.dashboards["one"]["dashboard"] == {"uid": "one", "title": "One", "id": None, "panels": []}


@pytest.mark.parametrize("path", ["/monitoring/grafana", "/monitoring/grafana/"])
def test_a_grafana_under_a_path_is_reached_there(grafana: FakeGrafana, dashboards: Path, path: str) -> None:
    results = push_dashboards(grafana.url + path, TOKEN)

    assert set(grafana.paths) == {"/monitoring/grafana/api/folders", "/monitoring/grafana/api/dashboards/db"}
    assert results[0].url == f"{grafana.url}/monitoring/grafana/d/one"


def test_the_root_folder_is_used_without_being_made(grafana: FakeGrafana, dashboards: Path) -> None:
    push_dashboards(grafana.url, TOKEN, "General")

    assert grafana.folders == []
    assert grafana.dashboards["one"]["folderUid"] == ""


def test_the_shipped_dashboards_are_pushed(grafana: FakeGrafana) -> None:
    results = push_dashboards(grafana.url, f"{TOKEN}\n")

    assert [result.uid for result in results] == [f"slopewise-{name}" for name in NAMES]
    assert grafana.folders[0]["title"] == "Slopewise"


def test_a_wrong_token_is_reported_with_the_role_it_needs(grafana: FakeGrafana, dashboards: Path) -> None:
    with pytest.raises(SlopewiseError, match=r"answered 401 .*; give the token of a service account.*Editor") as raised:
        push_dashboards(grafana.url, "glsa_wrong")

    assert raised.value.exit_code == 1
    assert "glsa_wrong" not in str(raised.value)
    assert grafana.dashboards == {}


NO_API = "is not Grafana's API"


@pytest.mark.parametrize(
    ("status", "body", "headers", "error", "reported"),
    [
        (
            403,
            '{"message": "no rights here"}',
            {},
            SlopewiseError,
            r"answered 403 \(no rights here\); give the service acc",
        ),
        (500, "oops", {}, SlopewiseError, r"answered 500; see Grafana's log"),
        (301, "", {"Location": "/login"}, DataSourceError, "redirects elsewhere"),
        (200, "<html>a login page</html>", {}, DataSourceError, NO_API),
        # "message" in text ends the library in a TypeError
        (502, "<html>an error message of a proxy</html>", {}, DataSourceError, NO_API),
        (200, '[{"name": "a folder without a title"}]', {}, DataSourceError, NO_API),
        (200, "null", {}, DataSourceError, NO_API),
    ],
)
def test_an_answer_that_is_none_is_reported_in_one_sentence(
    grafana: FakeGrafana,
    dashboards: Path,
    status: int,
    body: str,
    headers: dict[str, str],
    error: type[SlopewiseError],
    reported: str,
) -> None:
    grafana.answer_with(status, body, **headers)

    with pytest.raises(error, match=reported):
        push_dashboards(grafana.url, TOKEN)

    assert len(grafana.paths) == 1


def test_a_refused_connection_is_a_data_source_error(dashboards: Path) -> None:
    with socket.socket() as unreachable:
        unreachable.bind(("127.0.0.1", 0))  # bound and not listening: nothing else can answer on this port
        url = f"http://127.0.0.1:{unreachable.getsockname()[1]}"

        with pytest.raises(DataSourceError, match="cannot be reached") as raised:
            push_dashboards(url, TOKEN)

    assert raised.value.exit_code == 4


def test_a_grafana_that_hangs_is_given_up(grafana: FakeGrafana, dashboards: Path) -> None:
    grafana.silent.set()

    with pytest.raises(DataSourceError, match=r"did not answer within 0\.2 s"):
        push_dashboards(grafana.url, TOKEN, timeout_seconds=0.2)


def test_plain_http_behind_an_https_address_is_a_data_source_error(grafana: FakeGrafana, dashboards: Path) -> None:
    with pytest.raises(DataSourceError, match=r"over TLS; write http:// if it knows none"):
        push_dashboards(grafana.url.replace("http:", "https:"), TOKEN)


def test_a_missing_file_of_certificates_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "absent.pem")
    with pytest.raises(UsageError, match=r"absent\.pem"):
        push_dashboards("https://127.0.0.1:1", TOKEN)


@pytest.mark.parametrize("url", ["grafana.example.org", "http://", "http://a:port", "http://a/?orgId=1"])
def test_an_address_that_cannot_be_used_is_reported_with_an_example(url: str) -> None:
    with pytest.raises(UsageError, match=r"write it like https://grafana\.example\.org"):
        push_dashboards(url, TOKEN)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="has a user in it") as raised:
        push_dashboards("http://admin:secret@grafana.example.org", TOKEN)

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("token", ["", " \n", "two words", "tökén"])
def test_a_token_that_cannot_be_one_is_refused_before_anything_is_sent(grafana: FakeGrafana, token: str) -> None:
    with pytest.raises(UsageError, match="token"):
        push_dashboards(grafana.url, token)

    assert grafana.paths == []


def test_an_export_writes_every_dashboard_and_a_provider_that_names_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "grafana" / "slopewise"
    written = export_dashboards(folder)

    assert [path.name for path in written] == [*(f"slopewise-{name}.json" for name in NAMES), "slopewise-provider.yaml"]
    for name in NAMES:
        shipped = (dashboards_folder() / f"{name}.json").read_text(encoding="utf-8")
        assert (folder / f"slopewise-{name}.json").read_text(encoding="utf-8") == shipped
    [provider] = yaml.safe_load(written[-1].read_text(encoding="utf-8"))["providers"]
    assert (provider["type"], provider["options"]["path"]) == ("file", str(folder))


def test_an_export_replaces_its_own_files_and_touches_no_others(tmp_path: Path) -> None:
    (tmp_path / "slopewise-job.json").write_text("an older one")
    (tmp_path / "mine.json").write_text("mine")
    export_dashboards(tmp_path)

    assert json.loads((tmp_path / "slopewise-job.json").read_text())["uid"] == "slopewise-job"
    assert (tmp_path / "mine.json").read_text() == "mine"


def test_an_export_into_what_is_no_folder_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"file: cannot be written .*; name another folder"):
        export_dashboards(tmp_path / "file")


def test_the_commands_print_what_they_wrote(tmp_path: Path, grafana: FakeGrafana) -> None:
    exported = CliRunner().invoke(app, ["dashboards", "export", str(tmp_path), "-o", "json"])
    pushed = CliRunner().invoke(app, ["dashboards", "push", "--url", grafana.url, "--token", TOKEN])

    assert json.loads(exported.stdout)[0] == str(tmp_path / "slopewise-controller.json")
    assert pushed.stdout.splitlines()[0].startswith("created Slopewise / Controller health: ")
    assert sorted(grafana.dashboards) == [f"slopewise-{name}" for name in NAMES]
