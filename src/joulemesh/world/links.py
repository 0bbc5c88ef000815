"""What a link costs (eqs. `ticm` and `eicm`), per bit and per direction, and the packets it loses.

Bits travel in packets, and packets in messages. A message of b bits takes p = ceil(b / k) packets
of k bits of payload; each packet has a header and takes channel access, a preamble and an
acknowledgement, and each message takes a device some time to handle (`Framing`).

A packet that is lost is sent again, at most ``tries`` times in all; after that its message is lost.
What is planned is the expected number of transmissions; what happens in a run is drawn.

Costs are those of the highest power. Where senders may choose less, `Radio` says how seconds and
watts follow the power, and `LinkCosts.at_power` gives the costs of other powers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world.quantities import usable

FloatArray = NDArray[np.float64]

_ROUNDING = 1e-12


def seconds_per_bit(
    power_w: FloatArray,
    gain: FloatArray,
    bandwidth_hz: float,
    noise_w_per_hz: float,
    max_rate_bps: float = np.inf,
) -> FloatArray:
    """Seconds to send one bit: the inverse of B log2(1 + p h / (B N_0)), eq. `ticm` with s = 1.

    A radio that has a fastest rate sends no faster, however good the link.
    """
    snr = power_w * gain / (bandwidth_hz * noise_w_per_hz)
    shannon = np.log(2.0) / (bandwidth_hz * np.log1p(snr))
    return np.asarray(np.maximum(shannon, 1.0 / max_rate_bps))


def packets_of(bits: ArrayLike, packet_bits: float) -> FloatArray:
    """Number of packets in which messages travel."""
    return np.ceil(np.asarray(bits, np.float64) / packet_bits * (1 - _ROUNDING))


@dataclass(frozen=True, eq=False)
class Framing:
    """What messages cost besides their bits.

    Attributes:
        packet_bits: bits of payload that a packet carries.
        header_bits: bits that a packet has besides.
        packet_s: seconds that a packet takes besides its bits: channel access, preamble,
            acknowledgement. The sender draws what it draws while it sends, the receiver what it
            draws while it receives, which is an upper bound.
        message_s: seconds to handle a message, for which its link is taken.
        message_j: float64 [N]: joules that a device spends on handling a message that it sends or
            receives; None where that is free.
    """

    packet_bits: float
    header_bits: float = 0.0
    packet_s: float = 0.0
    message_s: float = 0.0
    message_j: FloatArray | None = None

    @classmethod
    def of(cls, scenario: Scenario, message_j: FloatArray | None = None) -> Framing | None:
        """The scenario's, with what handling costs each device; None where all is free."""
        network = scenario.network
        made = cls(
            packet_bits=float(network.packet_bits),
            header_bits=float(network.header_bits),
            packet_s=network.packet_s,
            message_s=scenario.plan.message_s,
            message_j=message_j,
        )
        costs = made.header_bits or made.packet_s or made.message_s or message_j is not None
        return made if costs else None


@dataclass(frozen=True, eq=False)
class Radio:
    """What the senders of links may choose; each array is float64 [E, 2], forward and backward.

    Attributes:
        noise_w: transmit power at which a link has an SNR of 1. Where packets are lost by their
            SNR margin, so much more that a rate at Shannon's bound of it keeps the margin of the
            highest power.
        lowest_w, highest_w: limits of the sender's power.
        circuit_w: what the sender's circuits draw while it sends at the highest power.
        bandwidth_hz, max_rate_bps: of every link.
        sender: int64 [E, 2]: the device that chooses.
        levels_w: float64 [N, L, 2]: the powers that each device has, ascending, and what it draws
            at each in all; None if it may choose any power.
        listens: does a receiver pay for the seconds in which it receives?
        header_bits: bits of a packet besides its payload.
    """

    noise_w: FloatArray
    lowest_w: FloatArray
    highest_w: FloatArray
    circuit_w: FloatArray
    bandwidth_hz: float
    max_rate_bps: float
    sender: NDArray[np.int64]
    levels_w: FloatArray | None = None
    listens: bool = False
    header_bits: float = 0.0

    def drawn_w(self, power_w: FloatArray) -> FloatArray:
        """float64 [E, 2]: what senders draw in all at some powers, which are levels if they have
        some.
        """
        if self.levels_w is None:
            return power_w + self.circuit_w
        drawn = self.highest_w + self.circuit_w
        for level in np.moveaxis(self.levels_w, 1, 0)[::-1]:
            drawn = np.where(power_w == level[self.sender, 0], level[self.sender, 1], drawn)
        return drawn

    def take(self, index: NDArray[np.int64]) -> Radio:
        """The radio of some of the links."""
        names = ("noise_w", "lowest_w", "highest_w", "circuit_w", "sender")
        return replace(self, **{name: getattr(self, name)[index] for name in names})

    def seconds(self, power_w: FloatArray) -> FloatArray:
        """Seconds of one bit, sent once, at some powers."""
        shannon = np.log(2.0) / (self.bandwidth_hz * np.log1p(power_w / self.noise_w))
        return np.asarray(np.maximum(shannon, 1.0 / self.max_rate_bps))

    @cached_property
    def least_s(self) -> FloatArray:
        """Seconds of one bit, sent once, at the highest power."""
        return self.seconds(self.highest_w)

    def slower(self, power_w: FloatArray) -> FloatArray:
        """How many times as long a bit takes at some powers as at the highest."""
        return np.asarray(self.seconds(power_w) / self.least_s)


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
        packet_bits: bits of payload that a packet carries.
        packet: float64 [E, 2]: bits that a link could carry, forward and backward, in the time
            that a packet takes besides its payload; None where that is free.
        message: costs of a message, whatever its size; None where it has none.
        radio: what senders may choose; None where they may not, or have chosen.
        believed: the costs by which they choose, where they do not know these; None where they do.
        power_w: float64 [E, 2]: transmit powers that were chosen, forward and backward; None where
            every sender uses its highest.
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
    packet_bits: float = field(default=np.inf, kw_only=True)
    packet: FloatArray | None = field(default=None, kw_only=True)
    message: LinkCosts | None = field(default=None, kw_only=True)
    radio: Radio | None = field(default=None, kw_only=True)
    believed: LinkCosts | None = field(default=None, kw_only=True)
    power_w: FloatArray | None = field(default=None, kw_only=True)

    @property
    def settled(self) -> LinkCosts:
        """These costs, with nothing left to choose."""
        return self if self.radio is None else replace(self, radio=None, believed=None)

    def at_power(self, power_w: FloatArray) -> LinkCosts:
        """The costs at other powers of the senders, float64 [E, 2].

        A message takes as many bits and tries as at the highest power, and its packets the same
        time besides; only the seconds of a bit and the watts change.
        """
        radio = self.radio
        assert radio is not None
        longer = radio.slower(power_w)
        dearer = longer * (radio.drawn_w(power_w) / (radio.highest_w + radio.circuit_w))
        return replace(self.slowed(longer, dearer).settled, power_w=power_w)

    def slowed(self, longer: FloatArray, dearer: FloatArray | None = None) -> LinkCosts:
        """The costs of bits that take so many times as long, and so many times the joules to send.

        Both are float64 [E, 2]; ``dearer`` is ``longer`` unless given.
        """
        dearer = longer if dearer is None else dearer
        changed: dict[str, Any] = {}
        for way, name in enumerate(("forward", "backward")):
            changed[f"{name}_s"] = getattr(self, f"{name}_s") * longer[:, way]
            changed[f"{name}_j"] = getattr(self, f"{name}_j") * dearer[:, way]
            heard = getattr(self, f"{name}_receive_j")
            if heard is not None and self.radio is not None and self.radio.listens:
                changed[f"{name}_receive_j"] = heard * longer[:, way]
        if self.packet is not None and self.radio is not None:
            header = self.radio.header_bits
            changed["packet"] = header + (self.packet - header) / longer
        return replace(self, **changed)

    @property
    def free(self) -> bool:
        """Do packets and messages cost nothing but their bits?"""
        return self.packet is None and self.message is None

    def framed(self, edges: NDArray[np.int64], framing: Framing | None) -> LinkCosts:
        """These costs, with those of packets and messages."""
        if framing is None:
            return self
        packet = message = None
        if framing.header_bits or framing.packet_s:
            seconds = np.stack([self.forward_s, self.backward_s], axis=1)
            packet = framing.header_bits + framing.packet_s / seconds
        if framing.message_s or framing.message_j is not None:
            each_s, free = np.full(len(edges), framing.message_s), np.zeros(len(edges))
            message = LinkCosts(each_s, each_s, free, free)
            if framing.message_j is not None:
                first, second = framing.message_j[edges].T
                message = LinkCosts(each_s, each_s, first, second, second, first)
        return replace(self, packet_bits=framing.packet_bits, packet=packet, message=message)

    def payload_bps(self) -> tuple[FloatArray, FloatArray]:
        """Bits of payload per second, forward and backward, in messages of many full packets."""
        if self.packet is None:
            return 1.0 / self.forward_s, 1.0 / self.backward_s
        there, back = (1.0 + self.packet / self.packet_bits).T
        return 1.0 / (self.forward_s * there), 1.0 / (self.backward_s * back)

    def for_messages(self, bits: float) -> LinkCosts:
        """Costs of a bit if it travels in messages of so many bits, packets and handling included.

        They are costs without packets and messages, so that this changes nothing twice.
        """
        costs = self
        if self.packet is not None:
            times = 1.0 + packets_of(bits, self.packet_bits) / bits * self.packet
            plain = replace(self, packet=None, message=None)
            costs = replace(plain.scaled(times[:, 0], times[:, 1]), message=self.message)
        if self.message is not None:
            costs = replace(costs._plus(self.message, 1.0 / bits), message=None, radio=None)
        if costs is self:
            return self
        return replace(
            costs,
            forward_error=self.forward_error,
            backward_error=self.backward_error,
            tries=self.tries,
        )

    def _plus(self, other: LinkCosts, times: float) -> LinkCosts:
        """These costs and so many times others."""
        zero = np.zeros_like(self.forward_s)
        changed: dict[str, Any] = {}
        for name in _FIGURES:
            mine, more = getattr(self, name), getattr(other, name)
            if mine is not None or more is not None:
                changed[name] = (zero if mine is None else mine) + (
                    zero if more is None else times * more
                )
        return replace(self, **changed)

    def weight(self) -> FloatArray:
        """Joules of one bit both ways, at both ends: the weight of a link in the spanning tree."""
        forward, backward = self.both_ends_j()
        return forward + backward

    def both_ends_j(self) -> tuple[FloatArray, FloatArray]:
        """Joules of one bit, sender and receiver together, forward and backward."""
        if self.forward_receive_j is None or self.backward_receive_j is None:
            return self.forward_j, self.backward_j
        return self.forward_j + self.forward_receive_j, self.backward_j + self.backward_receive_j

    def device_j(
        self, edges: NDArray[np.int64], devices: int, often: FloatArray | float = 1.0
    ) -> FloatArray:
        """Joules of each device if one bit passes every link both ways, float64 [N]."""
        spent = np.bincount(edges[:, 0], often * self.forward_j, devices)
        spent = spent + np.bincount(edges[:, 1], often * self.backward_j, devices)
        if self.forward_receive_j is not None and self.backward_receive_j is not None:
            spent = spent + np.bincount(edges[:, 1], often * self.forward_receive_j, devices)
            spent = spent + np.bincount(edges[:, 0], often * self.backward_receive_j, devices)
        return np.asarray(spent, np.float64)

    def take(self, index: NDArray[np.int64]) -> LinkCosts:
        """The costs of some of the links."""
        packet = None if self.packet is None else self.packet[index]
        some = replace(
            self._each(lambda name, values: values[index], packet),
            radio=None if self.radio is None else self.radio.take(index),
            power_w=None if self.power_w is None else self.power_w[index],
        )
        if self.forward_error is None or self.backward_error is None:
            return some
        return some.expected(self.forward_error[index], self.backward_error[index], self.tries)

    def expected(self, forward: FloatArray, backward: FloatArray, tries: int) -> LinkCosts:
        """The same costs, of the transmissions that are expected at these errors."""
        return replace(self, forward_error=forward, backward_error=backward, tries=tries)

    def scaled(self, forward: ArrayLike, backward: ArrayLike) -> LinkCosts:
        """The costs of sending everything several times, so often, [E] or one number."""
        ways = {"forward": np.asarray(forward), "backward": np.asarray(backward)}
        return self._each(lambda name, values: values * ways[name.partition("_")[0]], self.packet)

    def _each(
        self, change: Callable[[str, FloatArray], FloatArray], packet: FloatArray | None
    ) -> LinkCosts:
        """Every figure changed, by its name; those that are not counted stay so."""
        figures = {name: getattr(self, name) for name in _FIGURES}
        changed: dict[str, Any] = {
            name: change(name, one) for name, one in figures.items() if one is not None
        }
        message = None if self.message is None else self.message._each(change, None)
        return LinkCosts(**changed, packet_bits=self.packet_bits, packet=packet, message=message)


_FIGURES = (
    "forward_s",
    "backward_s",
    "forward_j",
    "backward_j",
    "forward_receive_j",
    "backward_receive_j",
)


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
    receive_w: FloatArray | None = None,
    circuit_w: FloatArray | None = None,
) -> LinkCosts:
    """Price every link of a graph for its present gains."""
    forward_w, backward_w = power_w[edges[:, 0]], power_w[edges[:, 1]]
    both = gain if gain.ndim == 2 else np.broadcast_to(gain[:, None], (len(gain), 2))
    with np.errstate(all="ignore"):  # overflow and underflow are checked below
        radio = (bandwidth_hz, noise_w_per_hz, max_rate_bps)
        forward_s = seconds_per_bit(forward_w, both[:, 0], *radio)
        backward_s = seconds_per_bit(backward_w, both[:, 1], *radio)
        if circuit_w is not None:
            forward_w, backward_w = (power_w + circuit_w)[edges].T
        forward_j, backward_j = forward_w * forward_s, backward_w * backward_s
    if send_j is not None:
        forward_j, backward_j = send_j[edges[:, 0]], send_j[edges[:, 1]]
    costs = LinkCosts(forward_s, backward_s, forward_j, backward_j)
    if receive_j is not None:
        heard = receive_j[edges]
        costs = replace(costs, forward_receive_j=heard[:, 1], backward_receive_j=heard[:, 0])
    elif receive_w is not None:
        draws = receive_w[edges]
        costs = replace(
            costs,
            forward_receive_j=draws[:, 1] * forward_s,
            backward_receive_j=draws[:, 0] * backward_s,
        )
    require_usable_links(
        edges,
        costs,
        lambda link: f"(gain {both[link].min():.3g}); raise transmit_power_w or its gain",
    )
    return costs


def require_usable_links(
    edges: NDArray[np.int64], costs: LinkCosts, remedy: Callable[[int], str]
) -> None:
    """Refuse a link whose seconds or joules cannot be computed with."""
    figures = (costs.forward_s, costs.backward_s, costs.forward_j, costs.backward_j)
    broken = ~np.logical_and.reduce([usable(figure) for figure in figures])
    if broken.any():
        link = int(np.argmax(broken))
        i, j = edges[link]
        raise ScenarioError(
            f"the link {i}-{j} has no usable rate {remedy(link)}, or leave the link out"
        )


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
    from scipy.special import ndtr  # takes long to import

    return np.asarray(ndtr(-snr_margin(snr, rate_bps, bandwidth_hz, packet_bits)))


def snr_margin(
    snr: FloatArray, rate_bps: FloatArray, bandwidth_hz: float, packet_bits: float
) -> FloatArray:
    """Standard deviations by which what a packet can carry exceeds its bits; see `snr_error`."""
    uses = packet_bits * bandwidth_hz / rate_bps
    capacity = np.log2(1.0 + snr)
    dispersion = snr * (snr + 2.0) / (snr + 1.0) ** 2 * np.log2(np.e) ** 2
    margin = uses * capacity - packet_bits + 0.5 * np.log2(uses)
    return np.asarray(margin / np.sqrt(uses * dispersion))


_AMPLE = 8.0  # standard deviations: 6e-16 of the packets are lost, nothing beside 1
_HALVINGS = 60
NO_MARGIN = 1.01
"""Links whose SNR is no further above Shannon's bound keep their power: a slower rate would not
keep the few packets that get through."""


def snr_gap(
    snr: FloatArray, rate_bps: FloatArray, bandwidth_hz: float, packet_bits: float
) -> FloatArray:
    """How far above Shannon's bound of its rate a link's SNR is kept, as a factor of at least 1.

    It is what leaves the margin that the link has, or `_AMPLE` if that is more than it needs. At
    the same factor a lower rate has no smaller margin, so packets are lost no more often.
    """
    bound = np.expm1(np.log(2.0) * rate_bps / bandwidth_hz)
    whole = np.maximum(snr / bound, 1.0)
    wanted = np.minimum(snr_margin(snr, rate_bps, bandwidth_hz, packet_bits), _AMPLE)
    low, high = np.zeros_like(whole), np.log(whole)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        margin = snr_margin(np.exp(middle) * bound, rate_bps, bandwidth_hz, packet_bits)
        enough = margin >= wanted
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(np.exp(high))


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
    for name, value in (("physics", plan.physics), ("timing", plan.timed)):
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
