"""From a decision to the kernel: how long until a container really has the CPU that it was given.

Gate: 95 of 100 decisions reach the cgroup within 1 s. Two pods on one real node are resized in turn, back and forth
between two limits. One by whole passes with the ports of `slopewise run`, timed from the moment in which the policy
has decided to the change of the container's CFS quota: guards, storing the memory, the patch, the kubelet. The other,
as the baseline of the same run, by nothing but the patch. Needs the test-bed, whose cgroups can be read from here.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from inside import UNBOUNDED, MeasuredRunner, running_world
from setting import SCRAPE_SECONDS, bring_kinds, connect, own_namespace, pod, policy, start_pods, wait_for

from controller.adapters.clock import SystemClock
from controller.adapters.kube.api import KubeApi
from controller.adapters.kube.contracts import STRATEGIC_MERGE_PATCH
from controller.adapters.kube.records import FIELD_MANAGER
from controller.cluster.world import World
from controller.model import ClusterSnapshot, Decisions, MemoryState, Resize
from controller.settings import cpu_quantity
from controller.telemetry import configure_logging
from testbed.cgroups import CPU_ROOT
from testbed.images import BASE_IMAGE
from testbed.settings import read_settings

REPEATS = 30
BOUND_SECONDS = 1.0
LIMITS = (300, 500)
"""Millicores, in turn. Both above the request, so that nothing but the limit changes."""

NODE = "node-a"
DECIDED, PATCHED = "decided", "patched"
"""The names of the two pods."""

_CFS_PERIOD_MICROSECONDS = 100_000
_LOOK_SECONDS = 0.0005
_GIVE_UP_SECONDS = 20.0
