"""Observer, Actuator and Memory of one machine, and the processes, cgroups and Prometheus behind them."""
