"""Losses: what training minimises, of a model's outputs and the targets, as entries of a registry.

JAX is loaded when one of the built-in ones is first computed.
"""

from __future__ import annotations

__all__ = [
    "CROSS_ENTROPY",
    "Loss",
    "Reported",
    "TargetKind",
    "as_loss",
    "loss_named",
    "name_of",
    "reported",
]

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from joulemesh.errors import ScenarioError
from joulemesh.metrics.metric import cross_entropy
from joulemesh.optional import require
from joulemesh.own_code import in_file, is_in_file, require_call
from joulemesh.registries import LOSSES

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
    joulemesh.errors.ScenarioError: loss 'odd': values cannot be called with (outputs, targets): ...
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
    """The mean cross-entropy of PyTorch tensors."""
    return require("torch", "a PyTorch module").nn.functional.cross_entropy(outputs, targets)


CROSS_ENTROPY = LOSSES.register(
    Loss("cross-entropy", "-ln of the label's probability, for classes", cross_entropy, "classes",
         score="accuracy", torch=_cross_entropy)
)  # fmt: skip


def as_loss(given: Any, name: str = "") -> Loss:
    """A loss of the user's own: the record itself, or a function of outputs and targets.

    Args:
        given: a `Loss`, or a function that is computed with JAX arrays or PyTorch tensors, as the
            model is. What a function takes is what the data hold, and runs are compared by the
            loss itself; a `Loss` says more.
        name: of a function, if it shall not be its own.

    >>> as_loss(lambda outputs, targets: (outputs - targets) ** 2, "square").score
    'loss'
    """
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
    """The loss that a scenario names: of the registry, or ``"my_losses.py:quantile"``.

    Raises:
        ScenarioError: there is none.

    >>> loss_named("mse").targets
    'numbers'
    """
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
    """What a scenario calls a loss that is given in Python; `loss_named` then finds it.

    Args:
        given: the name of a loss, a `Loss`, or a function.

    >>> name_of("mse"), name_of(lambda outputs, targets: outputs)
    ('mse', 'own:lambda')
    """
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
    """What the evaluations of a run measure, besides the loss.

    Attributes:
        metrics: names of the further metrics.
        score: the metric that runs are compared by.
    """

    metrics: tuple[str, ...] = ()
    score: str = "accuracy"


class _Settings(Protocol):
    """The section ``training`` of a scenario, or what has the same fields."""

    @property
    def loss(self) -> str: ...

    @property
    def score(self) -> str: ...

    @property
    def metrics(self) -> tuple[str, ...]: ...


def reported(training: _Settings) -> Reported:
    """What the evaluations of a scenario's runs measure.

    Args:
        training: with ``loss``, ``score`` and ``metrics``.

    >>> from joulemesh.scenario import Training
    >>> reported(Training())
    Reported(metrics=(), score='accuracy')
    >>> reported(Training(loss="mse", score="rmse"))
    Reported(metrics=('mae',), score='rmse')
    """
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
