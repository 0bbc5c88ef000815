"""Gains: path loss by hand, shadowing, block fading, gains from a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Network
from joulemesh.world.channel import Channel, build_channel, path_gain
from joulemesh.world.topology import build_graph
from tests.ideal import ideal


def channel(count: int = 6, seed: int = 0, **network: Any) -> Channel:
    scenario = ideal(seed=seed, devices={"count": count}, network=network)
    return build_channel(scenario, build_graph(scenario))


def test_path_loss_by_hand() -> None:
    # 3GPP: 128.1 dB at 1 km; 128.1 - 37.6 at 100 m; below 1 m as at 1 m (128.1 - 3 x 37.6 = 15.3).
    found = path_gain(np.array([1000.0, 100.0, 1.0, 0.0]), Network())
    assert -10 * np.log10(found) == pytest.approx([128.1, 90.5, 15.3, 15.3])
    # Power law: 30 dB at 1 m and exponent 3: 60 dB at 10 m.
    law = Network(path_loss="power-law", path_loss_exponent=3.0, path_loss_reference_db=30.0)
    assert path_gain(np.array([1.0, 10.0]), law) == pytest.approx([1e-3, 1e-6])


def test_gain_is_that_of_the_distance() -> None:
    scenario = ideal(
        devices={"count": 3, "x_m": {"values": [0, 300, 0]}, "y_m": {"values": [0, 0, 400]}}
    )
    found = build_channel(scenario, build_graph(scenario)).gain(0)  # links 0-1, 0-2, 1-2
    loss = [128.1 + 37.6 * math.log10(km) for km in (0.3, 0.4, 0.5)]
    assert -10 * np.log10(found) == pytest.approx(loss)


def test_shadowing_is_normal_in_decibels_and_leaves_positions_alone() -> None:
    plain = channel(80, topology="complete")
    shadowed = channel(80, topology="complete", shadowing_db=8.0)
    extra_db = 10 * np.log10(shadowed.mean_gain / plain.mean_gain)
    assert len(extra_db) == 3160
    assert abs(extra_db.mean()) < 4 * 8 / math.sqrt(3160)
    assert extra_db.std() == pytest.approx(8.0, rel=0.05)


# Fading ----------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), coherence=st.integers(1, 7), t=st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_a_fade_lasts_a_block_and_no_longer(seed: int, coherence: int, t: int) -> None:
    made = channel(seed=seed, fading="rayleigh", coherence_iterations=coherence)
    same = t // coherence == (t + 1) // coherence
    assert np.array_equal(made.gain(t), made.gain(t + 1)) == same
    again = channel(seed=seed, fading="rayleigh", coherence_iterations=coherence)
    assert np.array_equal(made.gain(t), again.gain(t))


def test_blocks_are_the_same_fades_at_any_coherence() -> None:
    slow = channel(fading="rayleigh", coherence_iterations=5)
    quick = channel(fading="rayleigh", coherence_iterations=1)
    assert np.array_equal(slow.gain(7), quick.gain(1))


def test_without_fading_nothing_changes() -> None:
    made = channel(coherence_iterations=3)
    assert np.array_equal(made.gain(0), made.gain(99))
    assert np.array_equal(made.quantile_gain(0.9), made.gain(0))
    assert made.block(99) == 0


def test_rayleigh_power_is_exponential_with_mean_one_and_independent_over_links() -> None:
    made = channel(40, topology="complete", fading="rayleigh")
    power = np.array([made.gain(t) / made.mean_gain for t in range(20)])
    assert power.mean() == pytest.approx(1.0, abs=0.04)
    assert (power < math.log(2)).mean() == pytest.approx(0.5, abs=0.02)
    links = np.corrcoef(power[:, :30].T)
    assert abs(links[np.triu_indices(30, 1)].mean()) < 0.05


def test_the_quantile_is_exceeded_as_often_as_it_says() -> None:
    made = channel(40, topology="complete", fading="rayleigh")
    for quantile in (0.5, 0.9, 0.99):
        worse = [made.gain(t) < made.quantile_gain(quantile) for t in range(20)]
        assert np.mean(worse) == pytest.approx(1 - quantile, abs=0.02)


# Gains from a file -----------------------------------------------------------------------------


def from_file(folder: Path, text: str) -> Channel:
    path = folder / "gains.csv"
    path.write_text(text)
    return channel(3, gains=str(path))


def test_gains_in_any_order_and_direction(tmp_path: Path) -> None:
    made = from_file(tmp_path, "i,j,gain\n2,1,3\n1,0,1e-9\n0,2,2\n0,2,2\n")
    assert made.gain(0).tolist() == [1e-9, 2.0, 3.0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("i,j,gain\n0,1,1\n1,2,1\n", r"no gain for the link 0-2.*add the row 0,2,GAIN"),
        ("i,j,gain\n0,1,1\n1,2,1\n0,2,0\n", r"row 4: gain 0 must be greater than 0"),
        ("i,j,gain\n0,1,1\n1,2,1\n0,2,-1\n", r"row 4: gain -1 must be greater than 0"),
        ("i,j,gain\n0,1,1\n1,2,nan\n0,2,1\n", r"row 3, column 'gain'"),
        ("i,j\n0,1\n", r"no column 'gain'"),
        # In a table of 3 devices "0,5" has the number of "1,2": it must not pass for it.
        ("i,j,gain\n0,1,1\n0,2,1\n0,5,1\n", r"row 4: link 0-5 must join two different devices"),
        ("i,j,gain\n0,1,1\n0,2,1\n1,2,1\n2,1,4\n", r"two gains for the link 1-2 \(1 and 4\)"),
    ],
)
def test_bad_gains_are_refused(text: str, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=wanted) as bad:
        from_file(tmp_path, text)
    assert "\n" not in str(bad.value)
