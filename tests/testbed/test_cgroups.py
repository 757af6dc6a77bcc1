from pathlib import Path

from testbed.cgroups import hierarchies

V1 = """\
31 22 0:27 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:28 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
40 22 0:28 / /tmp/build/sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
"""
V2 = "31 22 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"


def test_every_controller_of_cgroup_v1_is_a_hierarchy_but_not_its_second_mount() -> None:
    assert hierarchies(V1) == [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/memory")]


def test_cgroup_v2_is_one_hierarchy() -> None:
    assert hierarchies(V2) == [Path("/sys/fs/cgroup")]
