"""The schedule that carries out a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.aggregation.bits import bits_of
from joulemesh.aggregation.contract import Lost, execute, execute_quantised, lossy_mixing
from joulemesh.aggregation.gossip import metropolis_mixing
from joulemesh.aggregation.patterned import Patterned
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.base.errors import ScenarioError
from joulemesh.scenario.scenario import rounded_to
from joulemesh.training.schedule import FIELDS, Mixing, RoundedExchange, RoundedExchanges, Schedule

if TYPE_CHECKING:
    from joulemesh.aggregation.gossip import SparseMatrix
    from joulemesh.aggregation.route import Route
    from joulemesh.aggregation.scheme import Scheme
    from joulemesh.planning.losses import Drawn, Outcome
    from joulemesh.planning.plan import Plan


class _Operation(NamedTuple):
    """(first + sign · second) · factor / divisor, perhaps rounded; values are numbered."""

    first: int
    second: int = 0
    sign: float = 0.0
    factor: float = 1.0
    divisor: float = 1.0
    rounds: bool = False

    @property
    def operands(self) -> set[int]:
        return {self.first, self.second} if self.sign else {self.first}


class _Tape:
    """The operations on one part of the parameters; values below ``devices`` are the devices'."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.operations: list[_Operation] = []
        self._known: dict[_Operation, int] = {}

    def value(self, wanted: _Operation) -> int:
        """The number of an operation's result; what was computed before is not again."""
        if wanted not in self._known:
            self._known[wanted] = self.devices + len(self.operations)
            self.operations.append(wanted)
        return self._known[wanted]

    def number(self, symbol: Any) -> int:
        """The number of a symbol, or of zero."""
        zero = _Operation(0, factor=0.0)
        return symbol.number if isinstance(symbol, _Symbol) else self.value(zero)

    def rounded(self, value: int) -> int:
        if value >= self.devices and self.operations[value - self.devices].rounds:
            return value
        return self.value(_Operation(value, rounds=True))


class _Symbol:
    """A number that has not been computed: a value of a tape."""

    __slots__ = ("number", "tape")
    __array_ufunc__ = None  # NumPy's scalars leave the operation to this class

    def __init__(self, tape: _Tape, number: int) -> None:
        self.tape, self.number = tape, number

    def rounded(self) -> _Symbol:
        return _Symbol(self.tape, self.tape.rounded(self.number))

    def _with(self, other: Any, sign: float) -> Any:
        if not isinstance(other, _Symbol):
            return self if other == 0 else NotImplemented
        if sign < 0 and other.number == self.number:
            return 0
        return _Symbol(self.tape, self.tape.value(_Operation(self.number, other.number, sign)))

    def __add__(self, other: Any) -> Any:
        return self._with(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, -1.0)

    def __mul__(self, factor: Any) -> _Symbol:
        if isinstance(factor, _Symbol):
            return NotImplemented
        return _Symbol(self.tape, self.tape.value(_Operation(self.number, factor=float(factor))))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> _Symbol:
        if isinstance(divisor, _Symbol):
            return NotImplemented
        return _Symbol(self.tape, self.tape.value(_Operation(self.number, divisor=float(divisor))))


def record(
    scheme: Scheme, route: Route, devices: int, wire: str, lost: Lost = frozenset()
) -> RoundedExchange:
    """What an exchange does whose messages are rounded."""
    parts = scheme.parts(route)
    tapes = [_Tape(devices) for _ in range(parts)]
    values = np.empty((devices, parts), dtype=object)
    for i in range(devices):
        for c, tape in enumerate(tapes):
            values[i, c] = _Symbol(tape, i)
    owed = np.empty((0, parts), dtype=object)
    try:
        if bits := bits_of(wire):
            after, owed = execute_quantised(scheme, route, values, bits)
        else:
            after = execute(scheme, route, values, lost, np.dtype(wire))
    except ScenarioError:
        weights = scheme.round_weights
        if weights is None or scheme.graph.devices != devices:
            raise
        return rounded_mixing(weights, scheme.rounds)  # the paper's gossip, which has no messages
    except (TypeError, AttributeError) as error:
        raise ScenarioError(
            f'the devices of plan.aggregation = "{scheme.name}" do more with parameters than to '
            f"add and scale them ({error}), which training cannot round message by message; set "
            "network.bits_per_parameter = 32 and plan.bits = 32"
        ) from None
    ends = [[after[i, c].number for i in range(devices)] for c in range(parts)]
    debts = [[tapes[c].number(one) for one in owed[:, c]] for c in range(parts)]
    made = [_compiled(*one) for one in zip(tapes, ends, debts, strict=True)]
    if all(one.same(made[0]) for one in made[1:]):
        # Numbers of one part do not share their units with those of another.
        return made[0].padded(parts, made[0].length) if bits_of(wire) else made[0]
    length = max(one.length for one in made)
    wide = [one.padded(1, length) for one in made]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in wide]) for name in FIELDS
    }
    return RoundedExchange(**columns, registers=max(one.registers for one in made))


def _fused(tape: _Tape, ends: Sequence[int]) -> dict[int, _Operation]:
    """Operations by the number of their value; what one only scales or rounds is done with it."""
    uses = Counter(value for one in tape.operations for value in one.operands)
    uses.update(ends)
    left = {tape.devices + k: one for k, one in enumerate(tape.operations)}
    for value, one in list(left.items()):
        before = left.get(one.first)
        if one.sign or before is None or uses[one.first] > 1 or before.rounds:
            continue
        scales = one.factor != 1.0 or one.divisor != 1.0
        if scales and (before.factor != 1.0 or before.divisor != 1.0):
            continue
        new = before._replace(rounds=one.rounds)
        if scales:
            new = new._replace(factor=one.factor, divisor=one.divisor)
        left[value] = new
        del left[one.first]
    return left


def _compiled(tape: _Tape, ends: Sequence[int], debts: Sequence[int] = ()) -> RoundedExchange:
    """The operations in as few registers as possible: one is free after its value's last use."""
    operations, devices = _fused(tape, [*ends, *debts]), tape.devices
    last = {value: at for at, one in operations.items() for value in one.operands}
    kept, place, count = {*ends, *debts}, {i: i for i in range(devices)}, devices
    free = [i for i in range(devices) if i not in last and i not in kept]
    target, first, second = list[int](), list[int](), list[int]()
    for value, one in operations.items():
        first.append(place[one.first])
        second.append(place[one.second] if one.sign else 0)
        free += [place[used] for used in one.operands if last[used] == value and used not in kept]
        if not free:
            free, count = [count], count + 1
        place[value] = free.pop()
        target.append(place[value])
        if value not in last and value not in kept:
            free.append(place[value])  # nothing needs it
    places = {
        "target": target,
        "first": first,
        "second": second,
        "output": [place[value] for value in ends],
        "owed": [place[value] for value in debts],
    }
    columns: dict[str, Any] = {
        name: np.array(own, np.int32)[None] for name, own in places.items()
    } | {
        name: np.array([getattr(one, name) for one in operations.values()])[None]
        for name in ("sign", "factor", "divisor", "rounds")
    }
    return RoundedExchange(**columns, registers=count)


def rounded_mixing(weights: Any, rounds: int = 1) -> RoundedExchange:
    """A matrix that is applied to rounded parameters, and whose result is rounded."""
    rows = sparse.csr_array(weights)
    tape = _Tape(rows.shape[0])
    held = [_Symbol(tape, i).rounded() for i in range(tape.devices)]
    for _ in range(rounds):
        new = []
        for i in range(tape.devices):
            span = slice(rows.indptr[i], rows.indptr[i + 1])
            pairs = zip(rows.indices[span].tolist(), rows.data[span].tolist(), strict=True)
            first, *others = [held[j] * w if w != 1.0 else held[j] for j, w in pairs if w]
            new.append(sum(others, start=first).rounded())
        held = new
    return _compiled(tape, [one.number for one in held])


def rounded_exchanges(
    schedule: Schedule,
    routes: Sequence[Route | None],
    scheme_at: Callable[[int], Scheme],
    wire: str,
    lost_in: Callable[[int, Route], Lost] | None = None,
) -> RoundedExchanges:
    """The exchanges of a schedule whose exchanges are those of schemes."""
    known: dict[Any, RoundedExchange] = {}

    def exchange(t: int) -> RoundedExchange | None:
        route = routes[t]
        if route is None or not schedule.exchanged[t]:
            return None
        scheme = scheme_at(t)
        lost = frozenset() if lost_in is None else frozenset(lost_in(t, route))
        key = (id(scheme), id(route), lost)
        if key not in known:
            known[key] = record(scheme, route, schedule.devices, wire, lost)
        return known[key]

    return RoundedExchanges([exchange(t) for t in range(schedule.iterations)], wire)


def exchanges_of_matrices(schedule: Schedule, wire: str) -> RoundedExchanges:
    """The exchanges of a schedule that has matrices, not messages.

    Parameters are rounded before and after a matrix is applied; a sparse matrix that is applied
    several times rounds them every time. The exact mean rounds what every device sends, and the
    mean: it is that of a server.
    """
    known: dict[bytes, RoundedExchange] = {}

    def exchange(t: int) -> RoundedExchange | None:
        if not schedule.exchanged[t]:
            return None
        matrix, times = _matrix(schedule, t)
        key = matrix.tobytes()
        if key not in known:
            known[key] = rounded_mixing(matrix, times)
        return known[key]

    if schedule.parts > 1:
        raise ScenarioError(
            "a method whose parameters are mixed in parts cannot round its messages; set "
            "network.bits_per_parameter = 32"
        )
    return RoundedExchanges([exchange(t) for t in range(schedule.iterations)], wire)


def _matrix(schedule: Schedule, t: int) -> tuple[NDArray[np.float64], int]:
    """The matrix of an iteration among those who are active, and how often it is applied."""
    active, mixing = schedule.active[t], schedule.mixing
    times = schedule.mixing_rounds
    if schedule.kind == "mean" or (schedule.kind == "sparse" and schedule.exact[t]):
        matrix, times = np.tile(active / active.sum(), (schedule.devices, 1)), 1
    elif isinstance(mixing, sparse.csr_array):
        matrix = mixing.toarray()
    else:
        matrix = np.array(schedule.matrices(t, t + 1)[0])
    # Weight of those who are away stays with the device; who is away keeps everything.
    heard = np.where(active, matrix, 0.0)
    heard = heard + np.diag(matrix.sum(axis=1) - heard.sum(axis=1))
    return np.where(active[:, None], heard, np.eye(schedule.devices)), times


MOST_ENTRIES = 500_000_000  # of the matrices of one compiled call
_DENSE = 1000  # devices; beyond, a static mixing matrix is applied as a sparse one


def schedule_of(plan: Plan) -> Schedule:
    """What the engine plays: the plan's rounds, presence and mixing."""
    lossy = plan.drawn is not None and plan.drawn.lost_messages.any()
    if lossy or _wire_of(plan):
        return _by_messages(plan, plan.drawn if lossy else None)
    mixing, rounds = _mixing(plan)
    # Only a plan whose exchanges change has exact means among other matrices.
    changes = callable(mixing) or isinstance(plan.timeline.scheme, Patterned)
    exact = [plan.scheme_at(t + 1).exact_at(t) for t in range(plan.iterations)] if changes else ()
    return Schedule(
        plan.rounds,
        someone(plan.active),
        plan.exchanged,
        mixing=mixing,
        mixing_rounds=rounds,
        exact=np.array(exact, bool),
        gifts=plan.timeline.gifts,
    )


def someone(active: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Who is active; in an iteration that passes without anybody, those of the one before.

    Nobody trains or exchanges anything then: it decides only whose models an evaluation looks at.
    """
    empty = np.flatnonzero(~active.any(axis=1))
    if not len(empty):
        return active
    held = active.copy()
    for t in empty.tolist():
        held[t] = held[t - 1] if t else True
    return held


def _by_messages(plan: Plan, drawn: Drawn | None) -> Schedule:
    """The plan's schedule where messages are lost, or rounded."""
    routes = [plan.route(t + 1) if plan.exchanged[t] else None for t in range(plan.iterations)]
    active, gifts = someone(plan.active), plan.timeline.gifts
    whole = Schedule(plan.rounds, active, plan.exchanged, gifts=gifts)
    return schedule_by_messages(
        whole,
        routes,
        lambda t: plan.scheme_at(t + 1),
        None if drawn is None else drawn.outcome,
        chunk_iterations=plan.scenario.training.chunk_iterations,
        wire=_wire_of(plan),
    )


def _wire_of(plan: Plan) -> str:
    """The type in which a plan's numbers travel; empty if they do as they are."""
    width = plan.timeline.scheme.width
    return rounded_to(plan.scenario.network.bits_per_parameter) if width is None else width.wire


def schedule_by_messages(
    schedule: Schedule,
    routes: Sequence[Route | None],
    scheme_at: Callable[[int], Scheme],
    drawn: Outcome | None,
    *,
    chunk_iterations: int,
    wire: str = "",
) -> Schedule:
    """A schedule where messages are lost or rounded, with what every exchange then does."""
    if wire:
        lost_in = None if drawn is None else drawn.lost_in
        exchanges = rounded_exchanges(schedule, routes, scheme_at, wire, lost_in)
        inexact = np.zeros(schedule.iterations, bool)
        return replace(schedule, mixing=exchanges, mixing_rounds=1, exact=inexact, wire=wire)
    assert drawn is not None
    devices = schedule.devices
    parts = _parts_of(routes, scheme_at, drawn)
    require_room(chunk_iterations, devices, parts)

    def mixing(t: int) -> NDArray[np.float64]:
        route, scheme = routes[t], scheme_at(t)
        if route is None:
            matrices = np.eye(devices)[None]
        elif len(drawn.lost[t]):
            matrices = lossy_mixing(scheme, route, devices, drawn.lost_in(t, route))
        else:
            matrices = embedded(scheme, t, devices)[None]
        return matrices[0] if parts == 1 else np.broadcast_to(matrices, (parts, devices, devices))

    inexact = np.zeros(schedule.iterations, bool)
    return replace(schedule, mixing=mixing, mixing_rounds=1, exact=inexact, parts=parts)


def require_room(chunk_iterations: int, devices: int, parts: int = 1) -> None:
    """Refuse mixing matrices, one for every iteration, that are too large to hold."""
    if chunk_iterations * parts * devices**2 > MOST_ENTRIES:
        raise ScenarioError(
            f"messages are lost, and {chunk_iterations} mixing matrices of {devices} devices in "
            f"{parts} parts are more than {MOST_ENTRIES:,} numbers; lower "
            "training.chunk_iterations, raise network.tries, or use fewer devices or chunks"
        )


def _parts_of(
    routes: Sequence[Route | None], scheme_at: Callable[[int], Scheme], drawn: Outcome
) -> int:
    """Number of parts of the parameters that have matrices of their own."""
    counts = {
        scheme_at(t).parts(route)
        for t, route in enumerate(routes)
        if route is not None and len(drawn.lost[t])
    } - {1}
    if len(counts) > 1:
        raise ScenarioError(
            f"messages are lost in exchanges of {' and '.join(map(str, sorted(counts)))} chunks, "
            "which one training cannot mix; use a scheme without chunks, for instance "
            'plan.aggregation = "tree"'
        )
    return max(counts, default=1)


def mixing_of(scheme: Scheme) -> tuple[Mixing, int]:
    """What a scheme's exchanges do to the parameters of all devices."""
    if scheme.exact:
        return "mean", 1
    if isinstance(scheme, Patterned):
        return _patterned(scheme)
    if scheme.random:
        return lambda t: scheme.mixing(t, t + 1)[0], 1
    weights = scheme.round_weights
    return (scheme.mixing(0, 1), 1) if weights is None else power_mixing(weights, scheme.rounds)


def _patterned(scheme: Patterned) -> tuple[Mixing, int]:
    """The neighbours' sparse matrix, whose place the exact mean takes in some iterations."""
    between = scheme.between
    if not scheme.average.exact:
        return lambda t: scheme.mixing(t, t + 1)[0], 1
    if between is None:
        return "mean", 1  # where nothing is sent, the exchange is skipped
    weights = between.round_weights
    if weights is None:
        return lambda t: scheme.mixing(t, t + 1)[0], 1
    return weights, between.rounds


def power_mixing(weights: SparseMatrix, rounds: int) -> tuple[Mixing, int]:
    """What some rounds of one mixing matrix do."""
    if weights.shape[0] > _DENSE:
        return weights, rounds
    return metropolis_mixing(weights, rounds)[None], 1


def _mixing(plan: Plan) -> tuple[Mixing, int]:
    schemes = [scheme for _, scheme in plan.timeline.schemes]
    first, devices = schemes[0], plan.rounds.shape[1]
    if all(scheme.exact for scheme in schemes):
        return "mean", 1
    if len(schemes) == 1 and first.graph.devices == devices:
        return mixing_of(first)
    return lambda t: embedded(plan.scheme_at(t + 1), t, devices), 1


def embedded(scheme: Scheme, t: int, devices: int) -> NDArray[np.float64]:
    """[N, N]: the scheme's matrix on its members; departed devices keep what they have."""
    members = scheme.graph.members
    matrix = np.eye(devices)
    matrix[np.ix_(members, members)] = scheme.mixing(t, t + 1)[0]
    return matrix
