"""Regression: what is minimised, and how far predicted numbers lie from the targets."""

from __future__ import annotations

__all__ = ["absolute_error", "huber", "moments_of_error", "squared_error"]

from typing import TYPE_CHECKING, Any

from joulemesh.metrics.losses import Loss
from joulemesh.metrics.metric import Metric
from joulemesh.optional import require
from joulemesh.registries import LOSSES, METRICS

if TYPE_CHECKING:
    import jax


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean of (output - target)² over a sample's numbers.

    >>> import jax.numpy as jnp
    >>> squared_error(jnp.array([[1.0, 2.0]]), jnp.array([[1.0, 4.0]])).tolist()
    [2.0]
    """
    import jax.numpy as jnp

    return jnp.mean(jnp.square(_apart(outputs, targets)), axis=1)


def absolute_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean of |output - target| over a sample's numbers.

    >>> import jax.numpy as jnp
    >>> absolute_error(jnp.array([[1.0, 2.0]]), jnp.array([[1.0, 4.0]])).tolist()
    [1.0]
    """
    import jax.numpy as jnp

    return jnp.mean(jnp.abs(_apart(outputs, targets)), axis=1)


def huber(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Half the squared error up to a distance of 1, and linear beyond (Huber 1964).

    >>> import jax.numpy as jnp
    >>> huber(jnp.array([[0.5], [3.0]]), jnp.zeros((2, 1))).tolist()
    [0.125, 2.5]
    """
    import jax.numpy as jnp

    far = jnp.abs(_apart(outputs, targets))
    near = jnp.minimum(far, 1)
    return jnp.mean(near * (far - 0.5 * near), axis=1)


def _apart(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Outputs less targets, a row for each sample."""
    size = len(outputs)
    return outputs.reshape(size, -1) - targets.reshape(size, -1).astype(outputs.dtype)


def moments_of_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Of each of k numbers the squared error, the target, and the target's square: [B, 3k].

    >>> import jax.numpy as jnp
    >>> moments_of_error(jnp.array([[1.0]]), jnp.array([[3.0]])).tolist()
    [[4.0, 3.0, 9.0]]
    """
    import jax.numpy as jnp

    size = len(outputs)
    made = outputs.reshape(size, -1)
    wanted = targets.reshape(size, -1).astype(made.dtype)
    return jnp.concatenate([jnp.square(made - wanted), wanted, jnp.square(wanted)], axis=1)


def _explained(means: jax.Array) -> jax.Array:
    """1 - error/variance of each number, and the mean of these; 0 where targets are constant."""
    import jax.numpy as jnp

    error, mean, square = means.reshape(3, -1)
    variance = square - jnp.square(mean)
    # Rounding leaves constant targets a variance of about 1e-7 of their square.
    varies = variance > 1e-6 * square
    return jnp.mean(jnp.where(varies, 1 - error / jnp.where(varies, variance, 1), 0))


def _root(means: jax.Array) -> jax.Array:
    import jax.numpy as jnp

    return jnp.sqrt(means[0])


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
