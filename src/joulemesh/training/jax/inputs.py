"""Inputs and reports of the compiled programs, the key that they compile for, and a schedule cut
into chunks, and chunks into segments of a length that the compiler knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from joulemesh.data import Dataset, Partition
from joulemesh.metrics import Metric
from joulemesh.models.core import Model, Params
from joulemesh.training import draws, hosts
from joulemesh.training.arrays import Array
from joulemesh.training.batches import Data, scale_of
from joulemesh.training.exchange import Exchange, ExchangeState, Sent
from joulemesh.training.jax.layout import Layout, Strategy
from joulemesh.training.jax.local_sgd import LocalSettings, Rows
from joulemesh.training.jax.mixing import Mixed, Mixing, Steps, mean, neighbour_lists
from joulemesh.training.jax.platform import ROWS, WHOLE, Spec, sharding
from joulemesh.training.learner import sizes_of
from joulemesh.training.schedule import FIELDS, Members, Options, RoundedExchanges, Schedule

# "No iteration" in reports of the first iteration that diverged.
NEVER = 2**31 - 1


R = TypeVar("R")


class State(NamedTuple):
    """Everything that a run carries from one iteration to the next."""

    params: Params  # stacked [rows, ...]; from a shared start [seeds, ...]
    optimizer: optax.OptState  # stacked [rows, ...]
    exchange: ExchangeState  # of the exchange, stacked [seeds, ...]
    iteration: Array  # int32 scalar: iterations completed


class Inputs(NamedTuple):
    """What does not change during a run."""

    train: Data
    test: Data
    order: Array  # int32, the rows' sample indices, concatenated
    rows: Rows
    weights: Array  # [slots, S], of the mean
    mixing: Mixed  # SparseMixing, or ()
    exchange_key: draws.Key  # of (seed, EXCHANGE): two uint32 [S]


class ChunkSchedule(NamedTuple):
    """The schedule of the C iterations of one chunk."""

    rounds: Array  # int32 [C, slots]; [C, slots, S] where members of the seed axis differ
    active: Array  # bool [C, slots]
    exchanged: Array  # bool [C]
    mixing: Any  # [C or 1, slots, slots], in parts [C or 1, parts, slots, slots]; Steps; or ()
    exact: Array  # bool [C]: where the exchange is an exact mean; () if nowhere
    source: Array = ()  # int32 [C, slots]: whose parameters are begun with; () for one's own
    arrived: Array = ()  # bool [C, ...]: messages of a method's own exchange; () if all arrive


class Segments(NamedTuple):
    """Parts of a chunk that run one after another; a single segment has scalars."""

    iteration: Array  # int32: the chunk's iteration that the segment belongs to
    step: Array  # int32: its first step
    last: Array  # bool: whether it ends the iteration


class ChunkReport(NamedTuple):
    """What iterations report, per seed."""

    bad: Array  # int32 [S]: the iteration (from 1) in which a loss was first not finite, or NEVER
    sent: Sent  # what each exchange reported, [C, S, ...]; zeros for iterations that did not run


@dataclass(frozen=True)
class ProgramKey:
    """Everything that the compiler must know: equal keys share one compilation."""

    model: Model
    optimizer: str
    batch: int
    local_round: str
    precision: str
    exchange: Exchange | Mixing
    kind: Literal["mean", "dense", "sparse", "messages"]
    devices: int
    slots: int
    seeds: int
    chunk: int
    loop: bool
    strategy: Strategy
    deterministic: bool
    mesh: Mesh
    metrics: tuple[Metric, ...]
    wire: str = ""  # the type to which messages are rounded; empty if they are not

    @property
    def compute(self) -> np.dtype[Any]:
        """Dtype in which losses are computed."""
        return jnp.dtype(self.precision)

    @property
    def scoring(self) -> ProgramKey:
        strategy = Strategy(shared=self.strategy.shared)
        key = replace(self, exchange=mean, kind="mean", chunk=0, strategy=strategy, wire="")
        return replace(key, optimizer="sgd", local_round="step", batch=0)

    @property
    def local(self) -> LocalSettings:
        return LocalSettings(
            self.model, self.optimizer, self.batch, self.local_round, self.compute, self.loop
        )

    def sharded(
        self, function: Callable[..., R], in_specs: Spec, out_specs: Spec
    ) -> Callable[..., R]:
        """Map a function, written for the rows of one processor, over the mesh."""
        if self.mesh.size == 1:
            return function
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )

    def by_device(self, params: Params) -> Params:
        """View rows as [slots, S, ...]; parameters that all devices share have one slot."""
        return jax.tree.map(lambda p: p.reshape(-1, self.seeds, *p.shape[1:]), params)


def longest_steps(
    schedule: Schedule, options: Options, sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Steps of the device with most steps in each iteration, [n]."""
    per_round = draws.steps_per_round(sizes, options.batch_size, options.local_round).max(axis=0)
    return np.array([(rounds * per_round).max() for rounds in schedule.rounds], np.int64)


def chunk_schedule(
    schedule: Schedule,
    layout: Layout,
    longest: NDArray[np.int64],
    start: int,
    stop: int,
    *,
    chunk: int,
    stride: int,
    dtype: DTypeLike,
) -> tuple[ChunkSchedule, Segments, NDArray[np.int64]]:
    """The schedule of iterations start..stop-1, padded to the length of a chunk."""

    def padded(values: NDArray[Any]) -> NDArray[Any]:
        return np.pad(values, [(0, chunk - len(values))] + [(0, 0)] * (values.ndim - 1))

    mixing: NDArray[Any] | Steps | tuple[()] = ()
    if schedule.kind == "dense":
        mixing = layout.matrices(schedule.matrices(start, stop)).astype(dtype)
        mixing = mixing if schedule.static else padded(mixing)
    if isinstance(schedule.mixing, RoundedExchanges):
        steps = _steps(schedule.mixing, layout, start, start + 1 if schedule.static else stop)
        mixing = steps if schedule.static else Steps(*map(padded, steps))
    made = ChunkSchedule(
        rounds=padded(_rounds(schedule, layout, start, stop)),
        active=padded(layout.spread(schedule.active[start:stop], False)),
        exchanged=padded(schedule.exchanged[start:stop]),
        mixing=mixing,
        exact=padded(schedule.exact[start:stop]) if schedule.exact.any() else (),
        source=padded(layout.slots_of(schedule.begins_with(start, stop))) if schedule.gifts else (),
        arrived=() if schedule.arrived is None else padded(schedule.arrivals(start, stop)),
    )
    return made, *_segments(longest[start:stop], stride)


def _steps(exchanges: RoundedExchanges, layout: Layout, start: int, stop: int) -> Steps:
    """The steps of rounded exchanges of iterations start..stop-1, each with a leading axis."""
    each = [exchanges.at(t) for t in range(start, stop)]
    begin = np.empty(layout.devices, np.int32)
    begin[layout.order[layout.filled]] = layout.filled
    columns = {name: np.stack([getattr(one, name) for one in each]) for name in FIELDS}
    columns["output"] = layout.spread(columns["output"], 0)
    return Steps(begin=np.broadcast_to(begin, (len(each), len(begin))), **columns)


def _rounds(schedule: Schedule, layout: Layout, start: int, stop: int) -> NDArray[np.int32]:
    """Rounds [C, slots] of iterations start..stop-1; [C, slots, S] where members differ."""
    if isinstance(schedule, Members):
        return layout.spread(schedule.each[start:stop].astype(np.int32), 0, axis=1)
    return layout.spread(schedule.rounds[start:stop].astype(np.int32), 0)


def _segments(longest: NDArray[np.int64], stride: int) -> tuple[Segments, NDArray[np.int64]]:
    """The segments of iterations of so many steps, and which of them ends each iteration."""
    count = np.maximum(1, -(-longest // stride)) if stride else np.ones_like(longest)
    ends = np.cumsum(count) - 1
    iteration = np.repeat(np.arange(len(count)), count)
    nth = np.arange(len(iteration)) - (ends - count + 1)[iteration]
    last = np.zeros(len(iteration), bool)
    last[ends] = True
    return Segments(iteration.astype(np.int32), (nth * stride).astype(np.int32), last), ends


def part(segments: Segments, first: int, stop: int | None = None) -> Segments:
    """Segments first..stop-1, or the single segment ``first``."""
    which = first if stop is None else slice(first, stop)
    return Segments(*(values[which] for values in segments))


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
