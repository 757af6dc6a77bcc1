from io import StringIO

import pytest

from slopewise.errors import UsageError
from testbed.progress import Progress
from testbed.settings import Settings
from testbed.simulated import bring_up


@pytest.mark.parametrize(("nodes", "pods", "flag"), [(0, 1, "--nodes"), (5000, 1, "--nodes"), (1, -1, "--pods")])
def test_numbers_out_of_range_are_refused_with_the_range(settings: Settings, nodes: int, pods: int, flag: str) -> None:
    with pytest.raises(UsageError, match=f"{flag}: .* is out of range; give"):
        bring_up(settings, nodes, pods, Progress(StringIO()))
