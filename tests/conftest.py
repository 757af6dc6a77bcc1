"""What all tests share: a real Prometheus, found or brought once, and no skipping where everything can run."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
import structlog
from support.searching import register_profiles

from slopewise.adapters.local.prometheus_server import PrometheusBinaries, find_prometheus
from slopewise.errors import MissingToolError
from slopewise.own_policies import catalogue

register_profiles()  # before the option --hypothesis-profile is read

FAILED_VARIABLE = "STAGES_FAILED"
"""The file that collects what failed, of which `.ci/stages.sh` prints the end of a run."""

ASKED_FOR = [Path(__file__).with_name(name) for name in ("chart", "cluster", "frameworks", "queriers")]
"""Folders whose tests need more than a checkout, and only run when they are named."""


def pytest_configure(config: pytest.Config) -> None:
    """Receive Ctrl-C, and let the processes that tests start receive it: a shell starts background jobs deaf to it.

    A thread that an earlier test left uses `random` beside a property test, which Hypothesis takes for that test's use.
    """
    config.addinivalue_line("filterwarnings", "ignore:Do not use the .random. module inside strategies")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for cycles among what the tests make, and not among what was imported for them, which stays to the end.

    Each worker collects all tests: without the searches in between it takes 1.5 s of 10 less.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What needs a cluster, frameworks or a Querier runs with `make test-cluster` and its like, not otherwise."""
    if collection_path not in ASKED_FOR:
        return None
    asked = [Path(str(argument).split("::")[0]).resolve() for argument in config.args]
    return None if any(collection_path in (path, *path.parents) for path in asked) else True


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Generator[None]:
    """A command that a test runs in this process sets up logging, and what it filters out no later test could see."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def no_policies_of_others() -> Generator[None]:
    """A policy's file that one test has named is none of another's, though they share a process."""
    folders = os.environ.get(catalogue.FOLDERS_VARIABLE)
    yield
    catalogue.forget()
    os.environ.pop(catalogue.FOLDERS_VARIABLE, None)
    if folders is not None:
        os.environ[catalogue.FOLDERS_VARIABLE] = folders


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the order of the tests, which --quiet leaves out; list what failed for the end of the whole run.

    The order repeats a failure that depends on it.
    """
    seed = config.getoption("randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"order of the tests: --randomly-seed={seed}")
    failed = {each.nodeid for kind in ("failed", "error") for each in terminalreporter.getreports(kind)}
    if (file := os.environ.get(FAILED_VARIABLE)) and failed:
        with Path(file).open("a", encoding="utf-8") as collected:
            collected.writelines(f".venv/bin/pytest '{name}'\n" for name in sorted(failed))


@pytest.fixture(scope="session")
def prometheus_binaries() -> PrometheusBinaries:
    """A Prometheus that runs; tests that need one are skipped, with the reason, where none can be had."""
    try:
        return find_prometheus()
    except MissingToolError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def promtool(prometheus_binaries: PrometheusBinaries) -> Path:
    """The promtool that came with it."""
    if prometheus_binaries.promtool is None:
        pytest.skip("Prometheus is here without promtool; install the package that has it")
    return prometheus_binaries.promtool


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CI says that this machine can run everything, a skip is a failure; no processor has all kernels.

    Nor has a checkout the frameworks, unless `make test-frameworks` has brought them.
    """
    report = yield
    missing = any(f"this {what} has no " in report.longreprtext for what in ("processor", "network", "checkout"))
    skipped = report.skipped and not hasattr(report, "wasxfail") and not missing
    if skipped and os.environ.get("SLOPEWISE_NO_SKIPS"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped where nothing may be: {report.longrepr}"
    return report
