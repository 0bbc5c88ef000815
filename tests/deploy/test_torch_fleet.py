"""A fleet whose devices train a PyTorch module ends with the parameters of the simulated run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import run_file
from joulemesh.calibration.calibration import Method
from joulemesh.data import load, partition
from joulemesh.deploy.device.device import RUN
from joulemesh.deploy.device.learner import load_learner
from joulemesh.deploy.device.simulated import simulated_learner
from joulemesh.deploy.fleet.pack import DEVICES, own_files, portable
from joulemesh.deploy.record.history import read_history
from joulemesh.planning.plan import Plan
from joulemesh.training import Options
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.prepare import partitions, the_dataset, the_model
from tests.deploy.over_tcp import apart, carried_out, kept, packed, small

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from joulemesh.models import from_torch  # noqa: E402
from joulemesh.training.torch.device import TorchTrainer  # noqa: E402
from joulemesh.training.torch.learner import TorchLearner  # noqa: E402

MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 12), torch.nn.Tanh(), torch.nn.Linear(12, 10)
        )

    def forward(self, x):
        return self.layers(x)
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "mine" / "my_models.py"
    path.parent.mkdir()
    path.write_text(MODULE)
    return f"{path}:Net"


def learner_of(plan: Plan) -> TorchLearner:
    scenario = plan.scenario
    data, options = the_dataset(scenario), Options.from_scenario(scenario.training)
    held = partitions(scenario, data, (scenario.seed,), plan.work.round_samples)
    module: Any = the_model(scenario, None, data)
    return TorchLearner(module, data, held, schedule_of(plan), options, (scenario.seed,))


def simulated(plan: Plan) -> list[Any]:
    learner = learner_of(plan)
    *_, (state, _) = learner.train()
    params = learner.params(state)
    return [
        np.concatenate([params[name][0, i].ravel() for name in sorted(params)])
        for i in range(plan.scenario.devices.count)
    ]


@pytest.mark.parametrize("local_round", ["step", "epoch"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_device_trains_as_its_row_of_the_simulator(local_round: Any, optimizer: str) -> None:
    digits = load("digits")
    held = partition(digits.y_train, 3, kind="dirichlet")
    options = Options(precision="float64", optimizer=optimizer, local_round=local_round)
    module = from_torch(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    from joulemesh.training import Schedule

    alone = Schedule(np.array([[2, 1, 2], [0, 2, 1]]), exchanged=np.zeros(2, bool))
    row = TorchLearner(module, digits, [held], alone, options, (7,))
    *_, (state, _) = row.train()
    wanted = row.params(state)
    from joulemesh.training.jax.device import held_by

    trainer = TorchTrainer(module, held_by(digits, held, 1), options, 7, 1)
    trainer.prepare()
    trainer.train(1, 1)
    again = TorchTrainer(module, held_by(digits, held, 1), options, 7, 1)
    again.load(trainer.parameters())
    again.restore(trainer.save())
    for one in (trainer, again):
        one.train(2, 2)
        flat = np.concatenate([wanted[name][0, 1].ravel() for name in sorted(wanted)])
        np.testing.assert_allclose(one.parameters(), flat, atol=1e-12, rtol=0)
    assert again.parameters().tobytes() == trainer.parameters().tobytes()
    assert 0 <= trainer.evaluate()["accuracy"] <= 1


def test_code_stays_where_it_is_and_its_digest_travels(model: str) -> None:
    plan = small("tree", changes={"training.model": model})
    stated, _, named = portable(plan)
    assert stated.training.model == "my_models.py:Net"
    assert "training.model" not in named
    path = Path(model.rpartition(":")[0])
    assert own_files(plan.scenario, []) == (path,)
    assert own_files(plan.scenario, [path]) == (path,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "precision", "bits"),
    [
        ("tree", "float64", 64),
        ("metropolis", "float64", 64),
        ("ring", "float32", 32),
        ("tree", "float64", 16),
        ("ring-chunked", "float64", 16),
        ("metropolis", "float64", 16),
    ],
)
def test_nodes_over_tcp_end_with_the_simulated_parameters(
    scheme: str, precision: str, bits: int, model: str, tmp_path: Path
) -> None:
    changes = {"training.model": model, "network.bits_per_parameter": bits}
    plan = small(scheme, precision, changes)
    wanted = simulated(plan)
    fleet = packed(tmp_path / "fleet", plan)
    assert set(fleet.code) == {"my_models.py"}
    run_file(model.rpartition(":")[0], "--load my_models.py")
    ends = carried_out(fleet)
    assert all(end.complete for end in ends), ends
    found = kept(fleet)
    assert apart(found, wanted) <= (1e-10 if precision == "float64" else 1e-5)
    assert np.ptp(found[0]) > 0.01  # it has learned something
    for number, name in enumerate(fleet.names):
        history = read_history(fleet.folder / DEVICES / name / RUN, number, name)
        assert history.trained_by == f"PyTorch {torch.__version__}"
    assert simulated_learner(fleet, 0).parameters().shape == found[0].shape


def test_a_module_that_is_given_for_a_learner_is_named_as_the_model(model: str) -> None:
    with pytest.raises(ScenarioError, match=r"--set training\.model=.*my_models\.py:Net"):
        load_learner(model, {"device": 0})


def test_a_module_is_calibrated(model: str) -> None:
    import joulemesh

    quick = Method(rest=False, samples=3, block_s=0.02, warm_up_s=0.01, settle_s=0.0)
    small = joulemesh.Scenario().override({"devices.count": 3})
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    named = small.override({"training.model": model})
    for found in (
        joulemesh.calibrate(small, learner=module, method=quick),
        joulemesh.calibrate(named, method=quick),
    ):
        assert found.step_s.mean > 0
        assert found.work.precision == "float32"
