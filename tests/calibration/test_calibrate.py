"""Calibration of a toy machine, whose figures are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from joulemesh import Scenario, calibrate
from joulemesh.base.errors import ScenarioError
from joulemesh.calibration import Figure, Method
from joulemesh.meters import MeterError
from tests.calibration.toy import Machine
from tests.meters.trees import planted, write


def test_every_figure_of_a_steady_machine() -> None:
    toy = Machine()
    found = calibrate(learner=toy, meter=toy, bench=toy.bench(), name="toy")
    assert found.step_s.mean == pytest.approx(0.002)
    assert found.step_j is not None
    assert found.step_j.mean == pytest.approx((10 - 3) * 0.002)
    assert found.step_total_j is not None
    assert found.step_total_j.mean == pytest.approx(10 * 0.002)
    assert found.idle_w is not None
    assert found.idle_w.mean == pytest.approx(3.0)
    assert found.train_w is not None
    assert found.train_w.mean == pytest.approx(10.0)
    assert found.overhead_s.mean == pytest.approx(0.0, abs=1e-12)
    assert not found.wide
    assert toy.closed == 1
    assert found.row["step_j_source"] == "recorded from a toy, 8 blocks of 10 s"
    assert list(found.row) == ["name"] + [
        f"{name}{end}"
        for name in ("step_s", "step_j", "idle_w", "overhead_s")
        for end in ("", "_low", "_high", "_source")
    ]


def test_blocks_take_turns_in_shuffled_pairs_after_a_warm_up() -> None:
    toy = Machine()
    found = calibrate(learner=toy, meter=toy, method=Method(samples=12), bench=toy.bench())
    pairs = [block.pair for block in found.blocks]
    assert pairs == sorted([*range(12)] * 2)
    first = [block.kind for block in found.blocks][::2]
    assert 0 < first.count("rest") < 12  # neither always first, nor always last
    assert found.blocks[0].begun_s > Method().warm_up_s
    assert all(10.0 <= block.seconds < 10.6 for block in found.blocks)
    assert _order(Method(samples=12)) == [block.kind for block in found.blocks]
    assert _order(Method(samples=12, seed=1)) != [block.kind for block in found.blocks]


def _order(method: Method) -> list[str]:
    toy = Machine()
    found = calibrate(learner=toy, meter=toy, method=method, bench=toy.bench())
    return [block.kind for block in found.blocks]


def test_a_drift_cancels_within_pairs() -> None:
    """Both draws rise by half in the course of a calibration; what is above rest does not."""
    toy = Machine(rest_w=lambda now: 3 + now / 100, train_w=lambda now: 10 + now / 100)
    found = calibrate(learner=toy, meter=toy, bench=toy.bench())
    assert found.step_j is not None
    assert found.step_total_j is not None
    assert found.step_j.mean == pytest.approx(0.014, rel=0.02)
    assert found.step_j.relative < 0.05 < found.step_total_j.relative


def test_the_interval_covers_the_next_calibrations_mean_as_often_as_it_says() -> None:
    drawn = np.random.default_rng(5)
    covered = 0
    for _ in range(2000):
        first, second = drawn.normal(1.0, 0.1, (2, 8))
        figure = Figure.of(first.tolist(), "")
        covered += figure.low <= second.mean() <= figure.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_wide_interval_is_said_aloud_with_what_to_do() -> None:
    noise = np.random.default_rng(0)
    toy = Machine(train_w=lambda now: 10 + 6 * noise.normal())
    found = calibrate(
        learner=toy, meter=toy, bench=toy.bench(), method=Method(samples=3, rounds=10**6)
    )
    assert found.step_j is not None
    assert found.step_j.wide
    assert len(found.wide) == 1
    assert found.wide[0].startswith("step_j is uncertain by ±")
    assert "--block 30s --samples 16" in found.wide[0]


def test_a_call_has_as_many_rounds_as_take_a_quarter_second() -> None:
    toy = Machine(step_s=0.001, call_s=0.003)
    found = calibrate(learner=toy, meter=toy, bench=toy.bench())
    assert 120 <= found.rounds <= 260
    assert found.overhead_s.mean == pytest.approx(0.003, rel=0.02)
    toy = Machine()
    asked = calibrate(learner=toy, meter=toy, bench=toy.bench(), method=Method(rounds=7))
    assert asked.rounds == 7


def test_a_step_longer_than_a_block_is_measured_once_per_block() -> None:
    toy = Machine(step_s=25.0)
    found = calibrate(learner=toy, meter=toy, bench=toy.bench())
    assert {block.steps for block in found.blocks if block.kind == "train"} == {1}
    assert found.step_s.mean == pytest.approx(25.0)


def test_every_block_begins_with_the_first_parameters() -> None:
    toy = Machine()
    calibrate(learner=toy, meter=toy, bench=toy.bench())
    assert toy.loaded == 16 + 1  # and once for calls of one round
    assert (toy.vector == 16).all()  # sixteen of them


def test_a_round_that_is_an_epoch_has_several_steps() -> None:
    scenario = Scenario(
        training={"local_round": "epoch", "batch_size": 10}, devices={"samples": 64}
    )
    toy = Machine(step_s=0.7)
    found = calibrate(scenario, learner=toy, meter=toy, bench=toy.bench())
    assert found.work.steps_per_round == 7
    assert found.step_s.mean == pytest.approx(0.1)


def test_watts_that_are_declared_need_no_rest() -> None:
    toy = Machine()
    found = calibrate(learner=toy, watts=6.5, idle_w=2.5, bench=toy.bench())
    assert found.step_j is not None
    assert found.step_j.mean == pytest.approx(4.0 * 0.002)
    assert found.row["idle_w_source"] == "declared 2.5 W"
    assert {block.kind for block in found.blocks} == {"train"}
    assert found.meter == "declared 6.5 W (6.5 W are declared)"


def test_quick_measures_seconds_only() -> None:
    toy = Machine()
    found = calibrate(learner=toy, method=Method.quick(), bench=toy.bench())
    assert found.step_s.mean == pytest.approx(0.002)
    assert (found.step_j, found.idle_w, found.meter) == (None, None, "")
    assert found.notes == ("joules are not known: only seconds are measured",)
    assert all(block.joules is None for block in found.blocks)
    assert "step_j" not in found.row


def test_without_a_meter_seconds_are_measured_and_the_remedy_is_said() -> None:
    toy = Machine()
    found = calibrate(learner=toy, bench=toy.bench())
    assert found.step_j is None
    assert "no meter can be read" in found.notes[0]
    assert "--watts" in found.notes[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"watts": 6.5, "idle_w": 6.5}, "less than --watts 6.5"),
        ({"watts": 6.5, "idle_w": -1.0}, "must be 0 or more"),
        ({"idle_w": 1.0, "meter": Machine()}, "goes with --watts only"),
        ({"watts": 6.5, "meter": "powercap"}, "leave one out"),
        ({"meter": "powercap", "method": Method.quick()}, "leave out --meter"),
        ({"meter": "nonsense"}, "is unknown"),
        ({"device": 20}, "not among the 20"),
        ({"learner": object()}, "has no parameters"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, object], words: str) -> None:
    toy = Machine()
    with pytest.raises(ScenarioError, match=words):
        calibrate(**{"learner": toy, "bench": toy.bench(), **given})  # type: ignore[arg-type]


def test_a_meter_that_does_not_see_training_is_refused() -> None:
    toy = Machine(train_w=lambda now: 3.0)
    with pytest.raises(MeterError, match="does not see what trains"):
        calibrate(learner=toy, meter=toy, bench=toy.bench())
    assert toy.closed == 1


def test_a_meter_that_vanishes_ends_the_calibration() -> None:
    toy = Machine()

    class Vanishing(Machine):
        def joules(self) -> float:
            if toy.now > 60:
                raise MeterError("the sensor is gone; plug it in")
            return toy.counted_j

    meter = Vanishing()
    with pytest.raises(MeterError, match="the sensor is gone"):
        calibrate(learner=toy, meter=meter, bench=toy.bench())
    assert meter.closed == 1


def test_a_recorded_machine_is_never_called_measured(tmp_path: Path) -> None:
    """The counter of a recorded tree stands still; here it follows the toy's draw."""
    root, toy = planted(tmp_path, "powercap-amd"), Machine()
    for kind in ("sleep", "train"):
        inner = getattr(toy, kind)

        def outer(*given: float, inner: object = inner) -> None:
            inner(*given)  # type: ignore[operator]
            at = int(65_532_000_000 + toy.counted_j * 1e6) % 65_532_610_987
            write(root, "sys/class/powercap/intel-rapl:0/energy_uj", at)

        setattr(toy, kind, outer)
    found = calibrate(learner=toy, bench=toy.bench(root), method=Method(samples=3))
    assert found.step_j is not None
    assert found.step_j.mean == pytest.approx(0.014, rel=1e-3)
    assert found.meter.startswith("recorded from powercap package-0 (package-0, which sees")
    assert found.row["step_j_source"].startswith("recorded from powercap package-0")


def test_conditions_are_recorded_and_disturbances_are_said(tmp_path: Path) -> None:
    cpu = "sys/devices/system/cpu/cpu0"
    write(tmp_path, f"{cpu}/cpufreq/scaling_governor", "powersave")
    write(tmp_path, f"{cpu}/thermal_throttle/core_throttle_count", 4)
    write(tmp_path, "sys/class/thermal/thermal_zone0/temp", 71500)
    write(tmp_path, "sys/class/thermal/thermal_zone1/temp", -274000)  # a sensor that is not there
    write(tmp_path, "proc/cpuinfo", "processor: 0\nmodel name\t: Toy 9000")
    toy = Machine()
    inner = toy.sleep

    def sleep(seconds: float) -> None:
        write(tmp_path, f"{cpu}/cpufreq/scaling_cur_freq", 1_000_000 + int(toy.now) * 10_000)
        write(tmp_path, f"{cpu}/thermal_throttle/core_throttle_count", 4 + int(toy.now > 50))
        inner(seconds)

    toy.sleep = sleep  # type: ignore[method-assign]
    found = calibrate(learner=toy, meter=toy, bench=toy.bench(tmp_path))
    assert (found.conditions.governor, found.conditions.machine) == ("powersave", "Toy 9000")
    assert found.blocks[0].temperature_c == 71.5
    assert found.blocks[0].clock_hz is not None
    assert any("slowed down by heat 1 times" in note for note in found.notes)
    assert any("the clock varied from 1." in note and "powersave" in note for note in found.notes)
    assert {"joulemesh", "python", "numpy"} <= set(found.conditions.versions)


def test_a_meter_that_lags_is_asked_at_the_end() -> None:
    """Waiting for a logger within a block would count for the block."""

    class Lagging(Machine):
        asked_at: float | None = None

        def mark(self) -> Callable[[], float]:
            counted = self.counted_j

            def later() -> float:
                self.asked_at = self.asked_at or self.now
                return counted

            return later

        def joules(self) -> float:
            raise AssertionError("it would wait")

    toy = Lagging()
    found = calibrate(learner=toy, meter=toy, bench=toy.bench())
    assert found.step_j is not None
    assert found.step_j.mean == pytest.approx(0.014)
    last = found.blocks[-1]
    assert toy.asked_at is not None
    assert toy.asked_at >= last.begun_s + last.seconds


def test_a_gpu_that_is_slowed_down_is_said() -> None:
    toy = Machine()
    toy.state = lambda: {"throttled": float(toy.now > 100)}  # type: ignore[attr-defined]
    found = calibrate(learner=toy, meter=toy, bench=toy.bench())
    slowed = sum(bool(block.state["throttled"]) for block in found.blocks)
    assert 0 < slowed < 16
    assert any(f"slowed down in {slowed} of 16 blocks" in note for note in found.notes)


def test_a_pytorch_module_is_trained() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from joulemesh.deploy.device.torch_device import TorchDevice

    drawn = np.random.default_rng(0)
    data = {
        f"{kind}_{part}": drawn.random((20, 8)) if kind == "x" else drawn.integers(2, size=20)
        for kind in ("x", "y")
        for part in ("train", "test")
    }
    module = torch.nn.Linear(8, 2)
    before = module.weight.detach().numpy().copy()
    method = Method(samples=3, block_s=0.01, warm_up_s=0.0, settle_s=0.0, rounds=3, rest=False)
    found = calibrate(learner=TorchDevice(module, data, device=0), watts=5.0, method=method)
    assert found.step_s.mean > 0
    assert found.conditions.versions["torch"]
    assert not np.array_equal(module.weight.detach().numpy(), before)


def test_short_blocks_for_a_slow_meter_are_said(tmp_path: Path) -> None:
    toy = Machine()
    toy.name = "battery"
    found = calibrate(learner=toy, meter=toy, bench=toy.bench())
    assert found.notes == ("blocks of 10 s are short for battery: use --block 120s",)


def test_everything_is_in_the_json() -> None:
    toy = Machine()
    found = calibrate(learner=toy, meter=toy, bench=toy.bench())
    read = json.loads(found.to_json())
    assert read["format"] == 1
    assert len(read["blocks"]) == 16
    assert set(read["step_j"]) == {"mean", "low", "high", "blocks", "source"}


@pytest.mark.parametrize(
    ("given", "words"),
    [({"samples": 2}, "3 or more"), ({"block_s": 0.0}, "more than 0"), ({"rounds": 0}, "1 or more"),
     ({"block_s": float("nan")}, "more than 0")],
)  # fmt: skip
def test_methods_that_measure_nothing_are_refused(given: dict[str, float], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Method(**given)  # type: ignore[arg-type]


def test_the_scenarios_own_model_is_trained() -> None:
    scenario = Scenario(training={"model": "logistic"}, devices={"count": 3})
    method = Method(samples=3, block_s=0.02, warm_up_s=0.0, settle_s=0.0, rest=False)
    found = calibrate(scenario, watts=5.0, method=method, device=2)
    assert found.step_j is not None
    assert found.step_s.mean > 0
    assert found.step_j.mean == pytest.approx(5 * found.step_s.mean, rel=0.05)
    assert found.conditions.versions["jax"]


def test_a_users_own_learner_is_trained(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import time\n"
        "class Mine:\n"
        "    def __init__(self, device, seed, data): assert (device, seed, data) == (1, 0, None)\n"
        "    def parameters(self): return [0.0]\n"
        "    def load(self, parameters): pass\n"
        "    def evaluate(self): return {}\n"
        "    def train(self, iteration, rounds): time.sleep(0.002 * rounds)\n"
    )
    method = Method(samples=3, block_s=0.01, warm_up_s=0.0, settle_s=0.0, rounds=2, rest=False)
    found = calibrate(learner=f"{file}:Mine", watts=5.0, method=method, device=1)
    assert found.step_s.mean >= 0.002
    assert found.work.model == f"{file}:Mine"
