"""Methods under traces: who is away, what has been harvested so far, and where devices are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.data import Dataset, partition
from joulemesh.methods import Contender, Setting, build
from joulemesh.methods.base import METHODS, register
from joulemesh.models.core import build as build_model
from joulemesh.scenario import Scenario
from joulemesh.training import Engine, Options
from joulemesh.training.reference import _batches, run_reference

COUNT, LAST = 6, 8
RATE = 0.3
MIXED = (
    "fixed:3",
    "fedavg:3",
    "d-psgd",
    "balanced:tau1=2,tau2=2",
    "gossip-pga:3",
    "merge",
    "skiptrain:2,sync=1,tau=2",
)
OWN = (
    "balanced:tau1=2,tau2=2,compress=topk:0.1",
    "led:2",
    "gossip-learning:0.1,tau=2",
    "pens:sampled=2,top=1,phase1=5,tau=2,eval_samples=4",
)


def away(folder: Path, *rows: Sequence[Any]) -> str:
    return table(folder, "away", "t,device,available", rows)


def table(folder: Path, name: str, header: str, rows: Sequence[Sequence[Any]]) -> str:
    path = folder / f"{name}.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n", "utf-8")
    return str(path)


CHURN = ((3, 1, 0), (6, 1, 1), (4, 4, 0), (5, 4, 1))
GONE = {2: {1}, 3: {1, 4}, 4: {1}}  # by iteration, from 0


def churn(folder: Path, small: Scenario, *rows: Sequence[Any], **more: Any) -> Scenario:
    """Device 1 is away in iterations 3 to 5, device 4 in iteration 4, unless rows are given."""
    fields = {"plan.iterations": LAST, "devices.availability": away(folder, *(rows or CHURN))}
    fields |= {name.replace("__", "."): value for name, value in more.items()}
    return small.override(fields)


# Who is away -------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", ["ring", "complete"])
@pytest.mark.parametrize("name", [*MIXED, *OWN])
def test_who_is_away_neither_trains_nor_exchanges_nor_pays(
    tmp_path: Path, small: Scenario, name: str, topology: str
) -> None:
    made = build(name, churn(tmp_path, small, network__topology=topology))
    schedule, ledger = made.schedule, made.reserve
    assert made.traced
    for t in range(LAST):
        gone = sorted(GONE.get(t, set()))
        assert not schedule.active[t, gone].any()
        assert not schedule.rounds[t, gone].any()
        assert not ledger.energy_j[t, gone].any()
        assert schedule.exchanged[t]
        if schedule.kind != "dense":
            continue
        matrix = schedule.matrices(t, t + 1)[0]
        np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-12)  # doubly stochastic
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
        np.testing.assert_array_equal(matrix[gone], np.eye(COUNT)[gone])
    whole = build(name, small.override({"plan.iterations": LAST, "network.topology": topology}))
    if name.startswith("skiptrain"):  # who has been away can afford to train more often later
        return
    same = [t for t in range(LAST) if t not in GONE]
    same = [t for t in same if not ("compress" in name and t in (4, 5))]  # copies are renewed
    if topology == "complete" or name.startswith("fedavg"):
        np.testing.assert_array_equal(schedule.rounds[same], whole.schedule.rounds[same])
    floods = name.startswith(("fixed", "merge", "gossip-pga"))  # of a tree that has changed
    if topology == "complete" and not floods and not name.startswith("pens"):
        np.testing.assert_allclose(ledger.exchange_j[same], whole.reserve.exchange_j[same])


def test_neighbours_mix_with_the_metropolis_weights_of_those_present(
    tmp_path: Path, small: Scenario
) -> None:
    """A ring of 6 without device 1: 2-3-4-5-0 is a path."""
    matrix = build("d-psgd", churn(tmp_path, small)).schedule.matrices(2, 3)[0]
    expected = np.eye(COUNT)
    for i, j in ((2, 3), (3, 4), (4, 5), (5, 0)):
        expected[i, j] = expected[j, i] = 1 / 3
        expected[[i, j], [i, j]] -= 1 / 3
    np.testing.assert_allclose(matrix, expected, atol=1e-15)


def test_who_is_cut_off_takes_no_part_in_an_exact_average(tmp_path: Path, small: Scenario) -> None:
    """Without 1 and 4 the ring falls into 2-3 and 5-0; they mix, and one pair averages."""
    scenario = churn(tmp_path, small)
    assert build("d-psgd", scenario).schedule.active[3].tolist() == [1, 0, 1, 1, 0, 1]
    exact = build("gossip-pga:4", scenario).schedule
    assert exact.active[3].sum() == 2
    assert exact.exact.tolist() == [t % 4 == 3 for t in range(LAST)]
    assert exact.rounds[3].tolist() == exact.active[3].astype(int).tolist()


def test_copies_of_choco_are_sent_whole_to_who_comes_back(tmp_path: Path, small: Scenario) -> None:
    name = "balanced:tau1=2,tau2=2,compress=topk:0.1"
    scenario = churn(tmp_path, small)
    setting = Setting(scenario)
    bits = build(name, setting).reserve.bits
    # Iteration 5 brings back device 4 and two links of the ring, iteration 6 device 1 with two.
    both = 4 * setting.work.model_bits
    np.testing.assert_allclose(bits[5] - bits[0], both)
    np.testing.assert_allclose(bits[4] - bits[2], both)
    np.testing.assert_allclose(bits[6:], bits[0])


def test_devices_that_leave_for_good_are_followed_too(small: Scenario) -> None:
    made = build("d-psgd", small.override({"plan.iterations": LAST, "devices.leave": [[2, 4]]}))
    assert made.schedule.active[:, 2].tolist() == [True] * 3 + [False] * 5


def test_nobody_there_is_an_iteration_that_passes(tmp_path: Path, small: Scenario) -> None:
    rows = [(t, i, int(t == 5)) for t in (3, 5) for i in range(COUNT)]
    made = build("d-psgd", churn(tmp_path, small, *rows))
    assert made.schedule.exchanged.tolist() == [t not in (2, 3) for t in range(LAST)]
    assert not made.reserve.energy_j[2:4].any()
    np.testing.assert_allclose(made.reserve.seconds[2:4], 0.04)  # the deadline


def test_a_method_of_the_users_own_that_does_not_follow_is_refused(
    tmp_path: Path, small: Scenario
) -> None:
    def hasty(name: str, setting: Setting, given: Any) -> Contender:
        route = setting.scheme.route(setting.costs(0))
        return setting.contender(name, 1, setting.route_prices(1, lambda t: route, alike=True))

    refused = r"hasty does not follow devices\.availability, .*walk\(setting, name, follow\)"
    with METHODS.scoped():
        register("hasty", hasty)
        with pytest.raises(ScenarioError, match=refused):
            build("hasty", churn(tmp_path, small))


# What has been harvested -------------------------------------------------------------------------


def sunny(folder: Path, small: Scenario, **more: Any) -> Scenario:
    """Poor batteries; the sun shines on devices 0 to 2, more and more."""
    rows = [(t, i, 0.4 * t * (i < 3)) for t in range(1, LAST + 1) for i in range(COUNT)]
    fields = {
        "plan.iterations": LAST,
        "devices.harvest_w": table(folder, "sun", "t,device,watts", rows),
        "devices.trace_end": "hold",
        "devices.capacity_j": 0.4,
        "budget.energy_j": 0.12,
        "budget.total_s": 0.4,
        "plan.on_depletion": "leave",
    }
    return small.override(fields | {name.replace("__", "."): value for name, value in more.items()})


def harvested(scenario: Scenario, made: Contender) -> list[list[Fraction]]:
    """What each battery holds before each iteration, in exact arithmetic, if nothing spills."""
    traces = Setting(scenario).world.traces
    held = [Fraction(one) for one in Setting(scenario).battery_j.tolist()]
    rows, elapsed_s = [], 0.0
    for t, length_s in enumerate(made.reserve.seconds.tolist()):
        rows.append(held)
        gained = traces.harvested_j(t, elapsed_s, length_s)
        assert gained is not None
        spent = made.reserve.energy_j[t].tolist()
        held = [
            h - Fraction(s) + Fraction(g)
            for h, s, g in zip(held, spent, gained.tolist(), strict=True)
        ]
        elapsed_s += length_s
    return rows


@pytest.mark.parametrize(
    "equal",
    ["budget", *(pytest.param(one, marks=pytest.mark.slow) for one in ("iterations", "batteries"))],
)
@pytest.mark.parametrize("name", [*MIXED, *OWN])
def test_nobody_spends_what_is_not_harvested_yet(
    tmp_path: Path, small: Scenario, name: str, equal: str
) -> None:
    scenario = sunny(tmp_path, small)
    made = build(name, scenario, equal=equal)
    for held, spent in zip(harvested(scenario, made), made.reserve.energy_j, strict=True):
        assert all(Fraction(s) <= h for h, s in zip(held, spent.tolist(), strict=True))
    assert (made.leftover_j() >= -1e-12).all()
    assert not [note for note in made.notes if "overdraws" in note]


def test_who_cannot_pay_sits_out_until_it_can(tmp_path: Path, small: Scenario) -> None:
    made = build("balanced:tau1=6,tau2=1", sunny(tmp_path, small))
    took_part = made.reserve.energy_j > 0
    returned = np.diff(took_part.astype(int), axis=0) == 1
    assert returned[:, :3].any(axis=0).all()
    assert not returned[:, 3:].any()  # without sun
    assert not took_part[-1, 3:].any()
    assert not made.schedule.rounds[~took_part].any()


def test_where_nobody_may_sit_out_a_missing_joule_is_refused_or_the_end(
    tmp_path: Path, small: Scenario
) -> None:
    scenario = sunny(tmp_path, small, plan__on_depletion="refuse")
    name = "balanced:tau1=6,tau2=1"
    refused = (
        r"cannot pay for iteration \d of balanced:tau1=6,tau2=1: it needs .* and holds .*, what it "
        r'has harvested included; set plan\.on_depletion = "leave"'
    )
    with pytest.raises(InfeasibleError, match=refused):
        build(name, scenario)
    ends = build(name, scenario, equal="budget")
    assert ends.schedule.active.all()
    assert ends.schedule.iterations < LAST


# Where devices are -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MIXED, *OWN])
def test_devices_that_move_exchange_over_the_links_of_that_iteration(
    tmp_path: Path, small: Scenario, name: str
) -> None:
    rng = np.random.default_rng(2)
    rows = [(t, i, *rng.uniform(0, 300, 2).round(2)) for t in (1, 3, 5) for i in range(COUNT)]
    scenario = small.override(
        {
            "plan.iterations": LAST,
            "plan.on_depletion": "leave",
            "devices.positions": table(tmp_path, "places", "t,device,x_m,y_m", rows),
            "devices.trace_end": "hold",
            "network.topology": "geometric",
            "network.area_m": 300,
            "network.mean_degree": 3,
        }
    )
    made = build(name, scenario)
    setting = Setting(scenario)
    motion, edges = setting.world.motion, setting.world.graph.edges
    assert motion is not None
    assert motion.rewires
    if made.schedule.kind == "dense":
        for t in range(LAST):
            matrix = np.linalg.matrix_power(made.schedule.matrices(t, t + 1)[0] != 0, 1)
            i, j = edges[~motion.exists(setting.world.traces.snapshot(t, 0.0))].T
            if name == "d-psgd":
                assert not matrix[i, j].any()
    spent = made.reserve.exchange_j
    assert not np.allclose(spent[1], spent[2])
    if not name.startswith(("gossip", "pens", "merge")):  # whose iterations differ anyway
        np.testing.assert_allclose(spent[5], spent[6])


# The fast engine and plain loops -----------------------------------------------------------------


def engine_of(made: Contender, data: Dataset) -> Engine:
    held = partition(data.y_train, COUNT, kind="quantity", seed=0)
    options = Options(batch_size=16, learning_rate=RATE, precision="float64", eval_every=1000)
    model = build_model("logistic", data.shape, data.classes, (), 0.01)
    return Engine(model, data, [held], made.schedule, options, own_exchange=made.exchange)


def flat(params: Any) -> NDArray[np.float64]:
    leaves = [np.asarray(leaf, np.float64) for _, leaf in sorted(params.items())]
    return np.concatenate([leaf.reshape(-1) for leaf in leaves])


def fast(engine: Engine) -> NDArray[np.float64]:
    *_, (state, _) = engine.train()
    params = engine.params(state)
    return np.stack([flat({k: v[0, i] for k, v in params.items()}) for i in range(COUNT)])


@pytest.mark.parametrize(
    "name", ["gossip-pga:3", *(pytest.param(one, marks=pytest.mark.slow) for one in MIXED)]
)
def test_the_engine_equals_the_reference_loop(
    tmp_path: Path, small: Scenario, digits: Dataset, name: str
) -> None:
    engine = engine_of(build(name, churn(tmp_path, small)), digits)
    slow = np.stack([flat(one) for one in run_reference(engine)[0]])
    np.testing.assert_allclose(fast(engine), slow, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_led_under_a_trace_is_algorithm_1_among_those_present(
    tmp_path: Path, small: Scenario, digits: Dataset
) -> None:
    from tests.methods.test_patterns import gradient

    made = build("led:2", churn(tmp_path, small))
    engine = engine_of(made, digits)
    start = engine.initial(0)
    order = np.concatenate([np.asarray(start[k]).reshape(-1) for k in ("w", "b")])
    x, y = np.tile(order, (COUNT, 1)), np.zeros((COUNT, len(order)))
    for t in range(LAST):
        phi, w = x.copy(), made.schedule.matrices(t, t + 1)[0]
        for i in range(COUNT):
            for features, labels in _batches(engine, 0, t, i):
                phi[i] -= RATE * gradient(phi[i], features, labels, 10) + y[i] / 2
        x = w @ phi
        y = y + phi - x
        np.testing.assert_allclose(y.sum(axis=0), 0, atol=1e-12)
    *_, (state, _) = engine.train()
    params = engine.params(state)
    found = [np.concatenate([params[k][0, i].reshape(-1) for k in ("w", "b")]) for i in range(6)]
    np.testing.assert_allclose(found, x, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_choco_without_compression_is_plain_mixing_under_a_trace(
    tmp_path: Path, small: Scenario, digits: Dataset
) -> None:
    scenario = churn(tmp_path, small)
    plain = build("balanced:tau1=2,tau2=2", scenario)
    sent = build("balanced:tau1=2,tau2=2,compress=identity,gamma=1", scenario)
    np.testing.assert_allclose(
        fast(engine_of(sent, digits)), fast(engine_of(plain, digits)), rtol=0, atol=1e-10
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_who_is_away_keeps_its_model(
    tmp_path: Path, small: Scenario, digits: Dataset, name: str
) -> None:
    scenario = churn(tmp_path, small, (1, 1, 0))
    made = build(name, scenario)
    engine = engine_of(made, digits)
    found = fast(engine)
    np.testing.assert_array_equal(found[1], flat(engine.initial(0)))
    assert (np.abs(found - found[1]).max(axis=1) > 0).sum() == COUNT - 1


def test_gossip_learning_sends_to_neighbours_who_are_there(tmp_path: Path, small: Scenario) -> None:
    from joulemesh.methods.gossip_learning import GossipLearning
    from joulemesh.methods.sampling import neighbours_of
    from joulemesh.methods.walk import Moment

    setting = Setting(churn(tmp_path, small))
    graph = setting.world.graph
    method = GossipLearning(neighbours_of(graph), 0, 650, 2, 16, "step")
    everybody = np.ones(COUNT, np.bool_)
    cut, held = np.zeros(len(graph.edges), np.bool_), setting.battery_j
    for t in range(LAST):
        all_there = Moment(setting, t, everybody, cut, None, held)
        np.testing.assert_array_equal(
            method.partners_among(all_there), method.partners(np.array([t], np.uint32))
        )
        who = np.isin(np.arange(COUNT), [0, 1, 3], invert=False)
        to = method.partners_among(Moment(setting, t, who, cut, None, held))
        assert to.tolist() == [1, 0, COUNT, COUNT, COUNT, COUNT]  # 3 has no neighbour
        sent = list(method.route_among(Moment(setting, t, who, cut, None, held)).messages())
        assert [(i, j) for _, i, j, _ in sent] == [(0, 1), (1, 0)]


@pytest.mark.slow
def test_pens_asks_neighbours_who_are_there_and_pays_for_them(
    tmp_path: Path, small: Scenario, digits: Dataset
) -> None:
    scenario = churn(tmp_path, small, network__topology="complete")
    made = build("pens:sampled=3,top=1,phase1=5,tau=2", scenario, data=digits)
    *_, (_, trace) = engine_of(made, digits).train()
    sent = jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], trace.sent)
    neighbours = [[j for j in range(COUNT) if j != i] for i in range(COUNT)]
    for t in range(LAST):
        gone = GONE.get(t, set())
        for i in range(COUNT):
            asked = {neighbours[i][k] for k in sent.asked[t, i] if k >= 0}
            assert not asked & gone
            assert len(asked) == (0 if i in gone else 3 if t < 5 else 1)
    ledger = made.ledger(trace.sent)
    assert (ledger.energy_j <= made.reserve.energy_j * (1 + 1e-9)).all()
    for t, gone in GONE.items():
        assert not ledger.energy_j[t, sorted(gone)].any()
