"""The simulated world: nodes, running jobs, CPU shares, Observer and Actuator."""
