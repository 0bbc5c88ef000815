"""A method's own exchange, seed by seed; see `joulemesh.training.exchange`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Partition
from joulemesh.training import draws
from joulemesh.training.arrays import Array, Tree, tree_flatten, tree_map
from joulemesh.training.exchange import Context, Exchange, entering
from joulemesh.training.schedule import Schedule
from joulemesh.training.torch.gradients import Gradients, Samples
from joulemesh.training.torch.mixing import Mixer

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]


class OwnExchange:
    """Carries out a method's own exchange, and prepares its correction of local steps."""

    def __init__(
        self,
        torch: Any,
        own: Exchange,
        schedule: Schedule,
        mixer: Mixer,
        gradients: Gradients,
        samples: Samples,
        partitions: Sequence[Partition],
        seeds: Sequence[int],
    ) -> None:
        wire = schedule.wire
        self._own = entering(own, wire) if wire and not own.rounds else own
        self._torch, self._schedule, self._mixer = torch, schedule, mixer
        self._gradients, self._samples, self._partitions = gradients, samples, partitions
        self._keys = [draws.seed_key(seed, draws.EXCHANGE) for seed in seeds]
        self._nothing: Tree = ()  # what is reported of an iteration without exchange
        self.corrects = own.correction is not None

    def begin(self, params: Leaves) -> list[Tree]:
        """The state of each seed before the first iteration; the exchange is tried once."""
        states = [self._own.init(_seed(params, s)) for s in range(len(self._keys))]
        states = [tree_map(_copied, state) for state in states]
        tried = [tree_map(_copied, state) for state in states]
        reports = [self._applied(s, 0, params, tried)[1] for s in range(len(self._keys))]
        self._nothing = tree_map(np.zeros_like, _stacked(reports))
        return states

    def mix(self, t: int, params: Leaves, states: list[Tree]) -> Tree:
        """Exchange in place; what is reported, [S, ...] each."""
        here = np.flatnonzero(self._schedule.active[t])
        at = None if len(here) == self._schedule.devices else self._torch.as_tensor(here)
        reports = []
        for s in range(len(states)):
            new, report = self._applied(s, t, params, states)
            reports.append(report)
            for name, leaf in params.items():
                if at is None:
                    leaf[s].copy_(new[name])
                else:
                    leaf[s, at.to(leaf.device)] = new[name][at.to(leaf.device)]
        return _stacked(reports)

    def reports(self, each: Sequence[Tree | None]) -> Tree:
        """What iterations reported, [iterations, S, ...] each; None for one without exchange."""
        held = [self._nothing if one is None else one for one in each]
        return tree_map(lambda *leaves: np.stack(leaves), *held) if held else self._nothing

    def pull(self, states: Sequence[Tree], steps: NDArray[np.int64]) -> Leaves:
        """The correction in equal parts, one for each step of every row: [rows, ...] each."""
        assert self._own.correction is not None
        each = [self._own.correction(state) for state in states]
        found = {}
        for name in each[0]:
            rows = self._torch.cat([one[name] for one in each])
            parts = self._torch.as_tensor(np.maximum(steps, 1)).to(rows.device, rows.dtype)
            found[name] = rows / parts.reshape(-1, *[1] * (rows.ndim - 1))
        return found

    def _applied(self, s: int, t: int, params: Leaves, states: list[Tree]) -> tuple[Leaves, Tree]:
        """Parameters of a seed after the exchange, and its report; its state is replaced."""
        key = draws.fold(self._keys[s], np.array([t], np.uint32))
        with np.errstate(over="ignore"):  # words wrap
            new, states[s], report = self._own.applied(
                _seed(params, s), states[s], key, self._context(s, t)
            )
        return new, tree_map(_on_host, report)

    def _context(self, s: int, t: int) -> Context:
        schedule, partition = self._schedule, self._partitions[s]
        functions = {} if schedule.kind == "mean" else {"mix": lambda x: self._mixer.once(t, x)}
        return Context(
            iteration=np.uint32(t),
            active=schedule.active[t],
            weights=self._mixer.weights[s],
            data=self._samples.data,
            order=partition.order,
            start=partition.offsets[:-1],
            size=partition.sizes.astype(np.uint32),
            arrived=() if schedule.arrived is None else schedule.arrivals(t, t + 1)[0],
            losses=lambda *asked: self._losses(partition, *asked),
            **functions,
        )

    def _losses(
        self,
        partition: Partition,
        params: Leaves,
        viewer: NDArray[np.integer[Any]],
        owner: NDArray[np.integer[Any]],
        samples: int,
    ) -> NDArray[Any]:
        """Losses of devices' models on others' samples; see `Context`."""
        found: list[Tensor] = [None] * len(viewer)
        with self._torch.no_grad():
            for i in np.unique(viewer).tolist():
                index = np.asarray(partition.indices(i)[:samples], np.int64)
                x, y = self._samples.train(self._torch.as_tensor(index))
                for k in np.flatnonzero(viewer == i).tolist():
                    theirs = {name: leaf[int(owner[k])] for name, leaf in params.items()}
                    outputs = self._gradients.tested(theirs, x)
                    found[k] = self._gradients.criterion(outputs, y)
        return np.asarray(self._torch.stack(found).cpu().numpy())


def _seed(params: Leaves, s: int) -> Leaves:
    """A copy of one seed's parameters, which the exchange may keep or change."""
    return {name: leaf[s].clone() for name, leaf in params.items()}


def _copied(leaf: Array) -> Array:
    return leaf.clone() if hasattr(leaf, "clone") else np.array(leaf)


def _on_host(leaf: Array) -> NDArray[Any]:
    return np.asarray(leaf.cpu() if hasattr(leaf, "cpu") else leaf)


def _stacked(trees: Sequence[Tree]) -> Tree:
    return tree_map(lambda *leaves: np.stack(leaves), *trees)


def saved(states: Sequence[Tree]) -> dict[str, NDArray[Any]]:
    """States of the seeds as named arrays, [S, ...] each."""
    leaves = [list(map(_on_host, tree_flatten(state)[0])) for state in states]
    return {f"exchange.{k}": np.stack(each) for k, each in enumerate(zip(*leaves, strict=True))}


def loaded(states: Sequence[Tree], arrays: Any) -> list[Tree]:
    """The states that `saved` gave, in the form of others."""
    found = []
    for s, state in enumerate(states):
        leaves, made = tree_flatten(state)
        new = [np.array(arrays[f"exchange.{k}"][s]) for k in range(len(leaves))]
        found.append(made([_as(was, now) for was, now in zip(leaves, new, strict=True)]))
    return found


def _as(was: Array, now: NDArray[Any]) -> Array:
    return was.new_tensor(now) if hasattr(was, "new_tensor") else now
