"""In: the name of a data set or the path of an .npz, a folder to look in, a seed.
Out: sizes for the planner (nothing loaded), arrays checked for training, who holds which samples.
May not know: JAX, models, radio, plans.
"""

from __future__ import annotations

__all__ = [
    "DATASETS",
    "DataSpec",
    "Dataset",
    "Partition",
    "from_arrays",
    "load",
    "partition",
    "spec",
]

from joulemesh.data.catalog import DATASETS, DataSpec, spec
from joulemesh.data.dataset import Dataset
from joulemesh.data.load import load
from joulemesh.data.npz import from_arrays
from joulemesh.data.partition import Partition, partition
