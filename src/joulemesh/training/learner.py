"""What trains: the protocol on the other side of `Schedule`, and the one loop that drives all that
satisfy it: run, compare, reproduce and the gap study call it.

What is done with a chunk once it is trained (checkpoints, metrics, progress, timing) is up to
sinks. Divergence and interruption are handled here.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, SupportsInt, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.optional import explained, in_file, is_in_file
from joulemesh.data import Dataset, Partition
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel, is_torch
from joulemesh.scenario import Scenario
from joulemesh.training import hosts
from joulemesh.training.arrays import Tree, tree_map
from joulemesh.training.exchange import Exchange
from joulemesh.training.schedule import Members, Options, Schedule
from joulemesh.training.tensors import Arrays, Shapes
from joulemesh.training.trace import Trace

if TYPE_CHECKING:
    from joulemesh.training.jax.engine import Engine
    from joulemesh.training.torch.learner import TorchLearner


class DivergedError(JoulemeshError):
    """Parameters are no longer finite.

    Attributes:
        iteration: the iteration (from 1) in which that was first seen.
        seed: the repetition seed.

    >>> print(DivergedError(3, 0, 0.5, "float16"))
    training diverged in iteration 3 (seed 0): parameters are not finite, or exceed 65,504, ...
    """

    def __init__(self, iteration: int, seed: int, learning_rate: float, wire: str = "") -> None:
        what, remedy = "are not finite", ""
        if wire:
            bits, most = np.dtype(wire).itemsize * 8, float(np.finfo(wire).max)
            what += f", or exceed {most:,.0f}, the most that a message of {bits} bits carries"
            remedy = ", or set network.bits_per_parameter = 32"
        super().__init__(
            f"training diverged in iteration {iteration} (seed {seed}): parameters {what}; "
            f"lower training.learning_rate (now {learning_rate:g}){remedy}"
        )
        self.iteration, self.seed = iteration, seed


class State(Protocol):
    """All that training carries from one iteration to the next."""

    @property
    def iteration(self) -> SupportsInt:
        """Iterations completed."""


S = TypeVar("S", bound=State)


class Learner(Protocol[S]):
    """Trains all devices of all seeds on a schedule, chunk by chunk.

    Attributes:
        seeds: the repetition seeds.
        schedule: rounds, presence and mixing.
        on_stage: told ``"training"`` or ``"evaluating"`` whenever one of them is begun.
    """

    on_stage: Callable[[str], None]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The repetition seeds."""

    @property
    def schedule(self) -> Schedule:
        """Rounds, presence and mixing."""

    def begin(self) -> S:
        """The state before the first iteration."""

    def advance(self, state: S) -> tuple[S, Trace]:
        """Run one chunk of iterations.

        Args:
            state: before the chunk; it is consumed.

        Returns:
            The state after the chunk, and the evaluations made in it.

        Raises:
            DivergedError: parameters are no longer finite.
        """

    def evaluate(self, state: S) -> Trace:
        """Evaluate a state as it is; it is not consumed."""

    def mean_params(self, state: S) -> Tree:
        """The mean model of the active devices; with several seeds stacked [seeds, …]."""

    def saved_shapes(self) -> Shapes:
        """Names, shapes and types of the arrays that `save` gives."""

    def save(self, state: S) -> Arrays:
        """The state as named arrays, [seeds, devices, ...] where devices differ.

        With several processes all of them call this, and the leader gets the arrays.
        """

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> S:
        """The state that `save` gave; only the leader's arrays are looked at."""

    def identity(self) -> dict[str, str]:
        """Digests of all that decides the numbers, by name."""

    def digest(self) -> str:
        """One digest of `identity`."""


_TOGETHER = 64  # devices whose parameters are averaged at once


def check_inputs(
    partitions: Sequence[Partition], schedule: Schedule, seeds: Sequence[int], samples: int
) -> None:
    members = isinstance(schedule, Members)
    repeated = not members and len(set(seeds)) < len(seeds)
    if not seeds or repeated or min(seeds) < 0 or max(seeds) >= 2**64:
        raise ScenarioError(f"seeds are {list(seeds)}: give different numbers from 0 to 2**64 - 1")
    if len(partitions) != len(seeds):
        raise ScenarioError(
            f"there are {len(partitions)} partitions for {len(seeds)} seeds: give one for each"
        )
    if isinstance(schedule, Members) and len(schedule.rates) != len(seeds):
        raise ScenarioError(
            f"there are {len(schedule.rates)} members for {len(seeds)} seeds: give one for each"
        )
    for partition in partitions:
        if partition.devices != schedule.devices:
            raise ScenarioError(
                f"the partition has {partition.devices} devices but the schedule "
                f"{schedule.devices}: make them equal"
            )
        if partition.sizes.min() < 1:
            raise ScenarioError(
                "{device} holds no samples: give each at least 1",
                device=int(partition.sizes.argmin()),
            )
        if partition.order.max() >= samples:
            raise ScenarioError(
                f"the partition refers to sample {partition.order.max()} of {samples}: "
                "partition this data set"
            )


def sizes_of(partitions: Sequence[Partition]) -> NDArray[np.int64]:
    """D_i of every seed: [S, N]."""
    return np.stack([partition.sizes for partition in partitions])


def mean_of(params: Tree, weights: NDArray[Any]) -> Tree:
    share = weights / weights.sum(axis=1, keepdims=True)

    def mean(leaf: NDArray[Any]) -> NDArray[Any]:
        if leaf.shape[1] == 1:  # all share one
            wide = leaf[:, 0]
        else:
            # Some devices at a time: a wider copy of all might not fit.
            parts = range(0, leaf.shape[1], _TOGETHER)
            cuts = [slice(first, first + _TOGETHER) for first in parts]
            wide = sum(np.einsum("sn,sn...->s...", share[:, c], leaf[:, c]) for c in cuts)
        return np.asarray(wide[0] if len(wide) == 1 else wide, leaf.dtype)

    return tree_map(mean, params)


Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None


class Interrupt:
    """While entered, the first SIGINT (or SIGTERM) only sets ``asked``."""

    def __init__(self, settle_s: float = 0.0) -> None:
        self.asked = False
        self.settle_s = settle_s
        self._settled = 0.0
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Self:
        # Only the main thread may set signals.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if not self.asked:
            self.asked, self._settled = True, time.monotonic() + self.settle_s
        elif time.monotonic() >= self._settled:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


# With several processes a stop signal can arrive more than once (terminal, parent, scheduler);
# repeats within this time are ignored.
_SETTLE_S = 2.0
_SPARE = 1_000_000  # the first of the seeds that stand in for diverged ones


@dataclass(frozen=True, eq=False)
class TrainedChunk(Generic[S]):
    """One chunk that has been trained."""

    learner: Learner[S]  # what trains
    state: S  # after the chunk; the next one consumes it
    trace: Trace  # the evaluations made in the chunk
    start: int  # iterations completed before the chunk
    completed: int  # iterations completed
    wall_s: float  # seconds that the chunk took
    stopping: bool = False  # whether training has been asked to stop after this chunk

    @property
    def iterations(self) -> int:
        return self.learner.schedule.iterations

    @property
    def finished(self) -> bool:
        return self.completed >= self.iterations

    @property
    def last(self) -> bool:
        """Is no chunk to follow, because training is finished or asked to stop?"""
        return self.finished or self.stopping


Sink: TypeAlias = Callable[[TrainedChunk[Any]], None]
"""Takes every chunk as soon as it is trained."""


def chunks(learner: Learner[S], state: S | None = None) -> Iterator[tuple[S, Trace]]:
    """Advance a learner to the end of its schedule."""
    state = learner.begin() if state is None else state
    while int(state.iteration) < learner.schedule.iterations:
        state, trace = learner.advance(state)
        yield state, trace


def train(
    learner: Learner[S],
    sinks: Sequence[Sink] = (),
    *,
    state: S | None = None,
    interrupt: Interrupt | None = None,
) -> tuple[S, list[Trace]]:
    """Train to the end of the schedule.

    Args:
        learner: what trains.
        sinks: called after every chunk, in this order.
        state: where to go on from; the beginning unless given.
        interrupt: entered by the caller (`interrupts`), who keeps what the last chunk gave before
            it stops; entered here unless given. Ctrl-C or SIGTERM then stops training after the
            chunk that is under way, once the sinks have had it. Of several processes each may be
            asked.

    Returns:
        The final state, and the evaluations of every chunk.

    Raises:
        DivergedError: parameters are no longer finite.
        KeyboardInterrupt: training was asked to stop, before its end.

    >>> import numpy as np
    >>> from joulemesh.data import load, partition
    >>> from joulemesh.models import build
    >>> from joulemesh.training import Engine, Options, Schedule
    >>> digits = load("digits")
    >>> held = partition(digits.y_train, 4, kind="iid")
    >>> engine = Engine(build("logistic", digits.shape, 10), digits, [held],
    ...                 Schedule(np.ones((6, 4), int)), Options(chunk_iterations=3))
    >>> state, traces = train(engine, [lambda chunk: print(chunk.completed, chunk.finished)])
    3 False
    6 True
    """
    if interrupt is None:
        with interrupts() as own:
            found = train(learner, sinks, state=state, interrupt=own)
        if own.asked:  # in the last chunk
            raise KeyboardInterrupt
        return found
    alone, traces = hosts.alone(), []
    state = learner.begin() if state is None else state
    start, clock = int(state.iteration), time.perf_counter()
    # Each state consumes the one before.
    for state, trace in chunks(learner, state):  # noqa: B020
        wall_s, completed = time.perf_counter() - clock, int(state.iteration)
        stop = hosts.any_of(interrupt.asked)[0]
        traces.append(trace)
        chunk = TrainedChunk(learner, state, trace, start, completed, wall_s, stop)
        for sink in sinks:
            sink(chunk)
        late = alone and interrupt.asked
        if (stop or late) and not chunk.finished:
            raise KeyboardInterrupt
        start, clock = completed, time.perf_counter()
    return state, traces


def interrupts() -> Interrupt:
    """While entered, the first Ctrl-C only asks training to stop; a second one stops it at once."""
    return Interrupt(0.0 if hosts.alone() else _SETTLE_S)


R = TypeVar("R")


def train_seeds(
    once: Callable[[tuple[int, ...]], Sequence[R]], seeds: Sequence[int], *, stand_ins: bool = False
) -> Iterator[tuple[int, R | DivergedError]]:
    """Train all seeds together; if one diverges, the others once more without it."""
    left, spare = tuple(seeds), _SPARE
    lineup = left
    while left:
        try:
            found = once(lineup)
        except DivergedError as error:
            if error.seed in left:
                yield error.seed, error
            left = tuple(seed for seed in left if seed != error.seed)
            if stand_ins and spare < _SPARE + 2 * len(seeds):
                lineup = tuple(spare if seed == error.seed else seed for seed in lineup)
                spare += 1
            else:  # as do stand-ins that diverge as well
                lineup = left
        else:
            yield from (
                (seed, one) for seed, one in zip(lineup, found, strict=True) if seed in left
            )
            return


AnyLearner: TypeAlias = "Engine | TorchLearner"


def learner_of(
    model: Model | TorchModel,
    dataset: Dataset,
    partitions: Sequence[Partition],
    schedule: Schedule,
    options: Options,
    seeds: Sequence[int],
    *,
    own_exchange: Exchange | None = None,
) -> AnyLearner:
    """Make what trains a model; see `training.jax.engine.Engine` for the arguments."""
    if not isinstance(model, TorchModel):
        from joulemesh.training.jax.engine import Engine

        return Engine(
            model, dataset, partitions, schedule, options, seeds, own_exchange=own_exchange
        )
    from joulemesh.training.torch.learner import TorchLearner

    return TorchLearner(
        model, dataset, partitions, schedule, options, seeds, own_exchange=own_exchange
    )


def configured(scenario: Scenario, model: Any, cache_dir: Path | None = None) -> None:
    """Prepare JAX before anything is computed; not where a PyTorch module is to be trained."""
    named = scenario.training.model
    if model is None and is_in_file(named):
        model = in_file(named, "training.model")
    if model is None or not is_torch(model):
        try:
            from joulemesh.training.jax.platform import configure
        except ModuleNotFoundError as error:  # the light installation does not train
            raise explained(error) from None
        configure(cache_dir=cache_dir)


def one_by_one(model: Model | TorchModel) -> bool:
    """Whether devices are trained one after another here (CPU), not all at once (accelerator)."""
    if isinstance(model, TorchModel):
        import torch

        return not torch.cuda.is_available()
    from joulemesh.training.jax.platform import loops_over_rows

    return loops_over_rows()
