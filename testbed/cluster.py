"""Starts a cluster (control plane, two nodes, Prometheus) and removes everything that it leaves on the machine.

`up` records each change of the machine before it makes it, so that `down` can revert it, also after a crash.
"""

from __future__ import annotations

import fcntl
import shutil
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from slopewise.errors import UsageError
from testbed import audit, cgroups, chains, control_plane, images, leftovers, machine, monitoring, network, nodes
from testbed.api import Api, apply, wait_until
from testbed.builds import all_builds, bring
from testbed.control_plane import Programs
from testbed.identities import Identities
from testbed.processes import Processes, State, boot_id
from testbed.progress import Progress
from testbed.settings import NODES, Node, Settings

_API_SECONDS = 60.0
_NODE_SECONDS = 90.0
_SOCKET_SECONDS = 30.0
_PROMETHEUS_SECONDS = 30.0


def up(settings: Settings, progress: Progress) -> bool:
    """Bring the cluster up; False when it was up already. What a crash left is cleaned away first.

    UsageError without root, or when the one that is up is of another version or lacks a component; MissingToolError
    when something must be installed; SlopewiseError with the end of a log when a component does not come up: it is
    left as it is, to be looked at.
    """
    machine.require_root()
    with one_at_a_time(settings):
        if found := Processes.load(settings.run_folder):
            if _survives(found):
                _refuse_another(found, settings)
                return False
            progress.say("A test-bed is left over from a crash; cleaning up first.")
            _take_down(settings, found)
        _start_all(settings, progress)
    return True


def down(settings: Settings) -> bool:
    """End everything and leave nothing behind; False when nothing was there."""
    machine.require_root()
    with one_at_a_time(settings):
        found = Processes.load(settings.run_folder)
        if found is None:
            return False
        _take_down(settings, found)
    return True


def is_up(settings: Settings) -> bool:
    """True when a test-bed was brought up and has not ended, be it that tests have killed parts of it."""
    found = Processes.load(settings.run_folder)
    return found is not None and _survives(found)


def running(settings: Settings) -> Processes:
    """The test-bed that is up; UsageError when none is."""
    if (found := Processes.load(settings.run_folder)) is None:
        raise UsageError("No test-bed is up; start one with `make cluster`.")
    return found


@contextmanager
def one_at_a_time(settings: Settings) -> Iterator[None]:
    """Wait for other commands that start or end components. The kernel frees the lock of one that is killed."""
    settings.cache_folder.mkdir(parents=True, exist_ok=True)
    with (settings.cache_folder / ".cluster-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def bring_all(settings: Settings, progress: Progress) -> tuple[Programs, Sequence[Path]]:
    """The programs of the cluster and the archives of its images, made now where the cache has none."""
    machine.require_root()
    machine.require_packages(progress)
    folders = {
        build.name.partition("-")[0]: bring(build, settings.cache_folder, progress)
        for build in all_builds(settings.kubernetes_version)
    }
    programs = Programs(**folders)
    return programs, images.bring_images(settings.cache_folder, programs.pause / "pause", progress)


def wait_for_socket(settings: Settings, node: Node, processes: Processes) -> None:
    """Wait until the node's containerd can be talked to; SlopewiseError with the end of its log."""
    name = nodes.containerd_name(node)
    listens = partial(_listens, settings.containerd_socket(node))
    wait_until(listens, name, _SOCKET_SECONDS, partial(processes.tail, name))


def _listens(path: Path) -> bool:
    """The file alone says nothing: a containerd that was killed leaves it behind."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def _survives(found: Processes) -> bool:
    """A killed `up` leaves a test-bed that was never complete, and a crash one in which nothing lives."""
    return found.state.complete and any(one.life() != "dead" for one in found.state.components.values())


def _refuse_another(found: Processes, settings: Settings) -> None:
    if found.state.kubernetes_version != settings.kubernetes_version:
        raise UsageError(
            f"A test-bed of Kubernetes {found.state.kubernetes_version} is up, not of {settings.kubernetes_version}; "
            "end it first with `make cluster-down`."
        )
    if dead := [component.name for component in found.state.components.values() if component.life() == "dead"]:
        raise UsageError(
            f"The test-bed is up without {', '.join(dead)}; start it again with `python -m testbed fault start "
            f"{dead[0]}`, or end everything with `make cluster-down`."
        )


def _start_all(settings: Settings, progress: Progress) -> None:
    programs, archives = bring_all(settings, progress)
    network.refuse_collisions()
    processes = _prepare(settings, programs)
    with progress.step(f"starting Kubernetes {settings.kubernetes_version}"):
        _start_stores(settings, programs, processes)
        with ThreadPoolExecutor() as pool:
            imports = [pool.submit(_import, settings, programs, node, archives, processes) for node in NODES]
            _start_control_plane(settings, programs, processes)
            for done in imports:
                done.result()
    with progress.step("starting nodes and Prometheus"):
        for node in NODES:
            processes.start(nodes.kubelet(settings, node, programs))
        processes.start(monitoring.prometheus(settings, programs))
        _wait_for_nodes(settings, processes)
    processes.state.complete = True
    processes.save()


def _prepare(settings: Settings, programs: Programs) -> Processes:
    """Write down how the machine is now, then make folders, keys, addresses and cgroups."""
    if settings.run_folder.exists() and any(settings.run_folder.iterdir()):
        raise UsageError(f"{settings.run_folder}: exists and is not a test-bed's; remove it or choose another folder.")
    settings.run_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = State(
        kubernetes_version=settings.kubernetes_version,
        boot_id=boot_id(),
        ctr=str(programs.containerd / "ctr"),
        sysctls=machine.save_sysctls(),
        absent_paths=machine.absent_paths(),
    )
    processes = Processes(settings.run_folder, state)
    processes.save()
    settings.kubectl.parent.mkdir()
    settings.kubectl.symlink_to(programs.kubernetes / "kubectl")
    Identities(settings).make()
    audit.write_policy(settings)
    monitoring.write_configuration(settings)
    for node in NODES:
        nodes.write_files(settings, node, programs)
    network.add_addresses()
    cgroups.make()
    return processes


def _start_stores(settings: Settings, programs: Programs, processes: Processes) -> None:
    processes.start(control_plane.etcd(settings, programs))
    for node in NODES:
        processes.start(nodes.containerd(settings, node, programs))


def _import(settings: Settings, programs: Programs, node: Node, archives: Sequence[Path], processes: Processes) -> None:
    wait_for_socket(settings, node, processes)
    images.load(settings, programs.containerd / "ctr", archives, [node])


def _start_control_plane(settings: Settings, programs: Programs, processes: Processes) -> None:
    processes.start(control_plane.api_server(settings, programs))
    api = Api(settings.kubeconfig)
    name = control_plane.API_SERVER
    wait_until(api.is_ready, name, _API_SECONDS, partial(processes.tail, name))
    for program in (control_plane.controller_manager, control_plane.scheduler, control_plane.proxy):
        processes.start(program(settings, programs))
    apply(settings.kubectl, settings.kubeconfig, monitoring.objects())


def _wait_for_nodes(settings: Settings, processes: Processes) -> None:
    """Ready nodes, and the account that every pod of the default namespace needs."""
    api = Api(settings.kubeconfig)
    for node in NODES:
        name = nodes.kubelet_name(node)
        wait_until(partial(_is_ready, api, node), name, _NODE_SECONDS, partial(processes.tail, name))
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    wait_until(lambda: api.get(account) is not None, control_plane.CONTROLLER_MANAGER, _NODE_SECONDS)
    wait_until(
        lambda: monitoring.is_ready(settings), monitoring.PROMETHEUS, _PROMETHEUS_SECONDS,
        partial(processes.tail, monitoring.PROMETHEUS),
    )  # fmt: skip


def _is_ready(api: Api, node: Node) -> bool:
    return node.name in api.ready_nodes()


def _take_down(settings: Settings, processes: Processes) -> None:
    """Nothing in a test cluster is worth a polite end: all is killed, kubelets before what they look after."""
    state = processes.state
    processes.end(state.components, at_once=True)
    leftovers.kill_strays(settings.cache_folder, settings.run_folder)
    leftovers.kill_containers()
    leftovers.unmount(settings.run_folder)
    network.remove_pod_interfaces()
    chains.remove()
    network.remove_addresses()
    cgroups.remove()
    machine.restore_sysctls(state.sysctls)
    machine.remove_paths(state.absent_paths)
    shutil.rmtree(settings.run_folder)
