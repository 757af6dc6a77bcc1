"""One pod on a small API server, and the actuator that resizes it, for tests of resizes and restores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support.api_server import ApiServer
from support.managed_pods import PODS, a_raw_pod, parsed
from support.worlds import FakeClock

from slopewise.adapters.kube.cache.records import ManagedPod
from slopewise.adapters.kube.client.fencing import FencedApi
from slopewise.adapters.kube.resize.actuator import KubeActuator
from slopewise.config.training_policy import ResourceSettings
from slopewise.model import NO_FREEZES, CpuAllocation, Decision, Freezes, Outcome, Resize

P = f"{PODS}/p"
ORIGINAL = CpuAllocation(2000, 500)


@dataclass
class FakeJobIndex:
    """Who the jobs of the last snapshot are: what `look` last saw, so that it can be behind."""

    server: ApiServer
    seen: ManagedPod | None = None

    def find(self, job_uid: str) -> ManagedPod | None:
        return self.seen

    def look(self) -> None:
        self.seen = parsed(self.server.get(P))


@dataclass
class FakeTurns:
    """Says no as long as there is a reason."""

    reason: str | None = None
    taken: list[tuple[str, str]] = field(default_factory=list)

    def take(self, node: str, namespace: str) -> str | None:
        self.taken.append((node, namespace))
        return self.reason


class World:
    """One pod on an API server, and an actuator that knows it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.index = FakeJobIndex(server)
        self.turns = FakeTurns()
        self.clock = FakeClock()
        self.leads_for_checks = 1000
        self.original: CpuAllocation | str = ORIGINAL
        self.freezes: Callable[[], Freezes] = lambda: NO_FREEZES
        self.written: list[dict[str, Any]] = []
        self.waited: float | None = None
        """For how long its kubelet has not followed."""
        """What is there although the watch does not show it."""
        self.use(ResourceSettings())
        self.put(a_raw_pod())

    def use(self, settings: ResourceSettings, timeout_seconds: float = 30.0) -> None:
        self.actuator = KubeActuator(
            FencedApi(self.server.client(timeout_seconds), self._leads),
            self.index,
            settings,
            self.turns.take,
            self.clock,
            lambda job_uid: self.original,
            self.written.append,
            waited_seconds=lambda pod_uid: self.waited,
            freezes=lambda: self.freezes(),
        )

    def _leads(self) -> bool:
        self.leads_for_checks -= 1
        return self.leads_for_checks >= 0

    def put(self, raw: dict[str, Any]) -> None:
        self.server.put(PODS, raw)
        self.index.look()

    def resize(self, to: int = 1500) -> Outcome[Decision]:
        return self.actuator.carry_out(Resize("j", "node-a", "limits", 2000, to, "why"))

    def patches(self) -> list[Any]:
        """The resources that were asked for, in order."""
        return [each.body["spec"]["containers"][0]["resources"] for each in self.server.asked("PATCH")]

    def cpu(self) -> dict[str, dict[str, str]]:
        """What the API server has stored."""
        found: dict[str, dict[str, str]] = self.server.get(P)["spec"]["containers"][0]["resources"]
        return found
