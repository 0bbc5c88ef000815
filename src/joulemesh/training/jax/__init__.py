"""In: a model, a data set, partitions (one per seed), a Schedule and the Machine to train on.
Out: the Engine, which trains all devices of all seeds in compiled JAX programs; checkpoints.
May not know: scenarios, plans, joules, seconds, radio. Nothing is imported here: JAX loads late.
"""
