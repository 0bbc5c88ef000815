"""What goes into the compiled programs and comes out of them."""

from __future__ import annotations

__all__ = ["NEVER", "Blocks", "Fixed", "Record", "Slice", "Spec", "State"]

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh

from joulemesh.models.core import Model, Params
from joulemesh.training import draws
from joulemesh.training.exchange import Exchange, mean
from joulemesh.training.local import Rows
from joulemesh.training.objective import Array, Data
from joulemesh.training.way import Way

# "No iteration" in reports of the first bad one.
NEVER = 2**31 - 1


class State(NamedTuple):
    """Everything that a run carries from one iteration to the next."""

    params: Params  # stacked [rows, ...]; from a shared start [seeds, ...]
    optimizer: Any  # stacked [rows, ...]
    exchange: Any  # of the exchange, stacked [seeds, ...]
    iteration: Array  # int32 scalar: iterations completed


class Fixed(NamedTuple):
    """What does not change during a run."""

    train: Data
    test: Data
    order: Array  # int32, the rows' sample indices, concatenated
    rows: Rows
    weights: Array  # [places, S], of the mean
    learning_rate: Array
    mixing: Any  # SparseMixing, or ()
    exchange_key: draws.Key  # of (seed, EXCHANGE): two uint32 [S]


class Slice(NamedTuple):
    """The schedule of one chunk."""

    rounds: Array  # int32 [C, places]
    active: Array  # bool [C, places]
    exchanged: Array  # bool [C]
    mixing: Any  # [C, places, places], [1, places, places], or ()


class Blocks(NamedTuple):
    """Parts of a chunk that are run one after another; of a single one, scalars."""

    iteration: Array  # int32: which of the chunk's iterations it belongs to
    step: Array  # int32: its first step
    last: Array  # bool: whether it ends the iteration


class Record(NamedTuple):
    """What iterations report, per seed."""

    bad: Array  # int32 [S]: the iteration (from 1) in which a loss was first not finite, or NEVER
    sent: Any  # of the exchange: [C, S, ...], zero where these iterations are not


@dataclass(frozen=True)
class Spec:
    """What the compiler must know; equal specs share one compilation."""

    model: Model
    optimizer: str
    batch: int
    local_round: str
    precision: str
    exchange: Exchange
    kind: Literal["mean", "dense", "sparse"]
    devices: int
    places: int
    seeds: int
    chunk: int
    loop: bool
    way: Way
    deterministic: bool
    mesh: Mesh

    @property
    def compute(self) -> Any:
        """Dtype in which losses are computed."""
        return jnp.dtype(self.precision)

    @property
    def scoring(self) -> Spec:
        """The same without what evaluation need not know."""
        spec = replace(self, exchange=mean, kind="mean", chunk=0, way=Way(shared=self.way.shared))
        return replace(spec, optimizer="sgd", local_round="step", batch=0)
