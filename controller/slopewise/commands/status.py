"""`slopewise status`: who leads, the policies, the freezes, the jobs, and what somebody should look at."""

from __future__ import annotations

from contextlib import closing

from slopewise.commands.console import out, print_json
from slopewise.commands.options import Kubeconfig, KubeContext, LeaseNamespace, OneNamespace, Output, OutputFormat


def status(
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    namespace: OneNamespace = None,
    lease_namespace: LeaseNamespace = None,
    output: Output = OutputFormat.table,
) -> None:
    """Print who leads, the policies and jobs of a cluster, and what somebody should look at.

    Examples: `slopewise status`; `slopewise status --namespace team-a -o json`.
    """
    from slopewise.adapters.kube.connection import Connection, connect, lease_namespaces_of
    from slopewise.operate import status as overview
    from slopewise.operate.freeze import read_freezes

    connection = Connection(kubeconfig, context, namespace)
    with closing(connect(connection)) as api:
        leader = overview.read_leader(api, lease_namespaces_of(connection, lease_namespace))
        policies = overview.read_policies(api, namespace)
        freezes = read_freezes(api)
        if output is OutputFormat.json:
            print_json(overview.as_json(leader, policies, freezes, overview.read_jobs(api, namespace)))
            return
        out.print(overview.leader_line(leader), markup=False, highlight=False, soft_wrap=True)
        if policies.rows:
            out.print(overview.policies_table(policies.rows, out.width))
        else:
            out.print(overview.no_policies_line(policies), markup=False)
        for line in overview.freeze_lines(freezes):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        jobs = overview.read_jobs(api, namespace)
    out.print(overview.jobs_line(jobs), markup=False, highlight=False, soft_wrap=True)
    troubles = [*overview.troubles_of_policies(policies.rows), *jobs.troubles]
    if troubles:
        out.print(overview.troubles_table(troubles))
