"""All devices of a fleet on one machine: as processes, and with links at the plan's rates."""
