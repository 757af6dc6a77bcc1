"""Runs a command with a cluster: the one of KUBECONFIG, the test-bed that is up, or one that is started for it.

A cluster that existed before is left as it is; a test-bed that was started here is ended, also after Ctrl-C and
SIGTERM.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from slopewise.errors import UsageError
from slopewise.signals import Interrupted, orderly_stop
from testbed import cluster
from testbed.progress import Progress
from testbed.settings import Settings

_END_SECONDS = 60.0


def run_with_cluster(
    settings: Settings, command: Sequence[str], progress: Progress, environment: Mapping[str, str] = os.environ
) -> int:
    """The command's exit code. UsageError when there is no such command, and whatever `cluster.up` raises."""
    if environment.get("KUBECONFIG"):
        return _run(command, environment, progress)
    ours = not cluster.is_up(settings)
    with orderly_stop(progress.say):
        try:
            cluster.up(settings, progress)
            return _run(command, {**environment, "KUBECONFIG": str(settings.kubeconfig)}, progress)
        except Interrupted as stop:
            return stop.exit_code
        finally:
            if ours:
                cluster.down(settings)


def _run(command: Sequence[str], environment: Mapping[str, str], progress: Progress) -> int:
    try:
        process = subprocess.Popen(command, env=dict(environment))
    except OSError as error:
        raise UsageError(f"{command[0]}: cannot be run ({error.strerror}); give a command after --.") from error
    try:
        return process.wait()
    except BaseException:
        progress.say("Waiting for the command to end.")
        process.terminate()
        process.wait(_END_SECONDS)
        raise
