"""Measure a device: rest, warm-up, shuffled blocks, and what they show."""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from joulemesh._version import __version__
from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import cpus
from joulemesh.data.load import device_names
from joulemesh.deploy.device.learner import OwnLearner, load_learner
from joulemesh.deploy.effects import Learner
from joulemesh.deploy.fleet.fleet import Task, task_of
from joulemesh.meters import METERS, Meter, MeterError, MeterOptions, choose, open_meter
from joulemesh.meters.meter import Declared, flag, model_of_board, number_of
from joulemesh.models.torch_model import is_torch
from joulemesh.planning.ground import Workload, workload
from joulemesh.scenario import Scenario
from joulemesh.study.statistics import estimate
from joulemesh.tables import merge_rows, read_table

_CPUS = "sys/devices/system/cpu"
_LIBRARIES = ("jax", "jaxlib", "torch", "tensorflow")  # those that are loaded are told


@dataclass(frozen=True)
class Conditions:
    """The device at the time of its calibration."""

    machine: str
    cores: int  # that this process may use
    system: str
    governor: str = ""  # of the processor's clock; empty where the system does not tell
    accelerator: str = ""  # what JAX trains on, if not the processor
    # of Joulemesh, Python and the numerical libraries that are loaded
    versions: dict[str, str] = field(default_factory=dict)


def conditions(root: Path = Path("/")) -> Conditions:
    governors = {flag(cpu / "scaling_governor") for cpu in _frequencies(root)} - {""}
    return Conditions(
        machine=model_of_board(root) or _processor(root) or platform.machine(),
        cores=cpus(),
        system=f"{platform.system()} {platform.release()}",
        governor=", ".join(sorted(governors)),
        accelerator=_accelerator(),
        versions=_versions(),
    )


def clock_hz(root: Path = Path("/")) -> float | None:
    return _mean(cpu / "scaling_cur_freq" for cpu in _frequencies(root))


def temperature_c(root: Path = Path("/")) -> float | None:
    zones = (root / "sys/class/thermal").glob("thermal_zone*/temp")
    found = [degrees for zone in zones for degrees in _numbers([zone])]
    plausible = [one / 1e3 for one in found if -40e3 < one < 200e3]
    return max(plausible, default=None)


def throttled(root: Path = Path("/")) -> float | None:
    """How often processors were slowed down by heat since the machine was started."""
    places = (root / _CPUS).glob("cpu[0-9]*/thermal_throttle/core_throttle_count")
    counts = list(_numbers(sorted(places)))
    return sum(counts) if counts else None


def _frequencies(root: Path) -> list[Path]:
    return sorted((root / _CPUS).glob("cpu[0-9]*/cpufreq"))


def _numbers(paths: list[Path]) -> Iterator[float]:
    for path in paths:
        with suppress(MeterError):
            yield number_of(path)


def _mean(paths: Iterator[Path]) -> float | None:
    found = list(_numbers(list(paths)))
    return sum(found) / len(found) * 1e3 if found else None


def _processor(root: Path) -> str:
    for line in flag(root / "proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _accelerator() -> str:
    jax = sys.modules.get("jax")
    if jax is None or jax.default_backend() == "cpu":
        return ""
    return ", ".join(device.device_kind for device in jax.local_devices())


def _versions() -> dict[str, str]:
    loaded = {name: sys.modules[name] for name in _LIBRARIES if name in sys.modules}
    libraries = {name: str(getattr(one, "__version__", "")) for name, one in loaded.items()}
    own = {"joulemesh": __version__, "python": platform.python_version()}
    return {**own, "numpy": np.__version__, **libraries}


WIDE = 0.10  # of the mean, to either side


@dataclass(frozen=True)
class Figure:
    """A mean over blocks, and where the mean of another calibration is expected.

    The interval is Student's, for the mean of as many blocks measured another time:
    mean ± t(0.975, n − 1) s √(2/n). It is √2 wider than that of the true mean, because the other
    calibration's mean is uncertain too.

    Attributes:
        mean: over the blocks; never below 0, and neither is the interval.
        low: lower end of the 95 % interval.
        high: upper end.
        blocks: how many there are; 0 for a figure that was declared.
        source: where it comes from, in words.
    """

    mean: float
    low: float
    high: float
    blocks: int
    source: str

    @classmethod
    def of(cls, values: Sequence[float], source: str) -> Figure:
        """From one value of each block.

        >>> figure = Figure.of([1.0, 2.0, 3.0], "measured")
        >>> figure.mean, round(figure.high - figure.mean, 4)  # 4.3027 · √(2/3)
        (2.0, 3.5131)
        """
        found = estimate(np.asarray(values, np.float64))
        half, mean = found.half * math.sqrt(2.0), max(0.0, found.mean)
        return cls(mean, max(0.0, found.mean - half), mean + half, found.seeds, source)

    @classmethod
    def declared(cls, value: float, source: str) -> Figure:
        """Without an interval.

        >>> Figure.declared(2.5, "declared 2.5 W").relative
        0.0
        """
        return cls(value, value, value, 0, source)

    @property
    def relative(self) -> float:
        """Half the width of the interval, as a share of the mean."""
        return (self.high - self.mean) / self.mean if self.mean else 0.0

    @property
    def wide(self) -> bool:
        """Is the interval wider than 10 % of the mean to either side?"""
        return not self.relative <= WIDE


_FEWEST = 3


def _silent(words: str, share: float) -> None:
    del words, share


@dataclass(frozen=True)
class Method:
    """How much is measured.

    Attributes:
        samples: blocks of training, each beside a block of rest; at least 3.
        block_s: seconds of one block.
        warm_up_s: seconds of training before the first block.
        settle_s: seconds between two blocks that count for neither.
        rounds: local rounds in one call of the learner; None for as many as take a quarter second.
        rest: measure rest, and joules; otherwise seconds only.
        seed: of the order of the blocks.

    >>> Method(samples=2)
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: --samples 2 is too few for an interval: use 3 or more
    """

    samples: int = 8
    block_s: float = 10.0
    warm_up_s: float = 5.0
    settle_s: float = 1.0
    rounds: int | None = None
    rest: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < _FEWEST:
            raise ScenarioError(
                f"--samples {self.samples} is too few for an interval: use {_FEWEST} or more"
            )
        if not (math.isfinite(self.block_s) and self.block_s > 0):
            raise ScenarioError(f"--block {self.block_s:g} s is no length: use more than 0 s")
        if self.rounds is not None and self.rounds < 1:
            raise ScenarioError(f"--rounds {self.rounds} trains nothing: use 1 or more")

    @classmethod
    def quick(cls, samples: int = 8, block_s: float = 1.0, rounds: int | None = None) -> Method:
        """Seconds only, in short blocks."""
        return cls(samples, block_s, warm_up_s=1.0, settle_s=0.0, rounds=rounds, rest=False)

    @property
    def least_s(self) -> float:
        """Seconds that measuring takes, at least."""
        blocks = self.samples * (2 if self.rest else 1)
        return self.warm_up_s + blocks * (self.block_s + self.settle_s)


@dataclass(frozen=True)
class Bench:
    """Where it is measured; tests put another clock in the place of the machine's.

    Attributes:
        clock: seconds of a clock that nobody sets.
        sleep: lets seconds pass.
        root: the folder in which ``/sys`` and ``/proc`` are.
        progress: told what is being done, and which share of all is over.
    """

    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    root: Path = Path("/")
    progress: Callable[[str, float], None] = _silent


_CALL_S = 0.25  # a call of the learner should take about so long
_MOST_ROUNDS = 2**20
_SINGLE_CALLS = 16


class Trains(Protocol):
    """A learner, as far as it is needed here: see `deploy.effects.Learner`."""

    def train(self, iteration: int, rounds: int) -> None:
        """Run local rounds of an iteration (from 1)."""


@dataclass(frozen=True)
class Block:
    """What one block has shown."""

    kind: Literal["train", "rest"]  # what the device did
    pair: int  # which pair of blocks it belongs to, from 0
    begun_s: float  # seconds from the beginning of the calibration
    seconds: float
    steps: int  # training steps in it
    joules: float | None  # by the meter; None without one
    clock_hz: float | None  # of the processor at its end; None where the system does not tell
    temperature_c: float | None  # the hottest part at its end; None likewise
    # of what the meter measures at its end: clock, temperature, throttling of a GPU
    state: dict[str, float] = field(default_factory=dict)


class Session:
    """Measures one device."""

    def __init__(
        self,
        learner: Trains,
        meter: Meter | None,
        method: Method,
        bench: Bench,
        steps_per_round: int = 1,
    ) -> None:
        self._learner, self._meter, self._bench = learner, meter, bench
        self._method, self._steps = method, steps_per_round
        self._iteration = 0
        self._begun_s = bench.clock()
        self.rounds = method.rounds or 1
        """Local rounds in one call of the learner."""
        self._reset = _reset_of(learner)

    def run(self, *, rest: bool) -> list[Block]:
        self._warm_up()
        drawn = np.random.default_rng(self._method.seed)
        taken: list[Callable[[], Block]] = []
        count = self._method.samples * (2 if rest else 1)
        for pair in range(self._method.samples):
            kinds: list[Literal["train", "rest"]] = ["train", "rest"] if rest else ["train"]
            drawn.shuffle(kinds)
            for kind in kinds:
                words = f"block {len(taken) + 1} of {count}, {_WORDS[kind]}"
                self._bench.progress(words, len(taken) / count)
                self._bench.sleep(self._method.settle_s)
                taken.append(self._block(kind, pair))
        self._bench.progress("reading the meter", 1.0)
        return [block() for block in taken]

    def overheads_s(self, step_s: float) -> list[float]:
        self._reset()
        return [self._timed(1) - step_s * self._steps for _ in range(_SINGLE_CALLS)]

    def _warm_up(self) -> None:
        """Compile, fill caches, heat up; meanwhile find how many rounds a call should have."""
        self._bench.progress("warming up", 0.0)
        getattr(self._learner, "prepare", lambda: None)()
        self._timed(1)
        until = self._bench.clock() + self._method.warm_up_s
        while True:
            seconds = self._timed(self.rounds)
            known = self._method.rounds is not None or seconds >= _CALL_S / 2
            if not known and self.rounds < _MOST_ROUNDS:
                factor = _CALL_S / seconds if seconds > 0 else 16.0
                self.rounds = min(_MOST_ROUNDS, max(1, round(self.rounds * min(factor, 16.0))))
                known = factor < 2.0
            elif self._bench.clock() >= until:
                return

    def _timed(self, rounds: int) -> float:
        self._iteration += 1
        begun = self._bench.clock()
        self._learner.train(self._iteration, rounds)
        return self._bench.clock() - begun

    def _block(self, kind: Literal["train", "rest"], pair: int) -> Callable[[], Block]:
        """One block; its joules are asked for later, because an external meter may lag."""
        self._reset()
        clock, length = self._bench.clock, self._method.block_s
        steps, first, begun = 0, self._mark(), clock()
        if kind == "rest":
            self._bench.sleep(length)
        else:
            while clock() - begun < length:
                self._timed(self.rounds)
                steps += self.rounds * self._steps
        ended, last = clock(), self._mark()
        root = self._bench.root
        state: dict[str, float] = getattr(self._meter, "state", dict)()
        seen = clock_hz(root), temperature_c(root), state

        def block() -> Block:
            joules = None if self._meter is None else last() - first()
            at = begun - self._begun_s
            return Block(kind, pair, at, ended - begun, steps, joules, *seen)

        return block

    def _mark(self) -> Callable[[], float]:
        """What the meter counts now, to be asked for later."""
        if self._meter is None:
            return lambda: 0.0
        later: Callable[[], Callable[[], float]] | None = getattr(self._meter, "mark", None)
        if later is not None:
            return later()
        joules = self._meter.joules()
        return lambda: joules


_WORDS = {"train": "training", "rest": "rest"}


def _reset_of(learner: Any) -> Callable[[], None]:
    """What brings a learner back to its first parameters, so that all blocks train alike."""
    if not (hasattr(learner, "parameters") and hasattr(learner, "load")):
        return lambda: None
    vector = np.array(learner.parameters())
    memory = {name: np.array(one) for name, one in getattr(learner, "save", dict)().items()}

    def reset() -> None:
        learner.load(vector.copy())
        if memory:
            learner.restore(memory)

    return reset


FORMAT = 1


@dataclass(frozen=True)
class Work:
    """What was trained."""

    model: str  # its name, or the user's learner
    dataset: str
    batch_size: int  # samples of one step
    steps_per_round: int = 1  # training steps in one local round
    precision: str = ""  # in which it is computed


@dataclass(frozen=True)
class Calibration:
    """Seconds and joules of a training step, watts at rest, and how they were measured.

    Attributes:
        name: of the device.
        work: what was trained.
        step_s: seconds of a training step.
        step_j: joules of a training step above rest; None if nothing measures joules.
        step_total_j: joules of a training step in all, rest included.
        idle_w: watts at rest.
        train_w: watts while training, in all.
        overhead_s: seconds of a call of the learner beyond its steps: what an iteration takes even
            if its rounds are few. Saving and framing come on top where a fleet is deployed.
        meter: where joules come from, and why this meter; empty without one.
        method: how much was measured.
        rounds: local rounds in one call of the learner.
        blocks: all of them, in the order of time.
        conditions: the device at that time.
        notes: what a reader should know, one line each.
    """

    name: str
    work: Work
    step_s: Figure
    step_j: Figure | None
    step_total_j: Figure | None
    idle_w: Figure | None
    train_w: Figure | None
    overhead_s: Figure
    meter: str
    method: Method
    rounds: int
    blocks: tuple[Block, ...]
    conditions: Conditions
    notes: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, Figure]:
        """The figures that a scenario takes, by the names of its fields."""
        named = {
            "step_s": self.step_s,
            "step_j": self.step_j,
            "idle_w": self.idle_w,
            "overhead_s": self.overhead_s,
        }
        return {name: figure for name, figure in named.items() if figure is not None}

    @property
    def row(self) -> dict[str, str]:
        """Cells of the device's row in a table: each figure, its interval and its source."""
        cells = {"name": self.name}
        for name, figure in self.figures.items():
            cells[name] = f"{figure.mean:.6g}"
            cells[f"{name}_low"], cells[f"{name}_high"] = f"{figure.low:.6g}", f"{figure.high:.6g}"
            cells[f"{name}_source"] = figure.source
        return cells

    @property
    def wide(self) -> tuple[str, ...]:
        """Figures whose interval is wide, and what to do, one line each."""
        said = []
        for name, figure in self.figures.items():
            if figure.wide and figure is not self.overhead_s:  # which is small beside the rest
                said.append(
                    f"{name} is uncertain by {_percent(figure.relative)}, more than {WIDE:.0%}: "
                    f"{self._advice(name)}"
                )
        return tuple(said)

    def _advice(self, name: str) -> str:
        if name == "step_s" or self.step_s.wide:
            return (
                "something else uses the machine, or its clock changes: stop other programs, set "
                "the governor to performance, or measure longer (--samples, --block)"
            )
        return "measure longer (--block 30s --samples 16), and stop other programs"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"format": FORMAT, **asdict(self)}

    def to_json(self) -> str:
        """As JSON, with all blocks."""
        return json.dumps(self.to_dict(), indent=1) + "\n"


def _percent(share: float) -> str:
    return f"±{share:.0%}" if math.isfinite(share) else "an unknown amount"


_NAME = "name"


def check_table(path: Path) -> dict[str, list[str]]:
    """The columns of a table that a row can be written to; none if it does not exist yet."""
    if not path.exists():
        return {}
    columns = read_table(path)
    names = columns.get(_NAME)
    if names is None:
        raise ScenarioError(
            f"{path} has no column {_NAME!r}, so nobody knows whose row is whose; add one"
        )
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise ScenarioError(f"{path} has two devices called {twice!r:.60}: rename one")
    return columns


def write_row(path: str | Path, row: Mapping[str, str]) -> bool:
    """Add a device's row to a table, or put its figures into the row that it has.

    Other rows and other columns stay as they are; the file is written whole or not at all.

    Args:
        path: of the table; made if it does not exist.
        row: cells by column, with the device's ``name``.

    Returns:
        Whether the device had a row.

    Raises:
        ScenarioError: the table cannot be read or written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "devices.csv")
    ...     _ = table.write_text("name,energy_j\\nnorth,9\\nsouth,8\\n")
    ...     write_row(table, {"name": "south", "step_s": "0.002"})
    ...     print(table.read_text().strip())
    True
    name,energy_j,step_s
    north,9,
    south,8,0.002
    """
    path = Path(path)
    columns = check_table(path)
    merge_rows(path, columns, [row], [_NAME])
    return row[_NAME] in columns.get(_NAME, [])


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
    if not _average(above) > 0:
        raise MeterError(
            f"{meter.source}: training draws {_average(drawn):.4g} W, no more than rest "
            f"({_average(baseline):.4g} W): this meter does not see what trains; use another"
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


def _average(values: Sequence[float]) -> float:
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
