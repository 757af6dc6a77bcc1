"""The rank by the library that connects the processes: stand-ins for the libraries, none of which is installed here."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from slopewise_exporter.environment import connected_rank, reports_here
from slopewise_exporter.values import Checker


def torch_of(rank: int, *, initialised: bool = True) -> object:
    return SimpleNamespace(is_available=lambda: True, is_initialized=lambda: initialised, get_rank=lambda: rank)


def jax_of(rank: int, *, initialised: bool = True) -> object:
    return SimpleNamespace(process_index=lambda: rank, distributed=SimpleNamespace(is_initialized=lambda: initialised))


def mpi_of(rank: int, *, initialised: bool = True, size: int = 4) -> object:
    world = SimpleNamespace(Get_rank=lambda: rank, Get_size=lambda: size)
    return SimpleNamespace(Is_initialized=lambda: initialised, Is_finalized=lambda: False, COMM_WORLD=world)


def accelerate_of(rank: int, *, initialised: bool = True) -> object:
    class PartialState:
        _shared_state = {"backend": "xla"} if initialised else {}
        process_index = rank

    return SimpleNamespace(PartialState=PartialState)


LIBRARIES = {
    "torch.distributed": torch_of,
    "jax": jax_of,
    "mpi4py.MPI": mpi_of,
    "accelerate.state": accelerate_of,
}


@pytest.fixture(autouse=True)
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_that_connects_the_processes_has_the_rank(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, LIBRARIES[name](3))
    assert connected_rank() == 3
    assert not reports_here({}, Checker())
    monkeypatch.setitem(sys.modules, name, LIBRARIES[name](0))
    assert reports_here({"SLURM_PROCID": "1"}, Checker())


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_is_loaded_and_connects_nothing_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, LIBRARIES[name](3, initialised=False))
    assert connected_rank() is None
    assert reports_here({}, Checker())
    assert not reports_here({"RANK": "2"}, Checker())


def test_one_process_under_mpi_is_no_training_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi_of(0, size=1))
    assert connected_rank() is None


def test_a_library_of_another_version_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi_of(2))
    assert connected_rank() == 2


@pytest.mark.parametrize(
    ("node", "local", "reports"), [("0", "0", True), ("0", "1", False), ("1", "0", False), ("1", "1", False)]
)
def test_of_several_nodes_without_global_ranks_the_first_process_of_the_first_node_reports(
    node: str, local: str, reports: bool
) -> None:
    assert reports_here({"NODE_RANK": node, "LOCAL_RANK": local}, Checker()) is reports


def test_a_global_rank_comes_before_those_of_node_and_process() -> None:
    assert reports_here({"RANK": "0", "NODE_RANK": "0", "LOCAL_RANK": "1"}, Checker())
