"""The pure core: what may happen to a run, in which order, and the log of what did. No await, no clock, no I/O."""
