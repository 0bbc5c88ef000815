"""What goes into the compiled programs and comes out of them."""

from __future__ import annotations

__all__ = ["NEVER", "Fixed", "Record", "Slice", "Spec", "State"]

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jax.sharding import Mesh

from joulemesh.models.core import Model, Params
from joulemesh.training import draws
from joulemesh.training.exchange import Exchange
from joulemesh.training.local import Rows
from joulemesh.training.objective import Array, Data

# "No iteration" in reports of the first bad one.
NEVER = 2**31 - 1


class State(NamedTuple):
    """Everything that a run carries from one iteration to the next."""

    params: Params  # stacked [rows, ...]
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
    iteration: Array  # int32 [blocks]: which of the chunk's iterations a block belongs to
    step: Array  # int32 [blocks]: its first step
    last: Array  # bool [blocks]: whether it ends the iteration


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
    stride: int  # steps in a block; 0 for all of an iteration
    deterministic: bool
    mesh: Mesh

    @property
    def compute(self) -> Any:
        """Dtype in which losses are computed."""
        return jnp.dtype(self.precision)
