"""The terms of a comparison: one scenario, what is equal for all, and prices for everybody."""

from __future__ import annotations

__all__ = ["Prices", "Setting"]

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from joulemesh.aggregation.patterned import Patterned
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.countable import require_countable
from joulemesh.data import Dataset, spec_for
from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.ledger import Ledger, charge
from joulemesh.methods.base import Contender, FloatArray, IntArray
from joulemesh.methods.horizon import notes_on, run_length
from joulemesh.methods.terms import equal_terms
from joulemesh.models.torch_model import TorchModel
from joulemesh.own_code import place_of
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.planning.pricing import Pricer
from joulemesh.planning.static import plan_of
from joulemesh.planning.workload import Workload
from joulemesh.scenario import Scenario
from joulemesh.training.schedule import Mixing, Schedule
from joulemesh.units import duration
from joulemesh.world import World
from joulemesh.world.links import LinkCosts

if TYPE_CHECKING:
    from joulemesh.models.core import Model
    from joulemesh.training.exchange import Exchange

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
        ledger = run_length(self, name, prices)
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
        every = (*notes, *notes_on(self, ledger, at_most=settle is not None))
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
