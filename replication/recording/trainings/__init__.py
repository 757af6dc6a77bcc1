"""One file a training: its `Learner` does one optimiser step at a time. They run where the frameworks are installed."""
