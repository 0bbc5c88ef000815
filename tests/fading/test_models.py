"""Every fading model of the registry keeps the contract; the distributions are what they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from joulemesh import fading
from joulemesh.base.errors import ScenarioError
from joulemesh.fading import Fading, Links
from joulemesh.registries import CHANNELS
from joulemesh.scenario import Network

FloatArray = NDArray[np.float64]

DRAWN = [name for name in CHANNELS.names() if name not in ("none", "trace")]
# More parameters than the defaults of a scenario: the ends of their ranges, and between.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("rayleigh", {}),
    *[("rician", {"rician_k_db": k}) for k in ("-inf", -20.0, 0.0, 6.0, 20.0, 60.0)],
    *[("nakagami", {"nakagami_m": m}) for m in (0.5, 0.8, 1.0, 2.0, 30.0, 1e6)],
]


def links(count: int, seed: int = 0, mean: float = 1.0) -> Links:
    """Links of a path of devices."""
    edges = np.stack([np.arange(count), np.arange(count) + 1], axis=1)
    return Links(
        edges, count + 1, np.full(count, mean), lambda block: np.random.default_rng([seed, block])
    )


def made(name: str, given: dict[str, Any], count: int = 2000, seed: int = 0) -> Fading:
    found = fading.find(name)[0].make(links(count, seed), given, "")
    assert found is not None
    return found


def defaults(name: str) -> dict[str, Any]:
    return {field: getattr(Network(), field) for field in fading.find(name)[0].parameters}


# Every model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHANNELS.names())
def test_a_model_says_what_it_is_and_its_parameters_are_fields(name: str) -> None:
    model = fading.find(f"{name}:x" if name == "trace" else name)[0]
    assert model.name == name
    assert model.description
    assert "\n" not in model.description
    assert set(model.parameters) <= set(Network.model_fields)
    for parameter in model.parameters:
        assert (Network.model_fields[parameter].description or "").startswith(
            (name, "after a trace")
        )


@pytest.mark.parametrize("name", DRAWN)
def test_the_cases_cover_every_distribution(name: str) -> None:
    assert name in [case for case, _ in CASES]
    assert all(set(given) == set(defaults(case)) for case, given in CASES)


@pytest.mark.parametrize(("name", "given"), CASES)
def test_a_fade_has_unit_mean_power(name: str, given: dict[str, Any]) -> None:
    power = made(name, given, 100_000).gain(0)
    assert power.shape == (100_000,)
    assert (power > 0).all()
    assert power.mean() == pytest.approx(1.0, abs=4 * power.std() / math.sqrt(100_000))


@pytest.mark.parametrize(("name", "given"), CASES)
def test_draws_follow_the_quantiles(name: str, given: dict[str, Any]) -> None:
    """Two ways to the same distribution: drawn, and in closed form."""
    drawn = made(name, given, 4000)
    q = np.linspace(0.0005, 0.9995, 1999)
    # `forecast` has the power that is exceeded with probability q: the 1 − q quantile.
    power = np.array([drawn.forecast(float(one), 0)[0] for one in q])
    assert (np.diff(power) < 0).all()
    below = np.interp(drawn.gain(0), power[::-1], 1 - q[::-1])
    assert stats.kstest(below, "uniform").pvalue > 0.01


@pytest.mark.parametrize(("name", "given"), CASES)
def test_a_draw_depends_on_seed_block_and_link_alone(name: str, given: dict[str, Any]) -> None:
    one = made(name, given, 50)
    assert np.array_equal(one.gain(7), made(name, given, 50).gain(7))
    assert np.array_equal(one.gain(7)[:20], made(name, given, 20).gain(7))  # whoever comes after
    assert not np.array_equal(one.gain(7), one.gain(8))
    assert not np.array_equal(one.gain(7), made(name, given, 50, seed=1).gain(7))


@pytest.mark.parametrize(("name", "given"), CASES)
def test_a_distribution_learns_nothing_from_what_it_has_shown(
    name: str, given: dict[str, Any]
) -> None:
    one = made(name, given, 5)
    assert np.array_equal(one.forecast(0.9, 0), one.forecast(0.9, 1000))
    assert one.edition(0) == one.edition(1000)
    assert one.data == ()


# Limits that are Rayleigh ----------------------------------------------------------------------


@given(q=st.floats(0.01, 0.9999))
@settings(max_examples=200, deadline=None)
def test_k_of_zero_and_m_of_one_have_rayleighs_quantiles(q: float) -> None:
    exact = float(-np.log(q))
    for name, given_ in (("rician", {"rician_k_db": "-inf"}), ("nakagami", {"nakagami_m": 1.0})):
        assert made(name, given_, 1).forecast(q, 0)[0] == pytest.approx(exact, rel=1e-12)
    assert made("rayleigh", {}, 1).forecast(q, 0)[0] == exact


def test_k_of_zero_and_m_of_one_are_drawn_as_rayleigh() -> None:
    rayleigh = made("rayleigh", {}, 5000, seed=3).gain(0)
    rician = made("rician", {"rician_k_db": "-inf"}, 5000, seed=4).gain(0)
    nakagami = made("nakagami", {"nakagami_m": 1.0}, 5000, seed=5).gain(0)
    for power in (rician, nakagami):
        assert stats.ks_2samp(power, rayleigh).pvalue > 0.01
        assert stats.kstest(power, "expon").pvalue > 0.01
    # The test can fail: a line of sight as strong as the rest is told apart.
    other = made("rician", {"rician_k_db": 0.0}, 5000, seed=4).gain(0)
    assert stats.ks_2samp(other, rayleigh).pvalue < 1e-6


def test_rayleigh_draws_what_it_always_has() -> None:
    power = made("rayleigh", {}, 100).gain(6)
    assert np.array_equal(power, np.random.default_rng([0, 6]).exponential(size=100))


# Closed forms, by SciPy's own distributions ----------------------------------------------------


@pytest.mark.parametrize("q", [0.01, 0.5, 0.9, 0.999])
def test_quantiles_are_those_of_the_textbook(q: float) -> None:
    for k_db in (-10.0, 0.0, 6.0, 15.0):
        k = 10 ** (k_db / 10)
        # scipy.stats.rice: amplitude with a line of sight of b standard deviations.
        amplitude = stats.rice.isf(q, b=math.sqrt(2 * k), scale=math.sqrt(1 / (2 * (k + 1))))
        found = made("rician", {"rician_k_db": k_db}, 1).forecast(q, 0)[0]
        assert found == pytest.approx(amplitude**2, rel=1e-6)
    for m in (0.5, 1.7, 8.0):
        amplitude = stats.nakagami.isf(q, m)
        found = made("nakagami", {"nakagami_m": m}, 1).forecast(q, 0)[0]
        assert found == pytest.approx(amplitude**2, rel=1e-6)


def test_gains_are_powers_times_means() -> None:
    for name in DRAWN:
        model = fading.find(name)[0]
        plain = model.make(links(9), defaults(name), "")
        weak = model.make(links(9, mean=1e-9), defaults(name), "")
        assert plain is not None
        assert weak is not None
        np.testing.assert_array_equal(weak.gain(2), plain.gain(2) * 1e-9)
        np.testing.assert_array_equal(weak.forecast(0.8, 0), plain.forecast(0.8, 0) * 1e-9)


# The registry ----------------------------------------------------------------------------------


def test_a_new_model_is_known_to_scenario_and_planner() -> None:
    with CHANNELS.scoped():
        _try_a_new_model()
    assert "halves" not in CHANNELS


def _try_a_new_model() -> None:
    import joulemesh

    CHANNELS.register(
        fading.distribution(
            "halves",
            "half or one and a half",
            draw=lambda rng, count: np.where(rng.random(count) < 0.5, 0.5, 1.5),
            quantile=lambda q: 1.5 if q < 0.5 else 0.5,
        )
    )
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {"network.fading": "halves", "plan.iterations": 5, "budget.energy_j": 5.0}
    )
    plan = joulemesh.plan(scenario)
    channel = plan.world.channel
    ratio = channel.gain(2) / channel.mean_gain
    assert set(np.round(ratio, 12).tolist()) == {0.5, 1.5}
    np.testing.assert_allclose(channel.quantile_gain(0.9), 0.5 * channel.mean_gain)
    assert len({row.tobytes() for row in plan.exchange_j}) > 1


@pytest.mark.parametrize("name", ["", "a b", "a:b"])
def test_a_models_name_can_be_written_in_a_scenario(name: str) -> None:
    with pytest.raises(ScenarioError, match="use letters, digits"):
        CHANNELS.register(fading.FadingModel(name, "", lambda *_: None))
