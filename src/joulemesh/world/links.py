"""What a link costs: eqs. `ticm` and `eicm`, per bit and per direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.world.limits import usable

__all__ = ["LinkCosts", "link_costs", "seconds_per_bit"]

FloatArray = NDArray[np.float64]


def seconds_per_bit(
    power_w: FloatArray,
    gain: FloatArray,
    bandwidth_hz: float,
    noise_w_per_hz: float,
    max_rate_bps: float = np.inf,
) -> FloatArray:
    """Seconds to send one bit: the inverse of B log2(1 + p h / (B N_0)), eq. `ticm` with s = 1.

    A radio that has a fastest rate sends no faster, however good the link.

    >>> one = np.array([1.0])
    >>> float(1 / seconds_per_bit(one, 3.0 * one, 1e6, 1e-6)[0])  # SNR 3: two bits per hertz
    2000000.0
    >>> float(1 / seconds_per_bit(one, 3.0 * one, 1e6, 1e-6, 5e5)[0])
    500000.0
    """
    snr = power_w * gain / (bandwidth_hz * noise_w_per_hz)
    shannon = np.log(2.0) / (bandwidth_hz * np.log1p(snr))
    return np.asarray(np.maximum(shannon, 1.0 / max_rate_bps))


@dataclass(frozen=True)
class LinkCosts:
    """Cost of one bit on every link of the graph, each float64 [E].

    ``forward`` is from ``edges[:, 0]`` to ``edges[:, 1]``; the two directions differ where
    transmit powers do, or the gains of a trace.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    forward_j: FloatArray
    backward_j: FloatArray

    def weight(self) -> FloatArray:
        """Joules to send one bit both ways: the weight of a link in the spanning tree."""
        return self.forward_j + self.backward_j

    def take(self, index: NDArray[np.int64]) -> LinkCosts:
        """The costs of some of the links."""
        return LinkCosts(
            self.forward_s[index],
            self.backward_s[index],
            self.forward_j[index],
            self.backward_j[index],
        )

    def scaled(self, forward: FloatArray, backward: FloatArray) -> LinkCosts:
        """The costs of links on which every bit is sent so many times, by direction [E].

        >>> one = np.ones(1)
        >>> LinkCosts(one, one, one, one).scaled(2 * one, one).weight().tolist()
        [3.0]
        """
        return LinkCosts(
            self.forward_s * forward,
            self.backward_s * backward,
            self.forward_j * forward,
            self.backward_j * backward,
        )


def link_costs(
    edges: NDArray[np.int64],
    gain: FloatArray,
    power_w: FloatArray,
    bandwidth_hz: float,
    noise_w_per_hz: float,
    max_rate_bps: float = np.inf,
) -> LinkCosts:
    """Price every link of a graph for its present gains.

    Args:
        edges: int64 [E, 2].
        gain: float64 [E], or [E, 2] where the two directions of a link differ.
        power_w: float64 [N].
        bandwidth_hz: of a link.
        noise_w_per_hz: noise power density.
        max_rate_bps: fastest rate of the radio.

    Raises:
        ScenarioError: a link is so weak that its rate is zero in floating point.
    """
    forward_w, backward_w = power_w[edges[:, 0]], power_w[edges[:, 1]]
    both = gain if gain.ndim == 2 else np.broadcast_to(gain[:, None], (len(gain), 2))
    with np.errstate(all="ignore"):  # overflow and underflow are checked below
        radio = (bandwidth_hz, noise_w_per_hz, max_rate_bps)
        forward_s = seconds_per_bit(forward_w, both[:, 0], *radio)
        backward_s = seconds_per_bit(backward_w, both[:, 1], *radio)
        forward_j, backward_j = forward_w * forward_s, backward_w * backward_s
    broken = ~np.logical_and.reduce(
        [usable(figure) for figure in (forward_s, backward_s, forward_j, backward_j)]
    )
    if broken.any():
        link = int(np.argmax(broken))
        i, j = edges[link]
        raise ScenarioError(
            f"the link {i}-{j} has no usable rate (gain {both[link].min():.3g}); "
            "raise transmit_power_w or its gain, or leave the link out"
        )
    return LinkCosts(forward_s, backward_s, forward_j, backward_j)
