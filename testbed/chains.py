"""The iptables chains of kube-proxy and the kubelet, and how they go: all whose name begins with KUBE-.

Used by `network.py` when a test-bed ends. `kube-proxy --cleanup` does most of this, but leaves the chain KUBE-FIREWALL
and its jumps in place (seen with 1.36.3). A test-bed does not start where such chains are already, so all are its own.
"""

from __future__ import annotations

import re
import subprocess

from slopewise.errors import SlopewiseError

_CHAIN = re.compile(r"^:(KUBE-\S+) ")
_JUMP = re.compile(r"^-A (?!KUBE-)(\S+ .*-[jg] KUBE-\S+.*)$")
_FAMILIES = ("iptables", "ip6tables")


def present() -> bool:
    """True when there is any chain of Kubernetes'."""
    return any(removal(_saved(family)) for family in _FAMILIES)


def remove() -> None:
    """Remove them all, in one transaction for each table; SlopewiseError with the words of iptables."""
    for family in _FAMILIES:
        if commands := removal(_saved(family)):
            done = subprocess.run(
                [f"{family}-restore", "--noflush"], input=commands, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise SlopewiseError(f"{family}-restore: {done.stderr.strip()}")


def removal(saved: str) -> str:
    """What `iptables-restore --noflush` needs to remove the chains, from what `iptables-save` wrote; empty for none.

    A rule `-A INPUT -j KUBE-FIREWALL` becomes `-D INPUT -j KUBE-FIREWALL`. Naming a chain (`:KUBE-FIREWALL`) empties
    it, so that none holds another one when they are deleted (`-X`).
    """
    commands: list[str] = []
    for table in saved.split("*")[1:]:
        lines = table.splitlines()
        chains = [match[1] for line in lines if (match := _CHAIN.match(line))]
        jumps = [f"-D {match[1]}" for line in lines if (match := _JUMP.match(line))]
        if chains:
            emptied = [f":{chain} - [0:0]" for chain in chains]
            commands += [f"*{lines[0]}", *emptied, *jumps, *(f"-X {chain}" for chain in chains), "COMMIT", ""]
    return "\n".join(commands)


def _saved(family: str) -> str:
    """The rules as they are; empty where this family is not to be had, e.g. in a kernel without IPv6."""
    try:
        done = subprocess.run([f"{family}-save"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""
