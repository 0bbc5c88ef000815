"""A deployed fleet on a web page while it runs: read only, on this machine alone."""
