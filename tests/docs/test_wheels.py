"""What the wheels say of themselves: licence, addresses, classifiers; and that the licence is inside."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from trove_classifiers import classifiers

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=[".", "exporters"])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / request.param, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_bytes(wheel.read(name))


def test_the_licence_is_named_and_its_text_is_in_the_wheel(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    (name,) = [name for name in wheel.namelist() if name.endswith("/LICENSE")]
    assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()


def test_a_reader_of_the_package_index_finds_home_and_documentation(metadata: Message) -> None:
    urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Changelog"} <= set(urls)
    assert {url.split("/")[2] for url in urls.values()} == {"slopewise.dev"}


def test_the_classifiers_are_those_of_the_index_and_name_every_python_that_is_supported(metadata: Message) -> None:
    said = metadata.get_all("Classifier", [])
    assert set(said) <= classifiers
    least = int(metadata["Requires-Python"].removeprefix(">=3."))
    assert {each.rpartition(".")[2] for each in said if each.startswith("Programming Language :: Python :: 3.")} == {
        str(minor) for minor in range(least, 15)
    }
    assert {each.split(" :: ")[0] for each in said} >= {"Development Status", "Intended Audience", "Topic", "Typing"}
    assert metadata.get("Keywords")
