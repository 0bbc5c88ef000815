"""Fleets of real nodes in one process: each listens on its own port and has its own certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import joulemesh
from joulemesh.aggregation.contract import execute
from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.device.device import RUN, Device, Wanted
from joulemesh.deploy.device.store import Owner, Store
from joulemesh.deploy.effects import End
from joulemesh.deploy.fleet.fleet import Fleet, Host
from joulemesh.deploy.fleet.pack import DEVICES, DevicePack, make_fleet
from joulemesh.deploy.local.local import free_ports
from joulemesh.deploy.view import Settings
from joulemesh.planning.plan import Plan

PATIENT = Settings(patience_s=6.0)  # nodes of one process share its one interpreter


def packed(folder: Path, plan: Plan, settings: Settings = PATIENT) -> Fleet:
    """A fleet whose devices are all here, each on a free port."""
    from joulemesh.deploy.fleet.pack import roster_names

    names = roster_names(plan)
    ports = free_ports(len(names))
    hosts = {name: Host(name, "127.0.0.1", port) for name, port in zip(names, ports, strict=True)}
    return make_fleet(folder, plan, hosts=hosts, with_keys=True, settings=settings)


def carried_out(fleet: Fleet, learner: str | None = None) -> list[End]:
    """Run all devices of a fleet to their ends, with the scenario's learner or another."""
    wanted = Wanted(meter="modelled", learner=learner)

    async def together() -> list[End]:
        packs = [DevicePack.load(fleet.folder / DEVICES / name) for name in fleet.names]
        return list(await asyncio.gather(*(Device(pack, wanted).run() for pack in packs)))

    return asyncio.run(together())


def kept(fleet: Fleet) -> list[Vector]:
    """The parameters that the devices have on disk."""
    found = []
    for number, name in enumerate(fleet.names):
        run = fleet.folder / DEVICES / name / RUN
        state = Store(run, Owner(fleet.id, fleet.digest, number)).load()
        assert state is not None
        found.append(state.commit.vector)
    return found


class Drifter:
    """A learner without JAX: each round moves every parameter by a draw of its own."""

    def __init__(self, device: int) -> None:
        self.device, self.at = device, np.zeros(650)

    def parameters(self) -> Vector:
        return self.at

    def load(self, parameters: Vector) -> None:
        self.at = np.array(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        for step in range(rounds):
            draw = np.random.default_rng([self.device, iteration, step])
            self.at = 0.9 * self.at + draw.normal(size=self.at.shape)

    def evaluate(self) -> Mapping[str, float]:
        return {"accuracy": 0.5}


def drifted(plan: Plan) -> list[Vector]:
    """What drifters end with that exchange message by message, in one process."""
    fleet = [Drifter(device) for device in range(plan.scenario.devices.count)]
    for t in range(1, plan.iterations + 1):
        for device, one in enumerate(fleet):
            one.train(t, int(plan.rounds[t - 1, device]))
        route = plan.route(t)
        if route is not None:
            after = execute(plan.scheme_at(t), route, np.stack([one.at for one in fleet]))
            for one, vector in zip(fleet, after, strict=True):
                one.load(vector)
    return [one.at for one in fleet]


def simulated(plan: Plan) -> list[Vector]:
    """The parameters of all devices at the end of a simulated run, as the engine trains them."""
    import jax
    from jax.flatten_util import ravel_pytree

    from joulemesh.models import build
    from joulemesh.training import Engine, Options
    from joulemesh.training.from_plan import schedule_of
    from joulemesh.training.jax.platform import precision_scope
    from joulemesh.training.prepare import partitions, the_dataset

    scenario = plan.scenario
    training, data = scenario.training, the_dataset(scenario)
    options = Options.from_scenario(training)
    model = build(training.model, data.shape, data.classes, **dict(training))
    held = partitions(scenario, data, (scenario.seed,), plan.work.round_samples)
    engine = Engine(model, data, held, schedule_of(plan), options, (scenario.seed,))
    *_, (state, _) = engine.train()
    fleet = engine.params(state)
    with precision_scope(options.precision):
        return [
            np.asarray(ravel_pytree(jax.tree.map(lambda leaf, i=device: leaf[0, i], fleet))[0])
            for device in range(scenario.devices.count)
        ]


def apart(one: Sequence[Vector], other: Sequence[Vector]) -> float:
    """The largest difference of any parameter of any device."""
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def small(scheme: str, precision: str = "float64", changes: dict[str, Any] | None = None) -> Plan:
    """Four devices, three iterations, rounds that differ."""
    return joulemesh.plan(
        joulemesh.Scenario.preset("adaptive").override(
            {
                "devices.count": 4,
                "plan.aggregation": scheme,
                "plan.iterations": 3,
                "plan.epsilon": 0.3,
                "budget.energy_j": [1.0, 2.0],
                "budget.deadline_s": 0.3,
                "training.model": "logistic",
                "training.precision": precision,
                "network.bits_per_parameter": 64 if precision == "float64" else 32,
                **(changes or {}),
            }
        )
    )
