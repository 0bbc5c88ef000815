"""Evaluate the states of a run, each on the samples that its iteration calls for."""

from __future__ import annotations

__all__ = ["Evaluator"]

from collections.abc import Callable, Sequence

import jax

from joulemesh.data import Partition
from joulemesh.models.core import Params
from joulemesh.training.jax import exchange
from joulemesh.training.jax.distributed import hosts
from joulemesh.training.jax.evaluation.counts import SampleCounts, curve_samples
from joulemesh.training.jax.evaluation.samples import EvalSamples, choose_samples
from joulemesh.training.jax.evaluation.scores import Evaluation
from joulemesh.training.jax.inputs import sizes_of
from joulemesh.training.jax.layout import Layout
from joulemesh.training.jax.loss import Data
from joulemesh.training.jax.platform import sharding
from joulemesh.training.jax.types import Inputs, ProgramKey
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule

# Samples evaluated at once, on a CPU (where their activations stay in the cache) and otherwise.
_TOGETHER_LOOP, _TOGETHER = 256, 1024


class Evaluator:
    """Evaluates states of a run.

    Args:
        key: of its programs.
        inputs: placed.
        layout: of devices.
        partitions: who holds which samples, one per seed.
        schedule: rounds, presence, mixing.
        options: settings.
        tested: number of test samples, where ``inputs`` do not hold them.

    Attributes:
        counts: on how many samples each evaluation rests.
    """

    def __init__(
        self,
        key: ProgramKey,
        inputs: Inputs,
        layout: Layout,
        partitions: Sequence[Partition],
        schedule: Schedule,
        options: Options,
        *,
        tested: int | None = None,
    ) -> None:
        self._key, self._inputs = key, inputs
        self._layout, self._partitions, self._schedule = layout, partitions, schedule
        test = len(inputs.test.y) if tested is None else tested
        curve = curve_samples(options, schedule, sizes_of(partitions), test)
        agree = schedule.exchanged & (key.exchange is exchange.mean)
        self.counts = SampleCounts(curve, test, agree, partitions)
        self._curve = self._samples(curve)

    @property
    def _together(self) -> int:
        """Samples evaluated at once, at most."""
        return _TOGETHER_LOOP if self._key.loop else _TOGETHER

    def _chosen(self, counts: tuple[int, int, int]) -> EvalSamples:
        """Which samples, as NumPy arrays."""
        dtype, test, shards = self._inputs.weights.dtype, self.counts.test, self._key.mesh.size
        held = (self._layout, self._partitions)
        return choose_samples(*held, test, counts, shards, self._together, dtype)

    def _read(self, counts: tuple[int, int, int]) -> tuple[Data, Data]:
        """The training and test samples that the chosen ones are among."""
        return self._inputs.train, self._inputs.test

    def _samples(self, counts: tuple[int, int, int]) -> EvalSamples:
        mesh, made = self._key.mesh, self._chosen(counts)
        specs = jax.tree.map(lambda spec: sharding(mesh, spec), made.specs())
        placed: EvalSamples = hosts.put(made, specs)
        return placed

    def evaluate(
        self, program: Callable[..., Evaluation], params: Params, iteration: int
    ) -> Evaluation:
        """Evaluate parameters after an iteration (from 0): the last on all test samples.

        Args:
            program: the compiled evaluation.
            params: of the state.
            iteration: from 0.

        Returns:
            The evaluation, float [S] each, without the consensus error before the exchange
            (``drift``).
        """
        return self._evaluate(program, params, iteration, self.counts.at(iteration))

    def _evaluate(
        self,
        program: Callable[..., Evaluation],
        params: Params,
        iteration: int,
        counts: tuple[int, int, int],
    ) -> Evaluation:
        samples = self._curve
        active = self._layout.spread(self._schedule.active[iteration], False)
        if counts != self.counts.curve:
            samples = self._samples(counts)
        train, test = self._read(counts)
        if self.counts.agree[iteration]:
            samples = samples._replace(device=None)
        return program(params, train, test, self._inputs.weights, samples, active)
