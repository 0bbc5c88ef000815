"""What every planner and every method stands on: one scenario, made ready once.

Sizes, world, price list, forecast, the aggregation scheme and the flooding of link costs are
derived here and nowhere else, so that a plan and the methods that are compared with it cannot
disagree about them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.bits import Width
from joulemesh.aggregation.patterned import patterned
from joulemesh.aggregation.route import Subgraph
from joulemesh.aggregation.scheme import Choice, Conditions, Scheme, choose
from joulemesh.base.errors import Edit, InfeasibleError, ScenarioError, named_refusals
from joulemesh.data import Dataset, label_distance, load_for, partition_for, spec_for
from joulemesh.data.load import device_names
from joulemesh.data.reading import DATASETS, DataSpec
from joulemesh.ledger import Ledger
from joulemesh.models.kinds import multiply_adds, parameter_count
from joulemesh.planning.policy import Policy, policy_of
from joulemesh.planning.pricing import Pricer, choose_scheme
from joulemesh.scenario import Scenario, Training
from joulemesh.theory.bounds import Constants
from joulemesh.world import World, build_world
from joulemesh.world.links import LinkCosts
from joulemesh.world.quantities import resolve
from joulemesh.world.topology import require_room
from joulemesh.world.traces import Snapshot

__all__ = ["TRAINING_OPERATIONS", "Ground", "Workload", "explicit_sizes", "workload"]

_WORTH = 0.5  # of the joules × seconds of wider messages

TRAINING_OPERATIONS = 6.0
"""Floating-point operations of training for each multiply-add of the forward pass: 2 in it, and
twice as many in the backward pass."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Sizes that the planner needs, without any of training's libraries."""

    parameters: int  # length k of the parameter vector
    model_bits: float  # size s of all parameters, as they are
    # float64 [N]: samples that one round processes on each device
    round_samples: NDArray[np.float64]
    # floating-point operations to train on one sample once, or None where only the number of
    # parameters is known: then at least 6 for each of them
    operations: float | None = None
    # how far the devices' label shares are from those of all; None where nothing is known of them
    label_distance: float | None = None


def explicit_sizes(scenario: Scenario) -> NDArray[np.int64] | None:
    """D_i as the scenario gives them, or None when the partition decides."""
    if scenario.devices.samples == "partition":
        return None
    samples = resolve(scenario, "samples", scenario.devices.samples)
    return np.maximum(np.rint(samples), 1).astype(np.int64)


def workload(
    scenario: Scenario, parameters: int | None = None, data: Dataset | None = None
) -> Workload:
    """The sizes of a scenario, or of the user's own model and data in their place."""
    require_room(scenario)
    training, wanted = scenario.training, scenario.plan.iterations
    sizes: Dataset | DataSpec | None = data
    if parameters is None:
        sizes = spec_for(scenario)
        model = (training.model, sizes.shape, sizes.classes)
        parameters = parameter_count(*model, outputs=sizes.outputs, **dict(training))
    elif data is None and training.dataset in DATASETS:
        sizes = spec_for(scenario)
    return Workload(
        parameters=parameters,
        model_bits=float(parameters * scenario.network.bits_per_parameter),
        round_samples=_round_samples(scenario, data),
        operations=None if sizes is None else _operations(training, sizes, parameters),
        label_distance=label_distance(scenario, data, load=wanted == "auto"),
    )


def _operations(training: Training, sizes: Dataset | DataSpec, parameters: int) -> float | None:
    """Operations to train on one sample, if the model is the scenario's own, as its size tells."""
    model = (training.model, sizes.shape, sizes.classes)
    try:
        products = multiply_adds(*model, **dict(training))
        if products is None or parameter_count(*model, **dict(training)) != parameters:
            return None
    except ScenarioError:  # the scenario's model need not fit data of the user's own
        return None
    return TRAINING_OPERATIONS * products


def _round_samples(scenario: Scenario, data: Dataset | None) -> NDArray[np.float64]:
    training, count = scenario.training, scenario.devices.count
    if training.local_round == "step":
        return np.broadcast_to(np.float64(training.batch_size), count)
    sizes = explicit_sizes(scenario)
    if sizes is None:
        sizes = partition_for(scenario, data or load_for(scenario), scenario.seed).sizes
    return sizes.astype(np.float64)


FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Ground:
    """A scenario with its sizes and its world, and what follows from them before any plan."""

    # Iterations are counted from 0.

    scenario: Scenario  # what is asked
    work: Workload  # sizes of the model and of a round
    world: World  # devices, graph and channel
    # seconds that an exchange may take, over those at the highest powers, if senders choose theirs
    stretch: float = 1.0
    loud: bool = False  # do senders use their highest powers, whatever ``plan.power`` says?
    _latest: dict[tuple[int, Snapshot | None], LinkCosts] = field(
        default_factory=dict, init=False, repr=False
    )
    _schemes: dict[int, Scheme] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, scenario: Scenario, parameters: int | None = None, data: Dataset | None = None
    ) -> Ground:
        """Make a scenario ready, with the user's own model size or data if they are given."""
        with named_refusals(lambda: device_names(scenario)):
            work = workload(scenario, parameters, data)
            return cls(scenario, work, build_world(scenario, work.round_samples))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The devices' names, from the column ``name`` of their table; empty without one."""
        try:
            return device_names(self.scenario)
        except ScenarioError:  # names that are not each device's own name nobody
            return ()

    @property
    def constants(self) -> Constants | None:
        """The constants of the bounds, if the scenario has a number for each of them."""
        known = self.scenario.bounds
        return Constants(**known.model_dump()) if known.known else None

    @cached_property
    def without_departures(self) -> Ground:
        """The same where nobody leaves by ``devices.leave``: what happens decides who is there."""
        world = self.world
        if world.traces.leaves is None:
            return self
        return replace(self, world=replace(world, traces=replace(world.traces, leaves=None)))

    # What links cost ----------------------------------------------------------------------------

    @cached_property
    def pricer(self) -> Pricer:
        """The price list."""
        full = self.loud or self.scenario.plan.power == "full"
        return Pricer(
            self.scenario, self.world, self.work.model_bits, None if full else self.stretch
        )

    @cached_property
    def decided_on(self) -> Ground:
        """What rounds and schemes are decided on: with ``"just-in-time"``, the highest powers."""
        # Where gains are not known, exchanges may take longer than at the highest powers, and the
        # planner has to know that.
        late = self.world.channel.fading and not self.channel_known
        if self.scenario.plan.power != "just-in-time" or self.loud or late:
            return self
        return replace(self, loud=True)

    @property
    def channel_known(self) -> bool:
        """Does the planner see the gains of the present iteration?"""
        return self.scenario.network.channel_known

    @cached_property
    def forecast(self) -> LinkCosts:
        """Price of a bit on every link at the fade quantile, before the first iteration."""
        return self.forecast_at(0)

    def forecast_at(
        self, t: int, links: NDArray[np.int64] | None = None, snapshot: Snapshot | None = None
    ) -> LinkCosts:
        """Price of a bit at the fade quantile, by what is known in iteration t."""
        gain = self._forecast_gain(t, snapshot)
        return self.world.costs(gain if links is None else gain[links], links)

    def _forecast_gain(self, t: int = 0, snapshot: Snapshot | None = None) -> FloatArray:
        return self.world.channel.quantile_gain(self.scenario.plan.fade_quantile, t, snapshot)

    def costs(self, t: int, snapshot: Snapshot | None = None) -> LinkCosts:
        """Price of a bit on every link in iteration t, as it turns out, where devices stand."""
        if snapshot is None and not self.world.channel.fading:
            return self.forecast  # what is forecast comes true
        key = self.world.channel.block(t), snapshot
        if key not in self._latest:
            self._latest.clear()  # iterations come in order: one block is kept
            costs = self.world.costs(self.world.channel.gain(t, snapshot))
            if costs.radio is not None and not self.channel_known:
                costs = replace(costs, believed=self.forecast_at(t, snapshot=snapshot))
            self._latest[key] = costs
        return self._latest[key]

    def errors(self, t: int, snapshot: Snapshot | None = None) -> FloatArray:
        """float64 [E, 2]: probability that a packet is lost in iteration t, by direction."""
        return self.world.errors(self.world.channel.gain(t, snapshot))

    @property
    def errors_forecast(self) -> FloatArray:
        """float64 [E, 2]: the same at the fade quantile, before the first iteration."""
        return self.world.errors(self._forecast_gain())

    def seen_costs(self, t: int) -> LinkCosts:
        """The costs by which links may be chosen in iteration t: as they are, or as forecast."""
        if self.channel_known:
            return self.costs(t)
        return self.latest_forecast(t)

    def latest_forecast(self, t: int) -> LinkCosts:
        """Price of a bit on every link at the fade quantile, by what is known in iteration t."""
        return self.forecast if self._edition(t) == self._edition(0) else self.forecast_at(t)

    def _edition(self, t: int) -> int:
        return self.world.channel.edition(t)

    # The rounds ---------------------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        """How each device's rounds are spread over the iterations."""
        return policy_of(self.scenario.plan)

    @property
    def least(self) -> int:
        """Rounds that every device runs in each iteration at the least."""
        return self.policy.least(self.scenario.plan)

    @property
    def clock(self) -> str:
        """How fast processors run: as ``plan.clock`` says, or by what they can do."""
        slower = self.world.devices.clocks is not None
        return self.scenario.plan.clock or ("auto" if slower else "full")

    def trains(self, iterations: int) -> BoolArray:
        """bool [n]: the iterations that ``plan.exchange`` does not keep for mixing."""
        exchange = self.scenario.plan.exchange
        if isinstance(exchange, str) or exchange.mix is None:
            return np.ones(iterations, np.bool_)
        if self.least:
            raise ScenarioError(
                f"plan.exchange has iterations without training (mix = {exchange.mix}); "
                f'plan.rounds = "{self.scenario.plan.rounds}" trains in every one',
                remedies=[(Edit("plan.rounds", "spread"),)],
            )
        return exchange.trains(iterations)

    # The scheme ---------------------------------------------------------------------------------

    @cached_property
    def width(self) -> Width | None:
        """How wide the messages of an exact average are; None if numbers are sent as they are."""
        asked = self.scenario.plan.bits
        bits = self.width_by_price[0] if asked == "auto" else int(asked)
        return None if bits == 32 else Width(self.work.parameters, bits)

    @cached_property
    def width_by_price(self) -> tuple[int, float]:
        """Bits that ``plan.bits = "auto"`` takes, and joules × seconds relative to those of 32.

        Narrower messages are taken while they halve joules × seconds: packets have a price that
        bits do not lower, and what rounding costs in accuracy is not known before training.
        """
        whole = least = self._joules_times_seconds(32)
        taken = 32
        for bits in (8, 4):
            try:
                found = self._joules_times_seconds(bits)
            except (InfeasibleError, ScenarioError):  # it cannot be carried out
                break
            if found > _WORTH * least:
                break
            taken, least = bits, found
        return taken, least / whole if whole else 1.0

    def _joules_times_seconds(self, bits: int) -> float:
        """Of one exchange in messages of so many bits, as forecast."""
        ground = replace(self, scenario=self.scenario.override({"plan.bits": bits}))
        price = ground.pricer.scheme(ground.ready(1), ground.forecast, 0, 1)
        return float(price.exchange_j.sum() * price.seconds[0])

    @cached_property
    def unquantised(self) -> Ground:
        """The same with numbers that are sent as they are."""
        if self.width is None:
            return self
        return replace(self, scenario=self.scenario.override({"plan.bits": 32}))

    @cached_property
    def graph(self) -> Subgraph:
        """All devices and their links; of devices that move, where they begin."""
        motion = self.world.motion
        return Subgraph.of(
            self.world.graph, cut=None if motion is None else ~motion.exists(motion.first)
        )

    @cached_property
    def conditions(self) -> Conditions:
        """What the scheme is chosen for: all devices and their batteries, one exchange."""
        battery_j = self.world.devices.energy_budget_j
        return self._conditions(self.graph, self.forecast, battery_j, 1)

    def _conditions(
        self, graph: Subgraph, costs: LinkCosts, battery_j: FloatArray, iterations: int
    ) -> Conditions:
        width = self.width
        return Conditions.of(
            self.scenario,
            graph,
            costs,
            bits=self.work.model_bits if width is None else width.vector_bits(),
            battery_j=battery_j,
            iterations=iterations,
            medium=self.pricer.medium,
            names=self.names,
            width=width,
        )

    @cached_property
    def choice(self) -> Choice:
        """The kind of aggregation scheme that is used on the whole graph."""
        return choose_scheme(self.conditions, self.decided_on.pricer)

    def ready(self, iterations: int) -> Scheme:
        """The scheme of all devices, with its gossip rounds decided for that many iterations."""
        key = 0 if self.alike else iterations  # a search for the best number asks for many
        if key not in self._schemes:
            conditions = replace(self.conditions, iterations=iterations)
            self._schemes[key] = _ready(self.choice, conditions)
        return self._schemes[key]

    @property
    def alike(self) -> bool:
        """Is the scheme the same, however many iterations there are?"""
        options = self.scenario.plan
        return options.exchange == "exact" and options.gossip_rounds != "balanced"

    def ready_among(
        self,
        active: BoolArray,
        costs: LinkCosts,
        battery_j: FloatArray,
        iterations: int,
        *,
        cut: BoolArray | None = None,
        over: int = 0,
    ) -> Scheme:
        """The scheme of the devices that still take part."""
        # A scheme that the remaining graph cannot carry, because its ring broke when a device left,
        # is replaced by what Theorem 3 chooses.
        if over:  # a balance of joules looks at all n iterations
            battery_j = battery_j * (iterations / (iterations - over))
        conditions = self.conditions_among(active, costs, battery_j, iterations, cut=cut)
        if conditions.graph is self.graph:
            return _ready(self.choice, conditions)
        try:
            choice = choose_scheme(conditions, self.decided_on.pricer)
        except InfeasibleError:
            rest = choose(conditions, "theorem3")
            wanted = self.scenario.plan.aggregation
            choice = replace(rest, reason=f"the {wanted} broke; {rest.reason}")
        return _ready(choice, conditions)

    def conditions_among(
        self,
        active: BoolArray,
        costs: LinkCosts,
        battery_j: FloatArray,
        iterations: int,
        *,
        cut: BoolArray | None = None,
    ) -> Conditions:
        """What a scheme of some devices is chosen for; see `ready_among`."""
        graph = Subgraph.of(self.world.graph, active, cut)
        if graph.part is None and self.world.motion is None:
            graph = self.graph
        return self._conditions(graph, costs, battery_j, iterations)

    # Coordination -------------------------------------------------------------------------------

    def floods(self, scheme: Scheme) -> bool:
        """Are link costs flooded before such a scheme's links are chosen?"""
        return self.scenario.plan.coordination and scheme.kind.floods_costs

    def tree_number(self, t: int) -> tuple[int, int]:
        """What tells the trees apart for which link costs are flooded, by the iteration."""
        # A tree is computed when planning starts, and again whenever the gains change that the
        # planner may see, or the forecast does.
        return self._edition(t), self.world.channel.block(t) if self.channel_known else 0

    def flooded(self, scheme: Scheme, start: int, stop: int) -> BoolArray:
        """bool [n]: are link costs flooded in iterations start..stop−1, if none is skipped?"""
        if not self.floods(scheme):
            return np.zeros(stop - start, np.bool_)
        number = [self.tree_number(t) for t in range(max(start - 1, 0), stop)]
        fresh = [now != before for before, now in pairwise(number)]
        return np.array(fresh if start else [True, *fresh], np.bool_)

    def expected_floods(self, scheme: Scheme, start: int, stop: int) -> BoolArray:
        """bool [n]: as `flooded`, as expected in iteration start, when a tree is computed."""
        # That the forecast will change is not foreseen.
        if not self.floods(scheme):
            return np.zeros(stop - start, np.bool_)
        block = self.world.channel.block if self.channel_known else (lambda t: 0)
        return np.asarray(np.diff([block(t) for t in range(start, stop)], prepend=-1) != 0)

    def prices(self, scheme: Scheme, costs: LinkCosts, start: int, stop: int) -> Ledger:
        """Expected prices of the exchanges in iterations start..stop−1, coordination included."""
        prices = self.pricer.scheme(scheme, costs, start, stop)
        if not self.floods(scheme):
            return prices
        flood = self.pricer.coordination(scheme, costs)
        return prices + flood.where(self.expected_floods(scheme, start, stop))


def _ready(choice: Choice, conditions: Conditions) -> Scheme:
    """The scheme that was chosen, in the iterations that ``plan.exchange`` says."""
    return patterned(conditions, lambda: choice.ready(conditions))
