"""Several worlds of one scenario: their seeds, and what is drawn from these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world import World, build_world

WORLD_STRIDE = 1_000_000
"""Between the seeds of worlds: room for the repetition seeds of each, which count from its own."""

_MOST_SEED = 2**64


def world_seeds(seed: int, worlds: int) -> tuple[int, ...]:
    """The seeds of a scenario's worlds: its own, and every millionth after it.

    World k of a scenario is that of the same scenario with ``seed`` raised by k millions, however
    many worlds are asked for.
    """
    if worlds < 1:
        raise ScenarioError(f"worlds = {worlds} is too few: give a whole number of at least 1")
    if seed + worlds * WORLD_STRIDE >= _MOST_SEED:
        raise ScenarioError(
            f"seed = {seed} leaves no room for {worlds} worlds, whose seeds go up by "
            f"{WORLD_STRIDE}; choose a smaller seed"
        )
    return tuple(seed + k * WORLD_STRIDE for k in range(worlds))


def worlds_of(scenario: Scenario, worlds: int, seeds: int | Sequence[int]) -> tuple[Scenario, ...]:
    """The scenario in each of its worlds, which differ in the seed alone."""
    chosen = world_seeds(scenario.seed, worlds)
    if not isinstance(seeds, int):
        raise ScenarioError(
            f"seeds = {list(seeds)} with {worlds} worlds: give the number of seeds; each world has "
            "its own, which count from the world's seed"
        )
    if seeds > WORLD_STRIDE:
        raise ScenarioError(f"{seeds} seeds are too many: a world has room for {WORLD_STRIDE}")
    return (scenario, *(scenario.override({"seed": seed}) for seed in chosen[1:]))


def redrawn(scenario: Scenario) -> tuple[str, ...]:
    """What differs from world to world; empty if the scenario leaves nothing to chance."""
    samples = np.ones(scenario.devices.count)
    one, other = (
        build_world(scenario.override({"seed": seed}), samples)
        for seed in world_seeds(scenario.seed, 2)
    )
    parts = zip(_parts(one).items(), _parts(other).values(), strict=True)
    differs = [name for (name, mine), its in parts if not np.array_equal(mine, its)]
    return (*differs, *(["lost packets"] if one.packets is not None else []))


def _parts(world: World) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """What a world consists of, by names that a reader knows."""
    channel, devices = world.channel, world.devices
    drawn = channel.fades is not None and not channel.fades.data  # a trace is not drawn
    return {
        "placement": world.graph.positions_m,
        "links": world.graph.edges.astype(np.float64),
        "gains": channel.mean_gain if drawn else channel.gain(0),
        "fading": channel.gain(0) / channel.mean_gain if drawn else np.zeros(0),
        "batteries": devices.energy_budget_j,
        "processors": np.stack([devices.round_energy_j, devices.round_latency_s]),
        "radios": devices.transmit_power_w,
    }


def redrawn_words(scenario: Scenario) -> str:
    """What differs from world to world, in a sentence."""
    names = redrawn(scenario)
    if not names:
        return "nothing of this scenario's world is drawn from its seed: all worlds are alike"
    return f"worlds differ in {' and '.join([', '.join(names[:-1]), names[-1]][len(names) < 2 :])}"
