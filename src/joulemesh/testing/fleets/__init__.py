"""A whole fleet in one process, under a virtual clock, with every fault drawn from a seed.

The nodes are those of the field; the network, the disks, the batteries and the learners around them
are not. ``python -m joulemesh.testing.fleets SEED`` replays a seed and prints what happens.
"""
