"""What the pages say to type at a cluster: the files are there, the kinds exist, the patches are valid."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from support.readme import cluster_commands
from support.rendering import ROOT

from slopewise.adapters.kube.cache.records import MOVES_ALLOWED, MOVES_LABEL
from slopewise.config.training_policy import Mode, TrainingPolicy, load_training_policy
from slopewise.config.validation import validate
from slopewise.crds.schema.definitions import definitions

PAGES = [ROOT / name for name in ("README.md", "docs/deployment.md", "docs/testbed.md")]
POLICY = ROOT / "examples/cluster/policy.yaml"
OURS = {
    name
    for definition in definitions().values()
    for names in [definition["spec"]["names"]]
    for name in (names["plural"], names["singular"], *names["shortNames"])
}


def kubectl_commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in "".join(blocks).splitlines()]
    return [words for words in commands if words and Path(words[0]).name == "kubectl"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_kubectl_is_to_apply_is_there(page: Path) -> None:
    for words in kubectl_commands(page):
        for option, target in pairwise(words):
            if option == "-k":
                assert (ROOT / target / "kustomization.yaml").exists(), words
            if option == "-f":
                assert list(yaml.safe_load_all((ROOT / target).read_text(encoding="utf-8"))), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_page_that_moves_jobs_opts_a_namespace_in(page: Path) -> None:
    labels = [words[-1] for words in kubectl_commands(page) if words[1:3] == ["label", "namespace"]]

    assert f"{MOVES_LABEL}={MOVES_ALLOWED}" in labels
    assert set(labels) <= {f"{MOVES_LABEL}={MOVES_ALLOWED}", f"{MOVES_LABEL}-"}


def test_the_readmes_kinds_and_objects_exist() -> None:
    policy = load_training_policy(POLICY).metadata.name
    named = [
        words[words.index(verb) + 1 :] for words in cluster_commands() for verb in ("patch", "get") if verb in words
    ]
    for words in named:
        kinds = {word.split("/")[0] for word in words if not word.startswith("-")}
        assert kinds & OURS, words
    assert [words[1] for words in named if words[0] == "trainingpolicy"] == [policy, policy]


def test_the_readmes_patches_make_valid_policies() -> None:
    before = yaml.safe_load(POLICY.read_text(encoding="utf-8"))
    patches = [json.loads(words[words.index("-p") + 1]) for words in cluster_commands() if "patch" in words]
    modes = [
        validate(TrainingPolicy, {**before, "spec": {**before["spec"], **patch["spec"]}}, where="README.md").spec.mode
        for patch in patches
    ]
    assert modes == ["Canary", "Auto"]


def test_the_readme_names_every_mode() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert " | ".join(Mode.__args__) in text  # type: ignore[attr-defined]
