"""The torch learner's contract: with the same draws, the numbers of a loop that exchanges messages.

In float64 to 1e-10, for an MLP, a CNN and a small transformer, with every registered scheme, and
every registered method that mixes as its schedule says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh.aggregation.contract import execute
from joulemesh.data import partition
from joulemesh.methods import Setting, build
from joulemesh.methods.base import METHODS
from joulemesh.methods.fedavg import star, star_route
from joulemesh.models import from_torch
from joulemesh.planning.losses import tries_of
from joulemesh.registries import SCHEMES
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.schedule import Schedule

pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from joulemesh.training.torch.learner import TorchLearner
from tests.training.torch.modules import Cnn, Mlp, Transformer, loop
from tests.training.torch.test_learner import DIGITS, settings

DEVICES, SEED = 4, 3
KINDS = [
    pytest.param(kind, marks=[] if kind is Mlp else pytest.mark.slow)
    for kind in (Mlp, Cnn, Transformer)
]
SMALL = joulemesh.Scenario.preset("adaptive").override(
    {
        "devices.count": DEVICES,
        "plan.iterations": 4,
        "plan.epsilon": 0.3,
        "budget.energy_j": [1.0, 2.0],
        "budget.deadline_s": 0.3,
    }
)


def learner_of(kind: Any, schedule: Schedule) -> TorchLearner:
    held = [partition(DIGITS.y_train, DEVICES, kind="dirichlet", seed=SEED)]
    return TorchLearner(from_torch(kind), DIGITS, held, schedule, settings(), (SEED,))


def check(learner: TorchLearner, mixing: Any) -> None:
    """The learner ends with what the obvious loop ends with."""
    wanted = loop(learner, mixing)
    *_, (state, _) = learner.train()
    given, first = learner.params(state), learner.params(learner.begin())
    for i, params in enumerate(wanted):
        for leaf, value in params.items():
            np.testing.assert_allclose(given[leaf][0, i], value, atol=1e-10, rtol=0)
    assert any(np.abs(given[leaf] - first[leaf]).max() > 1e-3 for leaf in given)  # it has learned


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES.names())
def test_every_scheme_gives_what_its_messages_give(scheme: str, kind: Any) -> None:
    plan = joulemesh.plan(SMALL.override({"plan.aggregation": scheme}))

    def messages(t: int, before: NDArray[Any]) -> NDArray[Any]:
        route = plan.route(t + 1)
        return before if route is None else execute(plan.scheme_at(t + 1), route, before)

    check(learner_of(kind, schedule_of(plan)), messages)


def read(schedule: Schedule, t: int, before: NDArray[Any]) -> NDArray[Any]:
    """An exchange as the schedule describes it in words, all devices being there."""
    if schedule.kind == "mean" or (schedule.kind == "sparse" and schedule.exact[t]):
        return np.broadcast_to(before.mean(axis=0), before.shape)
    if schedule.kind == "sparse":
        mixing: Any = schedule.mixing
        return np.asarray(np.linalg.matrix_power(mixing.toarray(), schedule.mixing_rounds) @ before)
    return np.asarray(schedule.matrices(t, t + 1)[0] @ before)


@pytest.mark.parametrize("kind", KINDS[:1])
@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_gives_what_its_schedule_says(name: str, kind: Any) -> None:
    contender = build(name, SMALL, model=from_torch(kind))
    if contender.exchange is not None:
        pytest.skip("tests/methods/test_both_libraries.py compares its numbers with those of JAX")
    schedule = contender.schedule
    assert schedule.active.all()
    check(learner_of(kind, schedule), lambda t, before: read(schedule, t, before))


def test_a_server_averages_the_models_that_arrive() -> None:
    lossy = SMALL.override({"network.packet_error": 0.3, "network.tries": 2})
    setting = Setting(lossy, model=from_torch(Mlp))
    contender, around = build("fedavg:1", setting), star(setting)
    route, packets = star_route(DEVICES, setting.work.model_bits), setting.world.packets
    assert packets is not None
    missing = []

    def server(t: int, before: NDArray[Any]) -> NDArray[Any]:
        lost = tries_of(around, packets, t, route)[1]
        heard = [before[i] for i in range(DEVICES) if not lost[i]]
        told = [i for i in range(DEVICES) if heard and not lost[DEVICES + i]]
        missing.append(DEVICES - len(told))
        mean = np.mean(heard, axis=0) if heard else before[0]
        return np.stack([mean if i in told else before[i] for i in range(DEVICES)])

    check(learner_of(Mlp, contender.schedule), server)
    assert 0 < sum(missing) < len(missing) * DEVICES


def test_a_method_whose_schedule_does_not_change_anything_would_be_noticed() -> None:
    schedule = schedule_of(joulemesh.plan(SMALL))
    with pytest.raises(AssertionError):
        check(learner_of(Mlp, schedule), lambda t, before: before)
