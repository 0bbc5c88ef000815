"""What the operator of a fleet asks of it, and what devices answer."""
