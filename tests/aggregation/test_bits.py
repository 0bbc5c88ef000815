"""Quantised messages: their numbers, their bytes, and what they do to an average over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import joulemesh
from joulemesh.aggregation.bits import BUCKET, WIDTHS, Width, bits_of, pack, quantised, unpack
from joulemesh.aggregation.contract import execute_quantised
from joulemesh.base.errors import JoulemeshError
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.registries import SCHEMES
from joulemesh.scenario import Scenario

EXACT = [kind.name for kind in SCHEMES if kind.quantises]


def test_a_bucket_by_hand() -> None:
    # The largest, 5, lies in [4, 8): the unit of 4 bits (at most 7) is 1.
    values = np.array([5.0, 2.5, 3.5, -0.4, -7.9])
    assert quantised(values, 4).tolist() == [5.0, 2.0, 4.0, 0.0, -7.0]
    assert pack(values, 4).tolist() == [0, 0x25, 0x04, 0x89]
    assert quantised(np.append(values, 100.0), 4)[:5].tolist() == [0.0] * 5
    assert Width(5, 4).vector_bits() == 8 * len(pack(values, 4)) == 32


@given(
    bits=st.sampled_from(WIDTHS),
    size=st.integers(1, 3 * BUCKET + 2),
    exponent=st.floats(-34, 34),
    double=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=200, deadline=None)
def test_numbers_survive_their_bytes_and_lose_at_most_a_unit(
    bits: int, size: int, exponent: float, double: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=size) * 10.0**exponent).astype("float64" if double else "float32")
    short, packed = quantised(values, bits), pack(values, bits)
    np.testing.assert_array_equal(unpack(packed, bits, values.dtype), short)
    np.testing.assert_array_equal(quantised(short, bits), short)
    assert 8 * packed.nbytes == Width(size, bits).vector_bits()
    for low in range(0, size, BUCKET):
        part = slice(low, low + BUCKET)
        most = np.abs(values[part]).max()
        least = 2.0 ** (bits - 122)  # what is below is sent as zero
        assert np.abs(short[part] - values[part]).max() <= max(most / 2 ** (bits - 2), least)


@pytest.mark.parametrize("bits", WIDTHS)
def test_bytes_that_hold_no_message_are_refused(bits: int) -> None:
    packed = pack(np.ones(BUCKET + 3), bits)
    with pytest.raises(ValueError, match=r"bytes"):
        unpack(packed[: BUCKET * bits // 8 + 2], bits, np.float32)
    assert np.isnan(unpack(pack(np.array([1.0, np.inf]), bits), bits, np.float32)).all()
    assert bits_of(Width(3, bits).wire) == bits


def planned(scheme: str, bits: int, parameters: int) -> Plan:
    scenario = Scenario.preset("adaptive").override(
        {"devices.count": 7, "plan.aggregation": scheme, "plan.bits": bits, "plan.iterations": 2}
    )
    return joulemesh.plan(scenario, parameters=parameters)


def descend(
    plan: Plan, bits: int, steps: int, *, remembers: bool, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean of the second half of the averages of quadratics, and where they settle in 64 bits."""
    rng = np.random.default_rng(seed)
    bend, centre = rng.uniform(0.2, 1.8, (7, 100)), rng.normal(size=(7, 100))
    scheme, route = plan.scheme_at(1), plan.route(1)
    assert route is not None
    agreed, owed, later = np.zeros(100), np.zeros((7, 100)), []
    for step in range(steps):
        values = agreed + 0.3 * bend * (centre - agreed)
        after, owed = execute_quantised(scheme, route, values, bits, agreed, owed)
        owed = owed if remembers else 0 * owed
        agreed = after[0]
        later += [agreed] if step >= steps // 2 else []
    return np.mean(later, axis=0), (bend * centre).sum(axis=0) / bend.sum(axis=0)


@pytest.mark.parametrize("scheme", EXACT)
@pytest.mark.parametrize("bits", [4, 8])
def test_what_messages_lose_leaves_no_bias(scheme: str, bits: int) -> None:
    plan = planned(scheme, bits, 100)
    for seed in (0, 1):
        gaps = {}
        for remembers in (True, False):
            for steps in (50, 400):
                mean, settled = descend(plan, bits, steps, remembers=remembers, seed=seed)
                gaps[remembers, steps] = float(np.linalg.norm(mean - settled))
        assert gaps[True, 400] < 0.3 * gaps[True, 50]
        assert gaps[True, 400] < 0.2 * gaps[False, 400]


@pytest.mark.parametrize("scheme", EXACT)
@pytest.mark.parametrize("bits", WIDTHS)
def test_plans_pay_for_the_bytes_that_are_sent(scheme: str, bits: int) -> None:
    plan = planned(scheme, bits, 1001)
    route, sent = plan.route(1), list[int]()
    assert route is not None
    values = np.random.default_rng(0).normal(size=(7, 1001))
    execute_quantised(
        plan.scheme_at(1),
        route,
        values,
        bits,
        packed=True,
        on_air=lambda one: sent.append(one.size),
    )
    assert 8 * sum(sent) == pytest.approx(float(plan.ledger.bits[0]), rel=1e-12)


def test_auto_takes_narrow_messages_where_they_halve_the_price() -> None:
    narrow = joulemesh.plan(Scenario().override({"plan.bits": "auto"}))
    assert narrow.timeline.scheme.width is not None
    bits, share = narrow.ground.width_by_price
    assert narrow.timeline.scheme.width.bits == bits == 4
    assert any(
        f"takes 4 bits: joules × seconds of an exchange are {100 * share:.0f} %" in note
        for note in narrow.notes
    )
    priced = narrow.scenario.override({"plan.bits": 4})
    assert joulemesh.plan(priced).ledger.total_j == narrow.ledger.total_j
    # Where a packet's header is nearly all that is sent, bits save nothing; gossip has no widths.
    slow = {"network.header_bits": 10**7, "network.packet_bits": 10**9, "plan.chunks": 1}
    for changes in (slow, {"plan.aggregation": "gossip"}):
        ground = Ground.of(Scenario().override({"plan.bits": "auto", **changes}))
        assert ground.width is None


@pytest.mark.parametrize(
    ("changes", "edit"),
    [
        ({"network.bits_per_parameter": 16}, "network.bits_per_parameter"),
        ({"plan.aggregation": "metropolis"}, "plan.aggregation"),
        ({"plan.aggregation": "gossip"}, "plan.aggregation"),
        ({"plan.exchange": "neighbours"}, "plan.exchange"),
        ({"plan.exchange": {"every": 2, "between": "neighbours"}}, "plan.exchange"),
        ({"network.packet_error": 0.1}, "network.packet_error"),
        ({"plan.physics": "paper"}, "plan.physics"),
    ],
)
def test_what_does_not_go_with_quantised_messages_is_refused_with_an_edit(
    changes: dict[str, object], edit: str
) -> None:
    with pytest.raises(JoulemeshError, match=r"plan\.bits = 8") as refused:
        joulemesh.plan(Scenario().override({"plan.bits": 8, **changes}))
    (first,), (second,) = refused.value.remedies
    assert (first.field, second.field, second.value) == (edit, "plan.bits", 32)
    mended = Scenario().override({"plan.bits": 8, **changes, first.field: first.value})
    assert joulemesh.plan(mended).timeline.scheme.width.bits == 8  # type: ignore[union-attr]
