"""Data that come as one shard per device: LEAF's and FedLab's folders, plain ones, Flower's."""
