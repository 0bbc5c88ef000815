"""What carries messages between neighbours."""
