"""Types of the compiled programs: their inputs and reports, and the key that they compile for."""

from __future__ import annotations

__all__ = [
    "NEVER",
    "ChunkReport",
    "ChunkSchedule",
    "Inputs",
    "ProgramKey",
    "Segments",
    "State",
]

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from joulemesh.metrics import Metric
from joulemesh.models.core import Model, Params
from joulemesh.training import draws
from joulemesh.training.arrays import Array
from joulemesh.training.batches import Data
from joulemesh.training.exchange import Exchange, ExchangeState, Sent
from joulemesh.training.jax.local_sgd import LocalSettings, Rows
from joulemesh.training.jax.mixing import Mixed, Mixing, mean
from joulemesh.training.jax.platform import Spec
from joulemesh.training.jax.strategy import Strategy

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
        """The same key without what evaluation need not know."""
        strategy = Strategy(shared=self.strategy.shared)
        key = replace(self, exchange=mean, kind="mean", chunk=0, strategy=strategy, wire="")
        return replace(key, optimizer="sgd", local_round="step", batch=0)

    @property
    def local(self) -> LocalSettings:
        """The part that local training needs."""
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
