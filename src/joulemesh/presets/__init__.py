"""Named scenarios, as TOML files."""
