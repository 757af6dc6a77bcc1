"""`slopewise up`: a session without jobs of its own, to which `slopewise submit` gives some.

Its end leaves the jobs running without limits, as a crash does; the next `up` takes them over.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace

from slopewise.adapters.local.crashed_runs import earlier_run
from slopewise.adapters.local.queue_file import QueueFile
from slopewise.adapters.local.service_socket import ServiceSocket, service_folder
from slopewise.local.passes import FollowedPasses, PolicyFile
from slopewise.local.plan import SessionPlan, own_scrape_seconds
from slopewise.local.run import (
    MAX_REPORTS,
    NAMESPACE,
    LocalRunOptions,
    announce_session,
    configure_logs,
    document,
    watch,
)
from slopewise.local.service import Service
from slopewise.local.session import Session
from slopewise.local.workshop import Announce, Workshop
from slopewise.loop import calm_garbage_collector

IDENTITY = "slopewise up"
"""Of the jobs, in the journal."""


def serve(options: LocalRunOptions, announce: Announce) -> None:
    """Take and run jobs until a signal comes."""
    # Before it is read: what changes from then on is a change.
    followed = None if options.policy_file is None else PolicyFile(options.policy_file, announce)
    asked = document(options.policy_file, options.policy)
    configure_logs(as_json=options.json_logs, on_screen=False)
    calm_garbage_collector()
    with ExitStack() as stack:
        folder = service_folder()
        socket = stack.enter_context(ServiceSocket(folder, IDENTITY))
        workshop = Workshop(actuator=options.actuator, announce=announce, jobs_identity=IDENTITY, leaves_jobs=True)
        stack.enter_context(workshop)
        earlier = earlier_run(workshop.state_dir, IDENTITY)
        policy = workshop.controlled(asked)
        passes = FollowedPasses(lambda: session.spec)
        plan = SessionPlan(
            policy,
            [],
            NAMESPACE,
            ours=False,
            health_port=options.port,
            max_reports=MAX_REPORTS,
            scrape_interval_seconds=own_scrape_seconds(policy),
            earlier=earlier,
            max_running=options.max_running,
            serves=True,
        )
        session = Session(workshop, plan, [passes])
        if earlier.started_at_seconds is None:
            session.plan = replace(plan, earlier=replace(earlier, started_at_seconds=session.clock.now()))
        stack.enter_context(session)
        service = Service(session, passes, IDENTITY)
        service.socket = socket
        service.policy_file = followed
        service.take_over(QueueFile(folder / "queue.json"))
        announce_session(session, announce)
        announce(f"At most {options.max_running} jobs run at once; `slopewise submit -- COMMAND` adds one.")
        watch(session, service, None)


def unit(arguments: list[str]) -> str:
    """A user unit of systemd that runs `slopewise up` with these arguments."""
    words = [sys.executable, "-m", "slopewise", "up", *arguments]
    path = os.environ.get("PATH", "")
    return f"""# mkdir -p ~/.config/systemd/user; slopewise up --systemd > ~/.config/systemd/user/slopewise.service
# systemctl --user daemon-reload; systemctl --user enable --now slopewise; loginctl enable-linger
[Unit]
Description=Slopewise: CPU for the training jobs of this user

[Service]
ExecStart={shlex.join(words)}
Environment={shlex.quote(f"PATH={path}")}
Delegate=yes
KillMode=process
SuccessExitStatus=143
Restart=on-failure

[Install]
WantedBy=default.target
"""
