"""Lost packets of every method: against loops over messages, and against what is expected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.aggregation.gossip import metropolis_route
from joulemesh.base.errors import ScenarioError
from joulemesh.methods import Contender, Setting, build, names, register
from joulemesh.methods.base import METHODS
from joulemesh.methods.choco import Links, compress, compressor, linked_choco
from joulemesh.methods.fedavg import star, star_route
from joulemesh.methods.pens import Sent
from joulemesh.planning.losses import tries_of
from joulemesh.scenario import Scenario
from joulemesh.training import draws
from joulemesh.training.exchange import Context, key_words
from joulemesh.world.links import expected_tries
from tests.methods.contexts import seen
from tests.methods.test_gossip_learning import context, make, slow

COMPRESSED = "balanced:tau1=1,tau2=2,compress=topk:0.5"
LOSSY = ("gossip-learning:0.5", COMPRESSED, "pens:phase1=4", "fedavg:1", "led:1")


# Against loops over messages ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def lossy(small: Scenario) -> Scenario:
    changes = {"network.packet_error": 0.4, "network.tries": 2, "plan.iterations": 6}
    return small.override(changes)


def lost_of(setting: Setting, route: Any, t: int, ground: Any = None) -> Any:
    """(play, sender, receiver) of the messages that are lost, drawn again."""
    assert setting.world.packets is not None
    lost = tries_of(ground or setting.ground, setting.world.packets, t, route)[1]
    play, number = np.divmod(np.flatnonzero(lost), len(route.edge))
    ends = zip(route.sender[number].tolist(), route.receiver[number].tolist(), strict=True)
    return {(k, *pair) for k, pair in zip(play.tolist(), ends, strict=True)}


def test_fedavg_equals_messages_one_by_one(lossy: Scenario) -> None:
    setting = Setting(lossy)
    made = build("fedavg:2", setting)
    route, around = star_route(6, setting.work.model_bits), star(setting)
    values, missed = np.random.default_rng(0).normal(size=(6, 5)), 0
    for t in range(6):
        lost = {(i, j) for _, i, j in lost_of(setting, route, t, around)}
        heard = [values[i] for i in range(6) if (i, 6) not in lost]
        told = [i for i in range(6) if heard and (6, i) not in lost]
        missed += 12 - len(heard) - len(told)
        after = made.schedule.matrices(t, t + 1)[0] @ values
        for i in range(6):
            kept = np.mean(heard, axis=0) if i in told else values[i]
            np.testing.assert_allclose(after[i], kept, rtol=1e-12)
    assert missed > 5


def test_led_mixes_pairs_of_whose_messages_none_is_lost(lossy: Scenario) -> None:
    setting = Setting(lossy)
    made, one = build("led:1", setting), metropolis_route(setting.world.graph.edges, 20800.0, 1)
    values, broken = np.random.default_rng(0).normal(size=(6, 5)), 0
    for t in range(6):
        lost, after = lost_of(setting, one, t), values.copy()
        for i, j in setting.world.graph.edges.tolist():
            if not {(0, i, j), (0, j, i)} & lost:  # 1/6: half of Metropolis' third on a ring
                after[i] += (values[j] - values[i]) / 6
                after[j] += (values[i] - values[j]) / 6
            else:
                broken += 1
        mixing = made.schedule.matrices(t, t + 1)[0]
        np.testing.assert_allclose(mixing @ values, after, rtol=1e-12)
        np.testing.assert_array_equal(mixing, mixing.T)
    assert broken > 5


@pytest.mark.parametrize(
    "kind",
    ["topk:0.3", *(pytest.param(k, marks=pytest.mark.slow) for k in ("randk:0.3", "qsgd:4"))],
)
def test_compressed_mixing_equals_a_loop_over_links(kind: str) -> None:
    """Every link has copies at both of its ends, which must agree."""
    route, squeeze = metropolis_route(np.array([[0, 1], [0, 2], [1, 2], [2, 3]]), 1.0, 2), kind
    ends = list(zip(route.sender.tolist(), route.receiver.tolist(), strict=True))
    weight = {(i, j): 0.2 + 0.01 * (i + j) for i, j in ends}
    each = np.array([weight[pair] for pair in ends])
    own = linked_choco(compressor(squeeze), 2, 0.3, Links.of(route.sender, route.receiver, each))
    rng = np.random.default_rng(0)
    squeezed = jax.jit(compress, static_argnums=0)
    with jax.enable_x64(True):
        x = jnp.asarray(rng.normal(size=(4, 10)))
        copies, apply, slowly = own.init(x), jax.jit(own.apply), np.array(x)
        start = slowly.mean(axis=0)
        held = {pair: slowly[pair[0]] for pair in ends}  # by the receiver
        known = dict(held)  # by the sender, from what is acknowledged
        for t in range(4):
            arrived, key = rng.random((2, 8)) < 0.6, jax.random.key(t)
            here = _at(t, arrived)
            x, copies, _ = apply(x, copies, key, here)
            for play in range(2):
                numbers = draws.fold(key_words(key), jnp.uint32(play))
                words = draws.fold(numbers, np.arange(4, dtype=np.uint32))
                for m, (i, j) in enumerate(ends):
                    rest = jnp.asarray(slowly[i] - known[i, j])[None]
                    drawn = (words[0][i : i + 1], words[1][i : i + 1])
                    sent = np.asarray(squeezed(compressor(squeeze), rest, drawn))[0]
                    if arrived[play, m]:
                        held[i, j], known[i, j] = held[i, j] + sent, known[i, j] + sent
                slowly = slowly.copy()
                for (i, j), w in weight.items():
                    slowly[i] += 0.3 * w * (held[j, i] - known[i, j])
            np.testing.assert_allclose(x, slowly, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.mean(x, axis=0), start, atol=1e-12)
        assert np.abs(np.asarray(copies)[0] - np.asarray(copies)[2]).max() > 1e-3  # 0 → 1, 0 → 2


def _at(t: int, arrived: Any) -> Context:
    return seen(t, 4, arrived=jnp.asarray(arrived))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["identity", "topk:0.2", "randk:0.2", "qsgd:4"])
def test_compressed_mixing_agrees_on_the_mean_whatever_is_lost(kind: str) -> None:
    ring = np.array([[i, (i + 1) % 6] for i in range(6)])
    route, squeeze = metropolis_route(np.sort(ring, axis=1), 1.0, 4), compressor(kind)
    links = Links.of(route.sender, route.receiver, np.full(12, 1 / 3))
    own = linked_choco(squeeze, 4, 0.3 * squeeze.step(50), links)
    rng, apply = np.random.default_rng(0), jax.jit(own.apply)
    start = rng.normal(size=(6, 50)).astype(np.float32)
    x, copies = jnp.asarray(start), own.init(jnp.zeros_like(start))
    for t in range(600):
        arrived = jnp.asarray(rng.random((4, 12)) < 0.3)
        here = _at(t, arrived)
        x, copies, _ = apply(x, copies, jax.random.key(t), here)
    np.testing.assert_allclose(np.mean(x, axis=0), start.mean(axis=0), atol=1e-4)
    apart = np.linalg.norm(x - np.mean(x, axis=0))
    assert apart < 0.1 * np.linalg.norm(start - start.mean(axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("form", [{"fraction": 0.37}, {"parts": 3}])
def test_gossip_learning_equals_the_pseudo_code(form: dict[str, Any]) -> None:
    method, rng = make(5, 13, **form), np.random.default_rng(0)
    own = method.exchange()
    with jax.enable_x64(True):
        params = jnp.asarray(rng.normal(size=(5, 13)))
        state, expected = own.init(params), np.array(params)
        ages, apply = np.zeros(state.shape, int), jax.jit(own.apply)
        for t in range(6):
            key, arrived = jax.random.key(t), rng.random(5) < 0.5
            here = replace(context(t, [10, 20, 40, 80, 160]), arrived=jnp.asarray(arrived))
            expected, ages = slow(method, expected, ages, key, here)
            params, state, _ = apply(params, state, key, here)
            np.testing.assert_allclose(params, expected, rtol=1e-12)
            np.testing.assert_array_equal(state, ages)


# What must hold for all --------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*names(), COMPRESSED])
def test_every_method_loses_messages(lossy: Scenario, name: str) -> None:
    made = build(name, lossy)
    assert made.drawn
    assert any("messages were lost" in note for note in made.notes)
    whole = build(name, lossy.override({"network.packet_error": 0.0}))
    assert not whole.drawn
    assert made.schedule.digest() != whole.schedule.digest()


def test_a_method_that_does_not_say_what_becomes_of_lost_messages_is_refused(
    lossy: Scenario,
) -> None:
    def silent(name: str, setting: Setting, given: Any) -> Contender:
        route = setting.scheme.route(setting.costs(0))
        return setting.contender(name, 1, setting.route_prices(1, lambda t: route, alike=True))

    with METHODS.scoped():
        register("silent", silent)
        with pytest.raises(ScenarioError, match=r"silent does not say what becomes of messages"):
            build("silent", lossy)
        assert build("silent", lossy.override({"network.packet_error": 0.0})).ledger().bits.any()
    alone = build("balanced:tau1=1,tau2=0", lossy)  # sends nothing, loses nothing
    assert not alone.drawn


def test_under_traces_only_planned_methods_lose_messages(lossy: Scenario) -> None:
    gone = lossy.override({"devices.leave": [[3, 4]]})
    assert build("adaptive", gone).drawn
    for name in (*LOSSY, "d-psgd"):
        with pytest.raises(ScenarioError, match=r"come, go, .* choose a method that is planned"):
            build(name, gone)


@pytest.mark.parametrize("name", LOSSY)
def test_drawn_joules_are_those_expected_on_average(small: Scenario, name: str) -> None:
    """The mean over 3 seeds of 60 iterations, within 4 of its standard errors."""
    error, tries = 0.3, 3
    each, ratio = [], float(expected_tries(error, tries))
    for seed in range(3):
        scenario = small.override({"seed": seed, "plan.iterations": 60, "network.tries": tries})
        free = build(name, scenario).ledger()
        ledger = build(name, scenario.override({"network.packet_error": error})).ledger()
        paid = ledger.exchange_j.sum(axis=1) + ledger.server_j
        each.append(paid / (free.exchange_j.sum(axis=1) + free.server_j))
    found = np.concatenate(each)
    wrong = found.std(ddof=1) / np.sqrt(len(found))
    assert abs(found.mean() - ratio) < 4 * wrong
    assert wrong < 0.02  # so that 1, or one try too many, would not pass


@pytest.mark.parametrize("name", LOSSY)
def test_no_battery_is_overdrawn_by_what_is_drawn(lossy: Scenario, name: str) -> None:
    dear = {"devices.idle_w": 0.01, "devices.receive_j_per_bit": 1e-7, "network.tries": 6}
    made = build(name, lossy.override(dear), equal="batteries")
    assert (made.leftover_j() >= 0).all()
    assert any("for want of joules" in note for note in made.notes)


MEDIA: tuple[dict[str, Any], ...] = (
    {},
    {"network.duplex": "half"},
    {"network.medium": "shared"},
    {"network.medium": "shared", "network.broadcast": True},
)


@pytest.mark.parametrize("medium", MEDIA)
def test_what_pens_asks_for_costs_no_more_than_is_reserved(
    lossy: Scenario, medium: dict[str, Any]
) -> None:
    """Answers to all neighbours cost what is reserved, answers to some at most as much."""
    dear = {"devices.idle_w": 0.01, "devices.receive_j_per_bit": 1e-7, "network.tries": 6}
    scenario = lossy.override({**dear, **medium})
    made = build("pens:phase1=2,sampled=2", scenario, equal="batteries")
    n, reserve = made.schedule.iterations, made.reserve
    assert made.settle is not None
    samples: Any = np.zeros((n, 6), np.int32)
    every: Any = np.tile([0, 1], (n, 6, 1))
    whole = made.settle(Sent(every, samples))
    np.testing.assert_allclose(whole.exchange_j, reserve.exchange_j, rtol=1e-9)
    some = every.copy()
    some[2:, :, 1][np.random.default_rng(0).random((n - 2, 6)) < 0.5] = -1
    less = made.settle(Sent(some, samples))
    assert (less.energy_j <= reserve.energy_j * (1 + 1e-12)).all()
    assert (less.seconds <= reserve.seconds * (1 + 1e-12)).all()
    assert less.total_j < whole.total_j
    assert (made.leftover_j(less) >= 0).all()
    first = made.settle(Sent(some[:3], samples[:3]))  # as a run settles it on its way
    np.testing.assert_array_equal(first.energy_j, less.energy_j[:3])


def test_the_way_to_the_server_loses_what_a_devices_links_lose_on_average(
    small: Scenario, tmp_path: Any
) -> None:
    rows = [f"{min(i, (i + 1) % 6)},{max(i, (i + 1) % 6)},1e6,{0.01 * (i + 1)}" for i in range(6)]
    table = tmp_path / "links.csv"
    table.write_text("\n".join(["i,j,rate_bps,loss", *rows]) + "\n")
    measured = small.override({"network.links": str(table)})
    setting = Setting(measured)
    errors = star(setting).errors(0)
    assert errors.shape == (6, 2)
    # Device 0 has the links 0-1 (0.01) and 0-5 (0.06); device 1 has 0-1 and 1-2 (0.02).
    np.testing.assert_allclose(errors[:2], [[0.035, 0.035], [0.015, 0.015]])


def test_a_server_link_with_little_margin_loses_more(small: Scenario) -> None:
    snr = {"network.packet_error": "snr", "network.max_rate_bps": 2e8}
    errors = star(Setting(small.override(snr))).errors(0)
    assert errors.shape == (6, 2)
    assert ((errors >= 0) & (errors < 1)).all()


def test_fedavg_takes_what_an_iteration_takes_besides(small: Scenario) -> None:
    plain, slower = (
        build("fedavg:1", small.override({"devices.overhead_s": s})).ledger() for s in (None, 0.5)
    )
    np.testing.assert_allclose(slower.seconds - plain.seconds, 0.5)
