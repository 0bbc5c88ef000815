"""On a GPU: steps captured as CUDA graphs give what a loop that exchanges messages gives."""

from __future__ import annotations

from typing import Any

import pytest

import joulemesh
from joulemesh.aggregation.contract import execute
from joulemesh.training.from_plan import schedule_of

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from tests.training.torch.modules import Cnn, Mlp, Transformer  # noqa: E402
from tests.training.torch.test_contract import SMALL, check, learner_of  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
]


@pytest.mark.parametrize("scheme", ["tree", "metropolis"])
@pytest.mark.parametrize("kind", [Mlp, Cnn, Transformer])
def test_captured_steps_give_what_messages_give(kind: Any, scheme: str) -> None:
    plan = joulemesh.plan(SMALL.override({"plan.aggregation": scheme}))

    def messages(t: int, before: Any) -> Any:
        route = plan.route(t + 1)
        return before if route is None else execute(plan.scheme_at(t + 1), route, before)

    learner = learner_of(kind, schedule_of(plan))
    check(learner, messages)
    assert learner.captured
