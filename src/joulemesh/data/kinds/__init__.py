"""The built-in ways to deal samples out to devices."""
