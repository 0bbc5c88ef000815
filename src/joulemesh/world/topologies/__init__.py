"""The built-in topologies, one file each."""
