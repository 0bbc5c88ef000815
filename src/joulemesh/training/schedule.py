"""What training plays: rounds, presence and mixing of every iteration, in one run or several."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel
from scipy import sparse

from joulemesh.aggregation.bits import bits_of
from joulemesh.base.errors import ScenarioError, require_countable

if TYPE_CHECKING:
    from joulemesh.data import Dataset, Partition

IntArray = NDArray[np.int32]


FIELDS = ("target", "first", "second", "sign", "factor", "divisor", "rounds", "output", "owed")
_ENDS = ("output", "owed")


@dataclass(frozen=True, eq=False)
class RoundedExchange:
    """What one exchange does, in C parts of the parameters (as ``numpy.array_split`` cuts them).

    Registers hold a vector each; at first register i holds the parameters of device i. Then, one
    after another, I operations

        register[target] ← (register[first] + sign · register[second]) · factor / divisor

    are carried out in the precision of the parameters, and rounded to that of messages where
    ``rounds`` says so.
    """

    target: IntArray  # int32 [C, I]: registers
    first: IntArray  # int32 [C, I]: registers
    second: IntArray  # int32 [C, I]: registers
    sign: NDArray[np.float64]  # float64 [C, I]: 1, −1, or 0 for ``first`` alone
    factor: NDArray[np.float64]  # float64 [C, I]; one of them is 1
    divisor: NDArray[np.float64]  # float64 [C, I]; one of them is 1
    rounds: NDArray[np.bool_]  # bool [C, I]
    output: IntArray  # int32 [C, N]: the register that holds each device's parameters in the end
    owed: IntArray  # int32 [C, D]: the register of what each of D devices owes: of all, or none
    registers: int  # their number R

    @property
    def parts(self) -> int:
        return len(self.target)

    @property
    def length(self) -> int:
        return int(self.target.shape[1])

    def same(self, other: RoundedExchange) -> bool:
        return all(np.array_equal(getattr(self, one), getattr(other, one)) for one in FIELDS)

    def padded(self, parts: int, length: int) -> RoundedExchange:
        """The same with more parts (of one that all share) and operations that change nothing."""
        more = length - self.length
        fill = {"factor": 1.0, "divisor": 1.0}  # register 0 ← register 0

        def wide(name: str) -> NDArray[Any]:
            values = getattr(self, name)
            tail = 0 if name in _ENDS else more
            longer = np.pad(values, ((0, 0), (0, tail)), constant_values=fill.get(name, 0))
            return np.broadcast_to(longer, (parts, longer.shape[1]))

        columns: dict[str, Any] = {name: wide(name) for name in FIELDS}
        return RoundedExchange(**columns, registers=self.registers)


class RoundedExchanges:
    """The rounded exchanges of n iterations, all in one form."""

    def __init__(self, each: Sequence[RoundedExchange | None], wire: str) -> None:
        self.wire = wire
        distinct: list[RoundedExchange] = []
        self._which = np.zeros(len(each), np.int64)
        known: dict[int, int] = {}
        for t, one in enumerate(each):
            if one is None:
                continue
            if id(one) not in known:
                known[id(one)] = len(distinct)
                distinct.append(one)
            self._which[t] = known[id(one)]
        shared = set() if bits_of(wire) else {1}  # parts whose numbers share units stay apart
        counts = {one.parts for one in distinct} - shared
        if len(counts) > 1:
            remedy = "plan.bits" if bits_of(wire) else "network.bits_per_parameter"
            raise ScenarioError(
                f"messages are rounded in exchanges of {' and '.join(map(str, sorted(counts)))} "
                "parts, which one training cannot mix; use a scheme without chunks, for instance "
                f'plan.aggregation = "tree", or {remedy} = 32'
            )
        self.parts = max(counts, default=1)
        length = max((one.length for one in distinct), default=0)
        self.registers = max((one.registers for one in distinct), default=0)
        self._each = [one.padded(self.parts, length) for one in distinct]

    def __len__(self) -> int:
        """Number n of iterations."""
        return len(self._which)

    @property
    def static(self) -> bool:
        return len(self._each) == 1

    def at(self, iteration: int) -> RoundedExchange:
        """The exchange of an iteration (from 0)."""
        return self._each[int(self._which[iteration])]

    def digested(self) -> Iterator[bytes]:
        yield self.wire.encode()
        yield self._which.tobytes()
        for one in self._each:
            yield from (np.ascontiguousarray(getattr(one, name)).tobytes() for name in FIELDS)


def digest(parts: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of a sequence of byte strings; their lengths count."""
    made = hashlib.sha256()
    for part in parts:
        made.update(memoryview(part).nbytes.to_bytes(8, "little"))
        made.update(part)
    return made.hexdigest()


def array_parts(*arrays: ArrayLike) -> list[bytes | memoryview]:
    parts: list[bytes | memoryview] = []
    for array in map(np.ascontiguousarray, arrays):
        flat = array.reshape(-1).view(np.uint8)
        parts += [repr((array.shape, array.dtype.str)).encode(), flat.data]
    return parts


def data_digest(data: Dataset) -> str:
    """A digest of a data set's samples and their scaling; its name and place do not matter."""
    arrays: list[ArrayLike] = [data.x_train, data.y_train, data.x_test, data.y_test]
    arrays += [data.mean, data.std]
    if data.holders is not None:
        arrays += [data.holders.of, np.array(data.holders.names)]
    return digest([*array_parts(*arrays), str(data.classes).encode()])


def scaling_digest(data: Dataset) -> str:
    return digest(array_parts(data.mean, data.std))


def partition_parts(partitions: Sequence[Partition]) -> list[bytes | memoryview]:
    """Who holds which samples, seed after seed."""
    return [
        part
        for partition in partitions
        for part in array_parts(partition.order.astype(np.int32), partition.offsets)
    ]


Dense: TypeAlias = NDArray[np.float64]
Mixing: TypeAlias = (
    Literal["mean"] | Dense | Callable[[int], Dense] | sparse.csr_array[Any, Any] | RoundedExchanges
)

_ROW_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Schedule:
    """Rounds, presence and mixing of n iterations of N devices.

    Attributes:
        rounds: integers [n, N], τ; 0 where a device is not active.
        active: bool [n, N]; a departed device trains and mixes no more, keeps its parameters and
            is out of the mean and of the accuracy. All True unless given.
        exchanged: bool [n]; False where the exchange is skipped. All True unless given.
        mixing: ``"mean"`` (exact weighted mean of the active devices); row-stochastic matrices
            W, new = W @ old, as [n, N, N], [1, N, N] (the same in every iteration) or a function
            of the iteration (from 0) that gives [N, N]; a SciPy CSR array, the same in every
            iteration, applied ``mixing_rounds`` times; or `RoundedExchanges`.
        mixing_rounds: how often a sparse matrix is applied in one exchange.
        exact: bool [n]; True where the exchange is the exact mean of the active devices, which a
            learner may weigh by samples: a dense matrix stands for it, and it takes the place of a
            sparse one. All False unless given.
        gifts: (iteration from 0, newcomer, giver): a device that has been away begins an
            iteration with the parameters that another ended the one before with.
        parts: number C of parts into which the parameters, as one vector, are cut (as by
            ``numpy.array_split``), each with a dense matrix of its own: with more than one,
            matrices are [C, N, N] in the place of [N, N].
        arrived: for a method's own exchange, a function of the iteration (from 0) that says which
            of its messages arrive, bool in a form that the exchange knows and that is the same in
            every iteration; None if all arrive.
        wire: NumPy's name of the type to which all messages are rounded, of a method's own
            exchange and of gifts, too, or ``"int8"`` and the like where those of the mixing are
            quantised; empty if none is.

    >>> Schedule(np.full((10, 3), 5)).iterations
    10
    """

    rounds: NDArray[np.integer[Any]]
    active: NDArray[np.bool_] = field(default_factory=lambda: np.ones(0, bool))
    exchanged: NDArray[np.bool_] = field(default_factory=lambda: np.ones(0, bool))
    mixing: Mixing = "mean"
    mixing_rounds: int = 1
    exact: NDArray[np.bool_] = field(default_factory=lambda: np.ones(0, bool))
    gifts: tuple[tuple[int, int, int], ...] = ()
    parts: int = 1
    arrived: Callable[[int], NDArray[np.bool_]] | None = None
    wire: str = ""

    def __post_init__(self) -> None:
        rounds = _whole(self.rounds)
        n, devices = rounds.shape
        active = (
            np.asarray(self.active, bool)
            if self.active.size
            else np.broadcast_to(True, (n, devices))
        )
        exchanged = np.asarray(self.exchanged, bool) if self.exchanged.size else np.ones(n, bool)
        _check_presence(rounds, active, exchanged)
        object.__setattr__(self, "rounds", rounds)
        object.__setattr__(self, "active", active)
        object.__setattr__(self, "exchanged", exchanged)
        object.__setattr__(self, "exact", _check_exact(self.exact, n))
        object.__setattr__(self, "mixing", _check_mixing(self.mixing, n, self._shape))
        _check_gifts(self.gifts, n, devices)
        if self.parts < 1 or (self.parts > 1 and self.kind != "dense"):
            raise ScenarioError(
                f"parts = {self.parts} with mixing that is {self.kind}: several parts need dense "
                "matrices, use 1"
            )
        if isinstance(self.mixing, RoundedExchanges) and (
            len(self.mixing) < n or self.mixing.wire != self.wire
        ):
            raise ScenarioError(
                f"programs of {len(self.mixing)} iterations round to {self.mixing.wire}: give "
                f"those of {n} iterations, with wire = {self.mixing.wire!r}"
            )
        if self.mixing_rounds < 1:
            raise ScenarioError(
                f"mixing_rounds = {self.mixing_rounds} mixes nothing: use 1 or more, "
                "or exchanged = False"
            )

    @property
    def iterations(self) -> int:
        """Number of iterations n."""
        return len(self.rounds)

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return len(self.rounds[0])

    @property
    def _shape(self) -> tuple[int, ...]:
        devices = self.devices
        return (devices, devices) if self.parts == 1 else (self.parts, devices, devices)

    @property
    def kind(self) -> Literal["mean", "dense", "sparse", "messages"]:
        """How the exchange is computed."""
        if isinstance(self.mixing, str):
            return "mean"
        if isinstance(self.mixing, RoundedExchanges):
            return "messages"
        return "sparse" if sparse.issparse(self.mixing) else "dense"

    @property
    def static(self) -> bool:
        """Whether one mixing matrix, or program, serves every iteration."""
        if isinstance(self.mixing, RoundedExchanges):
            return self.mixing.static
        return self.kind == "sparse" or (
            isinstance(self.mixing, np.ndarray) and len(self.mixing) == 1
        )

    def matrices(self, start: int, stop: int) -> Dense:
        """Mixing matrices [stop - start, N, N], or [1, N, N] if alike; [..., C, N, N] in parts."""
        if isinstance(self.mixing, str | RoundedExchanges) or sparse.issparse(self.mixing):
            raise TypeError(f"mixing is {self.kind}, not dense")
        if callable(self.mixing):
            drawn = np.stack([np.asarray(self.mixing(t), np.float64) for t in range(start, stop)])
            return _check_dense(drawn, stop - start, self._shape)
        dense: Dense = np.asarray(self.mixing)
        return dense if len(dense) == 1 else dense[start:stop]

    def arrivals(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which messages of a method's own exchange arrive in iterations start..stop-1."""
        if self.arrived is None:
            raise TypeError("no message is lost")
        return np.stack([np.asarray(self.arrived(t), bool) for t in range(start, stop)])

    def begins_with(self, start: int, stop: int) -> NDArray[np.int64]:
        """Whose parameters each device begins iterations start..stop-1 with: its own, or a gift."""
        source = np.tile(np.arange(self.devices), (stop - start, 1))
        for iteration, newcomer, giver in self.gifts:
            if start <= iteration < stop:
                source[iteration - start, newcomer] = giver
        return source

    def mean_weights(
        self, sizes: NDArray[np.int64], *, by_samples: bool = False
    ) -> NDArray[np.float64]:
        """Weights of the exact mean, on any positive scale."""
        if by_samples:
            return sizes.astype(np.float64)
        return np.ones(sizes.shape)

    def digest(self) -> str:
        """A digest of the whole schedule.

        Matrices that a function makes are looked at in three iterations only.
        """
        return digest(self._parts())

    def _parts(self) -> Iterator[bytes | memoryview]:
        n, mixing = self.iterations, self.mixing
        parts: list[NDArray[Any]] = [self.exchanged]
        if isinstance(mixing, sparse.csr_array):
            parts += [mixing.indptr, mixing.indices, mixing.data]
        elif callable(mixing):
            parts += [self.matrices(t, t + 1) for t in sorted({0, n // 2, n - 1})]
        elif not isinstance(mixing, str | RoundedExchanges):
            parts.append(mixing)
        plain = not self.exact.any()
        parts += [] if plain else [self.exact]
        parts += [np.array(self.gifts, np.int64)] if self.gifts else []
        cut = () if self.parts == 1 else (self.parts,)
        short = (self.wire,) if self.wire else ()
        yield repr((self.kind, self.mixing_rounds, plain, *cut, *short)).encode()
        if isinstance(mixing, RoundedExchanges):
            yield from mixing.digested()
        for rounds, active in zip(self.rounds, self.active, strict=True):
            yield rounds.astype(np.int32).data
            yield np.ascontiguousarray(active).data
        for part in parts:
            yield np.ascontiguousarray(part).data
        if self.arrived is not None:
            for t in range(n):
                yield np.ascontiguousarray(self.arrivals(t, t + 1)).data


def _whole(rounds: ArrayLike) -> NDArray[np.integer[Any]]:
    given = np.asarray(rounds)
    if given.ndim != 2 or given.size == 0:
        raise ScenarioError(f"rounds have shape {given.shape}: give [iterations, devices]")
    if not np.issubdtype(given.dtype, np.integer):
        raise ScenarioError(f"rounds are {given.dtype}: give integers")
    if given.min() < 0:
        raise ScenarioError(f"rounds reach {given.min()}..{given.max()}: give 0 or more")
    require_countable(given, "give fewer")
    return given


def _check_presence(
    rounds: NDArray[np.integer[Any]], active: NDArray[np.bool_], exchanged: NDArray[np.bool_]
) -> None:
    n, devices = rounds.shape
    if active.shape != (n, devices) or exchanged.shape != (n,):
        raise ScenarioError(
            f"active has shape {active.shape} and exchanged {exchanged.shape}: "
            f"with rounds {rounds.shape} give {(n, devices)} and {(n,)}"
        )
    for t in np.flatnonzero(~active.all(axis=1)):
        absent = np.flatnonzero((rounds[t] > 0) & ~active[t])
        if len(absent):
            i = absent[0]
            raise ScenarioError(
                "{device} has departed but has {rounds:round} in iteration {iteration}: give it 0",
                device=int(i),
                figures={"rounds": rounds[t, i], "iteration": t + 1},
            )
    empty = np.flatnonzero(~active.any(axis=1))
    if len(empty):
        raise ScenarioError(
            f"no device is active in iteration {empty[0] + 1}: end the schedule before it"
        )


def _check_gifts(gifts: tuple[tuple[int, int, int], ...], n: int, devices: int) -> None:
    served = {(iteration, newcomer) for iteration, newcomer, _ in gifts}
    for iteration, newcomer, giver in gifts:
        known = 0 <= iteration < n and 0 <= newcomer < devices and 0 <= giver < devices
        if not known or newcomer == giver or (iteration, giver) in served:
            raise ScenarioError(
                f"the gift {(iteration, newcomer, giver)} must name an iteration below {n}, a "
                f"device of 0..{devices - 1} and another that is given nothing then"
            )


def _check_exact(exact: NDArray[np.bool_], n: int) -> NDArray[np.bool_]:
    given = np.asarray(exact, bool) if np.size(exact) else np.zeros(n, bool)
    if given.shape != (n,):
        raise ScenarioError(f"exact has shape {given.shape}: give ({n},)")
    return given


def _check_mixing(mixing: Any, n: int, shape: tuple[int, ...]) -> Mixing:
    if isinstance(mixing, str):
        if mixing != "mean":
            raise ScenarioError(f'mixing = {mixing!r} is unknown: give "mean" or matrices')
        return "mean"
    if isinstance(mixing, RoundedExchanges):
        return mixing
    if sparse.issparse(mixing):
        given: Any = mixing
        matrix = sparse.csr_array(given, dtype=np.float64)
        if matrix.shape != shape[-2:]:
            raise ScenarioError(f"mixing has shape {matrix.shape}: give {shape[-2:]}")
        _check_rows(np.asarray(matrix.sum(axis=1), np.float64)[None])
        return matrix
    if callable(mixing):
        function: Callable[[int], Dense] = mixing
        return function
    return _check_dense(np.asarray(mixing, np.float64), n, shape)


def _check_dense(mixing: Dense, n: int, shape: tuple[int, ...]) -> Dense:
    if mixing.shape not in ((1, *shape), (n, *shape)):
        raise ScenarioError(f"mixing has shape {mixing.shape}: give {(n, *shape)} or {(1, *shape)}")
    _check_rows(mixing.reshape(-1, *shape[-2:]).sum(axis=2))
    return mixing


def _check_rows(sums: NDArray[np.float64]) -> None:
    wrong = np.argwhere(~(np.abs(sums - 1) <= _ROW_SUM_TOLERANCE))
    if len(wrong):
        t, i = wrong[0]
        raise ScenarioError(
            f"row {i} of mixing matrix {t} sums to {sums[t, i]:g}: each row must sum to 1"
        )


@dataclass(frozen=True, eq=False)
class Members(Schedule):
    """A schedule of S members; presence and mixing are the same for all of them.

    To the engine a member is what a seed is in other schedules, and seeds may repeat. A member
    whose parameters cease to be finite goes on beside the others, without an error: its losses
    say so. Members may be of different length only where every iteration ends with the exact
    mean of all devices: one without rounds then leaves the parameters as they are.

    Attributes:
        each: integers [n, N, S], every member's rounds, 0 after its end; ``rounds`` are the most
            of any member.
        rates: float64 [S], every member's learning rate.

    >>> short, long = Schedule(np.full((2, 3), 5)), Schedule(np.full((4, 3), 1))
    >>> both = Members.of([short, long], [0.1, 0.2], seeds=2)
    >>> both.iterations, both.each.shape, both.rates.tolist(), both.rounds[:, 0].tolist()
    (4, (4, 3, 4), [0.1, 0.1, 0.2, 0.2], [5, 5, 1, 1])
    """

    each: NDArray[np.integer[Any]] = field(default_factory=lambda: np.zeros((0, 0, 0), np.int32))
    rates: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, schedules: Sequence[Schedule], rates: Sequence[float], seeds: int) -> Members:
        """Put schedules side by side, each with a learning rate, at as many seeds each."""
        longest = max(schedules, key=lambda one: one.iterations)
        n = longest.iterations
        even = all(one.iterations == n for one in schedules)
        alike = all(cls.alike(one) for one in schedules)
        same = {cls.mixing_digest(one) for one in schedules} if even else set()
        if not alike and len(same) != 1:
            raise ScenarioError(
                "schedules of one program differ in their length or exchanges: train them one by "
                "one, or give all of them the exact mean in every iteration"
            )
        each = np.zeros((n, longest.devices, len(schedules) * seeds), np.int32)
        for k, one in enumerate(schedules):
            each[: one.iterations, :, k * seeds : (k + 1) * seeds] = one.rounds[..., None]
        common = {f.name: getattr(longest, f.name) for f in fields(Schedule)}
        common["rounds"] = each.max(axis=2)
        return cls(**common, each=each, rates=np.repeat(np.asarray(rates, np.float64), seeds))

    @staticmethod
    def alike(schedule: Schedule) -> bool:
        """Does every iteration end with the exact mean of all devices?"""
        everyone = bool(schedule.active.all() and schedule.exchanged.all())
        return everyone and (schedule.kind == "mean" or bool(schedule.exact.all()))

    @staticmethod
    def mixing_digest(schedule: Schedule) -> str:
        """A digest of all but the rounds: presence and mixing."""
        nothing = np.zeros_like(schedule.rounds)
        common = {f.name: getattr(schedule, f.name) for f in fields(Schedule)}
        return Schedule(**{**common, "rounds": nothing}).digest()

    def digest(self) -> str:
        """A digest of the whole schedule, with every member's rounds and rate."""
        return digest(self._all())

    def _all(self) -> Iterator[bytes | memoryview]:
        yield from self._parts()
        yield np.ascontiguousarray(self.each.astype(np.int32)).data
        yield np.ascontiguousarray(self.rates).data


Precision = Literal["float32", "float64", "bfloat16"]


@dataclass(frozen=True)
class Options:
    """Settings of the engine; those of ``[training]`` under the same names.

    Attributes:
        batch_size: samples in one SGD step.
        learning_rate: η.
        optimizer: an optimiser of optax by name (`training.torch.optimizers` has some of them for
            PyTorch). Its state stays with each device across
            iterations; exchanges touch parameters only.
        local_round: a round is one ``"step"`` on a batch drawn with replacement, or one
            ``"epoch"``, a pass over the device's samples in a fresh order.
        weights: of the mean, ``"uniform"`` or by ``"samples"``.
        precision: ``"bfloat16"`` computes losses in bfloat16 on float32 parameters.
        eval_every: iterations between evaluations; the last iteration is always evaluated.
        eval_at: the iterations (from 1, ascending) to evaluate after, in place of every
            ``eval_every``-th; the last iteration is evaluated all the same.
        eval_device_samples: test samples on which devices' own models are evaluated, at most.
        eval_test_samples: test samples on which the mean model is evaluated, at least, whatever
            ``eval_share`` says.
        eval_share: work of evaluation as a share of training's, at most: the samples that curves
            are evaluated on are reduced to meet it (see ``evaluation``). 0: never
            reduced.
        chunk_iterations: iterations in one compiled call.
        deterministic: ask XLA for kernels that give the same bits in every run.
        metrics: names of metrics to compute besides score and loss.
        loss: what is minimised, by name; it decides which metrics are reported. The function
            itself is the model's.
        score: the metric that runs are compared by; ``"auto"`` for the loss's own.

    >>> Options(batch_size=0)
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: training.batch_size = 0 is out of range: use 1 or more
    """

    batch_size: int = 32
    learning_rate: float = 0.05
    optimizer: str = "sgd"
    local_round: Literal["step", "epoch"] = "step"
    weights: Literal["uniform", "samples"] = "uniform"
    precision: Precision = "float32"
    eval_every: int = 5
    eval_at: tuple[int, ...] = ()
    eval_device_samples: int = 1000
    eval_test_samples: int = 0
    eval_share: float = 0.08
    chunk_iterations: int = 20
    deterministic: bool = False
    # These have digests of their own.
    metrics: tuple[str, ...] = field(default=(), repr=False)
    loss: str = field(default="cross-entropy", repr=False)
    score: str = field(default="auto", repr=False)

    def __post_init__(self) -> None:
        for name in ("batch_size", "eval_every", "eval_device_samples", "chunk_iterations"):
            if getattr(self, name) < 1:
                raise ScenarioError(
                    f"training.{name} = {getattr(self, name)} is out of range: use 1 or more"
                )
        if any(later <= one for one, later in pairwise((0, *self.eval_at))):
            raise ScenarioError(
                f"eval_at = {self.eval_at} is out of order: give ascending iterations, from 1"
            )
        if not 0 < self.learning_rate < float("inf"):
            raise ScenarioError(
                f"training.learning_rate = {self.learning_rate} is out of range: use more than 0"
            )
        if not 0 <= self.eval_share < 1:
            raise ScenarioError(f"eval_share = {self.eval_share} is out of range: use 0 to 1")
        for name, allowed in (
            ("local_round", ("step", "epoch")),
            ("weights", ("uniform", "samples")),
            ("precision", get_args(Precision)),
        ):
            if getattr(self, name) not in allowed:
                raise ScenarioError(
                    f"training.{name} = {getattr(self, name)!r} is unknown: "
                    f"use {' or '.join(allowed)}"
                )

    @classmethod
    def from_scenario(cls, training: BaseModel, **changes: Any) -> Options:
        """Take the settings of a scenario's ``[training]`` section, with changes."""
        names = set(cls.__dataclass_fields__) & set(type(training).model_fields)
        return cls(**{**{name: getattr(training, name) for name in names}, **changes})
