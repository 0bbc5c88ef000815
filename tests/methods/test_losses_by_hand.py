"""One lost message among three devices, worked out by hand: parameters and joules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.methods import Contender, Setting, build
from joulemesh.methods.pens import Pens, Sent
from joulemesh.methods.sampling import neighbours_of
from joulemesh.models.core import from_functions
from joulemesh.scenario import Scenario
from joulemesh.training.batches import Data
from joulemesh.training.exchange import Context
from joulemesh.world.links import Packets
from joulemesh.world.topology import Graph
from tests.ideal import ideal
from tests.methods.contexts import seen

SEND_J, HEAR_J, BITS = 1e-6, 2e-7, 3 * 32.0

_NONE: Any = None
Draw = Callable[[dict[int, float], Sequence[int]], None]


@pytest.fixture
def three() -> Scenario:
    """Three devices, all of them neighbours, with models of three parameters."""
    return ideal(
        devices={"count": 3, "send_j_per_bit": SEND_J, "receive_j_per_bit": HEAR_J},
        network={"topology": "complete", "packet_error": 0.25, "tries": 2},
        budget={"energy_j": 100.0, "deadline_s": 10.0},
        plan={"iterations": 1},
        training={"model": "logistic", "hidden": ()},
    )


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Let messages be sent so often, by their place in the exchange, and some of them be lost."""

    def draw(often: dict[int, float], lost: Sequence[int]) -> None:
        def transmissions(self: Packets, bits: Any, error: Any, rng: Any, besides: Any) -> Any:
            times, gone = np.ones(len(bits)), np.zeros(len(bits), bool)
            times[list(often)] = list(often.values())
            gone[list(lost)] = True
            return times, gone

        monkeypatch.setattr(Packets, "transmissions", transmissions)

    return draw


def at(made: Contender, t: int = 0) -> Context:
    """What an exchange sees, as far as those below look at it."""
    schedule = made.schedule
    mixing: Any = None if schedule.kind == "mean" else jnp.asarray(schedule.matrices(t, t + 1)[0])
    arrived: Any = () if schedule.arrived is None else jnp.asarray(schedule.arrivals(t, t + 1)[0])
    size = jnp.full(schedule.devices, 9, jnp.uint32)
    return seen(t, schedule.devices, mixing=mixing, size=size, arrived=arrived)


# By hand -----------------------------------------------------------------------------------------

X = np.array([[12.0, 0.0, 6.0], [0.0, 24.0, 0.0], [6.0, 6.0, 30.0]])


def test_fedavg_by_hand(three: Scenario, drawing: Draw) -> None:
    # 1 → server is lost after two tries, and so is server → 2; server → 0 needs two.
    drawing({1: 2, 3: 2, 5: 2}, [1, 5])
    made = build("fedavg:1", three, parameters=3)
    after = made.schedule.matrices(0, 1)[0] @ X
    mean = [9.0, 3.0, 18.0]  # of devices 0 and 2, which arrived
    np.testing.assert_allclose(after, [mean, mean, X[2]])
    ledger = made.ledger()
    heard = [2 * HEAR_J * BITS, HEAR_J * BITS, 2 * HEAR_J * BITS]
    np.testing.assert_allclose(ledger.receive_j, [heard], rtol=1e-12)
    sent = np.array([1, 2, 1]) * SEND_J * BITS
    np.testing.assert_allclose(ledger.exchange_j, [sent + heard], rtol=1e-12)
    # The server hears four times and sends five times; it is no device's business.
    served = (4 * HEAR_J + 5 * SEND_J) * BITS
    np.testing.assert_allclose(ledger.server_j, [served], rtol=1e-12)


def test_a_server_that_has_heard_nobody_says_nothing(three: Scenario, drawing: Draw) -> None:
    drawing(dict.fromkeys(range(6), 2.0), [0, 1, 2])
    made = build("fedavg:1", three, parameters=3)
    np.testing.assert_array_equal(made.schedule.matrices(0, 1)[0], np.eye(3))
    ledger = made.ledger()
    assert not ledger.receive_j.any()
    np.testing.assert_allclose(ledger.server_j, [6 * HEAR_J * BITS], rtol=1e-12)
    np.testing.assert_allclose(ledger.exchange_j, np.full((1, 3), 2 * SEND_J * BITS), rtol=1e-12)


def test_led_by_hand(three: Scenario, drawing: Draw) -> None:
    # Messages: 0→1, 1→0, 0→2, 2→0, 1→2, 2→1. The first is lost: 0 and 1 do not mix.
    drawing({0: 2, 3: 2}, [0])
    made = build("led:1", three, parameters=3)
    own = made.exchange
    assert own is not None
    x, y, _ = jax.jit(own.apply)(
        jnp.asarray(X), own.init(jnp.asarray(X)), jax.random.key(0), at(made)
    )
    # (I + M)/2 has 1/6 beside the diagonal.
    expected = [X[0] + (X[2] - X[0]) / 6, X[1] + (X[2] - X[1]) / 6, (X[0] + X[1] + 4 * X[2]) / 6]
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    np.testing.assert_allclose(y, X - np.array(expected), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.asarray(y).sum(axis=0), np.zeros(3), atol=1e-5)
    sent, heard = np.array([3, 2, 3]), np.array([3, 3, 2])  # transmissions
    expected_j = (sent * SEND_J + heard * HEAR_J) * BITS
    np.testing.assert_allclose(made.ledger().exchange_j, [expected_j], rtol=1e-12)


def test_gossip_learning_by_hand(three: Scenario, drawing: Draw) -> None:
    drawing({1: 2}, [1])  # what device 1 sends
    made = build("gossip-learning:s=1,tau=1", three, parameters=3)
    own = made.exchange
    assert own is not None
    free = three.override({"network.packet_error": 0.0})
    sent_j = build("gossip-learning:s=1,tau=1", free, parameters=3).ledger()
    x, age, _ = jax.jit(own.apply)(
        jnp.asarray(X), own.init(jnp.asarray(X)), jax.random.key(0), at(made)
    )
    # In iteration 0 of seed 0: 0 → 1, 1 → 0, 2 → 1. All ages are 1: receivers take the middle.
    np.testing.assert_allclose(x, [X[0], ((X[1] + X[0]) / 2 + X[2]) / 2, X[2]])
    assert age.tolist() == [[1], [1], [1]]
    bits = BITS + 32  # and the age
    once = bits * (SEND_J + np.array([1, 2, 0]) * HEAR_J)
    np.testing.assert_allclose(sent_j.exchange_j, [once], rtol=1e-12)
    expected = bits * (np.array([1, 2, 1]) * SEND_J + np.array([2, 2, 0]) * HEAR_J)
    np.testing.assert_allclose(made.ledger().exchange_j, [expected], rtol=1e-12)


def test_compressed_mixing_by_hand(three: Scenario, drawing: Draw) -> None:
    """What is lost in the first mixing is sent again in the second; the mean is kept."""
    drawing({0: 2}, [0])  # 0 → 1, the first time
    name = "balanced:tau1=1,tau2=2,compress=topk:0.4,gamma=0.5"  # one of three parameters
    made = build(name, three, parameters=3)
    own = made.exchange
    assert own is not None
    start = jnp.zeros((3, 3))
    x, copies, _ = jax.jit(own.apply)(jnp.asarray(X), own.init(start), jax.random.key(0), at(made))
    # Copies start at 0; the largest of X are 12 (first), 24 (second) and 30 (third parameter).
    # First mixing, C = 1/3, γ = 1/2; what 1 holds of 0 is still nothing:
    # 0 moves by ((y_10 − y_01) + (y_20 − y_02))/6 = ((0, 24, 0) + (−12, 0, 30))/6
    # 1 moves by ((y_01 − y_10) + (y_21 − y_12))/6 = ((0, −24, 0) + (0, −24, 30))/6
    # 2 moves by ((y_02 − y_20) + (y_12 − y_21))/6 = ((12, 0, −30) + (0, 24, −30))/6
    first = X + np.array([[-12.0, 24.0, 30.0], [0.0, -48.0, 30.0], [12.0, 24.0, -60.0]]) / 6
    np.testing.assert_allclose(first, [[10, 4, 11], [0, 16, 5], [8, 10, 20]])
    # Second: the largest of x − y. To 1, device 0 sends 11 of (10, 4, 11); to 2, 11 of (−2, 4, 11);
    # device 1 sends −8 of (0, −8, 5) to both, device 2 sends 10 or −10 of (8, 10, −10): the first.
    y01, y02, y1, y2 = [0, 0, 11], [12, 0, 11], [0, 16, 0], [0, 10, 30]
    np.testing.assert_allclose(copies, [y01, y1, y02, y2, y1, y2])
    pull = np.array(
        [
            np.subtract(y1, y01) + np.subtract(y2, y02),
            np.subtract(y01, y1) + np.subtract(y2, y1),
            np.subtract(y02, y2) + np.subtract(y1, y2),
        ]
    )
    np.testing.assert_allclose(x, first + pull / 6, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(x).mean(axis=0), X.mean(axis=0), rtol=1e-6)
    bits = 1 * (32 + 2)  # a value and its place among three
    expected = bits * (np.array([5, 4, 4]) * SEND_J + np.array([4, 5, 4]) * HEAR_J)
    np.testing.assert_allclose(made.ledger().exchange_j, [expected], rtol=1e-12)
    assert made.ledger().bits.tolist() == [12 * bits]


def test_steps_are_shorter_where_messages_may_be_lost(three: Scenario, drawing: Draw) -> None:
    """Of one packet with two tries, 1 − 1/16 arrive: γ is that, and β its square."""
    drawing({}, [])
    compressed = build("balanced:tau1=1,tau2=1,compress=identity", three, parameters=3).exchange
    led = build("led:1", three, parameters=3).exchange
    assert compressed is not None
    assert led is not None
    assert led.correction is not None
    start, seen = jnp.asarray(X), at(build("d-psgd", three.override({"network.packet_error": 0.0})))
    x, _, _ = jax.jit(compressed.apply)(start, start, jax.random.key(0), seen)
    np.testing.assert_allclose(x, X + 15 / 16 * (X.mean(axis=0) - X), rtol=1e-6)
    np.testing.assert_allclose(led.correction(start), (15 / 16) ** 2 * X, rtol=1e-6)
    given = build("led:1,beta=0.5", three, parameters=3).exchange
    assert given is not None
    assert given.correction is not None
    np.testing.assert_allclose(given.correction(start), X / 2)


def _scored() -> Any:
    """A model of one parameter w with the logits (w, 0): its loss on class 0 falls with w."""

    def init(key: Any) -> Any:
        return {"w": jnp.zeros(1)}

    def apply(params: Any, x: Any) -> Any:
        return jnp.stack([jnp.broadcast_to(params["w"][0], len(x)), jnp.zeros(len(x))], axis=1)

    return from_functions(init, apply)


def _data(devices: int) -> tuple[Data, Any, Any, Any]:
    """One sample of class 0 for each device."""
    x, y = jnp.zeros((devices, 1), jnp.float32), jnp.zeros(devices, jnp.int32)
    each = jnp.arange(devices, dtype=jnp.int32)
    data = Data(x, y, jnp.float32(1), jnp.float32(0))
    return data, each, each, jnp.ones(devices, jnp.uint32)


def test_pens_by_hand() -> None:
    """A lost model is neither scored nor counted nor averaged with."""
    graph = Graph(3, np.array([[0, 1], [0, 2], [1, 2]]), np.zeros((3, 2)))
    pens = Pens(neighbours_of(graph), 0, sampled=2, top=1, partners=2, phase1=1, evaluated=1)
    own = pens.exchange()
    apply = jax.jit(own.apply)
    params: Any = {"w": jnp.array([[1.0], [2.0], [4.0]])}
    # Places: 0 has (1, 2), 1 has (0, 2), 2 has (0, 1). Lost: 2 → 0, and all that 1 asks for.
    lost = jnp.array([[True, False], [False, False], [True, True]])
    here = seen(0, 3, model=_scored(), held=_data(3), arrived=lost)
    after, tally, sent = apply(params, own.init(params), jax.random.key(0), here)
    # 0 heard 1 only; 1 nobody; 2 both, of which 1 does better.
    np.testing.assert_allclose(after["w"][:, 0], [1.5, 2.0, 3.0])
    assert tally.best.tolist() == [[1, 0], [0, 0], [0, 1]]
    assert tally.sampled.tolist() == [[2520, 0], [0, 0], [1260, 1260]]  # by chance, times 2520
    assert np.sort(sent.asked, axis=1).tolist() == [[0, 1]] * 3  # all were sent, and are paid for
    assert sent.evaluated.tolist() == [1, 0, 2]
    # Phase 2: 2 chose 1 (1 > 1/2). To be the best of one is no more than chance, so 0 asks both.
    later = replace(here, iteration=jnp.uint32(1), arrived=jnp.array([[False, True]] * 3))
    last, _, sent = apply(after, tally, jax.random.key(0), later)
    np.testing.assert_allclose(last["w"][:, 0], [(1.5 + 3) / 2, (2 + 3) / 2, (3 + 2) / 2])
    assert np.sort(sent.asked, axis=1).tolist() == [[0, 1], [0, 1], [-1, 1]]
    alone = replace(here, iteration=jnp.uint32(1), arrived=jnp.zeros((3, 2), bool))
    kept, _, _ = apply(after, tally, jax.random.key(0), alone)
    np.testing.assert_array_equal(kept["w"], after["w"])


def test_the_joules_of_pens_by_hand(three: Scenario, drawing: Draw) -> None:
    # In iteration 0 of seed 0, device 0 samples 2 before 1: the second message is 1 → 0.
    drawing({1: 2}, [1])
    made = build("pens:sampled=2,top=1,phase1=1,tau=1", three)
    assert made.schedule.arrivals(0, 1)[0].tolist() == [[False, True], [True, True], [True, True]]
    bits = Setting(three).work.model_bits
    assert made.settle is not None
    asked: Any = np.array([[[0, 1]] * 3])
    ledger = made.settle(Sent(asked, jnp.array([[5, 10, 10]])))
    both = bits * (np.array([2, 3, 2]) * SEND_J + np.array([3, 2, 2]) * HEAR_J)
    np.testing.assert_allclose(ledger.exchange_j, [both], rtol=1e-12)
    np.testing.assert_allclose(made.ledger().exchange_j, [both], rtol=1e-12)
    one = Setting(three).world.devices
    trained = 1 + np.array([5, 10, 10]) / 3 / one.round_samples
    np.testing.assert_allclose(ledger.compute_j, [trained * one.round_energy_j], rtol=1e-12)
