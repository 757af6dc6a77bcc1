"""Reports what a cluster's own history in Prometheus says: what jobs held without need, and what policies would bring.

It reads Prometheus, and changes nothing.
"""
