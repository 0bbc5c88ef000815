"""SkipTrain, Gossip-PGA, the single merge and LED against loops written from their papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from joulemesh.data import Dataset, from_arrays, partition
from joulemesh.methods import Contender, Setting, build
from joulemesh.methods.skiptrain import Blocks, trained
from joulemesh.methods.walk import exact_scheme
from joulemesh.models.core import build as build_model
from joulemesh.scenario import Scenario
from joulemesh.tolerance import within
from joulemesh.training import Engine, Options
from joulemesh.training.reference import _batches

FloatArray = NDArray[np.float64]
RATE, L2 = 0.3, 0.01
MIDDLE = np.full((6, 6), 1 / 6)


def metropolis_ring(devices: int = 6) -> FloatArray:
    """Every device has two neighbours: all weights are 1/3."""
    eye = np.eye(devices)
    return (eye + np.roll(eye, 1, axis=0) + np.roll(eye, -1, axis=0)) / 3


def gradient(values: FloatArray, x: FloatArray, y: NDArray[Any], classes: int) -> FloatArray:
    """Of softmax regression, w before b in one vector, with (l2/2)·||·||²."""
    x = x.reshape(len(x), -1)
    size = x.shape[1] * classes
    logits = x @ values[:size].reshape(-1, classes) + values[size:]
    chance = np.exp(logits - logits.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    chance[np.arange(len(y)), y] -= 1
    slope = np.concatenate([(x.T @ chance).ravel(), chance.sum(axis=0)]) / len(y)
    return slope + L2 * values


def engine_of(contender: Contender, data: Dataset, kind: str = "quantity") -> Engine:
    held = partition(data.y_train, contender.schedule.devices, kind=kind, seed=0)
    options = Options(batch_size=16, learning_rate=RATE, precision="float64", eval_every=1000)
    model = build_model("logistic", data.shape, data.classes, (), L2)
    return Engine(model, data, [held], contender.schedule, options, own_exchange=contender.exchange)


def flat(params: Any) -> FloatArray:
    leaves = (np.asarray(params[name], np.float64) for name in ("w", "b"))
    return np.concatenate([leaf.reshape(-1) for leaf in leaves])


def fast(engine: Engine) -> FloatArray:
    """What the engine makes of it: [N, P]."""
    *_, (state, _) = engine.train()
    params = engine.params(state)
    each = ({name: leaf[0, i] for name, leaf in params.items()} for i in range(6))
    return np.stack([flat(one) for one in each])


Mix = Callable[[int, FloatArray], FloatArray]
Steps = Callable[[int, int], int]


def slow(engine: Engine, iterations: int, mix: Mix, steps: Steps) -> FloatArray:
    """Gradient steps of each device, then an exchange, as the papers write it."""
    x = np.tile(flat(engine.initial(0)), (6, 1))
    for t in range(iterations):
        for i in range(6):
            batches = _batches(engine, 0, t, i)
            assert len(batches) == steps(t, i)
            for features, labels in batches:
                x[i] -= RATE * gradient(x[i], features, labels, 10)
        x = mix(t, x)
    return x


@pytest.fixture(scope="module")
def ring(small: Scenario) -> Scenario:
    return small.override({"plan.iterations": 9})


@pytest.mark.slow
def test_gossip_pga_is_algorithm_1(ring: Scenario, digits: Dataset) -> None:
    engine = engine_of(build("gossip-pga:4", ring), digits)

    def mix(k: int, x: FloatArray) -> FloatArray:
        return (MIDDLE if (k + 1) % 4 == 0 else metropolis_ring()) @ x

    made = slow(engine, 9, mix, lambda t, i: 1)
    np.testing.assert_allclose(fast(engine), made, rtol=0, atol=1e-12)
    assert np.abs(made - made.mean(axis=0)).max() > 1e-4  # the ninth iteration ends on neighbours


def test_gossip_pga_between_its_limits(ring: Scenario) -> None:
    """Always exact it sends what fixed:1 sends; never within the run, what d-psgd sends."""
    for equal in ("iterations", "batteries", "time", "budget"):
        setting = Setting(ring, equal)
        for ours, theirs in (("gossip-pga:1", "fixed:1"), ("gossip-pga:100000", "d-psgd")):
            mine, other = build(ours, setting).ledger(), build(theirs, setting).ledger()
            np.testing.assert_allclose(mine.energy_j, other.energy_j, rtol=1e-12)
            np.testing.assert_allclose(mine.seconds, other.seconds, rtol=1e-12)
            np.testing.assert_allclose(mine.bits, other.bits)


def test_merge_averages_once_at_the_end(ring: Scenario, digits: Dataset) -> None:
    engine = engine_of(build("merge:2", ring), digits)

    def mix(k: int, x: FloatArray) -> FloatArray:
        return (MIDDLE if k == 8 else metropolis_ring()) @ x

    made = slow(engine, 9, mix, lambda t, i: 2)
    np.testing.assert_allclose(fast(engine), made, rtol=0, atol=1e-12)
    np.testing.assert_allclose(made, np.tile(made[0], (6, 1)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("aggregation", ["tree", "ring", "gossip"])
def test_the_merge_is_reserved(ring: Scenario, aggregation: str) -> None:
    scenario = ring.override({"plan.aggregation": aggregation, "plan.gossip_rounds": 5})
    setting = Setting(scenario, "batteries")
    made = build("merge", setting)
    ledger, n = made.ledger(), made.schedule.iterations
    scheme, words = exact_scheme(setting)
    priced = setting.pricer.route(scheme.route(setting.costs(0), 0), setting.costs(0))
    np.testing.assert_allclose(ledger.exchange_j[-1], priced.energy_j[0])
    assert scheme.exact
    assert made.schedule.exact.tolist() == [False] * (n - 1) + [True]
    assert any(words in note for note in made.notes)
    assert within(setting.battery_j, ledger.spent_j).all()
    # One iteration more, and some battery could not pay for the merge.
    one_more = ledger.spent_j + ledger.energy_j[0]
    assert (one_more > setting.battery_j).any()


def test_the_cheapest_exact_scheme_is_said(ring: Scenario) -> None:
    gossip = ring.override({"plan.aggregation": "gossip", "plan.gossip_rounds": 5})
    assert "the scheme of plan.aggregation" in exact_scheme(Setting(ring))[1]
    scheme, words = exact_scheme(Setting(gossip))
    assert words == f"averages exactly {scheme.kind.words}, the exact scheme of least joules"
    setting = Setting(gossip)
    costs = setting.forecast
    mine = setting.pricer.route(scheme.route(costs, 0), costs).energy_j.sum()
    for name in ("tree", "ring", "ring-chunked"):
        other = Setting(ring.override({"plan.aggregation": name})).scheme
        assert mine <= setting.pricer.route(other.route(costs, 0), costs).energy_j.sum()


def test_methods_beside_a_plan_whose_exchanges_differ(ring: Scenario) -> None:
    """They average by the plan's exact scheme, whatever its pattern is."""
    setting, plain = (
        Setting(ring.override({"plan.exchange": exchange}), "batteries")
        for exchange in ({"between": "neighbours", "every": 4}, "exact")
    )
    for name in ("fixed:2", "merge", "gossip-pga"):
        ours, theirs = build(name, setting).ledger(), build(name, plain).ledger()
        np.testing.assert_array_equal(ours.energy_j, theirs.energy_j)
        np.testing.assert_array_equal(ours.seconds, theirs.seconds)


# SkipTrain ---------------------------------------------------------------------------------------


def test_training_probabilities_of_the_authors() -> None:
    """Training rounds that the authors' four phones afford (their table for CIFAR-10), T = 1000."""
    affordable = np.array([272, 324, 681, 272])
    who = np.mean([trained(s, Blocks(4, 4), 1000, affordable) for s in range(200)], axis=0)
    allowed = np.arange(1000) % 8 < 4
    assert not who[~allowed].any()
    early = who[allowed][:200].mean(axis=0)  # before anybody's rounds are used up
    np.testing.assert_allclose(early, [0.544, 0.648, 1.0, 0.544], atol=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_nobody_trains_more_often_than_it_affords(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks, affordable = Blocks(*rng.integers(1, 5, 2).tolist()), rng.integers(0, 60, 7)
    who = trained(seed, blocks, 80, affordable)
    assert (who.sum(axis=0) <= affordable).all()
    rich = affordable >= blocks.count(80)
    assert (who[:, rich].sum(axis=0) == blocks.count(80)).all()
    assert blocks.count(80) == blocks.allowed(80).sum()
    np.testing.assert_array_equal(who, trained(seed, blocks, 80, affordable))


@pytest.mark.slow
def test_skiptrain_is_algorithm_2(ring: Scenario, digits: Dataset) -> None:
    scenario = ring.override({"budget.energy_j": (0.05, 0.5)})
    made = build("skiptrain:2,sync=1,tau=3", scenario)
    rounds = made.schedule.rounds
    assert set(np.unique(rounds)) == {0, 3}
    assert not rounds[2::3].any()
    engine = engine_of(made, digits)
    values = slow(engine, 9, lambda t, x: metropolis_ring() @ x, lambda t, i: int(rounds[t, i]))
    np.testing.assert_allclose(fast(engine), values, rtol=0, atol=1e-12)


def test_skiptrain_affords_what_it_trains(ring: Scenario) -> None:
    """τ_i from the joules of one exchange and of one training, worked out here."""
    setting = Setting(ring.override({"budget.energy_j": (0.05, 0.5)}), "batteries")
    made = build("skiptrain:2,sync=1,tau=3", setting)
    ledger, n = made.ledger(), made.schedule.iterations
    sending = build("d-psgd", setting).ledger().exchange_j[0]
    training = 3 * setting.world.devices.round_energy_j
    afford = np.floor((setting.battery_j - n * sending) / training)
    often = (made.schedule.rounds > 0).sum(axis=0)
    assert (often <= afford).all()
    assert within(setting.battery_j, ledger.spent_j).all()
    np.testing.assert_allclose(ledger.compute_j, made.schedule.rounds / 3 * training)
    # No other number of iterations lets devices train more often.
    for other in (n // 2, n - 1, n + 1, n + 5):
        left = np.floor((setting.battery_j - other * sending) / training)
        allowed = Blocks(2, 1).count(other)
        best = np.minimum(afford, Blocks(2, 1).count(n)).sum()
        assert np.minimum(np.maximum(left, 0), allowed).sum() <= best


def test_an_iteration_without_training_is_shorter(ring: Scenario) -> None:
    ledger = build("skiptrain:1,sync=1", ring).ledger()
    assert ledger.seconds[1::2].max() < ledger.seconds[::2].min()
    mixing = build("balanced:tau1=1,tau2=1", ring)
    slowest = Setting(ring).world.devices.round_latency_s.max()
    np.testing.assert_allclose(ledger.seconds[1], mixing.ledger().seconds[0] - slowest)


# LED ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "tau", "beta"), [("led:3", 3, 1.0), ("led:2,beta=0.5", 2, 0.5)])
def test_led_is_algorithm_1(
    ring: Scenario, digits: Dataset, name: str, tau: int, beta: float
) -> None:
    engine = engine_of(build(name, ring), digits)
    w = (np.eye(6) + metropolis_ring()) / 2
    x, y = np.tile(flat(engine.initial(0)), (6, 1)), np.zeros((6, 650))
    for t in range(9):
        phi = x.copy()
        for i in range(6):
            for features, labels in _batches(engine, 0, t, i):
                phi[i] -= RATE * gradient(phi[i], features, labels, 10) + beta / tau * y[i]
        x = w @ phi
        y = y + phi - x
    np.testing.assert_allclose(fast(engine), x, rtol=0, atol=1e-12)
    assert np.abs(y).max() > 1e-3


@pytest.mark.slow
def test_led_agrees_where_d_psgd_does_not(ring: Scenario) -> None:
    """With six devices of one sample each, steps are exact: LED finds the common minimum."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 4)), np.arange(12) % 3
    data = from_arrays(x[:6], y[:6], x[6:], y[6:])
    found = {}
    for name in ("led:1", "d-psgd"):
        scenario = ring.override({"plan.iterations": 1500})
        engine = engine_of(build(name, scenario), data, kind="iid")
        found[name] = fast(engine)
    features = engine.dataset.x_train[engine.partitions[0].order]
    scaled = (features - data.mean) / data.std
    labels = data.y_train[engine.partitions[0].order]
    apart = {name: np.abs(v - v.mean(axis=0)).max() for name, v in found.items()}
    slope = {
        name: np.abs(gradient(v.mean(axis=0), scaled, labels, 3)).max() for name, v in found.items()
    }
    assert apart["led:1"] < 1e-6 < 1e-3 < apart["d-psgd"]
    assert slope["led:1"] < 1e-5 < 1e-3 < slope["d-psgd"]


@pytest.mark.slow
def test_led_finds_the_common_minimum_whatever_is_lost(ring: Scenario) -> None:
    """Of four pairs about one mixes; were W not symmetric, another point would be found."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 4)), np.arange(12) % 3
    data = from_arrays(x[:6], y[:6], x[6:], y[6:])
    lossy = {"plan.iterations": 5000, "network.packet_error": 0.3, "network.tries": 1}
    made = build("led:1", ring.override(lossy))
    mixing = made.schedule.matrices(0, 400)
    assert 0.15 < (mixing[:, 0, 1] > 0).mean() < 0.35
    engine = engine_of(made, data, kind="iid")
    found = fast(engine)
    features = engine.dataset.x_train[engine.partitions[0].order]
    scaled, labels = (features - data.mean) / data.std, data.y_train[engine.partitions[0].order]
    assert np.abs(found - found.mean(axis=0)).max() < 1e-6
    assert np.abs(gradient(found.mean(axis=0), scaled, labels, 3)).max() < 1e-5


@pytest.mark.parametrize("low", [0.0, 1 / 3, 0.9])
@pytest.mark.parametrize("silent", [0, 1, 9])
def test_led_after_iterations_without_mixing(low: float, silent: int) -> None:
    """In a mode of W, its radius is 1 where s (K + 1) (1 − λ) = 2 (1 + λ)."""
    limit = 2 * (1 + low) / (1 - low) / (silent + 1)
    for strength, stable in ((0.99 * limit, True), (1.01 * limit, False)):
        alone = np.array([[1.0, -strength], [0.0, 1.0]])
        mixed = np.array([[low, -low * strength], [1 - low, 1 - strength * (1 - low)]])
        after = mixed @ np.linalg.matrix_power(alone, silent)
        assert (np.abs(np.linalg.eigvals(after)).max() < 1) == stable


def test_a_ring_of_even_length_needs_the_lazy_matrix() -> None:
    """LED without gradients, mode by mode: its spectral radius by the eigenvalues of W."""

    def radius(w: FloatArray) -> float:
        rest = [low for low in np.linalg.eigvalsh(w) if low < 1 - 1e-9]
        modes = [np.array([[low, -low], [1 - low, low]]) for low in rest]
        return max(float(np.abs(np.linalg.eigvals(mode)).max()) for mode in modes)

    assert radius(metropolis_ring(20)) == pytest.approx(1.0)
    assert radius((np.eye(20) + metropolis_ring(20)) / 2) < 1
