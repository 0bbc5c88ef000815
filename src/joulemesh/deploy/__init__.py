"""In: a plan, the devices' addresses and keys.
Out: the plan carried out by real machines that talk to their neighbours, with a journal of each.
May not know: contenders, results, views (``methods``, ``study``, ``views``).
"""
