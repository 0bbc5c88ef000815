"""Named scenarios. In: nothing. Out: TOML files.
May not know: what they mean (``scenario``).
"""
