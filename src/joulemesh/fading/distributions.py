"""Block fading by a distribution of unit mean power, drawn anew for every block and link.

M. K. Simon, M.-S. Alouini, "Digital Communication over Fading Channels", Wiley 2005, chapter 2.
"""

from __future__ import annotations

__all__ = ["distribution"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.fading.model import FadingModel, Links
from joulemesh.registries import CHANNELS

FloatArray = NDArray[np.float64]


def distribution(
    name: str,
    description: str,
    *,
    draw: Callable[..., FloatArray],
    quantile: Callable[..., float],
    parameters: tuple[str, ...] = (),
) -> FadingModel:
    """A fading model that multiplies the mean gain of every link by a random power.

    Args:
        name: as the scenario writes it.
        description: one line.
        draw: (random stream, number of links, parameters) -> float64 [E], of mean one. A link's
            power must not depend on how many links follow it.
        quantile: (probability q, parameters) -> the power that a fade exceeds with probability q,
            whose link energy is therefore the q quantile.
        parameters: fields of the scenario's section ``network`` that both take by name.
    """

    def make(links: Links, given: Mapping[str, Any], _argument: str) -> _Drawn:
        return _Drawn(links, partial(draw, **given), partial(quantile, **given))

    return FadingModel(name, description, make, parameters)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Gains that are pure functions of the seed, the block and the link."""

    links: Links
    draw: Callable[[np.random.Generator, int], FloatArray]
    quantile: Callable[[float], float]
    data: tuple[FloatArray, ...] = ()

    def gain(self, block: int) -> FloatArray:
        mean_gain = self.links.mean_gain
        return mean_gain * self.draw(self.links.chance(block), len(mean_gain))

    def forecast(self, quantile: float, seen: int) -> FloatArray:
        """The distribution is known, so what has been seen teaches nothing."""
        return np.asarray(self.links.mean_gain * self.quantile(quantile))

    def edition(self, seen: int) -> int:
        return 0


# SciPy's special functions are imported where they are needed, so that planning starts at once.


def _rayleigh_draw(rng: np.random.Generator, links: int) -> FloatArray:
    return rng.exponential(size=links)


def _rayleigh_quantile(q: float) -> float:
    return float(-np.log(q))


def _rician_draw(rng: np.random.Generator, links: int, *, rician_k_db: float | str) -> FloatArray:
    """Power of a fixed path, K times as strong as all scattered ones together, and of these."""
    k = _linear(rician_k_db)
    scattered = rng.standard_normal((links, 2))
    scattered[:, 0] += np.sqrt(2 * k)
    return np.asarray((scattered**2).sum(axis=1) / (2 * (k + 1)))


def _rician_quantile(q: float, *, rician_k_db: float | str) -> float:
    """2 (K + 1) times the power is noncentral chi-square: 2 degrees of freedom, noncentrality 2 K.

    >>> round(_rician_quantile(0.5, rician_k_db="-inf"), 12) == round(float(np.log(2)), 12)
    True
    """
    from scipy.special import chndtrix

    k = _linear(rician_k_db)
    return float(chndtrix(1.0 - q, 2.0, 2 * k) / (2 * (k + 1)))


def _nakagami_draw(rng: np.random.Generator, links: int, *, nakagami_m: float) -> FloatArray:
    return rng.standard_gamma(nakagami_m, size=links) / nakagami_m


def _nakagami_quantile(q: float, *, nakagami_m: float) -> float:
    """The power is a gamma variable of shape m and mean one."""
    from scipy.special import gammainccinv

    return float(gammainccinv(nakagami_m, q) / nakagami_m)


def _linear(decibels: float | str) -> float:
    return float(10 ** (float(decibels) / 10))


for _model in (
    FadingModel(
        "none", "gains stay as path loss and shadowing make them", lambda links, given, _: None
    ),
    distribution(
        "rayleigh",
        "no line of sight: the power is exponential",
        draw=_rayleigh_draw,
        quantile=_rayleigh_quantile,
    ),
    distribution(
        "rician",
        "a line of sight, K times as strong as the scattered paths (K = 0 is rayleigh)",
        draw=_rician_draw,
        quantile=_rician_quantile,
        parameters=("rician_k_db",),
    ),
    distribution(
        "nakagami",
        "gamma power of shape m, which fits many measurements (m = 1 is rayleigh)",
        draw=_nakagami_draw,
        quantile=_nakagami_quantile,
        parameters=("nakagami_m",),
    ),
):
    CHANNELS.register(_model)
