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
        """Probability that each packet of a message arrives, in one of the tries."""
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
    """How the scenario's packets are lost; None where none is."""
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
