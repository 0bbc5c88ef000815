from __future__ import annotations

from typing import Any

import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Training
from joulemesh.training import Options
from joulemesh.training.jax.local_sgd import make_optimizer


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 0}, "batch_size = 0"),
        ({"eval_every": -1}, "eval_every = -1"),
        ({"eval_at": (0, 2)}, "ascending iterations, from 1"),
        ({"eval_at": (2, 2)}, "ascending iterations, from 1"),
        ({"learning_rate": 0.0}, "learning_rate = 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"local_round": "day"}, "'day' is unknown: use step or epoch"),
        ({"precision": "float16"}, "'float16' is unknown"),
        ({"weights": "age"}, "'age' is unknown"),
        ({"eval_share": 1.5}, "eval_share = 1.5"),
    ],
)
def test_bad_settings_are_refused_in_one_line(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as refused:
        Options(**arguments)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adma", "did you mean"),
        ("qqqqqq", "use 'sgd' or 'adam'"),
        ("polyak_sgd", "does not work from a learning rate and gradients alone"),
        ("__name__", "not in optax"),
    ],
)
def test_optimisers_that_optax_has_not_are_refused(name: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        make_optimizer(name, 0.1)


def test_settings_come_from_the_scenario() -> None:
    training = Training(batch_size=7, optimizer="adam", local_round="epoch")
    options = Options.from_scenario(training, deterministic=True)
    assert (options.batch_size, options.optimizer, options.local_round) == (7, "adam", "epoch")
    assert options.deterministic
