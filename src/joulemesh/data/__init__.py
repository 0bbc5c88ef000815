"""In: the name of a data set or the path of the user's own file, a folder to look in, a seed.
Out: sizes for the planner (nothing loaded), arrays checked for training, who holds which samples.
May not know: JAX, what learns from them (``models``), radio, plans (``world``, ``planning``).
"""

from __future__ import annotations

__all__ = [
    "DATASETS",
    "DataSpec",
    "Dataset",
    "Holders",
    "Partition",
    "PartitionKind",
    "Reading",
    "from_arrays",
    "label_distance",
    "load",
    "load_for",
    "partition",
    "partition_for",
    "regroup",
    "spec",
    "spec_for",
]

from joulemesh.data.arrays import from_arrays
from joulemesh.data.dataset import Dataset, Holders
from joulemesh.data.load import label_distance, load, load_for, partition_for, spec_for
from joulemesh.data.partition import Partition, PartitionKind, partition, regroup
from joulemesh.data.reading import DATASETS, DataSpec, Reading, spec
