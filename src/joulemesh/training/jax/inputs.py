"""Check a run's data, partitions and schedule, and gather the arrays that the programs read."""

from __future__ import annotations

__all__ = ["make_inputs", "place_inputs"]

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.data import Dataset, Partition
from joulemesh.training import draws, hosts
from joulemesh.training.batches import Data, scale_of
from joulemesh.training.jax.layout import Layout
from joulemesh.training.jax.local_sgd import Rows
from joulemesh.training.jax.mixing import neighbour_lists
from joulemesh.training.jax.platform import ROWS, WHOLE, sharding
from joulemesh.training.jax.types import Inputs
from joulemesh.training.learner import sizes_of
from joulemesh.training.options import Options
from joulemesh.training.schedule import Members, Schedule


def _keys(seeds: Sequence[int], purpose: int) -> draws.Key:
    """The seeds' keys for a purpose, two uint32 [S]."""
    keys = [draws.seed_key(seed, purpose) for seed in seeds]
    return np.concatenate([key[0] for key in keys]), np.concatenate([key[1] for key in keys])


def _rates(schedule: Schedule, options: Options, seeds: int) -> NDArray[np.float64]:
    """Learning rate of every seed, [S]."""
    if isinstance(schedule, Members):
        return schedule.rates
    return np.full(seeds, options.learning_rate)


def make_inputs(
    dataset: Dataset,
    partitions: Sequence[Partition],
    schedule: Schedule,
    options: Options,
    seeds: Sequence[int],
    layout: Layout,
    dtype: DTypeLike,
) -> Inputs:
    """Gather what does not change during a run, as NumPy arrays."""
    sizes = sizes_of(partitions)
    before = np.cumsum([0, *(len(partition.order) for partition in partitions)])[:-1, None]
    starts = before + np.stack([partition.offsets[:-1] for partition in partitions])
    first, second = _keys(seeds, draws.BATCH)
    scale, shift = scale_of(dataset, dtype)
    weights = schedule.mean_weights(sizes, by_samples=options.weights == "samples")
    return Inputs(
        train=Data(dataset.x_train, dataset.y_train, scale, shift),
        test=Data(dataset.x_test, dataset.y_test, scale, shift),
        order=np.concatenate(
            [partition.order.astype(np.int32, copy=False) for partition in partitions]
        ),
        rows=Rows(
            start=layout.rows(starts.astype(np.int32), 0),
            size=layout.rows(sizes.astype(np.uint32), 1),
            device=np.repeat(layout.order.astype(np.uint32), len(seeds)),
            key=(np.tile(first, layout.slots), np.tile(second, layout.slots)),
            rate=np.tile(_rates(schedule, options, len(seeds)).astype(dtype), layout.slots),
        ),
        weights=layout.spread(weights, 0).T.astype(dtype),
        mixing=neighbour_lists(layout.sparse(schedule.mixing), schedule.mixing_rounds, dtype)
        if isinstance(schedule.mixing, sparse.csr_array)
        else (),
        exchange_key=_keys(seeds, draws.EXCHANGE),
    )


def place_inputs(inputs: Inputs, mesh: Mesh) -> Inputs:
    """Put inputs on the processors of a mesh: rows are split, everything else is replicated."""
    specs: Inputs = jax.tree.map(lambda _: sharding(mesh, WHOLE), inputs)
    specs = specs._replace(rows=jax.tree.map(lambda _: sharding(mesh, ROWS), inputs.rows))
    placed: Inputs = hosts.put(inputs, specs)
    return placed
