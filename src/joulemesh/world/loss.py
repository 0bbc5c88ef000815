"""Packets that are lost on the air, and how often they are sent.

A message is cut into packets. A packet that is lost is sent again, at most ``tries`` times in all;
after that its message is lost. What is planned is the expected number of transmissions; what
happens in a run is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world.links import packets_of

__all__ = ["Packets", "build_packets", "expected_tries", "snr_error"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def expected_tries(error: ArrayLike, tries: int) -> FloatArray:
    """Expected number of transmissions of a packet that is sent at most R times.

    Try k + 1 is made if the k before it failed, with probability p^k: the sum over k < R is
    (1 − p^R) / (1 − p).

    Args:
        error: probability p that a transmission is lost.
        tries: R.

    >>> expected_tries([0.0, 0.1, 0.5], 2).round(6).tolist()
    [1.0, 1.1, 1.5]
    """
    lost = np.asarray(error, np.float64)
    return np.asarray((1.0 - lost**tries) / (1.0 - lost))


def snr_error(
    snr: FloatArray, rate_bps: FloatArray, bandwidth_hz: float, packet_bits: float
) -> FloatArray:
    """Probability that a packet is lost, from the margin of the SNR over what the rate needs.

    A packet of k bits at r bit/s takes n = k·B/r uses of a complex Gaussian channel. With the best
    code of that length it is lost with probability

        p ≈ Q((n·C − k + ½·log2 n) / √(n·V)),

    where C = log2(1 + SNR) is the capacity and V = SNR·(SNR + 2) / (SNR + 1)² · (log2 e)² the
    dispersion of the channel per use. At capacity there is no margin and about every second packet
    is lost; a rate a few per cent lower leaves hardly any.

    Args:
        snr: signal-to-noise ratio.
        rate_bps: rate at which packets are sent, at most the capacity.
        bandwidth_hz: B.
        packet_bits: k.

    References:
        Polyanskiy, Poor, Verdú, "Channel Coding Rate in the Finite Blocklength Regime", IEEE
        Trans. Inf. Theory 56(5), 2010: Theorem 54 (the Gaussian channel; a complex use is two real
        ones), as the normal approximation with the term ½·log2 n, solved for the probability.

    >>> at = np.array([1.0, 0.98, 0.9]) * 20e6  # of the capacity, 20 Mbit/s
    >>> snr_error(np.full(3, 1.0), at, 20e6, 12000.0).round(4).tolist()
    [0.4803, 0.0343, 0.0]
    """
    uses = packet_bits * bandwidth_hz / rate_bps
    capacity = np.log2(1.0 + snr)
    dispersion = snr * (snr + 2.0) / (snr + 1.0) ** 2 * np.log2(np.e) ** 2
    margin = uses * capacity - packet_bits + 0.5 * np.log2(uses)
    from scipy.special import ndtr  # takes long to import

    return np.asarray(ndtr(-margin / np.sqrt(uses * dispersion)))


@dataclass(frozen=True, eq=False)
class Packets:
    """How messages are cut into packets, and how likely a packet is lost.

    Attributes:
        bits: payload of a packet.
        tries: how often a packet is sent at the most.
        error: probability that a transmission is lost: one for all links, float64 [E, 2] per link
            and direction, or None where it follows from the SNR.
    """

    bits: float
    tries: int
    error: float | FloatArray | None

    def errors(self, links: NDArray[np.int64] | None, count: int) -> FloatArray:
        """float64 [count, 2]: the probabilities that were given, of all links or of some."""
        given = np.asarray(self.error, np.float64)
        if given.ndim == 2 and links is not None:
            given = given[links]
        return np.broadcast_to(given, (count, 2))

    def arrival(self, bits: FloatArray, error: FloatArray) -> FloatArray:
        """Probability that a message arrives: that each of its packets does, in one of the tries.

        Args:
            bits: float64 [messages].
            error: float64 [messages]: of the message's link.

        >>> Packets(100.0, 2, 0.5).arrival(np.array([100.0, 150.0]), np.array([0.5, 0.5])).tolist()
        [0.75, 0.5625]
        """
        return np.asarray((1.0 - error**self.tries) ** packets_of(bits, self.bits))

    def transmissions(
        self,
        bits: FloatArray,
        error: FloatArray,
        rng: np.random.Generator,
        besides: FloatArray | float = 0.0,
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Draw how often messages are sent, and which of them are lost.

        The packets of a message fail independently of each other; those that failed are sent
        again, so that try k + 1 carries a binomial share of what try k carried. The last packet of
        a message may be shorter. A packet that fails every time costs its message; the others of
        that message are sent all the same.

        Args:
            bits: float64 [messages].
            error: float64 [messages]: of the message's link.
            rng: of one exchange; it is read try by try.
            besides: float64 [messages]: what each packet of a message takes besides its payload,
                in bits of the message's link.

        Returns:
            float64 [messages]: what is on the air over what the message takes if nothing fails,
            and bool [messages]: is the message lost?

        >>> packets, rng = Packets(100.0, 2, 0.5), np.random.default_rng(0)
        >>> times, lost = packets.transmissions(np.full(4, 50.0), np.full(4, 0.5), rng)
        >>> times.tolist(), lost.tolist()
        ([2.0, 1.0, 1.0, 1.0], [True, False, False, False])
        """
        packets = packets_of(bits, self.bits)
        full = np.maximum(packets - 1, 0).astype(np.int64)
        last_bits = bits - full * self.bits
        on_air = np.zeros(len(bits))
        last = np.ones(len(bits), np.int64)
        for _ in range(self.tries):
            on_air += full * (self.bits + besides) + last * (last_bits + besides)
            full, last = rng.binomial(full, error), rng.binomial(last, error)
        with np.errstate(invalid="ignore"):
            times = np.where(bits > 0, on_air / (bits + packets * besides), 1.0)
        return times, (full + last) > 0


def build_packets(scenario: Scenario, loss: FloatArray | None = None) -> Packets | None:
    """How the scenario's packets are lost; None where none is.

    Args:
        scenario: what is asked.
        loss: float64 [E, 2]: of measured links, if they say it.

    Raises:
        ScenarioError: losses that the rest of the scenario cannot have.
    """
    network, plan = scenario.network, scenario.plan
    error: float | FloatArray | None = network.packet_error
    if loss is not None and (loss > 0).any():
        if (loss >= 1).any():
            raise ScenarioError(
                f"{network.links} has loss = {loss.max():g}; it must be the probability that a "
                "packet is lost, below 1"
            )
        if error != 0:
            raise ScenarioError(
                f"network.packet_error = {error} beside the column loss of network.links; "
                "leave out one of them",
                field="network.packet_error",
            )
        error = loss
    elif error == "snr":
        if network.links is not None:
            raise ScenarioError(
                'network.packet_error = "snr" with network.links, whose rates are measured and '
                "have no SNR; give links a column loss, or set a probability",
                field="network.packet_error",
            )
        if network.max_rate_bps is None:
            raise ScenarioError(
                'network.packet_error = "snr" without network.max_rate_bps: links that send at '
                "capacity have no margin, and about every second packet would be lost; set "
                "network.max_rate_bps, or a probability",
                field="network.packet_error",
            )
        error = None
    elif error == 0:
        return None
    for name, value in (("physics", plan.physics), ("timing", plan.clock)):
        if value == "paper":
            raise ScenarioError(
                f'network.packet_error with plan.{name} = "paper", whose exchanges have a price '
                "but no messages to lose",
                remedies=[(Edit("network.packet_error", 0.0),)],
            )
    if scenario.training.weights == "samples":
        raise ScenarioError(
            'network.packet_error with training.weights = "samples": what takes the place of a '
            "lost message has no weight by samples",
            remedies=[(Edit("training.weights", "uniform"),)],
        )
    return Packets(float(network.packet_bits), network.tries, error)
