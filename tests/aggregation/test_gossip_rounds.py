from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.aggregation.gossip import Mode, balance, error_after
from joulemesh.base.errors import InfeasibleError, ScenarioError


def test_by_hand() -> None:
    # ½^K + K/10 is .6, .45, .425, .4625. Device 1 spends most, device 0 most of its battery.
    table = balance(
        0.5, mode="metropolis", round_energy_j=[1.0, 3.0], battery_j=[10.0, 60.0], iterations=1
    )
    assert table.best == 3
    np.testing.assert_allclose(table.total[:4], [0.6, 0.45, 0.425, 0.4625])
    np.testing.assert_allclose(table.dearest_j[:3], [3.0, 6.0, 9.0])
    np.testing.assert_allclose(table.share[:3], [0.1, 0.2, 0.3])
    assert table.rounds[-1] == 10


@settings(max_examples=120, deadline=None)
@given(
    st.floats(0.0, 0.9999),
    st.sampled_from(["ticks", "matchings", "metropolis"]),
    st.lists(st.floats(1e-3, 0.1), min_size=1, max_size=5),
    st.integers(1, 10),
)
def test_best_equals_brute_force(
    factor: float, mode: Mode, round_energy_j: list[float], iterations: int
) -> None:
    table = balance(
        factor, mode=mode, round_energy_j=round_energy_j, battery_j=1.0, iterations=iterations
    )
    slope = iterations * max(round_energy_j)
    every = np.arange(1, max(1, int(1.0 / slope + 1e-9)) + 1)
    total = error_after(every, factor, mode) + every * slope
    assert total[table.best - 1] == pytest.approx(total.min(), rel=1e-12)
    assert table.share.max() <= 1.0 + 1e-9
    assert np.all(np.diff(table.rounds) > 0)
    row = int(np.searchsorted(table.rounds, table.best))
    assert table.rounds[row] == table.best
    assert table.total[row] == pytest.approx(table.total.min(), rel=1e-12)


def test_long_tables_are_thinned_and_keep_the_best() -> None:
    table = balance(
        0.99999, mode="ticks", round_energy_j=1e-9, battery_j=1.0, iterations=10, rows=50
    )
    assert len(table.rounds) <= 51
    assert table.best in table.rounds
    assert table.best > 10_000


def test_unaffordable_gossip_names_the_device_and_the_remedy() -> None:
    with pytest.raises(InfeasibleError) as caught:
        balance(
            0.5, mode="metropolis", round_energy_j=[1.0, 2.0], battery_j=[5.0, 4.0], iterations=3
        )
    assert (caught.value.device, caught.value.code) == (1, "energy")
    assert caught.value.figures == {"needs_j": 6.0, "has_j": 4.0, "iterations": 3, "most": 2}


def test_the_whole_battery_can_be_spent() -> None:
    table = balance(0.9, mode="metropolis", round_energy_j=1.0, battery_j=3.0, iterations=3)
    assert (table.best, table.rounds.tolist()) == (1, [1])


@pytest.mark.parametrize(
    ("round_energy_j", "battery_j", "iterations"), [(0.0, 1.0, 1), (1.0, 0.0, 1), (0.1, 1.0, 0)]
)
def test_figures_that_cannot_be_weighed_are_refused(
    round_energy_j: float, battery_j: float, iterations: int
) -> None:
    with pytest.raises(ScenarioError, match="must be positive"):
        balance(
            0.5,
            mode="ticks",
            round_energy_j=round_energy_j,
            battery_j=battery_j,
            iterations=iterations,
        )


def test_gossip_that_never_agrees_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="connect the graph"):
        balance(1.0, mode="ticks", round_energy_j=0.1, battery_j=1.0, iterations=1)
