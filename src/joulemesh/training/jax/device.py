"""One device's trainer: its rounds of one iteration, as the engine trains them.

It holds the samples of one device and nothing of the others, and draws the batches that the engine
draws for that device: a peer in the field and a row of the simulator compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Partition
from joulemesh.models.core import REMEMBERED, Model, Params
from joulemesh.training import draws
from joulemesh.training.batches import Data, scale_of
from joulemesh.training.jax.local_sgd import (
    Carry,
    LocalSettings,
    LocalWork,
    Rows,
    initial_params,
    make_optimizer,
    train_rows,
)
from joulemesh.training.jax.platform import compiler_options, precision_scope
from joulemesh.training.learner import DivergedError
from joulemesh.training.schedule import Options
from joulemesh.training.tensors import Arrays


@lru_cache(maxsize=REMEMBERED)
def _program(settings: LocalSettings, deterministic: bool) -> Callable[..., Carry]:
    """The compiled local training; trainers of one process share it."""
    images = settings.model.batch_axis == "map"
    return jax.jit(
        partial(train_rows, settings, stride=0, block=1),
        compiler_options=compiler_options(deterministic, images=images),
    )


def held_by(data: Dataset, partition: Partition, device: int) -> Dataset:
    """The data set with one device's training samples only."""
    held = partition.indices(device)
    if not len(held):
        raise ScenarioError("{device} holds no samples: give it at least 1", device=device)
    return replace(data, x_train=data.x_train[held], y_train=data.y_train[held], holders=None)


class DeviceTrainer:
    """Trains one device.

    Batches are pure functions of seed, iteration, device and step, so a trainer may be stopped and
    started again at any iteration. What the optimiser remembers (nothing, for plain SGD) is the
    only state: `save` and `load` carry it over.

    Args:
        model: what is trained.
        data: the device's own samples are its training samples, in the order in which its
            partition lists them; test samples are not looked at. Samples are scaled by ``mean``
            and ``std``, which all devices must share.
        options: settings.
        seed: the repetition seed.
        device: its number among all devices.

    >>> from joulemesh.data import load, partition
    >>> from joulemesh.models import build
    >>> digits = load("digits")
    >>> held = partition(digits.y_train, 4, kind="iid")
    >>> model = build("logistic", digits.shape, 10)
    >>> trainer = DeviceTrainer.of(model, digits, held, Options(), seed=0, device=2)
    >>> params = trainer.begin()
    >>> params = trainer.train(params, iteration=1, rounds=5)
    >>> trainer.params_of(trainer.vector(params))["w"].shape
    (64, 10)
    """

    def __init__(
        self, model: Model, data: Dataset, options: Options, seed: int, device: int
    ) -> None:
        self.model, self.options, self.seed, self.device = model, options, seed, device
        self._dtype = np.dtype("float64" if options.precision == "float64" else "float32")
        self.samples = len(data.y_train)
        with self._scope():
            self._first = initial_params(model, seed, self._dtype)
            # Made by NumPy and put into place once: each operation that JAX carries out by itself
            # is compiled first, which takes longer than the training of many iterations.
            scale, shift = scale_of(data, self._dtype)
            first, second = draws.seed_key(seed, draws.BATCH)
            row = Rows(
                start=np.zeros(1, np.int32),
                size=np.full(1, self.samples, np.uint32),
                device=np.full(1, device, np.uint32),
                key=(np.asarray(first), np.asarray(second)),
                rate=np.full(1, options.learning_rate, self._dtype),
            )
            order = np.arange(self.samples, dtype=np.int32)
            held = (Data(data.x_train, data.y_train, scale, shift), order, row)
            self._data, self._order, self._row = jax.device_put(held)
            self._memory = self._first_memory()
        settings = LocalSettings(
            model, options.optimizer, options.batch_size, options.local_round,
            jnp.dtype(options.precision), loop=True,
        )  # fmt: skip
        self._train = _program(settings, options.deterministic)

    @classmethod
    def of(
        cls,
        model: Model,
        data: Dataset,
        partition: Partition,
        options: Options,
        *,
        seed: int,
        device: int,
    ) -> DeviceTrainer:
        """The trainer of one device of a simulation, which holds its part of the training set.

        Raises:
            ScenarioError: the device holds no sample.
        """
        return cls(model, held_by(data, partition, device), options, seed, device)

    def _scope(self) -> AbstractContextManager[object]:
        return precision_scope(self.options.precision)

    def _first_memory(self) -> optax.OptState:
        stacked = jax.tree.map(lambda leaf: leaf[None], self._first)
        return jax.vmap(make_optimizer(self.options.optimizer, 0.0).init)(stacked)

    def begin(self) -> Params:
        """The initial parameters, as NumPy arrays: the same for all devices of a seed."""
        return cast(Params, jax.tree.map(np.copy, self._first))

    def train(self, params: Params, iteration: int, rounds: int) -> Params:
        """Run the local rounds of one iteration.

        Args:
            params: before it.
            iteration: its number from 1, as `planning.orders.Orders` count.
            rounds: τ; with 0 the parameters stay as they are.

        Returns:
            The parameters after it, as NumPy arrays.

        Raises:
            DivergedError: parameters are no longer finite.
        """
        if not rounds:
            return params
        done = self._run(params, iteration, rounds)
        trained = jax.tree.map(lambda leaf: np.asarray(leaf)[0], done.params)
        whole = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained))
        if not (whole and np.isfinite(done.loss).all()):
            raise DivergedError(iteration, self.seed, self.options.learning_rate)
        self._memory = done.optimizer
        return trained

    def _run(self, params: Params, iteration: int, rounds: int) -> Carry:
        with self._scope():
            work = LocalWork(
                data=self._data,
                order=self._order,
                rows=self._row,
                iteration=np.asarray(iteration - 1, np.uint32),
                rounds=np.full(1, rounds, np.int32),
            )
            start = jax.tree.map(lambda leaf: np.asarray(leaf, self._dtype)[None], params)
            carry = Carry(start, self._memory, np.zeros(1, self._dtype))
            return self._train(work, np.zeros((), np.int32), carry)

    def prepare(self) -> None:
        """Compile the training, by no rounds of it; otherwise the first iteration takes longer."""
        self._run(self.begin(), 1, 0)

    def vector(self, params: Params) -> NDArray[Any]:
        """All parameters as one vector [P], which peers exchange."""
        leaves = jax.tree.leaves(params)
        return np.concatenate([np.asarray(leaf, self._dtype).ravel() for leaf in leaves])

    def params_of(self, vector: NDArray[Any]) -> Params:
        """The parameters of a vector [P]."""
        leaves, tree = jax.tree.flatten(self._first)
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = np.split(np.array(vector, self._dtype), ends[:-1])
        made = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return cast(Params, jax.tree.unflatten(tree, made))

    def save(self) -> Arrays:
        """What the optimiser remembers, as named arrays; none for plain SGD."""
        leaves = jax.tree.leaves(self._memory)
        return {f"optimizer.{k}": np.asarray(leaf)[0] for k, leaf in enumerate(leaves)}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `save` gave.

        Raises:
            ScenarioError: the arrays are not those of this optimiser and model.
        """
        leaves, tree = jax.tree.flatten(self._memory)
        names = [f"optimizer.{k}" for k in range(len(leaves))]
        fits = set(arrays) == set(names) and all(
            np.shape(arrays[name]) == leaf.shape[1:] and arrays[name].dtype == leaf.dtype
            for name, leaf in zip(names, leaves, strict=True)
        )
        if not fits:
            raise ScenarioError(
                f"what the optimiser remembers is not that of {self.options.optimizer!r} and this "
                "model; start again without it"
            )
        with self._scope():
            self._memory = jax.tree.unflatten(tree, [np.asarray(arrays[n])[None] for n in names])
