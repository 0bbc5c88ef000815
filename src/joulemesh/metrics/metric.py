"""Metrics: what an evaluation computes from outputs and targets, as entries of a registry.

JAX is loaded when one of the built-in ones is first computed.
"""

from __future__ import annotations

__all__ = [
    "ACCURACY",
    "LOSS",
    "Metric",
    "balanced",
    "brier",
    "correct",
    "cross_entropy",
    "further_of",
    "metrics_of",
    "score_metric",
]

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from joulemesh.errors import ScenarioError
from joulemesh.registries import METRICS

if TYPE_CHECKING:
    import jax

    from joulemesh.metrics.losses import Loss


@dataclass(frozen=True)
class Metric:
    """A mean over samples of some function of a model's outputs and the targets.

    Attributes:
        name: as scenarios write it. Its curves are the columns ``test_NAME`` (of the mean model)
            and, with ``devices``, ``device_NAME_mean``, ``_min`` and ``_max`` (of the devices' own
            models).
        description: what it is, in one line.
        values: of outputs and targets (JAX arrays): one value per sample, [B], or several, [B, k].
            Evaluations average them over the samples. For classes the outputs are logits
            [B, classes] and the targets int [B]; for numbers both are [B, k]; for tokens the
            outputs are [B, positions, tokens] and the targets int [B, positions], where negative
            ones do not count.
        finish: makes the figure of the k averages, [k] to a scalar; for one value per sample there
            is nothing to do.
        label: what axes and tables call it; the name unless given.
        better: whether higher or lower figures are better.
        share: whether figures lie between 0 and 1 and are written in per cent.
        devices: whether the devices' own models are measured, too.
        targets: what it is for: ``"classes"``, ``"numbers"``, ``"tokens"`` or ``"any"``.

    >>> miss = Metric("miss", "share of wrong answers", lambda logits, y: logits.argmax(1) != y,
    ...               better="lower", share=True)
    >>> miss.label, miss.devices
    ('miss', True)
    >>> Metric("samples", "", miss.values)
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: metric name 'samples' is taken: a column test_samples ...
    """

    name: str
    description: str
    values: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any] | None = None
    label: str = ""
    better: Literal["higher", "lower"] = "higher"
    share: bool = False
    devices: bool = True
    targets: Literal["classes", "numbers", "tokens", "any"] = "any"

    @property
    def sign(self) -> int:
        """1 if higher figures are better, -1 if lower ones are."""
        return 1 if self.better == "higher" else -1

    @property
    def weakest(self) -> Literal["min", "max"]:
        """Which end of the devices' figures is the weakest device's."""
        return "min" if self.better == "higher" else "max"

    @property
    def heading(self) -> str:
        """What a column of its figures is called, with their unit.

        >>> ACCURACY.heading, LOSS.heading
        ('accuracy [%]', 'loss')
        """
        return f"{self.label} [%]" if self.share else self.label

    def text(self, figure: float) -> str:
        """A figure in words: a share in per cent, anything else with four digits.

        >>> ACCURACY.text(0.9512), LOSS.text(0.123456)
        ('95.1 %', '0.1235')
        """
        return f"{100 * figure:.1f} %" if self.share else f"{figure:.4g}"

    def sampling_error(self, figure: float, samples: int) -> float | None:
        """Standard error of a share because it is measured on so many samples; None for others.

        √(p(1 − p)/n), which no mean of values between 0 and 1 exceeds.

        >>> ACCURACY.sampling_error(0.9, 400), LOSS.sampling_error(0.5, 400)
        (0.015, None)
        """
        if not self.share or self.finish is not None or not samples:
            return None
        return math.sqrt(max(figure * (1 - figure), 0.0) / samples)

    def samples_text(self, figure: float, samples: int) -> str:
        """On how many samples a figure rests, and its standard error if it is a share.

        >>> ACCURACY.samples_text(0.9, 400), LOSS.samples_text(0.5, 400)
        ('400 test samples, standard error 1.5 points', '400 test samples')
        """
        error = self.sampling_error(figure, samples)
        more = "" if error is None else f", standard error {100 * error:.1f} points"
        return f"{samples:,} test samples{more}"

    def __post_init__(self) -> None:
        if self.name == "samples":
            raise ScenarioError(
                "metric name 'samples' is taken: a column test_samples says how many samples an "
                "evaluation was made on; choose another name"
            )
        if self.better not in ("higher", "lower"):
            raise ScenarioError(
                f"metric {self.name!r}: better = {self.better!r} is unknown; use 'higher' or "
                "'lower'"
            )
        _require_callable(self.name, "values", self.values, 2, "(outputs, targets)")
        if self.finish is not None:
            _require_callable(self.name, "finish", self.finish, 1, "(means)")
        if not self.label:
            object.__setattr__(self, "label", self.name)


def _require_callable(name: str, field: str, function: Any, count: int, takes: str) -> None:
    """Refuse what cannot be called with so many arguments; some callables do not say."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except ValueError:
        return
    except TypeError:
        raise ScenarioError(
            f"metric {name!r}: {field} cannot be called with {takes}; give such a function"
        ) from None


def correct(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Whether the largest logit is the label's.

    >>> import jax.numpy as jnp
    >>> correct(jnp.array([[0.0, 1.0], [3.0, 2.0]]), jnp.array([1, 1])).tolist()
    [True, False]
    """
    import jax.numpy as jnp

    return jnp.argmax(logits, axis=1) == labels


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-ln of the label's probability.

    The label's logit is picked by comparison, not by index, because the gradient of an index is a
    scatter.

    >>> import jax.numpy as jnp
    >>> round(float(cross_entropy(jnp.zeros((1, 2)), jnp.array([1]))[0]), 4)  # ln 2
    0.6931
    """
    import jax
    import jax.numpy as jnp

    chosen = labels[:, None] == jnp.arange(logits.shape[1], dtype=labels.dtype)
    picked = jnp.sum(jnp.where(chosen, logits, 0), axis=1)
    return jax.nn.logsumexp(logits, axis=1) - picked


def brier(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Squared distance of the probabilities from the label's, between 0 and 2.

    >>> import jax.numpy as jnp
    >>> brier(jnp.zeros((1, 2)), jnp.array([1])).tolist()
    [0.5]
    """
    import jax
    import jax.numpy as jnp

    target = jax.nn.one_hot(labels, logits.shape[1], dtype=logits.dtype)
    return jnp.sum(jnp.square(jax.nn.softmax(logits, axis=1) - target), axis=1)


def balanced(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Of each class, whether a sample is of it and recognised, and whether it is of it.

    >>> import jax.numpy as jnp
    >>> balanced(jnp.array([[0.0, 1.0], [0.0, 1.0]]), jnp.array([1, 0])).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]]
    """
    import jax
    import jax.numpy as jnp

    of_class = jax.nn.one_hot(labels, logits.shape[1], dtype=logits.dtype)
    return jnp.concatenate([of_class * correct(logits, labels)[:, None], of_class], axis=1)


def _mean_recall(means: jax.Array) -> jax.Array:
    """The mean recall of the classes that there are samples of."""
    import jax.numpy as jnp

    recognised, there = means.reshape(2, -1)
    known = there > 0
    return jnp.sum(jnp.where(known, recognised / jnp.where(known, there, 1), 0)) / jnp.sum(known)


ACCURACY = METRICS.register(
    Metric("accuracy", "share of test samples whose label has the largest logit", correct,
           share=True, targets="classes")
)  # fmt: skip
LOSS = METRICS.register(
    Metric("loss", "what is minimised, without regulariser", cross_entropy, better="lower",
           devices=False)
)  # fmt: skip
METRICS.register(
    Metric("brier", "Brier score: squared error of the predicted probabilities, 0 to 2", brier,
           label="Brier score", better="lower", targets="classes")
)  # fmt: skip
METRICS.register(
    Metric("balanced_accuracy", "mean recall of the classes, whatever their numbers of samples",
           balanced, _mean_recall, label="balanced accuracy", share=True, targets="classes")
)  # fmt: skip


def further_of(names: Iterable[str] = (), score: str = ACCURACY.name) -> tuple[Metric, ...]:
    """The metrics of an evaluation besides the score and the loss.

    Args:
        names: of the further metrics.
        score: the metric that runs are compared by.

    >>> [metric.name for metric in further_of(["brier", "loss", "accuracy"])]
    ['brier']
    """
    others = dict.fromkeys(name for name in names if name not in (score, LOSS.name))
    return tuple(METRICS[name] for name in others)


def score_metric(score: str = ACCURACY.name, loss: Loss | None = None) -> Metric:
    """The metric that runs are compared by; the devices' own models are measured by it, too.

    Args:
        score: its name.
        loss: what is minimised, which ``"loss"`` means.

    >>> score_metric("loss").devices, score_metric() is ACCURACY
    (True, True)
    """
    found = METRICS[score]
    if score == LOSS.name and loss is not None:
        found = replace(found, values=loss.values)
    return found if found.devices else replace(found, devices=True)


def metrics_of(
    names: Iterable[str] = (), score: str = ACCURACY.name, loss: Loss | None = None
) -> tuple[Metric, ...]:
    """The metrics of an evaluation: the score, the loss (unless it is the score), and others.

    Args:
        names: of the further metrics.
        score: the metric that runs are compared by.
        loss: what is minimised; cross-entropy unless given.

    Raises:
        ScenarioError: one of them is not known, or accuracy or loss was replaced.

    >>> [metric.name for metric in metrics_of(["brier", "loss"])]
    ['accuracy', 'loss', 'brier']
    >>> [metric.name for metric in metrics_of(["mae"], "rmse")]
    ['rmse', 'loss', 'mae']
    """
    for metric in (ACCURACY, LOSS):
        if METRICS[metric.name] is not metric:
            raise ScenarioError(
                f"metric {metric.name!r} cannot be replaced, because targets and tables rest on "
                "it: register yours under another name"
            )
    first, further = score_metric(score, loss), further_of(names, score)
    if score == LOSS.name:
        return (first, *further)
    minimised = LOSS
    if loss is not None and loss.values is not LOSS.values:
        minimised = replace(LOSS, values=loss.values)
    return (first, minimised, *further)
