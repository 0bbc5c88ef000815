from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, load
from joulemesh.methods import Setting, build
from joulemesh.models import Model
from joulemesh.models import build as build_model
from joulemesh.models.curves import CURVES
from joulemesh.scenario import Scenario
from joulemesh.study.identity import (
    data_digest,
    model_digest,
    run_key,
    world_digest,
)
from joulemesh.study.record import Cache, Record, from_bytes, to_bytes


def a_run() -> Record:
    rng = np.random.default_rng(0)
    curves = rng.random((3, len(CURVES)))
    return Record(np.arange(3), curves, curves[-1], *rng.random((2, 3)), *rng.random((2, 4)))


def test_a_run_comes_back_bit_by_bit(tmp_path: Path) -> None:
    cache, record = Cache(tmp_path / "new"), a_run()
    assert cache.find("ab") is None
    cache.keep("ab", record)
    back = cache.find("ab")
    assert back is not None
    for name in ("iteration", "curves", "final", "energy_j", "time_s", "spent_j", "totals"):
        np.testing.assert_array_equal(getattr(back, name), getattr(record, name))
    assert len(list((tmp_path / "new").rglob("*.*"))) == 1  # no draft stays behind


def test_a_run_without_a_key_is_not_kept(tmp_path: Path) -> None:
    Cache(tmp_path).keep(None, a_run())
    assert list(tmp_path.iterdir()) == []
    assert Cache(tmp_path).find(None) is None


WHOLE = to_bytes(a_run())


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_a_damaged_file_is_no_run_and_no_crash(data: Any) -> None:
    cut = WHOLE[: data.draw(st.integers(0, len(WHOLE) - 1))]
    content = data.draw(st.sampled_from([cut, data.draw(st.binary(max_size=200))]))
    with contextlib.suppress(ValueError):
        np.testing.assert_array_equal(from_bytes(content).curves, a_run().curves)


def test_one_wrong_bit_is_not_found(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep("ab12", a_run())
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    whole = path.read_bytes()
    assert cache.find("ab12") is not None
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert cache.find("ab12") is None


def test_an_unusable_cache_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told: list[Any] = []
    with pytest.raises(ScenarioError, match="choose another --cache"):
        joulemesh.compare(
            joulemesh.Scenario.preset("adaptive"),
            "adaptive",
            seeds=1,
            cache=tmp_path / "file",
            on_progress=told.append,
        )
    assert not told


# Keys ---------------------------------------------------------------------------------------------


def key(
    scenario: Scenario, name: str, *, equal: str = "energy", seed: int = 0, learned: str = "a"
) -> str | None:
    setting = Setting(scenario, equal)
    return run_key(setting, build(name, setting), seed=seed, learned=learned)


def test_equal_questions_have_equal_keys_and_others_have_others(small: Scenario) -> None:
    base = key(small, "fixed:3")
    assert key(small, "fixed:3") == base
    assert key(small.override({"training.data_dir": "/elsewhere"}), "fixed:3") == base
    assert key(small, "fixed:3", equal="batteries") == base  # another name for energy
    others = [
        key(small, "fixed:2"),
        key(small, "adaptive"),
        key(small, "fixed:3", equal="time"),
        key(small, "fixed:3", seed=1),
        key(small, "fixed:3", learned="b"),
        key(small.override({"training.learning_rate": 0.2}), "fixed:3"),
        key(small.override({"budget.energy_j": 3.0}), "fixed:3"),
        key(small.override({"seed": 1}), "fixed:3"),
    ]
    assert len({base, *others}) == 1 + len(others)


def test_data_are_known_by_their_samples(digits: Dataset) -> None:
    def copy(**changes: Any) -> Dataset:
        return Dataset(**{**vars(digits), **changes})

    assert data_digest(copy(name="other")) == data_digest(digits)
    one = digits.x_train.copy()
    one.flat[0] += 1
    assert data_digest(copy(x_train=one)) != data_digest(digits)
    assert data_digest(copy(std=2.0)) != data_digest(digits)


def test_models_are_known_by_what_they_compute() -> None:
    import jax.numpy as jnp

    def linear(scale: Any, l2: float = 0.0) -> Model:
        return Model(
            "own", lambda key: jnp.zeros((64, 10)), lambda w, x: scale * (x.reshape(2, 64) @ w), l2
        )

    def digest(model: Model) -> str:
        return model_digest(model, load("digits"))

    # Two objects, the same functions; then another number, another constant, another weight.
    assert digest(linear(2.0)) == digest(linear(2.0))
    table = jnp.ones(10)
    same = [linear(2.0), linear(3.0), linear(table), linear(table + 1), linear(2.0, 0.1)]
    assert len({digest(model) for model in same}) == len(same)
    built = build_model("mlp", (8, 8, 1), 10, (16,))
    assert digest(built) == digest(build_model("mlp", (8, 8, 1), 10, (16,)))


OWN = """
from joulemesh.methods import register
from joulemesh.training import Exchange

def build(name, setting, given):
    route = setting.scheme.route(setting.costs(0), 0)
    prices = setting.route_prices(2, lambda t: route, alike=True)
    own = Exchange(lambda params: (), lambda params, state, key, context: (params, state, ()))
    return setting.contender(name, 2, prices, exchange=own)

register("kept-own", build)
"""


def load_file(path: Path, text: str) -> None:
    path.write_text(text)
    exec(compile(text, str(path), "exec"), {})


def test_an_exchange_is_known_by_its_file(small: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    load_file(path, OWN)
    first = key(small, "kept-own")
    assert key(small, "kept-own") == first
    load_file(path, OWN.replace("(params, state, ())", "(params, state,  ())"))
    assert key(small, "kept-own") not in (first, None)


def test_an_exchange_that_lies_in_no_file_has_no_key(small: Scenario) -> None:
    exec(compile(OWN.replace("kept-own", "prompt-own"), "<prompt>", "exec"), {})
    assert key(small, "prompt-own") is None


def test_a_trace_that_changes_under_its_name_is_another_world(
    small: Scenario, tmp_path: Path
) -> None:
    """A gain that no forecast and no reserve looks at is priced all the same."""

    def digest(last: float) -> str:
        rows = [f"{t},{i},{j},1e-9\n" for t in range(1, 9) for i in range(5) for j in range(i)]
        rows[-1] = f"8,4,3,{last}\n"
        (tmp_path / "trace.csv").write_text("t,i,j,gain\n" + "".join(rows))
        traced = small.override({"network.fading": f"trace:{tmp_path / 'trace.csv'}"})
        return world_digest(Setting(traced))

    assert digest(1e-9) == digest(1e-9)
    assert digest(1e-9) != digest(2e-9)
