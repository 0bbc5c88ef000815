"""In: a scenario, the user's own model and data, and a plan.
Out: what the engine trains: data set, model, partitions, schedule.
May not know: contenders, results, folders, views (``methods``, ``studies``, ``runs``, ``views``).
"""
