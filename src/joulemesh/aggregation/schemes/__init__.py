"""The built-in aggregation schemes, one per file; each registers itself in `SCHEMES`."""
