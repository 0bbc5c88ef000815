"""What every room uses: refusals, units, registries, files that survive, the machine, citations.
In: values, paths and texts. Out: the same, checked, written whole, or in words.
May not know: what they mean (``scenario``, ``data``, ``planning``, ``study``).
"""
