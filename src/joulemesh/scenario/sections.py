"""The sections of a scenario: every field with its default and a one-line description."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from joulemesh.fading import spellings
from joulemesh.registries import CHANNELS, TOPOLOGIES
from joulemesh.scenario.fields import (
    AggregationName,
    Coordinate,
    Count,
    DeviceProfile,
    FadingName,
    Finite,
    GossipRounds,
    HarvestedWatts,
    Iterations,
    NonNegative,
    NonNegativeQuantity,
    PacketError,
    Positive,
    PositiveQuantity,
    RadioProfile,
    RicianK,
    RoundsPolicy,
    Samples,
    TracePath,
    Tries,
    Unit,
    Zeta,
)
from joulemesh.scenario.learning import Bounds, Training
from joulemesh.scenario.linked import Gains, Leaves, LinkList, Topology
from joulemesh.scenario.pattern import ExchangePattern, pattern_of
from joulemesh.scenario.section import Section

__all__ = [
    "NO_COLUMN",
    "SECTIONS",
    "Bounds",
    "Budget",
    "Devices",
    "Network",
    "PlanOptions",
    "Section",
    "Training",
]

_PAPER_ZETA = 400.0


class Devices(Section):
    """The devices: a number, [low, high], a list, or a column of the table for each quantity."""

    profile: DeviceProfile | None = Field(
        None, description="hardware by name (joulemesh profiles); fields that are given win"
    )
    count: Count = Field(20, description="number of devices N (the table's rows, if it is given)")
    cpu_hz: PositiveQuantity = Field(2e9, description="processor speed f_i")
    cycles_per_sample: PositiveQuantity = Field(
        (100e3, 300e3), description="cycles C_i to train on one sample once"
    )
    capacitance: PositiveQuantity = Field(
        1e-27, description="effective capacitance theta_i, joules per cycle and hertz squared"
    )
    step_s: PositiveQuantity | None = Field(
        None, description="measured seconds of an SGD step, in place of cycles and clock"
    )
    step_j: PositiveQuantity | None = Field(
        None, description="measured joules of an SGD step above rest, in place of capacitance"
    )
    transmit_power_w: PositiveQuantity = Field(1.0, description="radio transmit power p_t")
    send_j_per_bit: PositiveQuantity | None = Field(
        None, description="joules of a bit that is sent; unset: transmit power times its seconds"
    )
    receive_j_per_bit: NonNegativeQuantity | None = Field(
        None, description="joules of a bit that is received; unset: receiving is free"
    )
    receive_power_w: NonNegativeQuantity | None = Field(
        None,
        description="drawn while receiving, in place of receive_j_per_bit; unset: receiving is "
        "free",
    )
    message_j: NonNegativeQuantity | None = Field(
        None, description="joules of handling a message, at its sender and its receiver; unset: 0"
    )
    idle_w: NonNegativeQuantity | None = Field(
        None, description="power at rest, drawn for the whole of every iteration; unset: 0"
    )
    overhead_s: NonNegativeQuantity | None = Field(
        None, description="seconds of an iteration besides rounds and sending: saving, framing"
    )
    samples: Samples = Field(
        "partition", description='samples D_i held by each device, or "partition"'
    )
    x_m: Coordinate | None = Field(None, description="positions, if not drawn from the seed")
    y_m: Coordinate | None = Field(None, description="positions, if not drawn from the seed")
    table: str | None = Field(None, description="CSV file, one row per device, columns by name")
    availability: TracePath | None = Field(
        None,
        description="CSV file: t or time_s, device, available (0 or 1); or device, from, to",
    )
    leave: Leaves = Field(
        (), description="devices that leave for good: [[device, first iteration without it],..]"
    )
    harvest_w: HarvestedWatts | None = Field(
        None,
        description="watts that recharge the battery, or a CSV file: t or time_s, device, watts",
    )
    capacity_j: PositiveQuantity | None = Field(
        None,
        description="what the battery holds at most; unset: no limit. energy_j is its charge "
        "at the start",
    )
    positions: TracePath | None = Field(
        None, description="CSV file of devices that move: t or time_s, device, x_m, y_m"
    )
    trace_end: Literal["hold", "repeat", "refuse"] | None = Field(
        None,
        description="after the last row of these files: hold it, repeat them, or refuse; unset: "
        "who is there holds, watts and places refuse",
    )


class Network(Section):
    """The radio graph and its links."""

    profile: RadioProfile | None = Field(
        "wifi",
        description='radio by name (joulemesh profiles), or "ideal"; fields that are given win',
    )
    topology: Topology = Field(
        "ring",
        description=f"{' | '.join(TOPOLOGIES.built_in)} | CSV file (i,j) | [[i,j],..]",
    )
    without: LinkList = Field((), description="links of it that are gone: [[i,j],..]")
    area_m: Positive = Field(500.0, description="side of the square that holds the devices")
    placement: Literal["auto", "layout", "uniform"] = Field(
        "auto", description="layout: along the topology's shape; uniform: anywhere in the square"
    )
    bandwidth_hz: Positive = Field(20e6, description="bandwidth B of a link")
    noise_dbm_per_hz: Finite = Field(-174.0, description="noise power density N_0")
    max_rate_bps: Positive | None = Field(
        None, description="fastest rate of the radio, if Shannon's is to be cut there"
    )
    path_loss: Literal["3gpp-macro", "power-law"] = Field(
        "3gpp-macro",
        description="3gpp-macro: 128.1 + 37.6 log10(km) dB; power-law: by the next two fields",
    )
    path_loss_exponent: Positive = Field(3.0, description="power-law: exponent")
    path_loss_reference_db: Finite = Field(30.0, description="power-law: loss at 1 m")
    shadowing_db: NonNegative = Field(0.0, description="log-normal shadowing, standard deviation")
    chords: Annotated[int, Field(ge=0, strict=True)] = Field(
        2, description="quasi-ring: chords added to the ring"
    )
    mean_degree: Positive = Field(20.0, description="geometric: wanted mean number of neighbours")
    fading: FadingName = Field(
        "none", description=f"block fading: {' | '.join(spellings(CHANNELS.built_in))}"
    )
    rician_k_db: RicianK = Field(
        6.0, description='rician: line of sight over scattered power; "-inf" is rayleigh'
    )
    nakagami_m: Annotated[Positive, Field(ge=0.5, le=1e6)] = Field(
        2.0, description="nakagami: shape m; 1 is rayleigh, more fades less"
    )
    trace_end: Literal["refuse", "hold", "repeat"] = Field(
        "refuse", description="after a trace's last t: refuse, hold its gains, or repeat it"
    )
    coherence_iterations: Count = Field(
        1, description="iterations over which a fade, or a t of a trace, lasts"
    )
    channel_known: bool = Field(True, description="may the planner see the gains?")
    gains: Gains | None = Field(
        None,
        description="CSV file (i,j,gain), or one gain per listed link, in place of path loss",
    )
    links: str | None = Field(
        None,
        description="CSV file of measured links (i,j,rate_bps,..), in place of path loss and gains",
    )
    bits_per_parameter: Count = Field(
        32, description="bits sent per model parameter: 16 (rounded to half precision), 32 or more"
    )
    duplex: Literal["orthogonal", "half"] = Field(
        "orthogonal", description="half: a device serves one link at a time"
    )
    packet_error: PacketError = Field(
        0.0, description='probability that a packet is lost, or "snr": from the SNR margin'
    )
    packet_bits: Count = Field(12_000, description="bits of payload that a packet carries")
    header_bits: Annotated[int, Field(ge=0, le=2**53, strict=True)] = Field(
        0, description="bits that a packet has besides its payload"
    )
    packet_s: NonNegative = Field(
        0.0,
        description="time that a packet takes besides its bits: channel access, preamble, "
        "acknowledgement",
    )
    tries: Tries = Field(
        8, description="how often a lost packet is sent at most; then its message is lost"
    )
    medium: Literal["orthogonal", "shared"] = Field(
        "orthogonal", description="shared: transmissions that conflict take different slots"
    )
    interference_m: Positive | None = Field(
        None,
        description="shared: a sender this near to another's receiver conflicts with it; "
        "unset: only transmissions with a common end conflict",
    )
    broadcast: bool = Field(
        False, description="one transmission serves all neighbours that are to get the same bits"
    )


class Budget(Section):
    """What may be spent."""

    energy_j: PositiveQuantity = Field(
        (6.0, 30.0), description="each device's battery for the whole training"
    )
    deadline_s: Positive | None = Field(None, description="time allowed to each iteration")
    total_s: Positive | None = Field(
        4.0, description="time allowed to the whole training; none where only deadline_s is given"
    )

    @model_validator(mode="before")
    @classmethod
    def _deadline_alone(cls, values: Any) -> Any:
        """A deadline that is given alone is the only limit of time."""
        if isinstance(values, dict) and values.get("deadline_s") is not None:
            return {"total_s": None, **values}
        return values

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if self.deadline_s is None and self.total_s is None:
            raise ValueError("neither deadline_s nor total_s is given; give one of them")
        return self


class PlanOptions(Section):
    """How the plan is made."""

    aggregation: AggregationName = Field(
        "auto",
        description="scheme; auto: the least joules times seconds; theorem3: the least joules "
        "(the paper's rule)",
    )
    exchange: Literal["exact", "neighbours"] | ExchangePattern = Field(
        "exact",
        description='exchange of an iteration: "exact" (by the scheme of aggregation), '
        '"neighbours", or a pattern such as { every = 10, final = true }',
    )
    rounds: RoundsPolicy = Field(
        "spread", description="policy that spreads a device's rounds over the iterations"
    )
    zeta: Zeta = Field(
        "auto",
        description="Theorem 4's zeta, above iterations - 1; auto: 400, or iterations if more",
    )
    iterations: Iterations = Field(
        "auto",
        description='number n of iterations, or "auto" (rounds against exchanges by price), '
        '"longest" or "bound"',
    )
    fixed_rounds: Count = Field(3, description='rounds per iteration when rounds = "fixed"')
    epsilon: Unit = Field(0.05, description="wanted consensus error of gossip and metropolis")
    gossip_rounds: GossipRounds = Field(
        "epsilon",
        description='gossip ticks or rounds: "epsilon", a number, or "balanced" (Remark 4)',
    )
    gossip_mode: Literal["ticks", "matchings"] = Field(
        "ticks", description="ticks: one pair at a time; matchings: many disjoint pairs a round"
    )
    gossip_guarantee: Literal["expected", "probability"] = Field(
        "expected", description="epsilon holds in mean square, or with probability 1 - epsilon"
    )
    physics: Literal["physical", "paper"] = Field(
        "physical",
        description="paper: both ends pay, latency by eq. tcp, gossip K = ceil(ln 1/eps)",
    )
    accounting: Literal["transmitter", "both-ends"] | None = Field(
        None, description="who pays for a transmission; unset: by physics"
    )
    timing: Literal["critical-path", "paper"] | None = Field(
        None, description="clock of an exchange; unset: by physics"
    )
    on_depletion: Literal["refuse", "leave"] = Field(
        "refuse", description="a battery that cannot pay: refuse the plan, or let the device leave"
    )
    fade_quantile: Unit = Field(0.9, description="quantile of link energy reserved for the future")
    safety: Unit | None = Field(
        None,
        description="probability that all budgets hold, given the intervals of measured figures; "
        "unset: planned with their means",
    )
    harvest_forecast: Literal["seen", "none"] = Field(
        "seen",
        description="harvest to come that rounds are planned with: the mean of what a device has "
        "gathered so far, or none",
    )
    coordination: bool = Field(
        False, description="price the flooding of link costs (64 bits per link) for the tree"
    )
    chunks: Count | None = Field(
        None,
        description="chunks of tree-chunked; unset: the fewest with nearly the least joules × "
        "seconds",
    )
    message_s: NonNegative = Field(
        0.0,
        description="time that handling a message takes, besides the time on the air; its link "
        "is taken for both",
    )
    tree_slack: NonNegative = Field(
        0.05, description="share of joules that a faster tree of tree-chunked may cost more"
    )
    ring_search_limit: Count = Field(200_000, description="nodes visited in search of a ring")

    @field_validator("exchange", mode="before")
    @classmethod
    def _one_of_the_two(cls, value: Any) -> Any:
        """A name or a pattern, refused in words that fit what was given."""
        return value if isinstance(value, ExchangePattern) else pattern_of(value)

    def zeta_for(self, iterations: int) -> float:
        """Theorem 4's ζ for n iterations: as given, otherwise the paper's 400, or n if larger."""
        return max(_PAPER_ZETA, float(iterations)) if self.zeta == "auto" else float(self.zeta)

    @property
    def pays(self) -> str:
        """Who pays for a transmission: ``"transmitter"`` or ``"both-ends"``."""
        return self.accounting or ("both-ends" if self.physics == "paper" else "transmitter")

    @property
    def clock(self) -> str:
        """How an exchange is timed: ``"critical-path"`` or ``"paper"``."""
        return self.timing or ("paper" if self.physics == "paper" else "critical-path")


NO_COLUMN = ("count", "table", "availability", "leave", "positions", "trace_end")
"""Fields of the section ``devices`` that are no column of the device table."""

SECTIONS: dict[str, type[Section]] = {
    "devices": Devices,
    "network": Network,
    "budget": Budget,
    "plan": PlanOptions,
    "training": Training,
    "bounds": Bounds,
}
