"""The cluster's addresses on this machine, and what its network leaves behind: routes and interfaces.

The addresses are on the loopback device (not every sandbox has a dummy device), so only this machine and its pods
reach them.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import subprocess

from slopewise.errors import SlopewiseError, UsageError
from testbed import chains
from testbed.settings import ETCD_CLIENT_PORT, ETCD_PEER_PORT, HOST_ADDRESSES, POD_RANGE, SERVICE_RANGE

_LOOPBACK_PORTS = {
    ETCD_CLIENT_PORT: "etcd",
    ETCD_PEER_PORT: "etcd",
    10249: "kube-proxy",
    10257: "kube-controller-manager",
    10259: "kube-scheduler",
}


def refuse_collisions() -> None:
    """UsageError when something of this machine is in the way: a port, a network, another Kubernetes."""
    for port, component in _LOOPBACK_PORTS.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise UsageError(
                    f"127.0.0.1:{port} is in use ({error.strerror}), and {component} needs it; end what listens there."
                ) from error
    for route in (*_routes_into(POD_RANGE), *_routes_into(SERVICE_RANGE)):
        raise UsageError(f"This machine has a route to {route['dst']}, which the test-bed would hide; remove it.")
    if chains.present():
        raise UsageError(
            "iptables has KUBE- chains: this machine is a Kubernetes node already, or was; "
            "point KUBECONFIG at that cluster, or remove the chains with `kube-proxy --cleanup`."
        )


def add_addresses() -> None:
    """Put our addresses on the loopback device. Adding twice does no harm."""
    for address in HOST_ADDRESSES:
        _ip("address", "replace", f"{address}/32", "dev", "lo")


def remove_addresses() -> None:
    """Take them away again. Removing twice does no harm."""
    there = {
        info["local"] for device in json.loads(_ip("-json", "address", "show", "lo")) for info in device["addr_info"]
    }
    for address in HOST_ADDRESSES:
        if address in there:
            _ip("address", "delete", f"{address}/32", "dev", "lo")


def remove_pod_interfaces() -> None:
    """Delete the interfaces that lead to pods. Most go by themselves with the pod's namespace, but a little later."""
    for device in {route["dev"] for route in _routes_into(POD_RANGE)}:
        subprocess.run(["ip", "link", "delete", device], capture_output=True, check=False)


def _routes_into(range_text: str) -> list[dict[str, str]]:
    """The machine's routes to addresses of this range, but not those to everywhere."""
    wanted = ipaddress.IPv4Network(range_text)
    routes: list[dict[str, str]] = json.loads(_ip("-json", "route", "show") or "[]")
    return [
        route
        for route in routes
        if route["dst"] != "default" and wanted.overlaps(ipaddress.IPv4Network(route["dst"], strict=False))
    ]


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise SlopewiseError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
