"""The terms of a comparison, a method made ready for them, and its account."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.patterned import Patterned
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.base.errors import (
    Edit,
    InfeasibleError,
    ScenarioError,
    called,
    named_refusals,
    require_countable,
)
from joulemesh.base.optional import place_of
from joulemesh.base.units import counted, duration, energy
from joulemesh.data import Dataset, spec_for
from joulemesh.data.load import device_names
from joulemesh.ledger import Ledger, charge, just_in_time
from joulemesh.methods.base import Contender, FloatArray, IntArray, parsed
from joulemesh.models.torch_model import NotOfJaxError, TorchModel
from joulemesh.planning.budget import at_least
from joulemesh.planning.ground import Ground, Workload
from joulemesh.planning.notes import Figure, figures
from joulemesh.planning.plan import COLUMNS, Account, Plan
from joulemesh.planning.pricing import Pricer
from joulemesh.planning.static import plan_of
from joulemesh.scenario import Scenario
from joulemesh.scenario.scenario import rounded_to
from joulemesh.tolerance import affordable, left_of, within
from joulemesh.training.from_plan import exchanges_of_matrices
from joulemesh.training.schedule import Mixing, Schedule
from joulemesh.world import World
from joulemesh.world.links import LinkCosts

if TYPE_CHECKING:
    from joulemesh.models.core import Model
    from joulemesh.training.exchange import Exchange

EQUAL = ("iterations", "batteries", "time", "budget")
_ALIASES = {"energy": "batteries"}


def equal_terms(equal: str | None, *scenarios: Scenario) -> str:
    """What is equal for all methods, by its own name.

    Unless it is given, all that the scenarios bound: batteries, and the total time if one has it.
    """
    if equal is None:
        timed = any(scenario.budget.total_s is not None for scenario in scenarios)
        return "budget" if timed else "batteries"
    named = _ALIASES.get(equal, equal)
    if named not in EQUAL:
        raise ScenarioError(f"equal = {equal!r} is unknown: use one of {', '.join(EQUAL)}")
    return named


_BLOCK = 64  # iterations priced at first; then twice as many each time
_MOST = 1_000_000


def _ended(ledger: Ledger, n: int, last: Callable[[int], Ledger]) -> Ledger:
    """The first n iterations, of which the last is another."""
    end = last(n - 1)
    return end if n == 1 else ledger[: n - 1].then(end)


def _paid(budget: FloatArray, costs: FloatArray) -> int:
    """How many rows of the costs [n, N] the budgets [N] pay for."""
    over = ~within(budget, np.cumsum(costs, axis=0)).all(axis=1)
    return int(np.argmax(over)) if over.any() else len(costs)


Prices: TypeAlias = Callable[[int, int], Ledger]
"""Ledger of iterations start..stop−1 (from 0); one row only, whatever is asked, if all are alike.
"""


class Setting:
    """What every method is given: the world, the budgets, the price list.

    Args:
        scenario: what is asked.
        equal: what is the same for all methods: ``"iterations"`` (the adaptive plan's n, whether
            or not the batteries would pay), ``"batteries"`` (a method stops before the first
            iteration that some battery cannot pay; ``"energy"`` is another name for it),
            ``"time"`` (before the first that would exceed the adaptive plan's seconds) or
            ``"budget"`` (before the first that some battery cannot pay or that would exceed
            ``budget.total_s``, or the adaptive plan's seconds where the scenario has none). None:
            ``"budget"`` where the scenario has a total time, otherwise ``"batteries"``.
        seeds: repetition seeds.
        model: the user's own model, in place of the scenario's.
        parameters: its size, if the model itself is not at hand.
        data: what is learned from, if it is loaded already or the user's own.

    >>> Setting(Scenario.preset("adaptive")).iterations
    100
    """

    def __init__(
        self,
        scenario: Scenario,
        equal: str | None = "iterations",
        seeds: Sequence[int] = (0,),
        *,
        model: Model | TorchModel | None = None,
        parameters: int | None = None,
        data: Dataset | None = None,
    ) -> None:
        equal = equal_terms(equal, scenario)
        if model is not None and parameters is None:
            parameters = model.parameters
        self.scenario, self.equal, self.seeds = scenario, equal, tuple(seeds)
        self._model, self._data = model, data
        self.module = model.name if isinstance(model, TorchModel) else ""  # of PyTorch
        self.ground = Ground.of(scenario, parameters, data)
        self.devices = scenario.devices.count
        self.deadline_s, self.total_s = scenario.budget.deadline_s, scenario.budget.total_s
        self.battery_j = self.world.devices.energy_budget_j

    @property
    def work(self) -> Workload:
        """Sizes of the model and of a round."""
        return self.ground.work

    @property
    def world(self) -> World:
        """Devices, graph and channel."""
        return self.ground.world

    @property
    def pricer(self) -> Pricer:
        """The price list."""
        return self.ground.pricer

    # The adaptive plan, which the others are measured by ----------------------------------------

    def plan(self, total_s: float | None = None, **options: Any) -> Plan:
        """Plan the scenario with some options of ``[plan]`` changed.

        Args:
            total_s: seconds of the whole training, if not those of the scenario.
            options: by the field's name in ``[plan]``.
        """
        changes = {f"plan.{name}": value for name, value in options.items()}
        changes |= {} if total_s is None else {"budget.total_s": total_s}
        scenario = self.scenario.override(changes) if changes else self.scenario
        return plan_of(replace(self.ground, scenario=scenario))

    @cached_property
    def reference(self) -> Plan:
        """The scenario's own plan; InfeasibleError where there is none."""
        return self.plan()

    @cached_property
    def iterations(self) -> int:
        """The adaptive plan's n; if it cannot be carried out, the scenario's own number."""
        try:
            return self.reference.iterations
        except InfeasibleError:
            wanted = self.scenario.plan.iterations
            if isinstance(wanted, int):
                return wanted
            raise

    @cached_property
    def clock_s(self) -> float:
        """Seconds of the whole adaptive plan."""
        return self.reference.time_s

    # What ends a method -------------------------------------------------------------------------

    @property
    def limits_energy(self) -> bool:
        """Does a method stop before it overdraws a battery?"""
        return self.equal in ("batteries", "budget")

    @property
    def limits_time(self) -> bool:
        """Does a method stop when its time is over?"""
        return self.equal in ("time", "budget")

    @cached_property
    def limit_s(self) -> float:
        """Seconds that a method has where time is limited."""
        if self.equal == "budget" and self.total_s is not None:
            return self.total_s
        return self.clock_s

    @property
    def limit_words(self) -> str:
        """Where that limit comes from and what raises it, to follow "but"."""
        if self.equal == "budget" and self.total_s is not None:
            whole = duration(self.total_s, digits=6)
            return f"budget.total_s gives the whole training {whole}: raise it"
        whole = duration(self.clock_s, digits=6)
        return (
            f"the adaptive plan, whose clock is shared, takes {whole} in all: raise plan.iterations"
        )

    def run_length(
        self,
        name: str,
        prices: Callable[[int, int], Ledger],
        last: Callable[[int], Ledger] | None = None,
    ) -> Ledger:
        """Price as many iterations as the method may run."""
        if self.equal == "iterations":
            ledger = prices(0, self.iterations)
            whole = ledger if ledger.iterations > 1 else ledger.tiled(self.iterations)
            return whole if last is None else _ended(whole, self.iterations, last)
        ledger = prices(0, _BLOCK)
        if ledger.iterations == 1:
            ledger = ledger.tiled(max(1, self._alike(ledger)))
        else:
            while self.payable(ledger) == ledger.iterations <= _MOST:
                ledger = ledger.then(prices(ledger.iterations, 2 * ledger.iterations))
        if ledger.iterations > _MOST:
            what = "plan.iterations" if self.equal == "time" else "budget.energy_j"
            raise ScenarioError(
                f"the budget pays for more than {_MOST} iterations of {name}, more than are "
                f"simulated: lower {what}"
            )
        return self.cut(name, ledger) if last is None else self._reserved(name, ledger, last)

    def cut(self, name: str, ledger: Ledger, battery_j: FloatArray | None = None) -> Ledger:
        """Keep the iterations that the equal budget pays for."""
        if self.equal == "iterations":
            return ledger
        n = self.payable(ledger, battery_j)
        if n == 0:
            raise self.refusal(name, ledger)
        return ledger[:n]

    def _reserved(self, name: str, ledger: Ledger, last: Callable[[int], Ledger]) -> Ledger:
        """As many iterations as leave enough for the last one."""
        most = min(self.payable(ledger) + 1, ledger.iterations)
        end, before = last(most - 1), ledger[: most - 1]
        fits = np.ones(most, bool)
        if self.limits_time:
            seconds = np.append(0.0, np.cumsum(before.seconds)) + end.seconds[0]
            fits &= within(self.limit_s, seconds)
        if self.limits_energy:
            joules = np.cumsum(before.energy_j, axis=0)
            joules = np.concatenate([np.zeros((1, self.devices)), joules]) + end.energy_j[0]
            fits &= within(self.battery_j, joules).all(axis=1)
        # Under fading the end has another price: what is taken is checked.
        for n in range(max(1, int(fits.sum())), 0, -1):
            found = _ended(ledger, n, last)
            if self.payable(found) == n:
                return found
        raise self.refusal(name, _ended(ledger, 1, last))

    def _alike(self, one: Ledger) -> int:
        ratios = []
        if self.limits_energy:
            ratios.append(int(affordable(self.battery_j, one.energy_j[0]).min()))
        if self.limits_time:
            ratios.append(int(affordable(self.limit_s, one.seconds[0])))
        return min(*ratios, _MOST + 1)

    def payable(self, ledger: Ledger, battery_j: FloatArray | None = None) -> int:
        """How many of the iterations the budget pays for: the batteries, the clock, or both."""
        held_j = self.battery_j if battery_j is None else battery_j
        n = ledger.iterations
        if self.limits_time:
            n = _paid(np.array([self.limit_s]), ledger.seconds[:, None])
        return _paid(held_j, ledger.energy_j[:n]) if self.limits_energy else n

    def refusal(self, name: str, one: Ledger) -> InfeasibleError:
        """Why not even one iteration can be paid."""
        if self.limits_time and one.seconds[0] > self.limit_s:
            return InfeasibleError(
                "one iteration of {method} takes {needs_s}, but {limit}",
                code="time",
                figures={
                    "method": name,
                    "needs_s": one.seconds[0],
                    "limit": self.limit_words,
                    "has_s": self.limit_s,
                },
            )
        device = int(np.argmax(one.energy_j[0] / self.battery_j))
        need = float(one.energy_j[0, device])
        return InfeasibleError(
            "{device} cannot pay for one iteration of {method} from its battery of {has_j}: "
            "computing takes {compute_j} and the exchange {exchange_j}",
            code="energy",
            device=device,
            figures={
                "method": name,
                "has_j": self.battery_j[device],
                "needs_j": need,
                "compute_j": one.compute_j[0, device],
                "exchange_j": one.exchange_j[0, device],
            },
            remedies=[(Edit("budget.energy_j", at_least(need), "raise"),)],
        )

    def stop_notes(self, ledger: Ledger, battery_j: FloatArray | None = None) -> tuple[str, ...]:
        """Why a plan ends, if it is none of the equal budgets that ends it."""
        held_j = self.battery_j if battery_j is None else battery_j
        left_j = held_j - ledger.spent_j
        left_s = self.limit_s - float(ledger.seconds.sum()) if self.limits_time else 0.0
        late = self.limits_time and left_s < ledger.seconds[-1]
        if not self.limits_energy or late or (left_j < ledger.energy_j[-1]).any():
            return ()
        share = float(left_j.sum() / held_j.sum())
        time = f" and {duration(left_s)}" if self.limits_time else ""
        return (
            f"stops because its plan of {counted(ledger.iterations, 'iteration')} is over, not at "
            f"a battery: {100 * share:.3g} % of the joules{time} are left; raise plan.iterations "
            "or the time of [budget] to use more",
        )

    def notes_on(
        self,
        ledger: Ledger,
        *,
        at_most: bool = False,
        battery_j: FloatArray | None = None,
    ) -> tuple[str, ...]:
        """What a reader should know of a ledger: missed deadlines, overdrawn batteries."""
        held_j = self.battery_j if battery_j is None else battery_j
        notes = []
        most = "at most " if at_most else ""
        if self.deadline_s is not None and (late := ~within(self.deadline_s, ledger.seconds)).any():
            notes.append(
                f"{most}{int(late.sum())} of {ledger.iterations} iterations exceed the deadline of "
                f"{duration(self.deadline_s)} (the longest takes {duration(ledger.seconds.max())})"
            )
        taken_s = float(ledger.seconds.sum())
        if self.total_s is not None and not within(self.total_s, taken_s):
            notes.append(
                f"takes {most}{duration(taken_s)}, more than the total time of "
                f"{duration(self.total_s)}"
            )
        short_j = -left_of(held_j, ledger.spent_j)
        over = short_j > 0
        if over.any():
            device = int(np.argmax(short_j))
            notes.append(
                f"overdraws {most}{int(over.sum())} of {self.devices} batteries "
                f"({called(device, self.ground.names)} by {energy(short_j[device])})"
            )
        return tuple(notes)

    # The rounds ---------------------------------------------------------------------------------

    @cached_property
    def rounds(self) -> int:
        """Rounds per iteration of methods that name none: the adaptive plan's mean, rounded.

        Where there is no such plan, ``plan.fixed_rounds``.
        """
        try:
            made = self.reference
        except InfeasibleError:
            return self.scenario.plan.fixed_rounds
        return max(1, round(float(made.rounds[made.active].mean())))

    # Exchanges and their price ------------------------------------------------------------------

    @property
    def fading(self) -> bool:
        """Do the links change from iteration to iteration?"""
        return self.world.channel.fading

    def costs(self, t: int) -> LinkCosts:
        """Price of a bit on every link in iteration t (from 0)."""
        return self.ground.costs(t)

    @property
    def forecast(self) -> LinkCosts:
        """Price of a bit at the fade quantile, which is all that is known of the future."""
        return self.ground.forecast

    @cached_property
    def scheme(self) -> Scheme:
        """The aggregation scheme that the plan uses, whether or not it can be paid for.

        Of a plan whose exchanges differ, the one of its exact averages.
        """
        balanced = self.scenario.plan.gossip_rounds == "balanced"
        scheme = self.ground.ready(self.iterations if balanced else 1)
        return scheme.average if isinstance(scheme, Patterned) else scheme

    def route_prices(
        self,
        rounds: int | IntArray,
        route: Callable[[int], Route | None],
        *,
        alike: bool = False,
        own_samples: FloatArray | None = None,
    ) -> Prices:
        """Price a method by its routes.

        Args:
            rounds: τ of every device, or [N].
            route: what is sent in iteration t (from 0); None where nothing is.
            alike: the route is the same in every iteration.
            own_samples: [N]: what the method itself computes in each iteration, in samples of
                training; or [n, N], if all n iterations are asked for at once.
        """

        exchanges = self.exchanges(route, alike=alike)

        def prices(start: int, stop: int) -> Ledger:
            sent = exchanges(start, stop)
            wide = sent.iterations, self.devices
            own = None if own_samples is None else np.broadcast_to(own_samples, wide)
            return charge(self.world.devices, rounds, sent, own_samples=own)

        return prices

    def exchanges(self, route: Callable[[int], Route | None], *, alike: bool = False) -> Prices:
        """Price what a method sends alone; see `route_prices`."""

        def prices(start: int, stop: int) -> Ledger:
            sent = []
            for t in range(start, start + 1 if alike and not self.fading else stop):
                one = route(t)
                if one is not None and not isinstance(one, Route):
                    raise ScenarioError(
                        f"route({t}) gives {type(one).__name__} ({place_of(route)}): return a "
                        "Route, or None where nothing is sent"
                    )
                sent.append(self.pricer.route(one, self.costs(t)))
            return Ledger.joined(sent)

        return prices

    # The contender ------------------------------------------------------------------------------

    def contender(
        self,
        name: str,
        rounds: int | IntArray,
        prices: Prices,
        *,
        mixing: Mixing = "mean",
        mixing_rounds: int = 1,
        exchange: Exchange | None = None,
        settle: Callable[[Any], Ledger] | None = None,
        notes: Sequence[str] = (),
    ) -> Contender:
        """Make a method ready that does the same in every iteration, for as long as it may.

        Args:
            name: as the user wrote it.
            rounds: τ of every device, or [N].
            prices: of any stretch of iterations.
            mixing: what the engine applies, in iterations in which something is sent.
            mixing_rounds: how many times.
            exchange: the method's own exchange; it takes place in every iteration.
            settle: see `Contender`.
            notes: what a reader of the results should know.

        Raises:
            InfeasibleError: not even one iteration can be paid.
            ScenarioError: more rounds in an iteration than training counts.
        """
        require_countable(rounds, f"give {name.partition(':')[0]} fewer rounds")
        ledger = self.run_length(name, prices)
        n = ledger.iterations
        heard = np.full(n, exchange is not None) | (ledger.bits > 0)  # nothing sent, nothing mixed
        if not heard.any():
            notes = (*notes, "sends nothing: every device trains alone")
        schedule = Schedule(
            np.broadcast_to(np.asarray(rounds, np.int32), (n, self.devices)),
            exchanged=heard,
            mixing=mixing,
            mixing_rounds=mixing_rounds,
        )
        every = (*notes, *self.notes_on(ledger, at_most=settle is not None))
        return Contender(name, schedule, exchange, ledger, self.battery_j, every, settle)

    @cached_property
    def train_samples(self) -> int:
        """Training samples of all devices together."""
        return len(self._data.y_train) if self._data else spec_for(self.scenario).train

    @cached_property
    def model(self) -> Model:
        """The model that is trained."""
        from joulemesh.models.core import build, of_jax

        if self._model is not None:
            return of_jax(self._model)

        training, data = self.scenario.training, self._data or spec_for(self.scenario)
        return build(training.model, data.shape, data.classes, **dict(training))


@dataclass(frozen=True, eq=False)
class MethodAccount:
    """The account of a method that is run by itself.

    Attributes:
        method: as the user wrote it, for instance ``"fixed:3"``.
        equal: what decides how long it runs: ``"batteries"``, ``"time"``, ``"budget"`` or
            ``"iterations"``.
        scenario: what was asked.
        work: size of the model and of a round.
        rounds: integers [n, N].
        active: bool [n, N].
        exchanged: bool [n].
        iteration_j: float64 [m], or [m, seeds] where it depends on the training: of the m
            iterations that are priced, all of them once training is over.
        latency_s: float64 [m], or [m, seeds].
        energy_budget_j: float64 [N].
        compute_total_j: float64 [N], mean over seeds.
        transmit_total_j: float64 [N], mean over seeds.
        receive_total_j: float64 [N], mean over seeds.
        idle_total_j: float64 [N], mean over seeds.
        bits: float64 [m], mean over seeds: bits on the air.
        server_j: float64 [m], mean over seeds: joules that no battery pays.
        notes: what a reader should know, one line each.

    >>> setting = Setting(Scenario.preset("adaptive"), "batteries")
    >>> from joulemesh.methods import build
    >>> account = account_of(setting, build("fixed:3", setting))
    >>> bool(np.isclose(account.iteration_j.sum(), account.spent_j.sum()))
    True
    """

    method: str
    equal: str
    scenario: Scenario = field(repr=False)
    work: Workload = field(repr=False)
    rounds: NDArray[Any] = field(repr=False)
    active: NDArray[np.bool_] = field(repr=False)
    exchanged: NDArray[np.bool_] = field(repr=False)
    iteration_j: FloatArray = field(repr=False)
    latency_s: FloatArray = field(repr=False)
    energy_budget_j: FloatArray = field(repr=False)
    compute_total_j: FloatArray = field(repr=False)
    transmit_total_j: FloatArray = field(repr=False)
    receive_total_j: FloatArray = field(repr=False)
    idle_total_j: FloatArray = field(repr=False)
    bits: FloatArray = field(repr=False)
    server_j: FloatArray = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def iterations(self) -> int:
        return len(self.rounds)

    @property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: the batteries, which such a method does not recharge."""
        return self.energy_budget_j

    @property
    def deadline_s(self) -> float | None:
        """Seconds allowed to each iteration, if any; a method may exceed them: a note says so."""
        return self.scenario.budget.deadline_s

    @property
    def total_s(self) -> float | None:
        """Seconds allowed to the whole training, if any; a method may exceed them as well."""
        return self.scenario.budget.total_s

    @property
    def exchange_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on exchanges, sending and receiving."""
        return self.transmit_total_j + self.receive_total_j

    @cached_property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all: the sum of the four columns."""
        return np.asarray(np.sum([getattr(self, name) for name in COLUMNS], axis=0))

    @property
    def margin_j(self) -> FloatArray:
        """float64 [N]: what is left in the batteries; negative where they are overdrawn."""
        return left_of(self.energy_budget_j, self.spent_j)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The devices' names; empty without any."""
        with suppress(ScenarioError):
            return tuple(device_names(self.scenario))
        return ()

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of the scenario that decide it, each with its origin."""
        return figures(self.scenario)


def account_of(
    setting: Setting, contender: Contender, ledgers: Sequence[Ledger] = ()
) -> MethodAccount:
    known = tuple(ledgers) or (contender.reserve,)
    schedule = contender.schedule
    energy = [ledger.energy_j.sum(axis=1) for ledger in known]
    clock = [ledger.seconds for ledger in known]
    columns = np.mean([ledger.columns_j for ledger in known], axis=0)
    return MethodAccount(
        contender.name,
        setting.equal,
        setting.scenario,
        setting.work,
        rounds=schedule.rounds,
        active=schedule.active,
        exchanged=schedule.exchanged,
        iteration_j=np.stack(energy, axis=1) if ledgers else energy[0],
        latency_s=np.stack(clock, axis=1) if ledgers else clock[0],
        energy_budget_j=contender.battery_j,
        **dict(zip(COLUMNS, columns, strict=True)),
        bits=np.mean([ledger.bits for ledger in known], axis=0),
        server_j=np.mean([ledger.server_j for ledger in known], axis=0),
        notes=contender.notes,
    )


def _is_an_account(account: MethodAccount) -> Account:
    return account


def libraries(name: str) -> tuple[str, ...]:
    """The libraries whose models a method trains, found by making it ready for a small fleet.

    A method of the user's own that asks for the model of JAX (`Setting.model`) trains no others.

    Args:
        name: as it stands in a comparison; parameters may decide it.

    Returns:
        Some of ``"jax"`` and ``"torch"``; none if the method cannot be made ready there.

    Raises:
        ScenarioError: the method or a parameter is unknown.

    >>> libraries("d-psgd"), libraries("pens")
    (('jax', 'torch'), ('jax', 'torch'))
    """
    parsed(name)
    small = {"devices.count": 6, "network.topology": "complete", "plan.iterations": 4}
    scenario = Scenario.preset("adaptive").override(small)
    try:
        build(name, Setting(scenario, model=TorchModel("a module", None), parameters=650))
    except NotOfJaxError:
        return ("jax",)
    except Exception:  # the user's own may ask for anything
        return ()
    return ("jax", "torch")


_TRACES = ("availability", "harvest_w", "positions", "leave")


def build(
    name: str,
    scenario: Scenario | Setting,
    *,
    equal: str = "iterations",
    seeds: Sequence[int] = (0,),
    model: Model | TorchModel | None = None,
    parameters: int | None = None,
    data: Dataset | None = None,
) -> Contender:
    """Make a method ready for a scenario.

    Args:
        name: for instance ``"adaptive:backfill"``, ``"fixed:3"``, ``"balanced:tau1=4,tau2=2"``.
        scenario: what is asked; or a `Setting`, made once for several methods.
        equal: ``"iterations"``, ``"batteries"``, ``"time"`` or ``"budget"``; see `Setting`.
        seeds: repetition seeds.
        model: the user's own model.
        parameters: its size, if the model itself is not at hand.
        data: the user's own data, in place of the scenario's.

    Returns:
        The contender.

    Raises:
        ScenarioError: unknown method or parameter.
        InfeasibleError: the budget does not pay for one iteration.

    >>> contender = build("fixed:3", Scenario.preset("adaptive"), equal="batteries")
    >>> int(contender.schedule.rounds.max()), bool((contender.leftover_j() >= 0).all())
    (3, True)
    """
    method, given = parsed(name)
    if not isinstance(scenario, Setting):
        scenario = Setting(scenario, equal, seeds, model=model, parameters=parameters, data=data)
    setting = scenario
    with named_refusals(lambda: setting.ground.names):
        try:
            made = method.build(name, setting, given)
        except NotOfJaxError:
            raise NotOfJaxError(
                f"{name} asks for setting.model, which is of JAX, and {setting.module} is a "
                f"PyTorch module: leave {name} out, or use context.losses in its exchange"
            ) from None
    if not isinstance(made, Contender):
        raise ScenarioError(
            f"the builder of {name!r} ({place_of(method.build)}) gives {type(made).__name__}: "
            "return setting.contender(...)"
        )
    if setting.world.traces.given and not made.traced:
        devices = setting.scenario.devices
        given_here = [f"devices.{one}" for one in _TRACES if getattr(devices, one)]
        raise ScenarioError(
            f"{name} does not follow {' and '.join(given_here)}, by which devices come, go, move "
            "or recharge: make it with walk(setting, name, follow), as the methods that come with "
            "Joulemesh are, or leave the field out"
        )
    if setting.world.packets is not None and not made.drawn and made.reserve.bits.any():
        said = "where devices come, go, move or recharge, " * made.traced
        raise ScenarioError(
            f"{said}{name} does not say what becomes of messages that are lost "
            "(joulemesh.methods.walk); choose a method that is planned (adaptive, spread, "
            "inverse), or set network.packet_error = 0"
        )
    return _rounded(setting, _just_in_time(setting, made))


def _just_in_time(setting: Setting, made: Contender) -> Contender:
    """The method on processors that run no faster than the slowest needs, if they can.

    A plan has clocks of its own. What batteries gain while a method runs stays as it is.
    """
    if setting.ground.clock == "full" or made.clocked:
        return made
    devices, settle = setting.world.devices, made.settle
    reserve = just_in_time(devices, made.reserve)
    if settle is None:
        return replace(made, reserve=reserve)
    return replace(made, reserve=reserve, settle=lambda sent: just_in_time(devices, settle(sent)))


def _rounded(setting: Setting, made: Contender) -> Contender:
    """The method with messages rounded as ``network.bits_per_parameter`` says, if it has not.

    A method's own exchange is rounded by training (`Exchange.rounds`); of a schedule that has
    matrices, what is sent is rounded before, and what comes of it.
    """
    wire = rounded_to(setting.scenario.network.bits_per_parameter)
    if not wire or made.schedule.wire:
        return made
    if made.exchange is not None:
        return replace(made, schedule=replace(made.schedule, wire=wire))
    schedule = replace(
        made.schedule,
        mixing=exchanges_of_matrices(made.schedule, wire),
        mixing_rounds=1,
        exact=np.zeros(made.schedule.iterations, bool),
        wire=wire,
    )
    return replace(made, schedule=schedule)
