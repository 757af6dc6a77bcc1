import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slopewise.errors import UsageError
from testbed.images import load, write_archive
from testbed.settings import Settings


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[tarfile.TarFile]:
    root = tmp_path / "root"
    for name in ("bin/tool", "usr/share/doc/tool/copyright", "dev/null"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(name)
    write_archive(tmp_path / "image.tar", root, "example.org/tool:1", ["/bin/tool"])
    with tarfile.open(tmp_path / "image.tar") as opened:
        yield opened


def content(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def test_an_archive_names_its_image_and_what_it_runs(archive: tarfile.TarFile) -> None:
    (manifest,) = json.loads(content(archive, "manifest.json"))
    config = json.loads(content(archive, manifest["Config"]))

    assert manifest["RepoTags"] == ["example.org/tool:1"]
    assert config["config"]["Cmd"] == ["/bin/tool"]


def test_the_layer_is_the_one_that_the_configuration_vouches_for(archive: tarfile.TarFile) -> None:
    config = json.loads(content(archive, "config.json"))

    digest = hashlib.sha256(content(archive, "layer.tar")).hexdigest()

    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]


def test_manuals_and_devices_stay_out_of_the_layer(archive: tarfile.TarFile) -> None:
    with tarfile.open(fileobj=io.BytesIO(content(archive, "layer.tar"))) as layer:
        names = layer.getnames()

    assert "./bin/tool" in names
    assert [name for name in names if "copyright" in name or "null" in name] == []


def test_only_the_finished_archive_is_left(archive: tarfile.TarFile, tmp_path: Path) -> None:
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.tar", "root"]


def test_an_archive_that_is_not_there_is_named(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.tar: no such file; give the archive of an image"):
        load(settings, Path("ctr"), [tmp_path / "missing.tar"])
