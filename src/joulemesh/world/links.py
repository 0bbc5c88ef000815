"""What a link costs: eqs. `ticm` and `eicm`, per bit and per direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import ScenarioError
from joulemesh.world.limits import usable

__all__ = ["LinkCosts", "link_costs", "require_usable_links", "seconds_per_bit"]

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


@dataclass(frozen=True, eq=False)
class LinkCosts:
    """Cost of one bit on every link of the graph, each float64 [E].

    ``forward`` is from ``edges[:, 0]`` to ``edges[:, 1]``; the two directions differ where
    transmit powers do, or the gains of a trace.

    Attributes:
        forward_s, backward_s: seconds.
        forward_j, backward_j: joules of the sender.
        forward_receive_j, backward_receive_j: joules of the receiver of such a bit: forward, of
            ``edges[:, 1]``. None where receiving is free.
        forward_error, backward_error: probability that a packet is lost, where the costs are those
            of the transmissions that are expected; None where they are known.
        tries: how often a packet is sent at most.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    forward_j: FloatArray
    backward_j: FloatArray
    forward_receive_j: FloatArray | None = None
    backward_receive_j: FloatArray | None = None
    forward_error: FloatArray | None = field(default=None, kw_only=True)
    backward_error: FloatArray | None = field(default=None, kw_only=True)
    tries: int = field(default=1, kw_only=True)

    def weight(self) -> FloatArray:
        """Joules of one bit both ways, at both ends: the weight of a link in the spanning tree."""
        forward, backward = self.both_ends_j()
        return forward + backward

    def both_ends_j(self) -> tuple[FloatArray, FloatArray]:
        """Joules of one bit, sender and receiver together, forward and backward.

        >>> one = np.ones(1)
        >>> LinkCosts(one, one, 2 * one, 3 * one, 0.5 * one, one).both_ends_j()
        (array([2.5]), array([4.]))
        """
        if self.forward_receive_j is None or self.backward_receive_j is None:
            return self.forward_j, self.backward_j
        return self.forward_j + self.forward_receive_j, self.backward_j + self.backward_receive_j

    def device_j(
        self, edges: NDArray[np.int64], devices: int, often: FloatArray | float = 1.0
    ) -> FloatArray:
        """Joules of each device if one bit passes every link both ways, float64 [N].

        Args:
            edges: int64 [E, 2]: of these links.
            devices: number of devices N.
            often: [E]: how often a bit passes.

        >>> one = np.ones(1)
        >>> costs = LinkCosts(one, one, 2 * one, 3 * one, 0.5 * one, one)
        >>> costs.device_j(np.array([[0, 1]]), 2).tolist()
        [3.0, 3.5]
        """
        spent = np.bincount(edges[:, 0], often * self.forward_j, devices)
        spent = spent + np.bincount(edges[:, 1], often * self.backward_j, devices)
        if self.forward_receive_j is not None and self.backward_receive_j is not None:
            spent = spent + np.bincount(edges[:, 1], often * self.forward_receive_j, devices)
            spent = spent + np.bincount(edges[:, 0], often * self.backward_receive_j, devices)
        return np.asarray(spent, np.float64)

    def take(self, index: NDArray[np.int64]) -> LinkCosts:
        """The costs of some of the links."""
        some = self._each(lambda name, values: values[index])
        if self.forward_error is None or self.backward_error is None:
            return some
        return some.expected(self.forward_error[index], self.backward_error[index], self.tries)

    def expected(self, forward: FloatArray, backward: FloatArray, tries: int) -> LinkCosts:
        """The same costs, of the transmissions that are expected at these errors."""
        return replace(self, forward_error=forward, backward_error=backward, tries=tries)

    def scaled(self, forward: ArrayLike, backward: ArrayLike) -> LinkCosts:
        """The costs of sending every bit several times, so often, [E] or one number.

        >>> one = np.ones(1)
        >>> LinkCosts(one, one, one, one, one, one).scaled(2.0, 3.0).backward_receive_j
        array([3.])
        """
        ways = {"forward": np.asarray(forward), "backward": np.asarray(backward)}
        return self._each(lambda name, values: values * ways[name.partition("_")[0]])

    def _each(self, change: Callable[[str, FloatArray], FloatArray]) -> LinkCosts:
        """Every figure changed, by its name; those that are not counted stay so."""
        every = {one.name: getattr(self, one.name) for one in fields(self)}
        figures = {name: one for name, one in every.items() if name.endswith(("_s", "_j"))}
        changed: dict[str, Any] = {
            name: change(name, one) for name, one in figures.items() if one is not None
        }
        return LinkCosts(**changed)


def link_costs(
    edges: NDArray[np.int64],
    gain: FloatArray,
    power_w: FloatArray,
    bandwidth_hz: float,
    noise_w_per_hz: float,
    max_rate_bps: float = np.inf,
    *,
    send_j: FloatArray | None = None,
    receive_j: FloatArray | None = None,
) -> LinkCosts:
    """Price every link of a graph for its present gains.

    Args:
        edges: int64 [E, 2].
        gain: float64 [E], or [E, 2] where the two directions of a link differ.
        power_w: float64 [N].
        bandwidth_hz: of a link.
        noise_w_per_hz: noise power density.
        max_rate_bps: fastest rate of the radio.
        send_j: float64 [N]: joules of a bit that a device sends, as measured, in place of its
            transmit power times the seconds.
        receive_j: float64 [N]: joules of a bit that a device receives; none unless given.

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
    if send_j is not None:
        forward_j, backward_j = send_j[edges[:, 0]], send_j[edges[:, 1]]
    costs = LinkCosts(forward_s, backward_s, forward_j, backward_j)
    if receive_j is not None:
        heard = receive_j[edges]
        costs = replace(costs, forward_receive_j=heard[:, 1], backward_receive_j=heard[:, 0])
    require_usable_links(
        edges,
        costs,
        lambda link: f"(gain {both[link].min():.3g}); raise transmit_power_w or its gain",
    )
    return costs


def require_usable_links(
    edges: NDArray[np.int64], costs: LinkCosts, remedy: Callable[[int], str]
) -> None:
    """Refuse a link whose seconds or joules cannot be computed with.

    Args:
        edges: int64 [E, 2].
        costs: of these links.
        remedy: what is wrong with a link, by its position, and what to do about it.

    Raises:
        ScenarioError: naming the first such link.
    """
    figures = (costs.forward_s, costs.backward_s, costs.forward_j, costs.backward_j)
    broken = ~np.logical_and.reduce([usable(figure) for figure in figures])
    if broken.any():
        link = int(np.argmax(broken))
        i, j = edges[link]
        raise ScenarioError(
            f"the link {i}-{j} has no usable rate {remedy(link)}, or leave the link out"
        )
