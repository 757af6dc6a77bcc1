import sys
from io import StringIO

import pytest

from slopewise.errors import UsageError
from testbed.progress import Progress
from testbed.session import run_with_cluster
from testbed.settings import Settings

FOREIGN = {"KUBECONFIG": "/somebody/else", "PATH": "/usr/bin:/bin"}


def test_a_given_cluster_is_used_and_no_other_is_started(settings: Settings) -> None:
    code = "import os, sys; sys.exit(3 if os.environ['KUBECONFIG'] == '/somebody/else' else 4)"

    assert run_with_cluster(settings, [sys.executable, "-c", code], Progress(StringIO()), FOREIGN) == 3
    assert not settings.run_folder.exists()


def test_a_command_that_cannot_be_run_is_named(settings: Settings) -> None:
    with pytest.raises(UsageError, match="/nix: cannot be run"):
        run_with_cluster(settings, ["/nix"], Progress(StringIO()), FOREIGN)
