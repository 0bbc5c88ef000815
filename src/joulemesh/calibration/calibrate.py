"""Measure a device: rest, warm-up, shuffled blocks, and what they show."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from joulemesh.base.errors import ScenarioError
from joulemesh.calibration.calibration import (
    Bench,
    Block,
    Calibration,
    Figure,
    Method,
    Session,
    Work,
    conditions,
    throttled,
)
from joulemesh.data.load import device_names
from joulemesh.deploy.device.learner import OwnLearner, load_learner
from joulemesh.deploy.effects import Learner
from joulemesh.deploy.fleet.fleet import Task, task_of
from joulemesh.meters import METERS, Meter, MeterError, MeterOptions, choose, open_meter
from joulemesh.meters.meter import Declared
from joulemesh.models.torch_model import is_torch
from joulemesh.planning.ground import Workload, workload
from joulemesh.scenario import Scenario


@dataclass(frozen=True)
class Told:
    """What a device of a fleet is told about what it trains, without a fleet."""

    scenario: Scenario

    @cached_property
    def work(self) -> Workload:
        return workload(self.scenario)

    @cached_property
    def task(self) -> Task:
        return task_of(self.scenario)


def learner_of(scenario: Scenario, device: int, learner: Any, data: Path | None) -> Learner:
    if not 0 <= device < scenario.devices.count:
        raise ScenarioError(
            f"device {device} is not among the {scenario.devices.count} of the scenario: use 0 to "
            f"{scenario.devices.count - 1}"
        )
    if isinstance(learner, str):
        given = {"device": device, "name": str(device), "seed": scenario.seed, "data": data}
        return load_learner(learner, given)
    if learner is not None and not is_torch(learner):
        return OwnLearner(learner, type(learner).__name__)
    from joulemesh.deploy.device.simulated import simulated_learner

    return simulated_learner(Told(scenario), device, data, model=learner)


def work_of(scenario: Scenario, device: int, learner: Any, data: Path | None) -> Work:
    training = scenario.training
    steps = 1
    if training.local_round == "epoch":
        samples = int(workload(scenario).round_samples[device])
        steps = -(-samples // training.batch_size)
    kind = learner if isinstance(learner, type) else type(learner)
    own = learner if isinstance(learner, str) else kind.__name__
    return Work(
        model=str(training.model) if learner is None else own,
        dataset=str(training.dataset if data is None else data.name),
        batch_size=training.batch_size,
        steps_per_round=steps,
        precision=training.precision if learner is None or is_torch(learner) else "",
    )


_UNSTEADY = 0.05  # by which the clock may vary between blocks without a word


def calibrate(
    scenario: Scenario | None = None,
    *,
    device: int = 0,
    name: str | None = None,
    learner: Any = None,
    data: Path | None = None,
    meter: str | Meter = "auto",
    watts: float | None = None,
    idle_w: float = 0.0,
    method: Method | None = None,
    bench: Bench | None = None,
) -> Calibration:
    """Measure seconds and joules of a training step of this scenario on this machine.

    After a warm-up, blocks of rest and of training take turns in shuffled pairs. A step's joules
    are those above rest, pair by pair, so that slow drifts cancel; intervals are Student's over
    blocks, see `Figure`.

    Args:
        scenario: whose model, data and batch are trained; the default one unless given.
        device: which of its devices' samples are trained on.
        name: of the device in tables; its name in the scenario's table, or else the machine's,
            unless given.
        learner: your own: ``"FILE.py:NAME"`` or an object with ``parameters()``,
            ``load(parameters)``, ``train(iteration, rounds)`` and ``evaluate()``; or a PyTorch
            module, which is trained in the place of the scenario's model.
        data: the device's own samples (``.npz``).
        meter: a name in `joulemesh.meters.METERS`, the CSV file of an external meter, ``"auto"``,
            or an open meter.
        watts: what you declare that the machine draws while it trains, in place of a meter.
        idle_w: what it draws at rest, beside declared ``watts``.
        method: how much is measured.
        bench: where: clock and folders, for tests.

    Returns:
        The figures, with all blocks. Without any meter there are seconds only.

    Raises:
        MeterError: the meter cannot be read, or does not see what trains.
        ScenarioError: the learner, the data or the figures given cannot be used.

    >>> now = [0.0]  # a machine on which a step takes 2 ms, and which draws 6.5 W
    >>> class Toy:
    ...     def parameters(self): return [0.0]
    ...     def load(self, parameters): pass
    ...     def evaluate(self): return {}
    ...     def train(self, iteration, rounds): now[0] += 0.002 * rounds
    >>> def sleep(seconds): now[0] += seconds
    >>> found = calibrate(learner=Toy(), watts=6.5, bench=Bench(lambda: now[0], sleep))
    >>> round(found.step_s.mean, 6), round(found.step_j.mean, 6), found.step_j.source
    (0.002, 0.013, 'declared 6.5 W')
    """
    scenario, method, bench = scenario or Scenario(), method or Method(), bench or Bench()
    work = work_of(scenario, device, learner, data)
    with ExitStack() as stack:
        bench.progress("loading", 0.0)
        trains = learner_of(scenario, device, learner, data)
        opened, reason = _meter(meter, watts, method, bench)
        if opened is not None:
            stack.callback(opened.close)
        _check_declared(opened, idle_w)
        session = Session(trains, opened, method, bench, work.steps_per_round)
        before = throttled(bench.root)
        measures = opened is not None and not isinstance(opened, Declared)
        blocks = session.run(rest=measures and method.rest)
        after = throttled(bench.root)
    figures = _figures(blocks, opened, idle_w)
    step_s = figures["step_s"]
    assert step_s is not None
    found = conditions(bench.root)
    return Calibration(
        name=name or _name(scenario, device),
        work=work,
        step_s=step_s,
        step_j=figures["step_j"],
        step_total_j=figures["step_total_j"],
        idle_w=figures["idle_w"],
        train_w=figures["train_w"],
        overhead_s=Figure.of(session.overheads_s(step_s.mean), "measured, calls of one round"),
        meter=f"{opened.source} ({reason})" if opened is not None else "",
        method=method,
        rounds=session.rounds,
        blocks=tuple(blocks),
        conditions=found,
        notes=tuple(_notes(blocks, opened, reason, found.governor, (before, after))),
    )


def _name(scenario: Scenario, device: int) -> str:
    names = device_names(scenario)
    return names[device] if names else platform.node() or f"device-{device}"


def _meter(
    asked: str | Meter, watts: float | None, method: Method, bench: Bench
) -> tuple[Meter | None, str]:
    if not isinstance(asked, str):
        return asked, "given"
    if watts is not None and asked not in ("auto", "declared"):
        raise ScenarioError(f"--watts and --meter {asked} both tell the joules: leave one out")
    if not method.rest and watts is None:
        if asked != "auto":
            raise ScenarioError(f"--quick measures seconds only: leave out --meter {asked}")
        return None, "only seconds are measured"
    options = MeterOptions(root=bench.root, watts=watts, accelerator=_on_gpu(), clock=bench.clock)
    if asked != "auto":
        return open_meter(asked, options), "as asked"
    chosen = choose(options)
    return (None if chosen.kind is None else chosen.kind.open(options)), chosen.reason


def _on_gpu() -> bool:
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and jax.default_backend() == "gpu":
        return True
    return torch is not None and bool(torch.cuda.is_initialized())


def _check_declared(meter: Meter | None, idle_w: float) -> None:
    if isinstance(meter, Declared):
        if not 0 <= idle_w < meter.watts:
            raise ScenarioError(
                f"--idle-watts {idle_w:g} must be 0 or more, and less than --watts {meter.watts:g}"
            )
    elif idle_w:
        raise ScenarioError("--idle-watts goes with --watts only: a meter measures rest itself")


def _figures(
    blocks: Sequence[Block], meter: Meter | None, idle_w: float
) -> dict[str, Figure | None]:
    train = [block for block in blocks if block.kind == "train"]
    rest = {block.pair: _watts(block) for block in blocks if block.kind == "rest"}
    lengths = f"{len(train)} blocks of {train[0].seconds:.3g} s"
    found: dict[str, Figure | None] = dict.fromkeys(("step_j", "step_total_j", "idle_w", "train_w"))
    found["step_s"] = Figure.of(
        [block.seconds / block.steps for block in train], f"measured, {lengths}"
    )
    if meter is None:
        return found
    source = meter.source if isinstance(meter, Declared) else f"{meter.source}, {lengths}"
    baseline = [rest.get(block.pair, idle_w) for block in train]
    drawn = [_watts(block) for block in train]
    above = [
        (watts - low) * block.seconds / block.steps
        for watts, low, block in zip(drawn, baseline, train, strict=True)
    ]
    found["step_j"] = Figure.of(above, source)
    if not _mean(above) > 0:
        raise MeterError(
            f"{meter.source}: training draws {_mean(drawn):.4g} W, no more than rest "
            f"({_mean(baseline):.4g} W): this meter does not see what trains; use another"
        )
    found["step_total_j"] = Figure.of(
        [(block.joules or 0.0) / block.steps for block in train], source
    )
    if isinstance(meter, Declared):
        found["train_w"] = Figure.declared(meter.watts, source)
        found["idle_w"] = Figure.declared(idle_w, f"declared {idle_w:g} W")
    else:
        found["train_w"] = Figure.of(drawn, source)
        found["idle_w"] = Figure.of(list(rest.values()), source)
    return found


def _watts(block: Block) -> float:
    return (block.joules or 0.0) / block.seconds


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _notes(
    blocks: Sequence[Block],
    meter: Meter | None,
    reason: str,
    governor: str,
    counts: tuple[float | None, float | None],
) -> list[str]:
    said = []
    if meter is None:
        said.append(f"joules are not known: {reason}")
    elif meter.name in METERS:
        least_s, length = METERS[meter.name].least_s, min(block.seconds for block in blocks)
        if length < least_s * 0.99:
            said.append(
                f"blocks of {length:.3g} s are short for {meter.name}: use --block {least_s:.0f}s"
            )
    before, after = counts
    if before is not None and after is not None and after > before:
        said.append(
            f"the processor was slowed down by heat {after - before:.0f} times; cool the device, "
            "or take the figures for those of a hot one"
        )
    slowed = sum(bool(block.state.get("throttled")) for block in blocks)
    if slowed:
        said.append(
            f"what {meter.name if meter else ''} measures was slowed down in {slowed} of "
            f"{len(blocks)} blocks (heat, or too little voltage): cool it, or use a better supply"
        )
    clocks = [block.clock_hz for block in blocks if block.kind == "train" and block.clock_hz]
    if clocks and max(clocks) > (1 + _UNSTEADY) * min(clocks):
        name = f" (governor {governor})" if governor else ""
        said.append(
            f"the clock varied from {min(clocks) / 1e9:.2f} to {max(clocks) / 1e9:.2f} GHz{name}; "
            "sudo cpupower frequency-set -g performance holds it"
        )
    return said
