"""The price of a bit: eqs. `ticm` and `eicm`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.world.links import link_costs, seconds_per_bit


def test_rates_by_hand() -> None:
    # B N_0 = 1 W, so SNR = p h: 1, 3, 7, 15 give 1, 2, 3, 4 bits per hertz.
    gain = np.array([1.0, 3.0, 7.0, 15.0])
    found = seconds_per_bit(np.ones(4), gain, 1e6, 1e-6)
    assert 1 / found == pytest.approx([1e6, 2e6, 3e6, 4e6], rel=1e-12)


def test_the_notes_orders_of_magnitude() -> None:
    # 5.09 Mbit over 100 m (90.5 dB) at 1 W: 0.286, 0.066 and 0.019 s, and as many joules.
    bits, noise = 159_010 * 32, 10**-20.4
    for hz, seconds in ((1e6, 0.286), (5e6, 0.066), (20e6, 0.019)):
        found = bits * seconds_per_bit(np.ones(1), np.array([10**-9.05]), hz, noise)
        assert found.item() == pytest.approx(seconds, rel=0.03)


def test_directions_differ_where_powers_do() -> None:
    costs = link_costs(np.array([[0, 1]]), np.array([1.0]), np.array([1.0, 3.0]), 1e6, 1e-6)
    assert costs.forward_s == pytest.approx([1e-6])
    assert costs.backward_s == pytest.approx([0.5e-6])
    assert costs.forward_j == pytest.approx([1e-6])
    assert costs.backward_j == pytest.approx([1.5e-6])
    assert costs.weight() == pytest.approx([2.5e-6])


@given(
    power=st.floats(1e-3, 10),
    gain=st.floats(1e-15, 1),
    hz=st.floats(1e3, 1e9),
    noise=st.floats(1e-21, 1e-9),
)
@settings(max_examples=100, deadline=None)
def test_eq_ticm(power: float, gain: float, hz: float, noise: float) -> None:
    found = float(seconds_per_bit(np.array([power]), np.array([gain]), hz, noise)[0])
    rate = hz * math.log1p(power * gain / (hz * noise)) / math.log(2)
    assert found == pytest.approx(1 / rate, rel=1e-9)


def test_very_weak_links_keep_their_price() -> None:
    # At SNR 1e-20 the rate is B SNR / ln 2; log2(1 + 1e-20) would round to zero.
    found = seconds_per_bit(np.ones(1), np.array([1e-20]), 1.0, 1.0)
    assert found.item() == pytest.approx(math.log(2) * 1e20)


def test_a_link_without_a_rate_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"link 0-1 has no usable rate.*transmit_power_w"):
        link_costs(np.array([[0, 1]]), np.array([1e-323]), np.ones(2) * 1e-9, 1e6, 1e-6)


def test_taking_some_links() -> None:
    edges = np.array([[0, 1], [0, 2], [1, 2]])
    costs = link_costs(edges, np.array([1.0, 3.0, 7.0]), np.ones(3), 1e6, 1e-6)
    some = costs.take(np.array([2, 0]))
    assert some.forward_s.tolist() == costs.forward_s[[2, 0]].tolist()
    assert some.backward_j.tolist() == costs.backward_j[[2, 0]].tolist()
