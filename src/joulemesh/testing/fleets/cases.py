"""What a seed stands for: a small fleet, and what befalls it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Literal

import numpy as np

from joulemesh.registries import SCHEMES
from joulemesh.scenario.fields import ExchangePattern
from joulemesh.testing.fleets.network import Weather
from joulemesh.testing.fleets.setup import Links, Setup, VirtualPlanner, exchanges

FaultKind = Literal[
    "crash",
    "power cut",
    "freeze",
    "partition",
    "cut off",
    "full disk",
    "slow",
    "slower",
    "hang",
    "raise",
    "stop",
    "overhears",
    "wipe",
    "restore",
    "clone",
]

_GRAPHS: tuple[tuple[int, Links], ...] = (
    (3, ((0, 1), (0, 2), (1, 2))),
    (3, ((0, 1), (1, 2))),
    (4, ((0, 1), (0, 3), (1, 2), (2, 3))),
    (4, ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))),
    (4, ((0, 1), (0, 2), (1, 2), (2, 3))),
    (5, ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))),
    (5, ((0, 1), (0, 2), (0, 3), (1, 2), (2, 3), (2, 4), (3, 4))),
    (6, ((0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5))),
    (7, ((0, 1), (0, 6), (1, 2), (1, 4), (2, 3), (3, 4), (4, 5), (5, 6))),
)
_AGREEMENT = ("Prepare", "Promise", "Accept", "Accepted", "Accepted")
_MOMENTS = (*_AGREEMENT, *_AGREEMENT, "Join", "Leave", "Fetch", "Given", "Part")
_HOW_OFTEN = (4, 3, 4, 4, 4, 3, 3, 2, 1)

_PATTERNS = (
    ExchangePattern(),
    ExchangePattern(times=2),
    ExchangePattern(every=2),
    ExchangePattern(final=True),
    ExchangePattern(between="none", every=2),
    ExchangePattern(every=3, train=1, mix=1),
)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and is over some time later.

    A device that ``overhears`` is the only one that hears anything: what is decided then, it alone
    knows. A device whose folder is wiped, or restored from a copy that is as old as the fault is
    long, is started again at once. A clone of its folder runs elsewhere from then on. A
    learner that ``hang``s does so until its process is started again, and one that is ``slower``
    stays so.
    """

    kind: FaultKind  # what
    at_s: float  # when
    for_s: float  # how long; a device that crashed is started again then
    device: int = -1  # which one; for a partition, −1
    links: tuple[tuple[int, int], ...] = ()  # the directed links that a partition cuts
    factor: float = 1.0  # of the seconds that a slower learner takes


@dataclass(frozen=True)
class Ambush:
    """A fault that waits for a device to say something."""

    message: str  # name of a kind of message, or of what a flood says
    turn: int  # it is the so many-th of its kind, of all devices
    kind: FaultKind  # what befalls its sender
    after_s: float  # how long after it is sent
    for_s: float  # how long it lasts


@dataclass(frozen=True)
class Case:
    """What a seed stands for."""

    seed: int  # all draws of the run come from it, too
    setup: Setup  # the fleet and its task
    battery_j: tuple[float, ...]  # of each device
    patience_s: float  # of the nodes
    on_failure: Literal["go-on", "stop"]  # ``"go-on"`` or ``"stop"``
    weather: Weather  # until everything is well again
    faults: tuple[Fault, ...]  # in the order of time
    ambushes: tuple[Ambush, ...]  # faults that wait for their moment
    well_s: float  # when all faults are over
    dead: frozenset[int] = frozenset()  # devices that do not come back from a crash
    odd: int = -1  # a device whose planner makes another plan than the others'; −1 for none


@cache
def _setups() -> tuple[tuple[Setup, ...], ...]:
    """Fleets by graph: every scheme and every pattern on each of them."""
    found = []
    for devices, links in _GRAPHS:
        plain = [Setup(devices, links, name) for name in SCHEMES.names() if name != "gossip"]
        gossip = [
            Setup(devices, links, "gossip", gossip=(3, mode)) for mode in ("ticks", "matchings")
        ]
        mixed = [Setup(devices, links, "tree", pattern) for pattern in _PATTERNS]
        found.append((*plain, *gossip, *mixed))
    return tuple(found)


def case_of(seed: int) -> Case:
    """The case of a seed.

    >>> case_of(1) == case_of(1)
    True
    """
    random = Random(f"case {seed}")
    setup = random.choice(random.choices(_setups(), _HOW_OFTEN)[0])
    patience_s = random.choice((0.5, 0.8, 1.5))
    on_failure: Literal["go-on", "stop"] = "stop" if random.random() < 0.1 else "go-on"
    folders, lost = _folders(seed, setup, patience_s)
    learners = _learner_faults(seed, setup, patience_s)
    faults = (*_faults(random, setup, patience_s), *folders, *learners)
    well_s = max((fault.at_s + fault.for_s for fault in faults), default=0.0)
    well_s += random.uniform(0.5, 3.0) * patience_s
    dead = _dead(random, setup, faults) if on_failure == "go-on" else frozenset()
    if not dead and on_failure == "go-on" and len(folders) > 1:
        dead = frozenset({folders[1].device})  # only its clone is left
    odd = random.randrange(setup.devices) if random.random() < 0.04 else -1
    battery_j = tuple(_battery_j(random, setup, device) for device in range(setup.devices))
    setup, battery_j = _binding(seed, setup, battery_j)
    if not VirtualPlanner(setup, battery_j).feasible():
        battery_j = tuple(_ample_j(setup) for _ in battery_j)
    return Case(
        seed,
        setup,
        battery_j,
        patience_s,
        on_failure,
        _weather(random, patience_s),
        faults,
        (*_ambushes(random, patience_s), *_secrets(seed, patience_s), *lost),
        well_s,
        dead,
        odd,
    )


def _battery_j(random: Random, setup: Setup, device: int) -> float:
    """Plenty; sometimes too little to reach the end, or just enough for what goes smoothly."""
    ample = _ample_j(setup)
    return random.uniform(0.0, 0.25) * ample if random.random() < 0.12 else ample


def _ample_j(setup: Setup) -> float:
    return 40.0 * setup.iterations


def _binding(
    seed: int, setup: Setup, battery_j: tuple[float, ...]
) -> tuple[Setup, tuple[float, ...]]:
    """Sometimes the total time binds, or all batteries do: there is hardly more than is planned."""
    random = Random(f"binding {seed}")
    made = exchanges(setup, tuple(range(setup.devices)), ())
    assert made is not None
    setup = replace(setup, leave=random.random() < 0.5)
    if random.random() < 0.2:
        slowest_s = max(map(setup.round_s, range(setup.devices)))
        total_s = setup.iterations * slowest_s + float(made.seconds.sum())
        setup = replace(setup, total_s=random.uniform(0.7, 1.1) * total_s)
    if random.random() < 0.3:
        least_j = setup.iterations * np.array([*map(setup.round_j, range(setup.devices))])
        least_j = (least_j + made.spent_j.sum(axis=0)) / (1.0 - setup.reserve)
        draws = [random.choice((1.0, 1.0, 1.02, 1.2, 1.6)) for _ in battery_j]
        battery_j = tuple((np.array(draws) * least_j + 1e-6).tolist())
    elif setup.leave and random.random() < 0.4:  # one has too little for its part
        poor = random.randrange(setup.devices)
        battery_j = tuple(
            random.uniform(0.2, 0.9) * setup.iterations * setup.round_j(device)
            if device == poor
            else held_j
            for device, held_j in enumerate(battery_j)
        )
    return setup, battery_j


def _learner_faults(seed: int, setup: Setup, patience_s: float) -> tuple[Fault, ...]:
    """Sometimes a learner hangs, fails, or is slow for good."""
    random = Random(f"learner {seed}")  # of its own: other seeds stay what they are
    if random.random() > 0.35:
        return ()
    kinds: tuple[FaultKind, ...] = ("hang", "raise", "slower", "freeze")
    kind = random.choice(kinds)
    for_s = {"raise": random.expovariate(1.0), "freeze": random.uniform(1.5, 6.0)}.get(kind, 0.0)
    device, factor = random.randrange(setup.devices), random.choice((3.0, 8.0, 30.0))
    fault = Fault(kind, random.uniform(0.1, 1.0), for_s * patience_s, device, factor=factor)
    return (fault,)


def _weather(random: Random, patience_s: float) -> Weather:
    if random.random() < 0.4:
        return Weather((0.001, random.choice((0.005, 0.03))))
    return Weather(
        (0.001, random.choice((0.005, 0.03, 0.2))),
        loss=random.choice((0.0, 0.01, 0.05, 0.15)),
        twice=random.choice((0.0, 0.02, 0.1)),
        held=random.choice((0.0, 0.02)),
        held_s=2.0 * patience_s,
    )


def _faults(random: Random, setup: Setup, patience_s: float) -> tuple[Fault, ...]:
    """The first comes while the fleet is at work; some last longer than patience, some do not."""
    kinds: tuple[FaultKind, ...] = ("crash", "freeze", "partition", "full disk", "slow", "stop")
    number = random.choices((0, 1, 2, 3, 5), (1, 5, 4, 2, 1))[0]
    at_s, found = random.uniform(0.0, 1.2), []
    for kind in random.choices(kinds, (6, 3, 3, 1, 1, 1), k=number):
        if kind == "crash" and random.random() < 0.15:
            kind = "power cut"
        for_s = random.expovariate(0.5) * patience_s
        links = _partition(random, setup) if kind == "partition" else ()
        device = -1 if kind in ("partition", "power cut") else random.randrange(setup.devices)
        found.append(Fault(kind, at_s, for_s, device, links))
        at_s += random.expovariate(1.0) * patience_s
    return tuple(found)


def _ambushes(random: Random, patience_s: float) -> tuple[Ambush, ...]:
    """Sometimes the worst moment is waited for: in the middle of an agreement, or of a rescue."""
    number = random.choices((0, 1, 2), (4, 4, 2))[0]
    kinds: tuple[FaultKind, ...] = ("crash", "cut off", "freeze", "power cut")
    return tuple(
        Ambush(
            random.choice(_MOMENTS),
            random.randrange(6),
            random.choices(kinds, (3, 2, 1, 4))[0],
            random.choice((0.0, 0.002, 0.01, 0.05)),
            random.expovariate(0.5) * patience_s,
        )
        for _ in range(number)
    )


def _secrets(seed: int, patience_s: float) -> tuple[Ambush, ...]:
    """Sometimes one device alone learns of a view that is decided, and is then cut off."""
    random = Random(f"secret {seed}")  # of its own: other seeds stay what they are
    if random.random() > 0.4:
        return ()
    turn, after_s = random.randrange(3), random.choice((0.0, 0.002, 0.005, 0.02))
    return (Ambush("Accept", turn, "overhears", after_s, random.uniform(2.0, 8.0) * patience_s),)


def _folders(
    seed: int, setup: Setup, patience_s: float
) -> tuple[tuple[Fault, ...], tuple[Ambush, ...]]:
    """Sometimes a device loses its folder, gets an old copy of it, or is cloned.

    A folder may be lost just after the device has voted; one that is cloned may itself be gone.
    """
    random = Random(f"folder {seed}")  # of its own: other seeds stay what they are
    if random.random() > 0.35:
        return (), ()
    kind: FaultKind = random.choice(("wipe", "restore", "clone", "wipe"))
    device, at_s = random.randrange(setup.devices), random.uniform(0.1, 1.5)
    for_s = random.uniform(0.05, 4.0) * patience_s
    if kind == "wipe" and random.random() < 0.5:
        crash = Fault("crash", at_s, for_s, device)
        moment, after_s = random.choice(_AGREEMENT[1:]), random.choice((0.0, 0.01, 0.05))
        return (crash,), (Ambush(moment, random.randrange(4), kind, after_s, for_s),)
    fault = Fault(kind, at_s, for_s, device)
    if kind == "clone" and random.random() < 0.5:
        return (fault, Fault("crash", at_s + 0.1, 8.0 * patience_s, device)), ()
    return (fault,), ()


def _partition(random: Random, setup: Setup) -> tuple[tuple[int, int], ...]:
    """A link, one direction of it, a device, or half of the fleet is cut off."""
    drawn = random.random()
    if drawn < 0.5:
        a, b = random.choice(setup.links)
        return ((a, b), (b, a)) if drawn < 0.35 else ((b, a),)
    size = 1 if drawn < 0.75 else setup.devices // 2
    side = set(random.sample(range(setup.devices), size))
    across = [(a, b) for a, b in setup.links if (a in side) != (b in side)]
    return tuple(sorted([*across, *((b, a) for a, b in across)]))


def _dead(random: Random, setup: Setup, faults: tuple[Fault, ...]) -> frozenset[int]:
    """Sometimes the first that crashed stays away."""
    crashed = [fault.device for fault in faults if fault.kind == "crash"]
    return frozenset(crashed[:1]) if crashed and random.random() < 0.3 else frozenset()
