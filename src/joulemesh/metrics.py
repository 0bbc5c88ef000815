"""Metrics and losses, as entries of registries: what evaluations compute, what training minimises.

In: a model's outputs and the targets. Out: what training minimises, and what evaluations measure
(accuracy, R², the user's own). Built-in ones are of arrays of JAX or NumPy, as they are given.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy import special

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import in_file, is_in_file, require, require_call
from joulemesh.registries import LOSSES, METRICS

Array: TypeAlias = Any  # of JAX or NumPy


@dataclass(frozen=True)
class Metric:
    """A mean over samples of some function of a model's outputs and the targets.

    Attributes:
        name: as scenarios write it. Its curves are the columns ``test_NAME`` (of the mean model)
            and, with ``devices``, ``device_NAME_mean``, ``_min`` and ``_max`` (of the devices' own
            models).
        description: what it is, in one line.
        values: of outputs and targets (arrays of JAX or, with PyTorch, of NumPy): one value per
            sample, [B], or several, [B, k]. Evaluations average them over the samples. For classes
            the outputs are logits [B, classes] and the targets int [B]; for numbers both are
            [B, k]; for tokens the outputs are [B, positions, tokens] and the targets int
            [B, positions], where negative ones do not count.
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
    joulemesh.ScenarioError: metric name 'samples' is taken: a column test_samples ...
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
        """What a column of its figures is called, with their unit."""
        return f"{self.label} [%]" if self.share else self.label

    def text(self, figure: float) -> str:
        """A figure in words: a share in per cent, anything else with four digits."""
        return f"{100 * figure:.1f} %" if self.share else f"{figure:.4g}"

    def sampling_error(self, figure: float, samples: int) -> float | None:
        """Standard error of a share because it is measured on so many samples; None for others.

        √(p(1 − p)/n), which no mean of values between 0 and 1 exceeds.
        """
        if not self.share or self.finish is not None or not samples:
            return None
        return math.sqrt(max(figure * (1 - figure), 0.0) / samples)

    def samples_text(self, figure: float, samples: int) -> str:
        """On how many samples a figure rests, and its standard error if it is a share."""
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


def _nn(xp: Any) -> Any:
    """Softmax and its like for a namespace: of JAX or, for NumPy, of SciPy."""
    if xp is np:
        return special
    import jax

    return jax.nn


def _one_hot(labels: Array, logits: Array) -> Array:
    """1 at each sample's label, [B, classes]."""
    classes = labels.__array_namespace__().arange(logits.shape[1], dtype=labels.dtype)
    return (labels[:, None] == classes).astype(logits.dtype)


def correct(logits: Array, labels: Array) -> Array:
    xp = logits.__array_namespace__()
    return xp.argmax(logits, axis=1) == labels


def cross_entropy(logits: Array, labels: Array) -> Array:
    """-ln of the label's probability.

    The label's logit is picked by comparison, not by index, because the gradient of an index is a
    scatter.
    """
    xp = logits.__array_namespace__()
    chosen = labels[:, None] == xp.arange(logits.shape[1], dtype=labels.dtype)
    picked = xp.sum(xp.where(chosen, logits, 0), axis=1)
    return _nn(xp).logsumexp(logits, axis=1) - picked


def brier(logits: Array, labels: Array) -> Array:
    """Squared distance of the probabilities from the label's, between 0 and 2."""
    xp = logits.__array_namespace__()
    target = _one_hot(labels, logits)
    return xp.sum(xp.square(_nn(xp).softmax(logits, axis=1) - target), axis=1)


def balanced(logits: Array, labels: Array) -> Array:
    """Of each class, whether a sample is of it and recognised, and whether it is of it."""
    xp = logits.__array_namespace__()
    of_class = _one_hot(labels, logits)
    return xp.concatenate([of_class * correct(logits, labels)[:, None], of_class], axis=1)


def _mean_recall(means: Array) -> Array:
    """The mean recall of the classes that there are samples of."""
    xp = means.__array_namespace__()
    recognised, there = means.reshape(2, -1)
    known = there > 0
    return xp.sum(xp.where(known, recognised / xp.where(known, there, 1), 0)) / xp.sum(known)


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
    """The metrics of an evaluation besides the score and the loss."""
    others = dict.fromkeys(name for name in names if name not in (score, LOSS.name))
    return tuple(METRICS[name] for name in others)


def score_metric(score: str = ACCURACY.name, loss: Loss | None = None) -> Metric:
    """The metric that runs are compared by; the devices' own models are measured by it, too."""
    found = METRICS[score]
    if score == LOSS.name and loss is not None:
        found = replace(found, values=loss.values)
    return found if found.devices else replace(found, devices=True)


def metrics_of(
    names: Iterable[str] = (), score: str = ACCURACY.name, loss: Loss | None = None
) -> tuple[Metric, ...]:
    """The metrics of an evaluation: the score, the loss (unless it is the score), and others."""
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


TargetKind: TypeAlias = Literal["classes", "numbers", "tokens"]
"""What is to be predicted of a sample: its class, numbers, or a class at each of its positions."""

AUTO = "auto"  # of training.score: the loss's own
OWN = "own:"  # before the name of a loss that was given in Python
_GIVEN: dict[str, Loss] = {}  # such losses, of this process


@dataclass(frozen=True)
class Loss:
    """What training minimises: the mean over samples of a function of outputs and targets.

    Attributes:
        name: as scenarios write it.
        description: what it is, in one line.
        values: of outputs [B, ...] and targets [B, ...] (JAX arrays): one value per sample, [B].
        targets: what it takes: ``"classes"`` (int [B]), ``"numbers"`` (float [B, k], of the shape
            of the outputs), ``"tokens"`` (int [B, positions], where negative ones do not count),
            or ``"any"``, whatever the data hold.
        score: the metric that runs are compared by, and that targets refer to.
        metrics: others that are reported with it.
        torch: the same of PyTorch tensors, for PyTorch modules: one value per sample, or their
            mean.

    >>> pinball = Loss("pinball", "pinball loss of the 90 % quantile",
    ...                lambda outputs, y: abs(y - outputs).mean(1), targets="numbers", score="mae")
    >>> pinball.score
    'mae'
    >>> Loss("odd", "", lambda outputs: outputs)
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: loss 'odd': values cannot be called with (outputs, targets): ...
    """

    name: str
    description: str
    values: Callable[[Any, Any], Any]
    targets: TargetKind | Literal["any"] = "any"
    score: str = "loss"
    metrics: tuple[str, ...] = ()
    torch: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.targets not in ("classes", "numbers", "tokens", "any"):
            raise ScenarioError(
                f"loss {self.name!r}: targets = {self.targets!r} is unknown; use 'classes', "
                "'numbers', 'tokens' or 'any'"
            )
        require_call(self.values, "outputs, targets", f"loss {self.name!r}: values")


def _cross_entropy(outputs: Any, targets: Any) -> Any:
    return require("torch", "a PyTorch module").nn.functional.cross_entropy(outputs, targets)


CROSS_ENTROPY = LOSSES.register(
    Loss("cross-entropy", "-ln of the label's probability, for classes", cross_entropy, "classes",
         score="accuracy", torch=_cross_entropy)
)  # fmt: skip


def as_loss(given: Any, name: str = "") -> Loss:
    """A loss of the user's own: the record itself, or a function of outputs and targets."""
    if isinstance(given, Loss):
        return given
    if not callable(given):
        raise ScenarioError(
            f"a {type(given).__name__} is not a loss: give the name of one, a function of outputs "
            "and targets, or a joulemesh.metrics.Loss"
        )
    known = name or str(getattr(given, "__name__", type(given).__name__)).strip("<>")
    return Loss(known, "the user's own", given, torch=given)


def loss_named(name: str) -> Loss:
    """The loss that a scenario names: of the registry, or ``"my_losses.py:quantile"``."""
    if is_in_file(name):
        return as_loss(in_file(name, "training.loss"), name)
    if not name.startswith(OWN):
        return LOSSES[name]
    if name not in _GIVEN:
        raise ScenarioError(
            f"training.loss = {name!r} was given in Python, and is not known in this process: give "
            "loss= again, or put it into a file and name it FILE.py:NAME"
        )
    return _GIVEN[name]


def name_of(given: Any) -> str:
    """What a scenario calls a loss that is given in Python; `loss_named` then finds it."""
    if isinstance(given, str):
        loss_named(given)
        return given
    found = as_loss(given)
    if found.name in LOSSES and LOSSES[found.name] is found:
        return found.name
    name = f"{OWN}{found.name.removeprefix(OWN)}"
    _GIVEN[name] = replace(found, name=name)
    return name


class Reported(NamedTuple):
    """What the evaluations of a run measure, besides the loss."""

    metrics: tuple[str, ...] = ()  # names of the further metrics
    score: str = "accuracy"  # the metric that runs are compared by


class _Settings(Protocol):
    """The section ``training`` of a scenario, or what has the same fields."""

    @property
    def loss(self) -> str: ...

    @property
    def score(self) -> str: ...

    @property
    def metrics(self) -> tuple[str, ...]: ...


def reported(training: _Settings) -> Reported:
    """What the evaluations of a scenario's runs measure."""
    own: tuple[str, ...] = ()
    score = training.score
    if training.loss != CROSS_ENTROPY.name and not (
        score != AUTO and training.loss.startswith(OWN)  # of another process
    ):
        found = loss_named(training.loss)
        own, score = found.metrics, found.score if score == AUTO else score
    score = CROSS_ENTROPY.score if score == AUTO else score
    further = dict.fromkeys((*own, *training.metrics))
    return Reported(tuple(name for name in further if name not in (score, "loss")), score)


def squared_error(outputs: Array, targets: Array) -> Array:
    """The mean of (output - target)² over a sample's numbers."""
    xp = outputs.__array_namespace__()
    return xp.mean(xp.square(_apart(outputs, targets)), axis=1)


def absolute_error(outputs: Array, targets: Array) -> Array:
    """The mean of |output - target| over a sample's numbers."""
    xp = outputs.__array_namespace__()
    return xp.mean(xp.abs(_apart(outputs, targets)), axis=1)


def huber(outputs: Array, targets: Array) -> Array:
    """Half the squared error up to a distance of 1, and linear beyond (Huber 1964)."""
    xp = outputs.__array_namespace__()
    far = xp.abs(_apart(outputs, targets))
    near = xp.minimum(far, 1)
    return xp.mean(near * (far - 0.5 * near), axis=1)


def _apart(outputs: Array, targets: Array) -> Array:
    size = len(outputs)
    return outputs.reshape(size, -1) - targets.reshape(size, -1).astype(outputs.dtype)


def moments_of_error(outputs: Array, targets: Array) -> Array:
    """Of each of k numbers the squared error, the target, and the target's square: [B, 3k]."""
    xp = outputs.__array_namespace__()
    size = len(outputs)
    made = outputs.reshape(size, -1)
    wanted = targets.reshape(size, -1).astype(made.dtype)
    return xp.concatenate([xp.square(made - wanted), wanted, xp.square(wanted)], axis=1)


def _explained(means: Array) -> Array:
    """1 - error/variance of each number, and the mean of these; 0 where targets are constant."""
    xp = means.__array_namespace__()
    error, mean, square = means.reshape(3, -1)
    variance = square - xp.square(mean)
    # Rounding leaves constant targets a variance of about 1e-7 of their square.
    varies = variance > 1e-6 * square
    return xp.mean(xp.where(varies, 1 - error / xp.where(varies, variance, 1), 0))


def _root(means: Array) -> Array:
    xp = means.__array_namespace__()
    return xp.sqrt(means[0])


METRICS.register(
    Metric("r2", "coefficient of determination: the share of the targets' variance explained",
           moments_of_error, _explained, label="R²", targets="numbers")
)  # fmt: skip
METRICS.register(
    Metric("rmse", "root of the mean squared error, in the units of the targets", squared_error,
           _root, label="RMSE", better="lower", targets="numbers")
)  # fmt: skip
METRICS.register(
    Metric("mae", "mean absolute error, in the units of the targets", absolute_error, label="MAE",
           better="lower", targets="numbers")
)  # fmt: skip


def _of_tensors(name: str) -> Any:
    """A loss of PyTorch's by its name, which gives the mean of a batch."""

    def mean(outputs: Any, targets: Any) -> Any:
        return getattr(require("torch", "a PyTorch module").nn.functional, name)(outputs, targets)

    return mean


for _loss, _words, _values, _torch in (
    ("mse", "mean squared error", squared_error, "mse_loss"),
    ("mae", "mean absolute error", absolute_error, "l1_loss"),
    ("huber", "squared error up to a distance of 1 and linear beyond", huber, "huber_loss"),
):
    LOSSES.register(
        Loss(
            _loss,
            f"{_words}, for numbers",
            _values,
            "numbers",
            score="r2",
            metrics=("rmse", "mae"),
            torch=_of_tensors(_torch),
        )
    )


def token_cross_entropy(outputs: Array, targets: Array) -> Array:
    """-ln of the right token's probability, the mean over a sample's positions that count."""
    xp = outputs.__array_namespace__()
    size, length, tokens = outputs.shape
    each = cross_entropy(outputs.reshape(-1, tokens), targets.reshape(-1)).reshape(size, length)
    counts = targets >= 0
    most = xp.maximum(xp.sum(counts, axis=1), 1).astype(outputs.dtype)
    return xp.sum(xp.where(counts, each, 0), axis=1) / most


def correct_tokens(outputs: Array, targets: Array) -> Array:
    """How many tokens have the largest output, and how many count: [B, 2]."""
    xp = outputs.__array_namespace__()
    counts = targets >= 0
    hits = (xp.argmax(outputs, axis=2) == targets) & counts
    each = xp.stack([xp.sum(hits, axis=1), xp.sum(counts, axis=1)], axis=1)
    return each.astype(outputs.dtype)


def surprise(outputs: Array, targets: Array) -> Array:
    """-ln of the tokens' probabilities, added up, and how many tokens count: [B, 2]."""
    xp = outputs.__array_namespace__()
    size, length, tokens = outputs.shape
    each = cross_entropy(outputs.reshape(-1, tokens), targets.reshape(-1)).reshape(size, length)
    counts = targets >= 0
    total = xp.sum(xp.where(counts, each, 0), axis=1)
    return xp.stack([total, xp.sum(counts, axis=1).astype(outputs.dtype)], axis=1)


def _quotient(means: Array) -> Array:
    """The first of two averages over the second; 0 where nothing counts."""
    xp = means.__array_namespace__()
    there = means[1] > 0
    return xp.where(there, means[0] / xp.where(there, means[1], 1), 0)


def _perplexity(means: Array) -> Array:
    xp = means.__array_namespace__()
    return xp.exp(_quotient(means))


METRICS.register(
    Metric("token_accuracy", "share of the tokens that have the largest output", correct_tokens,
           _quotient, label="token accuracy", share=True, targets="tokens")
)  # fmt: skip
METRICS.register(
    Metric("perplexity", "e to the mean cross-entropy of a token: of so many it is in doubt",
           surprise, _perplexity, better="lower", targets="tokens")
)  # fmt: skip


def _entropy_of_tensors(outputs: Any, targets: Any) -> Any:
    """`token_cross_entropy` of PyTorch tensors, [B]."""
    torch = require("torch", "a PyTorch module")
    counts = targets >= 0
    each = torch.nn.functional.cross_entropy(
        outputs.transpose(1, 2), targets.clamp_min(0), reduction="none"
    )
    return torch.where(counts, each, 0.0).sum(dim=1) / counts.sum(dim=1).clamp_min(1)


LOSSES.register(
    Loss("token-cross-entropy", "-ln of each token's probability, for sequences of tokens",
         token_cross_entropy, "tokens", score="token_accuracy", metrics=("perplexity",),
         torch=_entropy_of_tensors)
)  # fmt: skip
