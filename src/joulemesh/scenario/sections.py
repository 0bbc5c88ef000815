"""The sections of a scenario: every field with its default and a one-line description."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from joulemesh.base.units import unit_of
from joulemesh.fading import spellings
from joulemesh.registries import CHANNELS, LOSSES, METRICS, MODELS, PARTITIONS, TOPOLOGIES
from joulemesh.scenario.fields import (
    COLUMNLESS,
    DATA,
    AggregationName,
    ClockRange,
    Constant,
    Coordinate,
    Count,
    DeviceProfile,
    ExchangePattern,
    FadingName,
    File,
    Finite,
    GossipRounds,
    HarvestedWatts,
    Ideal,
    Iterations,
    LossName,
    MetricNames,
    ModelName,
    NamesSchema,
    NonNegative,
    NonNegativeQuantity,
    PacketError,
    PartitionName,
    Positive,
    PositiveQuantity,
    PowerLevels,
    PowerRange,
    RadioProfile,
    RicianK,
    RoundsPolicy,
    Samples,
    ScoreName,
    Share,
    TracePath,
    Tries,
    Unit,
    Zeta,
    after_colon,
    checked_number,
    data_file,
    in_si,
    pattern_of,
    python_file,
    schema_with_units,
    table_file,
)


class Section(BaseModel):
    """A part of a scenario; a field whose name ends in a unit also takes texts with units."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @field_validator("*", mode="before")
    @classmethod
    def _in_si(cls, value: Any, info: ValidationInfo) -> Any:
        unit = unit_of(info.field_name or "")
        return value if unit is None else in_si(value, unit)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe each field, and that its numbers may have units."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for field, part in schema.get("properties", {}).items():
            unit = unit_of(field)
            if unit is not None:
                schema["properties"][field] = schema_with_units(part, unit)
        return schema


_MOST = 2**53  # beyond this, float64 skips integers


def _topology(value: Any) -> str | tuple[tuple[int, int], ...]:
    """A name, the path of a file, or the links themselves: [[0, 1], [1, 2]]."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"must be a name, a path, or a list of links [[0, 1], ...], not {value!r}")
    for link in value:
        ends = list(link) if isinstance(link, list | tuple) else []
        whole = all(isinstance(end, int) and not isinstance(end, bool) for end in ends)
        if len(ends) != 2 or not whole or min(ends) < 0 or max(ends) >= 2**31 or len({*ends}) < 2:
            raise ValueError(f"a link joins two different devices: [0, 1], not {link!r}")
    return tuple((link[0], link[1]) for link in value)


def _links(value: Any) -> tuple[tuple[int, int], ...]:
    """Links themselves, each once, the lower end first."""
    if value in ([], ()):
        return ()
    if isinstance(value, str):
        raise ValueError(f"must be a list of links [[0, 1], ...], not {value!r}")
    listed = _topology(value)
    return tuple(sorted({(min(link), max(link)) for link in listed if isinstance(link, tuple)}))


def _leaves(value: Any) -> tuple[tuple[int, int], ...]:
    """Pairs of a device and the first iteration without it, each device once."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of [device, iteration], not {value!r}")
    for pair in value:
        both = list(pair) if isinstance(pair, list | tuple) else []
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in both)
        if len(both) != 2 or not whole or both[0] < 0 or both[1] < 1 or max(both) > _MOST:
            raise ValueError(
                f"must be [device, iteration from 1 on], such as [3, 41], not {pair!r}"
            )
    devices = [pair[0] for pair in value]
    again = next((device for device in devices if devices.count(device) > 1), None)
    if again is not None:
        raise ValueError(f"device {again} can leave only once")
    return tuple(sorted((pair[0], pair[1]) for pair in value))


def _gains(value: Any) -> str | tuple[float, ...]:
    """The path of a file, or a gain for each link of the topology, in its order."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"must be a path, or a list with one gain a link, not {value!r}")
    return tuple(checked_number(gain, 0.0, strict=True) for gain in value)


_LINK = {"type": "array", "items": {"type": "integer", "minimum": 0}}
Topology = Annotated[
    Any,
    BeforeValidator(_topology),
    NamesSchema(TOPOLOGIES.names, [{"type": "string"}, {"type": "array", "items": _LINK}]),
]
LinkList = Annotated[
    Any,
    BeforeValidator(_links),
    WithJsonSchema({"type": "array", "items": _LINK}),
]
Leaves = Annotated[
    Any,
    BeforeValidator(_leaves),
    WithJsonSchema({"type": "array", "items": _LINK}),
]
Gains = Annotated[
    Any,
    BeforeValidator(_gains),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "number"}}]}),
]


class Training(Section):
    """What is learned, and how."""

    dataset: Annotated[str, File(DATA, data_file, heads=("", "folder:"))] = Field(
        "digits",
        description="digits | mnist | fashion-mnist | cifar-10 | diabetes | verses | hf:NAME | "
        "path of a .csv, .tsv, .parquet or .npz file, or of x_train.npy or train.arrow "
        "| folder:PATH, a shard per device",
    )
    data_dir: Annotated[str | None, File((), kept=False)] = Field(
        None, description="folder with the data set's original files"
    )
    label: str | None = Field(
        None, description="table: column of labels; unset: label, class, target or y"
    )
    test_dataset: Annotated[str | None, File(DATA)] = Field(
        None, description="table: a second file with the test samples"
    )
    test_fraction: Unit = Field(
        0.2, description="table: share held out to test on, where no file or column split says it"
    )
    ignore_columns: tuple[str, ...] = Field((), description="table: columns to leave out")
    normalize: bool = Field(
        False, description="standardise own data by the training samples' mean and deviation"
    )
    partition: PartitionName = Field(
        "dirichlet",
        description=f"{' | '.join(PARTITIONS.built_in)} | natural, the data's own shards | "
        "column:NAME, as that column says",
    )
    alpha: Positive = Field(0.5, description="dirichlet and quantity: concentration")
    shards_per_device: Count = Field(2, description="shards: label shards per device")
    model: Annotated[ModelName, File((".py",), python_file)] = Field(
        "mlp", description=f"model to train: {' | '.join(MODELS.built_in)}"
    )
    hidden: tuple[Count, ...] = Field(
        (64,), description="mlp, token-mlp: sizes of the hidden layers"
    )
    l2: NonNegative = Field(0.0, description="L2 regularisation (logistic needs more than 0)")
    loss: Annotated[LossName, File((".py",), python_file)] = Field(
        "cross-entropy",
        description=f"what is minimised: {' | '.join(LOSSES.built_in)} | FILE.py:NAME",
    )
    batch_size: Count = Field(32, description="samples in one SGD step")
    learning_rate: Positive = Field(0.1, description="learning rate eta")
    optimizer: str = Field("sgd", description="sgd, or any optimiser of optax by name")
    local_round: Literal["step", "epoch"] = Field(
        "step", description="a round is one SGD step, or one pass over the device's samples"
    )
    weights: Literal["uniform", "samples"] = Field(
        "uniform", description="weights of the mean: 1/N, or by samples"
    )
    eval_every: Count = Field(5, description="iterations between evaluations")
    eval_device_samples: Count = Field(
        1000, description="test samples for the devices' own models where they differ, at most"
    )
    score: ScoreName = Field(
        "auto", description="metric that runs are compared by: auto, the loss's own, or its name"
    )
    metrics: MetricNames = Field(
        (), description=f"besides score and loss: {' | '.join(METRICS.built_in[2:])}"
    )
    precision: Literal["float32", "float64", "bfloat16"] = Field(
        "float32", description="arithmetic; bfloat16 keeps float32 parameters"
    )
    chunk_iterations: Count = Field(20, description="iterations in one compiled call")


class Bounds(Section):
    """Constants of the convergence bounds: numbers, or "estimate"."""

    strong_convexity: Constant = Field("estimate", description="m")
    smoothness: Constant = Field("estimate", description="M")
    gradient_variance: Constant = Field("estimate", description="sigma")
    gradient_bound: Constant = Field("estimate", description="G")
    divergence: Constant = Field("estimate", description="delta")
    initial_gap: Constant = Field("estimate", description="mean of F_i(w_1) - F_i*")

    @property
    def known(self) -> bool:
        """True when every constant is a number."""
        return "estimate" not in self.model_dump().values()


Mark = TypeVar("Mark")

_PAPER_ZETA = 400.0


def _graph_file(value: str) -> str | None:
    return None if value in TOPOLOGIES else value


class Devices(Section):
    """The devices: a number, [low, high], a list, or a column of the table for each quantity."""

    profile: DeviceProfile | None = Field(
        None, description="hardware by name (joulemesh profiles); fields that are given win"
    )
    count: Annotated[Count, COLUMNLESS] = Field(
        20, description="number of devices N (the table's rows, if it is given)"
    )
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
    clock_range: Annotated[ClockRange | None, COLUMNLESS] = Field(
        None,
        description="shares of full speed at which processors can run: [lowest, 1.0]; joules of "
        "a round fall with the square (cubic law)",
    )
    clock_floor: Annotated[Share | None, COLUMNLESS] = Field(
        None, description="share of full speed below which joules of a round no longer fall"
    )
    operating_points: Annotated[str | None, File(), COLUMNLESS] = Field(
        None,
        description="CSV file of measured speeds (device or profile, name, step_s, step_j, "
        "source), in place of clock_range and of a step's own figures",
    )
    transmit_power_w: PositiveQuantity = Field(1.0, description="radio transmit power p_t")
    power_range_w: Annotated[PowerRange | None, COLUMNLESS] = Field(
        None,
        description="transmit powers that plan.power may choose, [lowest, highest], or a pair for "
        "each device; unset: transmit_power_w alone",
    )
    power_levels_w: Annotated[PowerLevels | None, COLUMNLESS] = Field(
        None,
        description="the same of a radio with a few levels: a list for all, or one for each device",
    )
    power_drawn_w: Annotated[PowerLevels | None, COLUMNLESS] = Field(
        None,
        description="what is drawn in all at each of these levels; unset: the level and circuit_w",
    )
    circuit_w: NonNegativeQuantity | None = Field(
        None,
        description="drawn by circuits while sending, on top of the transmit power; unset: 0",
    )
    send_j_per_bit: PositiveQuantity | None = Field(
        None, description="joules of a bit that is sent; unset: transmit power times its seconds"
    )
    receive_j_per_bit: NonNegativeQuantity | None = Field(
        None, description="joules of a bit that is received; unset: receiving is free"
    )
    receive_power_w: Annotated[NonNegativeQuantity | None, Ideal(0.0, "receiving is free")] = Field(
        None,
        description="drawn while receiving, in place of receive_j_per_bit; unset: receiving is "
        "free",
    )
    message_j: NonNegativeQuantity | None = Field(
        None, description="joules of handling a message, at its sender and its receiver; unset: 0"
    )
    idle_w: Annotated[NonNegativeQuantity | None, Ideal(0.0, "idling is free")] = Field(
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
    table: Annotated[str | None, File(), COLUMNLESS] = Field(
        None, description="CSV file, one row per device, columns by name"
    )
    availability: Annotated[TracePath | None, File(), COLUMNLESS] = Field(
        None,
        description="CSV file: t or time_s, device, available (0 or 1); or device, from, to",
    )
    leave: Annotated[Leaves, COLUMNLESS] = Field(
        (), description="devices that leave for good: [[device, first iteration without it],..]"
    )
    harvest_w: Annotated[HarvestedWatts | None, File(path=table_file)] = Field(
        None,
        description="watts that recharge the battery, or a CSV file: t or time_s, device, watts",
    )
    capacity_j: PositiveQuantity | None = Field(
        None,
        description="what the battery holds at most; unset: no limit. energy_j is its charge "
        "at the start",
    )
    positions: Annotated[TracePath | None, File(), COLUMNLESS] = Field(
        None, description="CSV file of devices that move: t or time_s, device, x_m, y_m"
    )
    trace_end: Annotated[Literal["hold", "repeat", "refuse"] | None, COLUMNLESS] = Field(
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
    topology: Annotated[Topology, File(path=_graph_file)] = Field(
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
    max_rate_bps: Annotated[Positive | None, Ideal("none", "links reach Shannon's rate")] = Field(
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
    fading: Annotated[FadingName, File(path=after_colon, heads=("trace:",))] = Field(
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
    gains: Annotated[Gains | None, File()] = Field(
        None,
        description="CSV file (i,j,gain), or one gain per listed link, in place of path loss",
    )
    links: Annotated[str | None, File()] = Field(
        None,
        description="CSV file of measured links (i,j,rate_bps,..), in place of path loss and gains",
    )
    bits_per_parameter: Count = Field(
        32,
        description="bits of a number that is sent as it is: 16 (rounded to half precision), 32 or "
        "more; plan.bits quantises",
    )
    duplex: Annotated[
        Literal["orthogonal", "half"],
        Ideal("orthogonal", "a device serves all of its links at once"),
    ] = Field("orthogonal", description="half: a device serves one link at a time")
    packet_error: Annotated[PacketError, Ideal(0.0, "no packet is lost")] = Field(
        0.0, description='probability that a packet is lost, or "snr": from the SNR margin'
    )
    packet_bits: Count = Field(12_000, description="bits of payload that a packet carries")
    header_bits: Annotated[
        int, Field(ge=0, le=2**53, strict=True), Ideal(0.0, "packets have no headers")
    ] = Field(0, description="bits that a packet has besides its payload")
    packet_s: Annotated[NonNegative, Ideal(0.0, "channel access takes no time")] = Field(
        0.0,
        description="time that a packet takes besides its bits: channel access, preamble, "
        "acknowledgement",
    )
    tries: Tries = Field(
        8, description="how often a lost packet is sent at most; then its message is lost"
    )
    medium: Annotated[
        Literal["orthogonal", "shared"], Ideal("orthogonal", "each link has a band of its own")
    ] = Field("orthogonal", description="shared: transmissions that conflict take different slots")
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
    clock: Literal["full", "just-in-time", "auto"] | None = Field(
        None,
        description="speed of processors: full; just-in-time (the same rounds, each device no "
        "faster than the slowest needs); auto (planned with the rounds); unset: auto where "
        "devices can run slower",
    )
    goal: Literal["rounds", "joules"] = Field(
        "rounds",
        description="what slower processors are for: most rounds within the budget, or the "
        "rounds of full speed for the least joules",
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
    power: Literal["full", "just-in-time", "auto"] = Field(
        "full",
        description="transmit powers: full; just-in-time: the least with which exchanges take no "
        "longer; auto: planned with the length of exchanges",
    )
    coordination: bool = Field(
        False, description="price the flooding of link costs (64 bits per link) for the tree"
    )
    bits: Literal[32, 16, 8, 4, "auto"] = Field(
        32,
        description="bits of a number in an exact average: 16, 8 or 4 send what has changed since "
        "the last average, and what is rounded off is sent later; auto: by the exchange's price; "
        "32: numbers as network.bits_per_parameter says",
    )
    chunks: Count | None = Field(
        None,
        description="chunks of tree-chunked; unset: the fewest with nearly the least joules × "
        "seconds",
    )
    message_s: Annotated[NonNegative, Ideal(0.0, "handling a message takes no time")] = Field(
        0.0,
        description="time that handling a message takes, besides the time on the air; its link "
        "is taken for both",
    )
    tree: Literal["auto", "least", "fair", "rotate"] = Field(
        "auto",
        description="spanning tree: least (joules of all), fair (least worst share of a battery), "
        "rotate (several in turn); auto: fair for tree-chunked where it is no slower",
    )
    tree_slack: NonNegative = Field(
        0.05,
        description="share of joules that a faster or fairer tree of tree-chunked may cost more",
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
    def timed(self) -> str:
        """How an exchange is timed: ``"critical-path"`` or ``"paper"``."""
        return self.timing or ("paper" if self.physics == "paper" else "critical-path")


SECTIONS: dict[str, type[Section]] = {
    "devices": Devices,
    "network": Network,
    "budget": Budget,
    "plan": PlanOptions,
    "training": Training,
    "bounds": Bounds,
}


def marked(kind: type[Mark]) -> dict[str, Mark]:
    """The fields that bear a mark, by full names, each with its mark."""
    return {
        f"{name}.{field}": mark
        for name, section in SECTIONS.items()
        for field, info in section.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, kind)
    }


FILES = marked(File)
"""Fields that may name a file."""
COLUMNS = tuple(
    name for name in Devices.model_fields if f"devices.{name}" not in marked(type(COLUMNLESS))
)
"""Fields of the section ``devices`` that a column of the device table may give."""
