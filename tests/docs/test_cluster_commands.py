"""What the pages say to type at a cluster: the files are there, the kinds exist, the patches are valid."""

import json
import re
import shlex
import shutil
import subprocess
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.readme import cluster_commands
from support.rendering import ROOT

from slopewise.adapters.kube.cache.records import MOVES_ALLOWED, MOVES_LABEL
from slopewise.config.training_policy import Mode, TrainingPolicy, load_training_policy
from slopewise.config.validation import validate
from slopewise.crds.schema.definitions import definitions

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
MOVE_JOBS = [ROOT / name for name in ("docs/moving-jobs.md", "docs/testbed.md")]
POLICY = ROOT / "examples/cluster/policy.yaml"
VERBS = {"annotate", "apply", "create", "delete", "describe", "exec", "get", "kustomize", "label", "logs", "patch"}
VERBS |= {"port-forward", "rollout", "scale", "wait"}
OURS = {
    name
    for definition in definitions().values()
    for names in [definition["spec"]["names"]]
    for name in (names["plural"], names["singular"], *names["shortNames"])
}


def kubectl_commands(page: Path) -> list[list[str]]:
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    commands = [shlex.split(each, comments=True) for line in lines for each in line.split(" | ")]
    return [words for words in commands if words and Path(words[0]).name == "kubectl"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_kubectl_is_to_apply_is_there(page: Path) -> None:
    for words in kubectl_commands(page):
        for option, target in pairwise(words):
            if option == "-k":
                assert (ROOT / target / "kustomization.yaml").exists(), words
            if option == "-f" and target != "-":
                assert list(yaml.safe_load_all((ROOT / target).read_text(encoding="utf-8"))), words


@pytest.mark.parametrize("page", MOVE_JOBS, ids=lambda page: page.name)
def test_each_page_that_moves_jobs_opts_a_namespace_in(page: Path) -> None:
    labels = [words[-1] for words in kubectl_commands(page) if words[1:3] == ["label", "namespace"]]

    assert f"{MOVES_LABEL}={MOVES_ALLOWED}" in labels
    assert set(labels) <= {f"{MOVES_LABEL}={MOVES_ALLOWED}", f"{MOVES_LABEL}-"}


@cache
def kubectl_help(*words: str) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH; it lists its options")
    return subprocess.run(["kubectl", *words], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_kubectl_has_each_command_and_its_options(page: Path) -> None:
    for words in kubectl_commands(page):
        own = words[1 : words.index("--")] if "--" in words else words[1:]
        verb = next(place for place, word in enumerate(own) if word in VERBS)
        named = takewhile(lambda word: not word.startswith("-"), own[verb:])
        used = {word.split("=")[0] for word in own if re.match(r"--?[a-z]", word)}
        listed = kubectl_help(*named, "--help") + kubectl_help("options")
        assert {option for option in used if not re.search(rf"^ +.*{option}[=,]", listed, re.MULTILINE)} == set(), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_patch_of_a_policy_makes_a_valid_one(page: Path) -> None:
    before = load_yaml(POLICY)
    for words in kubectl_commands(page):
        if words[1:3] == ["patch", "trainingpolicy"]:
            assert words[3] in {before["metadata"]["name"], "NAME"}
            spec = json.loads(words[words.index("-p") + 1])["spec"]
            assert validate(TrainingPolicy, {**before, "spec": {**before["spec"], **spec}}, where=page.name)


def test_the_quick_start_of_sres_types_what_the_tests_run_on_a_cluster() -> None:
    """All but the step back: tests/cluster/end_to_end runs the README's commands, and restores by deleting."""
    run = [*kubectl_commands(ROOT / "README.md"), *kubectl_commands(ROOT / "docs/deployment.md")]
    typed = kubectl_commands(ROOT / "docs/quick-start-sre.md")
    assert len(typed) > 5
    assert [words for words in typed if words not in run and "Recommend" not in words[-1]] == []


def load_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_readmes_kinds_and_objects_exist() -> None:
    policy = load_training_policy(POLICY).metadata.name
    named = [
        words[words.index(verb) + 1 :] for words in cluster_commands() for verb in ("patch", "get") if verb in words
    ]
    for words in named:
        kinds = {word.split("/")[0] for word in words if not word.startswith("-")}
        assert kinds & OURS, words
    assert [words[1] for words in named if words[0] == "trainingpolicy"] == [policy, policy]
    patches = [json.loads(words[words.index("-p") + 1]) for words in cluster_commands() if "patch" in words]
    assert [patch["spec"]["mode"] for patch in patches] == ["Canary", "Auto"]


def test_the_readme_names_every_mode() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert " | ".join(Mode.__args__) in text  # type: ignore[attr-defined]
