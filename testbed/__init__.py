"""A real Kubernetes cluster on one Linux machine, without Docker, for the tests of the controller.

`python -m testbed up` builds Kubernetes, etcd, containerd and runc from their Go modules (once, into a cache),
starts a control plane, two nodes of different size and a Prometheus, and prints a KUBECONFIG line. `down` leaves
nothing behind. docs/testbed.md is the manual; `cluster.py` is where to start reading.
"""
