"""One device as a process: what drives its state machine, and what that is driven with."""
