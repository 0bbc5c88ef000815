"""The plan of one device: what it has to know to carry out its part, and nothing else.

Orders are written as plain JSON, which any language reads without Joulemesh, or as ``.npz``. What
repeats is written once: rounds and exchanges are run-length coded over the iterations, and an
exchange is a pattern of steps that is played several times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import open_arrays, parse_json, write_whole
from joulemesh.planning.plan import digest_of

if TYPE_CHECKING:
    from joulemesh.aggregation.route import Route
    from joulemesh.planning.plan import Plan

__all__ = ["FORMAT", "Exchange", "Orders", "digest_of", "orders"]

FORMAT = "joulemesh orders 1"

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""(value, how many iterations in a row)"""

Step: TypeAlias = tuple[int, int, float]
"""(step within the pattern, the other device, bits)"""

_ARRAYS = ("rounds", "schedule")
_WAYS = ("sends", "receives")
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("device", "devices", "iterations", "seed", "root", "steps"), int),
    **dict.fromkeys(("repeats", "chunks"), int),
    **dict.fromkeys(("battery_j", "model_bits"), int | float),
    **dict.fromkeys(("deadline_s", "total_s"), int | float | None),
    **dict.fromkeys(("plan", "name", "scheme"), str),
}


@dataclass(frozen=True)
class Exchange:
    """One device's part in an exchange: a pattern of steps that is played ``repeats`` times.

    Attributes:
        scheme: name of the aggregation scheme.
        root: the tree's root, if sums gather along a tree; −1 otherwise.
        steps: number of steps in one play, in some of which this device may be idle.
        repeats: how often the pattern is played.
        sends: what this device sends: (step, receiver, bits), in order.
        receives: what it receives: (step, sender, bits), in order.
        chunks: number C of chunks in which the pattern is sent: a message of step s is C messages
            of bits / C each, in the steps s, s + 1, …, s + C − 1.
    """

    scheme: str
    root: int
    steps: int
    repeats: int
    sends: tuple[Step, ...]
    receives: tuple[Step, ...]
    chunks: int = 1

    def sent(self) -> Iterator[Step]:
        """What is sent in the whole exchange, its steps counted through all plays."""
        return self._played(self.sends)

    def received(self) -> Iterator[Step]:
        """What is received in the whole exchange, its steps counted through all plays."""
        return self._played(self.receives)

    def _played(self, pattern: tuple[Step, ...]) -> Iterator[Step]:
        if self.chunks > 1:
            yield from sorted(
                (step + chunk, other, bits / self.chunks)
                for chunk in range(self.chunks)
                for step, other, bits in pattern
            )
            return
        for play in range(self.repeats):
            for step, other, bits in pattern:
                yield play * self.steps + step, other, bits


@dataclass(frozen=True)
class Orders:
    """What one device does in every iteration.

    Attributes:
        device: its number.
        devices: number N of all devices.
        iterations: number n of iterations.
        rounds: its local rounds, run-length coded; 0 after it has left.
        neighbours: the devices with which it exchanges in some iteration, ascending.
        exchanges: the different exchanges that it takes part in.
        schedule: position in ``exchanges``, run-length coded; −1 where it takes part in none.
        deadline_s: seconds allowed to each iteration; None where only their sum is limited.
        battery_j: joules that it may spend in all.
        model_bits: size of the parameter vector.
        seed: the scenario's, from which random schedules are drawn.
        plan: digest of the plan, the same for all of its devices.
        total_s: seconds allowed to all iterations together; None without such a limit.
        name: of the device; empty if devices have no names.
        neighbour_names: of the neighbours, in their order; empty if devices have no names.

    >>> import joulemesh
    >>> mine = orders(joulemesh.plan(joulemesh.Scenario.preset("adaptive")), 3)
    >>> mine.device, mine.iterations, len(mine.exchanges), mine.schedule
    (3, 100, 1, ((0, 100),))
    >>> Orders.from_json(mine.to_json()) == mine
    True
    """

    device: int
    devices: int
    iterations: int
    rounds: Runs
    neighbours: tuple[int, ...]
    exchanges: tuple[Exchange, ...]
    schedule: Runs
    deadline_s: float | None
    battery_j: float
    model_bits: float
    seed: int
    plan: str
    total_s: float | None = None
    name: str = ""
    neighbour_names: tuple[str, ...] = ()

    def rounds_of(self, iteration: int) -> int:
        """Its local rounds in an iteration (1..n)."""
        return _at(self.rounds, iteration, self.iterations)

    def exchange_of(self, iteration: int) -> Exchange | None:
        """Its part in the exchange of an iteration (1..n); None where it has none."""
        index = _at(self.schedule, iteration, self.iterations)
        return None if index < 0 else self.exchanges[index]

    def to_json(self) -> str:
        """As one JSON object: the attributes, and the format's name under ``format``."""
        return json.dumps(_record(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Orders:
        """The orders that `to_json` wrote.

        Raises:
            ScenarioError: the text holds none.
        """
        return _checked(lambda: _read(parse_json(text)), "the text")

    def save(self, path: str | Path) -> None:
        """Write the orders to a file that ends in ``.json`` or ``.npz``.

        Raises:
            ScenarioError: another suffix, or a file that cannot be written.
        """
        writers = {".json": _write_json, ".npz": _write_npz}
        suffix = Path(path).suffix.lower()
        if suffix not in writers:
            raise ScenarioError(f"{path}: orders end in .json or .npz, not {suffix!r}")
        write_whole(path, partial(writers[suffix], self))

    @classmethod
    def load(cls, path: str | Path) -> Orders:
        """The orders that `save` wrote.

        Raises:
            ScenarioError: the file holds none.
        """
        npz = Path(path).suffix.lower() == ".npz"
        read = _read_npz if npz else (lambda at: _read(parse_json(at.read_bytes())))
        return _checked(lambda: read(Path(path)), str(path))


def orders(plan: Plan, device: int, digest: str | None = None) -> Orders:
    """The orders of one device.

    Args:
        plan: the plan.
        device: its number, from 0.
        digest: of the plan, if it is known.

    Raises:
        ScenarioError: there is no such device.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> mine = orders(plan, 0)
    >>> bool(sum(count * rounds for rounds, count in mine.rounds) == plan.rounds[:, 0].sum())
    True
    """
    n, devices = plan.rounds.shape
    if not 0 <= device < devices:
        raise ScenarioError(f"device {device} is not one of 0..{devices - 1}")
    found: dict[Exchange, int] = {}
    schedule = _runs(
        -1 if part is None else found.setdefault(part, len(found)) for part in _parts(plan, device)
    )
    met = {other for part in found for _, other, _ in (*part.sends, *part.receives)}
    return Orders(
        device=device,
        devices=devices,
        iterations=n,
        rounds=_runs(plan.rounds[:, device].tolist()),
        neighbours=tuple(sorted(met)),
        exchanges=tuple(found),
        schedule=schedule,
        deadline_s=plan.deadline_s,
        battery_j=float(plan.energy_budget_j[device]),
        model_bits=float(plan.work.model_bits),
        seed=plan.scenario.seed,
        plan=digest_of(plan) if digest is None else digest,
        total_s=plan.total_s,
        name=plan.names[device] if plan.names else "",
        neighbour_names=tuple(plan.names[one] for one in sorted(met) if plan.names),
    )


def _parts(plan: Plan, device: int) -> Iterator[Exchange | None]:
    """The device's part in every iteration."""
    timeline, n = plan.timeline, plan.iterations
    if timeline.routes is None and not timeline.scheme.random:
        part = _part(timeline.route, device)  # all iterations are alike
        yield from (part for _ in range(n))
        return
    for iteration in range(1, n + 1):
        route = plan.route(iteration)
        yield None if route is None else _part(route, device)


def _part(route: Route, device: int) -> Exchange | None:
    def steps(mine: Any, others: Any) -> tuple[Step, ...]:
        picked = np.flatnonzero(mine == device)
        columns = (route.step[picked], others[picked], route.bits[picked])
        return tuple(zip(*(column.tolist() for column in columns), strict=True))

    sender, receiver = route.sender, route.receiver
    sends, receives = steps(sender, receiver), steps(receiver, sender)
    if not (sends or receives):
        return None
    pattern = (route.steps, route.repeats, sends, receives, route.chunks)
    return Exchange(route.scheme, route.root, *pattern)


def _runs(values: Iterable[int]) -> Runs:
    return tuple((value, sum(1 for _ in group)) for value, group in groupby(values))


def _at(runs: Runs, iteration: int, iterations: int) -> int:
    if not 1 <= iteration <= iterations:
        raise ScenarioError(f"iteration {iteration} is not one of 1..{iterations}")
    until = 0
    for value, count in runs:
        until += count
        if iteration <= until:
            return value
    raise ScenarioError(f"the orders end before iteration {iteration}; write them again")


# Files -----------------------------------------------------------------------------------------


def _record(mine: Orders) -> dict[str, Any]:
    """Plain values; devices without names do not mention them."""
    record = {"format": FORMAT, **asdict(mine)}
    if not mine.name:
        del record["name"], record["neighbour_names"]
    return record


def _write_json(mine: Orders, draft: IO[bytes]) -> None:
    draft.write(f"{mine.to_json()}\n".encode())


def _write_npz(mine: Orders, draft: IO[bytes]) -> None:
    """Rounds, schedule and steps as arrays; the rest as JSON under ``orders``."""
    record = _record(mine)
    arrays = {name: np.array(record.pop(name), np.int64).reshape(-1, 2) for name in _ARRAYS}
    for way in _WAYS:  # rows (exchange, step, other device), and the bits of each
        rows = [(k, *step) for k, one in enumerate(record["exchanges"]) for step in one.pop(way)]
        arrays[way] = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3)
        arrays[f"{way}_bits"] = np.array([row[3] for row in rows], np.float64)
    text = np.array(json.dumps(record, allow_nan=False))
    np.savez(draft, allow_pickle=False, orders=text, **arrays)


def _read_npz(path: Path) -> Orders:
    with open_arrays(path) as file:
        record = parse_json(str(file["orders"]))
        for name in _ARRAYS:
            record[name] = file[name].tolist()
        for way in _WAYS:
            for one in record["exchanges"]:
                one[way] = []
            rows = zip(file[way].tolist(), file[f"{way}_bits"].tolist(), strict=True)
            for (k, step, other), bits in rows:
                record["exchanges"][k][way].append((step, other, bits))
    return _read(record)


def _read(record: Any) -> Orders:
    """Orders of plain values; ValueError, TypeError or LookupError for anything else."""
    values = dict(record)
    if values.pop("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    for one in (values, *values["exchanges"]):
        for name in one:
            kinds, value = _KINDS.get(name, object), one[name]
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise ValueError(f"its {name} is {value!r:.30}")
    exchanges = [
        {**one, **{way: _rows(one[way], (int, int, float)) for way in _WAYS}}
        for one in values.pop("exchanges")
    ]
    for name in _ARRAYS:
        values[name] = _rows(values[name], (int, int))
        counts = [count for _, count in values[name]]
        if min(counts, default=1) < 1 or sum(counts) != values["iterations"]:
            raise ValueError(f"its {name} are not of {values['iterations']} iterations")
    if not all(-1 <= index < len(exchanges) for index, _ in values["schedule"]):
        raise ValueError("its schedule names an exchange that is not there")
    values["neighbours"] = tuple(int(one) for one in values["neighbours"])
    values["neighbour_names"] = tuple(str(one) for one in values.get("neighbour_names", ()))
    return Orders(exchanges=tuple(Exchange(**one) for one in exchanges), **values)


def _rows(rows: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    return tuple(tuple(kind(value) for kind, value in zip(kinds, row, strict=True)) for row in rows)


def _checked(parse: Callable[[], Orders], what: str) -> Orders:
    try:
        return parse()
    except (OSError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{what} holds no orders ({reason}); write them again from the plan"
        ) from None
