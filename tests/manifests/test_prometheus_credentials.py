"""A Secret with an http_config reaches the controller whole, and what the page says to write into it is understood."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from support.rendering import ROOT, mounted, render_mine

from slopewise.adapters.http.config import load_http_config

COMPONENT = "slopewise/manifests/components/prometheus-credentials"
PAGE = (ROOT / "docs/prometheus.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Credentials")[2].partition("\n## ")[0]


@pytest.mark.parametrize("overlay", ["minimal", "namespaced"])
def test_the_secret_is_mounted_where_the_controller_looks_for_its_http_config(overlay: str, tmp_path: Path) -> None:
    container, mount, volume = mounted(render_mine(tmp_path, overlay, components=[COMPONENT]), "prometheus")

    assert f"--prometheus-config={mount['mountPath']}/http_config.yaml" in container["args"]
    assert (mount["readOnly"], "subPath" in mount) == (True, False)
    assert volume["secret"] == {"secretName": "slopewise-prometheus"}


def test_a_generated_secret_rolls_the_deployment(tmp_path: Path) -> None:
    secret = {"name": "slopewise-prometheus", "namespace": "slopewise-system", "literals": ["http_config.yaml={}"]}
    documents = render_mine(tmp_path, "minimal", components=[COMPONENT], secretGenerator=[secret])
    _, _, volume = mounted(documents, "prometheus")

    assert re.fullmatch(r"slopewise-prometheus-[a-z0-9]{10}", volume["secret"]["secretName"])


def test_what_the_page_says_to_write_is_an_http_config(tmp_path: Path) -> None:
    file = tmp_path / "http_config.yaml"
    blocks = re.findall(r"^```yaml\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)
    whole = [code for code in blocks if "kind:" not in code]
    keys = r"(?:authorization|tls_config|http_headers|proxy_url|proxy_from_environment)"
    inline = re.findall(rf"`({keys}: [^`]*)`", SECTION)

    assert (len(whole), len(inline)) == (1, 7)
    for content in (*whole, *inline):
        file.write_text(content)
        assert load_http_config(file), content
        assert yaml.safe_load(content)
