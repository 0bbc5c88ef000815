"""Evaluate the mean model and the devices' own, on the samples that every learner takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from joulemesh.data import Partition
from joulemesh.metrics import LOSS, Metric, metrics_of, reported
from joulemesh.models.curves import own_curves, score_columns, trace_names
from joulemesh.training.schedule import Options, Schedule
from joulemesh.training.torch.gradients import Gradients, Samples
from joulemesh.training.torch.mixing import Mixer
from joulemesh.training.trace import TEST_ORDER, SampleCounts, curve_samples, train_sizes

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]
FloatArray = NDArray[np.float64]

_TOGETHER = 1024  # samples evaluated at once
COLUMNS = trace_names()
_DRIFT, _CONSENSUS = "drift", "consensus"  # of the parameters; all others are of a model's outputs
_OF_OUTPUTS = tuple(name for name in COLUMNS if name not in (_DRIFT, _CONSENSUS))


class Evaluator:
    """Evaluates states of a run; see `joulemesh.training.trace.Trace` for what is measured."""

    def __init__(
        self,
        torch: Any,
        gradients: Gradients,
        samples: Samples,
        partitions: Sequence[Partition],
        schedule: Schedule,
        mixer: Mixer,
        options: Options,
    ) -> None:
        self._torch, self._gradients, self._samples = torch, gradients, samples
        self._partitions, self._schedule, self._mixer = partitions, schedule, mixer
        sizes = np.stack([one.sizes for one in partitions])
        curve = curve_samples(options, schedule, sizes, samples.tested)
        self.counts = SampleCounts(curve, samples.tested, mixer.agree, partitions)
        measured = reported(options)
        self.score = measured.score
        self.metrics = metrics_of(*measured, None if gradients.own_loss else gradients.minimised)
        self.further = tuple(curve.name for curve in own_curves(*measured))
        self._order = np.random.default_rng(TEST_ORDER).permutation(samples.tested)

    def evaluate(self, params: Leaves, iteration: int) -> dict[str, Any]:
        """The columns of a trace but ``drift``, after an iteration (from 0); [S] each."""
        on_test, on_train, each = self.counts.at(iteration)
        share, active = self._mixer.share(iteration), self._schedule.active[iteration]
        picked = self._order[:on_test]
        rows = [
            self._seed(params, seed, (share[seed], active), (picked, each, on_train), iteration)
            for seed in range(len(share))
        ]
        named = {name: name for name in _OF_OUTPUTS} | score_columns(self.score)
        columns = {name: np.array([row[own] for row in rows]) for name, own in named.items()}
        own = {name: np.array([row[name] for row in rows]) for name in self.further}
        agree = self.counts.agree[iteration]
        consensus = np.zeros(len(share)) if agree else self.consensus(params, iteration)
        return {**columns, _CONSENSUS: consensus, "own": own}

    def consensus(self, params: Leaves, iteration: int) -> FloatArray:
        """float64 [S]: sqrt(mean_i ||w_i - w̄||²) / ||w̄|| over the active devices."""
        active = self._torch.as_tensor(np.array(self._schedule.active[iteration]))
        apart: Any = 0.0
        size: Any = 0.0
        for leaf in params.values():
            flat = leaf.reshape(*leaf.shape[:2], -1)[:, active.to(leaf.device)]
            centre = flat.mean(dim=1, keepdim=True)
            apart = apart + (flat - centre).square().sum(dim=2).mean(dim=1)
            size = size + centre.square().sum(dim=(1, 2))
        found = (apart / size.clamp_min(self._torch.finfo(size.dtype).tiny)).sqrt()
        return np.asarray(found.cpu().numpy(), np.float64)

    def _seed(
        self,
        params: Leaves,
        seed: int,
        present: tuple[FloatArray, NDArray[np.bool_]],
        chosen: tuple[NDArray[np.int64], int, int],
        iteration: int,
    ) -> dict[str, float]:
        (share, active), (picked, each, on_train) = present, chosen
        own = {name: leaf[seed] for name, leaf in params.items()}
        centre = {
            name: self._torch.tensordot(
                self._torch.as_tensor(share).to(leaf.device, leaf.dtype), leaf, 1
            )
            for name, leaf in own.items()
        }
        scored = self._logits(centre, picked)
        test = self._figures(scored, picked)
        row = {f"test_{name}": value for name, value in test.items()}
        row[f"train_{LOSS.name}"] = self._train_loss(
            centre, self._partitions[seed], share, on_train
        )
        measured = [metric for metric in self.metrics if metric.devices]
        found = {m.name: np.full(active.sum(), test[m.name]) for m in measured}
        if not self.counts.agree[iteration]:
            shared, some = self._figures(scored[:each], picked[:each]), picked[:each]
            for k, device in enumerate(np.flatnonzero(active)):
                mine = {name: leaf[device] for name, leaf in own.items()}
                figures = self._figures(self._logits(mine, some), some)
                for m in measured:
                    moved = test[m.name] + (figures[m.name] - shared[m.name])
                    found[m.name][k] = np.clip(moved, 0, 1) if m.share else moved
        for name, values in found.items():
            row[f"device_{name}_mean"] = test[name] + float(np.mean(values - test[name]))
            row[f"device_{name}_min"], row[f"device_{name}_max"] = values.min(), values.max()
        return row

    def _logits(self, params: Leaves, index: NDArray[np.int64]) -> NDArray[Any]:
        parts = [index[first : first + _TOGETHER] for first in range(0, len(index), _TOGETHER)]
        with self._torch.no_grad():
            made = [self._gradients.tested(params, self._samples.test(part)) for part in parts]
            return np.asarray(self._torch.cat(made).cpu().numpy())

    def _figures(self, outputs: NDArray[Any], index: NDArray[np.int64]) -> dict[str, float]:
        targets = self._samples.targets(index)
        found: dict[str, float] = {}
        for metric in self.metrics:
            own = metric.name == LOSS.name and self._gradients.own_loss
            measure = self._own_loss if own else figure_of
            found[metric.name] = measure(metric, outputs, targets)
        return found

    def _own_loss(self, metric: Metric, outputs: NDArray[Any], targets: NDArray[Any]) -> float:
        """The mean of a loss of the user's own, which is of tensors."""
        made, wanted = (self._torch.as_tensor(np.asarray(one)) for one in (outputs, targets))
        wanted = wanted.to(made.dtype) if wanted.is_floating_point() else wanted.long()
        return float(self._gradients.criterion(made, wanted))

    def _train_loss(
        self, params: Leaves, partition: Partition, share: FloatArray, on_train: int
    ) -> float:
        """Σ_i p_i F_i of the mean model, on the first samples of every device that takes part."""
        sizes, total = train_sizes(partition, on_train), 0.0
        with self._torch.no_grad():
            for device in np.flatnonzero(share):
                index = partition.indices(int(device))[: sizes[device]]
                x, y = self._samples.train(self._torch.as_tensor(np.asarray(index, np.int64)))
                outputs = self._gradients.tested(params, x)
                total += share[device] * float(self._gradients.criterion(outputs, y))
            return total + float(self._gradients.penalty(params))


def figure_of(metric: Metric, outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """A metric from outputs [m, ...] and targets [m]."""
    values = np.asarray(metric.values(outputs, targets), np.float64)
    means = values.mean(axis=0)
    if metric.finish is None:
        return float(means if means.ndim == 0 else means[0])
    return float(metric.finish(np.atleast_1d(means)))


def trace_columns(
    found: Sequence[Mapping[str, Any]], drift: Sequence[FloatArray], dtype: DTypeLike
) -> dict[str, Any]:
    """Evaluations one after another, as the columns of a trace."""
    names = (*_OF_OUTPUTS, _CONSENSUS)  # as a trace calls them
    columns = {name: np.stack([one[name] for one in found]).astype(dtype) for name in names}
    own = {
        name: np.stack([one["own"][name] for one in found]).astype(dtype)
        for name in found[0]["own"]
    }
    return {**columns, _DRIFT: np.stack(drift).astype(dtype), "own": own}
