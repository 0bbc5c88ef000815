"""SkipTrain, constrained by batteries: some iterations with training, then some with mixing only.

Dhasade, Dini, Guerra, Kermarrec, Miozzo, Pires, Sharma, de Vos: "Energy-Aware Decentralized
Learning with Intermittent Model Training", IPDPS Workshops 2024, arXiv:2407.01283; the authors'
code is sacs-epfl/SkipTrain. T iterations come in blocks of Γ_train, in which device i trains with
probability p_i as long as it can afford to, and Γ_sync, in which nobody trains; neighbours mix in
all of them, with Metropolis weights:

    p_i = min(τ_i / T_train, 1),   T_train: iterations of the T in which training is allowed

τ_i is how often the battery can afford to train beside its T exchanges (the authors neglect these;
the common ledger does not), under fading at the price that is forecast before the first. T is given
in the paper; here it is

    - the adaptive plan's n on equal iterations;
    - what the clock allows on equal time;
    - otherwise the T, within batteries and clock, of which devices train most often in all: few
      iterations leave energy, many spend it on exchanges.

Who trains is drawn from the scenario's seed: known before training, and the same in every
repetition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.registry import Citation
from joulemesh.ledger import Ledger
from joulemesh.methods.base import AS_PLANNED, Contender, FloatArray, IntArray, register, whole
from joulemesh.methods.setting import Setting
from joulemesh.methods.walk import Act, Mixings, Moment, Pattern, first_mixing, steady, walk
from joulemesh.tolerance import affordable
from joulemesh.training import draws

_BLOCK = 4  # Γ_train and Γ_sync: half of the iterations train
_SKIPTRAIN = 0x736B6970  # purpose of the draws
_POINTS = 257  # of the search for T, twice


@dataclass(frozen=True)
class Blocks:
    """Γ_train iterations with training, then Γ_sync without, and so on."""

    train: int
    sync: int

    def allowed(self, iterations: int) -> NDArray[np.bool_]:
        """In which of the first iterations devices may train."""
        return np.asarray(np.arange(iterations) % (self.train + self.sync) < self.train)

    def count(self, iterations: Any) -> IntArray:
        """T_train of T iterations, numbers that broadcast."""
        whole_blocks, rest = np.divmod(np.asarray(iterations), self.train + self.sync)
        return np.asarray(whole_blocks * self.train + np.minimum(rest, self.train))


def trained(seed: int, blocks: Blocks, iterations: int, affordable: IntArray) -> NDArray[np.bool_]:
    """Who trains when: bool [T, N]."""
    allowed = blocks.allowed(iterations)
    chance = np.minimum(affordable / max(1, int(allowed.sum())), 1.0)
    wish = _wish(seed, np.arange(iterations, dtype=np.uint32), chance) & allowed[:, None]
    done: NDArray[np.bool_] = wish & (np.cumsum(wish, axis=0, dtype=np.int32) <= affordable)
    return done


def _wish(seed: int, iterations: Any, chance: FloatArray) -> NDArray[np.bool_]:
    """bool [k, N]: who is drawn to train in some iterations, uint32 [k], with a chance [N]."""
    key = draws.fold(draws.seed_key(seed % 2**64, _SKIPTRAIN), iterations)
    devices = np.arange(len(chance), dtype=np.uint32)
    word = draws.fold((key[0][:, None], key[1][:, None]), devices)[0]
    # word / 2**32 < chance, in integers; who affords nothing is left out elsewhere.
    most = np.maximum(np.ceil(chance * 2.0**32) - 1, 0).astype(np.uint32)
    return np.asarray(word <= most)


@dataclass(frozen=True)
class _Terms:
    """What decides who trains when."""

    setting: Setting
    blocks: Blocks
    tau: int

    @property
    def training_j(self) -> FloatArray:
        """float64 [N]: joules of a device that trains in an iteration."""
        return np.asarray(self.tau * self.setting.world.devices.round_energy_j)

    def affordable(self, exchanges_j: FloatArray) -> IntArray:
        """τ_i beside the joules of all exchanges, [..., N]."""
        return np.maximum(affordable(self.setting.battery_j, self.training_j, exchanges_j), 0)

    def pattern(self, iterations: int) -> Pattern:
        affordable = self.affordable(self._exchanges_j(iterations))
        who = trained(self.setting.scenario.seed, self.blocks, iterations, affordable)
        rounds = who * np.int64(self.tau)
        return Pattern(self.setting, lambda start, stop: rounds[start:stop])

    def _exchanges_j(self, iterations: int) -> FloatArray:
        """float64 [N]: joules of T exchanges, as far as they are known before the first."""
        setting = self.setting
        if not setting.fading:
            idle = Pattern(setting, steady(setting, 0)).prices(0, iterations)
            return np.asarray(idle.exchange_j.sum(axis=0))
        route = first_mixing(setting, setting.work.model_bits)
        return np.asarray(iterations * setting.pricer.route(route, setting.forecast).exchange_j[0])

    def rounds_now(self, now: Moment, iterations: int) -> IntArray:
        """Rounds [N] of one of T iterations under traces, by what batteries hold when it begins.

        τ_i is how often a device has trained (the moment's memory) and still can, if its exchanges
        go on costing what they are forecast to cost now.
        """
        left, trained = iterations - now.t, 0 if now.memory is None else now.memory
        route = now.mixing_route(self.setting.work.model_bits)
        exchange_j = now.price(route, now.forecast).exchange_j[0]
        still = np.maximum(affordable(now.battery_j, self.training_j, left * exchange_j), 0)
        chance = np.minimum((trained + still) / max(1, int(self.blocks.count(iterations))), 1.0)
        drawn = _wish(self.setting.scenario.seed, np.array([now.t], np.uint32), chance)[0]
        trains = drawn & now.who & (still >= 1) & self.blocks.allowed(now.t + 1)[-1]
        return np.where(trains, np.int64(self.tau), np.int64(0))

    def horizon(self) -> int:
        """T before anybody's training is drawn: what batteries and clock allow, or more."""
        setting = self.setting
        one = Pattern(setting, steady(setting, 0)).prices(0, 1)  # an iteration without training
        if not setting.limits_energy:
            return max(1, _ratio(setting.limit_s, one.seconds[0]))
        most = _ratio(1.0, float(np.max(one.exchange_j[0] / setting.battery_j)))
        if setting.limits_time:
            most = min(most, _ratio(setting.limit_s, one.seconds[0]))
        low, high = 1, max(1, most)
        for _ in range(2):  # a coarse search, and a fine one about its best
            tried = np.unique(np.linspace(low, high, _POINTS).astype(np.int64))
            often = [self._often(int(t), one.exchange_j[0]) for t in tried]
            best = int(np.argmax(often))
            low, high = int(tried[max(best - 1, 0)]), int(tried[min(best + 1, len(tried) - 1)])
        return int(tried[best])

    def _often(self, iterations: int, exchange_j: FloatArray) -> int:
        """How often devices train in all, if T iterations have such exchanges."""
        affordable = self.affordable(iterations * exchange_j)
        return int(np.minimum(affordable, self.blocks.count(iterations)).sum())


def _ratio(budget: float, each: float) -> int:
    return int(min(budget / each, 1e6)) if each > 0 else 1_000_000


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    blocks = Blocks(given.get("train", _BLOCK), given.get("sync", _BLOCK))
    terms = _Terms(setting, blocks, given.get("tau", setting.rounds))
    n = setting.iterations if setting.equal == "iterations" else terms.horizon()
    if setting.world.traces.given:
        return _followed(name, terms, n)
    pattern, ledger = _played(terms, n)
    while setting.equal != "iterations" and (paid := setting.payable(ledger)) < n:
        if not paid:
            raise setting.refusal(name, ledger)
        n = paid  # with fewer iterations more can be trained in each: draw again
        pattern, ledger = _played(terms, n)
    return pattern.contender(name, ledger=ledger, notes=_notes(terms, ledger))


def _played(terms: _Terms, iterations: int) -> tuple[Pattern, Ledger]:
    pattern = terms.pattern(iterations)
    return pattern, pattern.prices(0, iterations)


def _followed(name: str, terms: _Terms, iterations: int) -> Contender:
    """The method under traces, with the T that is chosen before the first iteration."""
    setting = terms.setting
    mixings = Mixings(setting.work.model_bits)

    def follow(now: Moment) -> Act:
        rounds = terms.rounds_now(now, iterations)
        before = 0 if now.memory is None else now.memory
        return mixings.act(now, rounds, memory=before + (rounds > 0))

    walked = walk(setting, name, follow, most=iterations)
    return walked.contender(name, notes=_notes(terms, walked.ledger))


def _notes(terms: _Terms, ledger: Ledger) -> list[str]:
    n = ledger.iterations
    often = (ledger.compute_j > 0).sum(axis=0)
    return [
        f"devices train in {often.min()} to {often.max()} of the {int(terms.blocks.count(n))} "
        f"iterations in which training is allowed, of {n}"
    ]


register(
    "skiptrain",
    _build,
    description="Blocks of iterations in which each device trains as often as its battery "
    "affords, and blocks without training; one Metropolis mixing with all neighbours in each.",
    citation=Citation(
        "Dhasade, Dini, Guerra, Kermarrec, Miozzo, Pires, Sharma, de Vos",
        "Energy-Aware Decentralized Learning with Intermittent Model Training",
        2024,
        "IPDPS Workshops",
        arxiv="2407.01283",
        names="Dhasade, Akash and Dini, Paolo and Guerra, Elia and Kermarrec, Anne-Marie and "
        "Miozzo, Marco and Pires, Rafael and Sharma, Rishi and de Vos, Martijn",
    ),
    parameters={
        "train": whole(meaning="consecutive iterations with training", default=str(_BLOCK)),
        "sync": whole(0, meaning="consecutive iterations of mixing only", default=str(_BLOCK)),
        "tau": whole(meaning="rounds of a device that trains", default=AS_PLANNED),
    },
    main="train",
)
