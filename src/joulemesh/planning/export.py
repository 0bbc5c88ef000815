"""A plan for other programs: JSON, arrays in an ``.npz`` file, rows in a CSV file."""

from __future__ import annotations

__all__ = [
    "check_format",
    "load_plan",
    "origins_of",
    "plan_frame",
    "plan_from_json",
    "plan_graph",
    "plan_json",
    "plan_record",
    "save_plan",
    "stored_record",
]

import csv
import dataclasses
import io
import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import ArrayFile, open_arrays, parse_json, write_whole
from joulemesh.base.optional import frame, require
from joulemesh.ledger import Ledger, alike
from joulemesh.planning.plan import COLUMNS, ledger_of
from joulemesh.scenario import Origin, Scenario
from joulemesh.world import build_world

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

_HARVEST = ("harvested_j", "spilled_j")  # written only where batteries are recharged
_POWERS = ("power_w", "link_power_w")  # written only where a plan chooses powers
_CLOCKED = ("training_s",)  # only where devices may train more slowly than at full clock
_MOST_ENTRIES = 1_000_000
_MOST_ROWS = 10_000_000
_COLUMNS = (
    "iteration",
    "device",
    "rounds",
    "compute_j",
    "exchange_j",
    "receive_j",
    "idle_j",
    "active",
)

_ARRAYS = (
    "edges",
    "rounds",
    "compute_j",
    "exchange_j",
    "receive_j",
    "exchange_s",
    "latency_s",
    "energy_budget_j",
    "exchange_total_j",
    *COLUMNS,
    "spent_j",
    "margin_j",
    "margin_s",
    "active",
    "exchanged",
    "binding",
)


def plan_record(plan: Plan) -> dict[str, Any]:
    """Everything in a plan but its arrays, as plain values."""
    scheme = plan.timeline.scheme
    gossip = None
    if not scheme.exact:
        table = scheme.balance(plan.ground.forecast, plan.energy_budget_j, plan.iterations)
        gossip = {
            "kind": scheme.mode,
            "rounds": scheme.rounds,
            "contraction": scheme.contraction,
            "consensus_error": scheme.error,
            "balance": table
            and {
                "rounds": table.rounds.tolist(),
                "error": table.error.tolist(),
                "dearest_j": table.dearest_j.tolist(),
                "share": table.share.tolist(),
                "best": table.best,
            },
        }
    return {
        **({"names": plan.names} if plan.names else {}),
        "scheme": plan.scheme,
        "reason": plan.reason,
        "root": plan.timeline.route.root,
        "iterations": plan.iterations,
        "deadline_s": plan.deadline_s,
        "total_s": plan.total_s,
        "parameters": plan.work.parameters,
        "model_bits": plan.work.model_bits,
        "operations": plan.work.operations,
        "label_distance": plan.work.label_distance,
        "energy_j": float(plan.spent_j.sum()),
        "time_s": plan.time_s,
        **({} if plan.power_w is None else {"exchange_stretch": plan.ground.stretch}),
        "device_rounds": int(plan.rounds.sum()),
        "gossip": gossip,
        "bounds": plan.bounds,
        "certificate": plan.certificate.to_dict(plan.names, plan.scenario.plan.goal),
        **({} if plan.timeline.window_s is None else {"clock": plan.ground.clock}),
        **({"drawn": plan.drawn.figures(plan)} if plan.drawn is not None else {}),
        **({} if plan.safety is None else {"safety": dataclasses.asdict(plan.safety)}),
        "notes": list(plan.notes),
        "events": [dataclasses.asdict(event) for event in plan.events],
        "figures": [
            {
                "field": one.name,
                "value": one.value,
                "origin": str(one.origin),
                **({} if one.within is None else {"interval_within": one.within}),
                **({"means": one.means} if one.means else {}),
            }
            for one in plan.figures
        ],
        "scenario": plan.scenario.model_dump(mode="json"),
        "origins": {name: str(origin) for name, origin in plan.scenario.origins().items()},
    }


def origins_of(record: Mapping[str, Any]) -> dict[str, Origin]:
    """The origins in what `plan_record` wrote; none in what an earlier version wrote."""
    texts = record.get("origins", {})
    return {name: Origin.parse(str(text)) for name, text in texts.items()}


def plan_json(plan: Plan) -> str:
    """The plan as JSON; larger arrays are replaced by a word on where to find them."""
    record = {**plan_record(plan), "answer": dataclasses.asdict(plan.answer)}
    for name in _arrays_of(plan):
        array = _stored(plan, name)
        if array.size > _MOST_ENTRIES:
            record[name] = f"{array.size} entries: use --out plan.npz"
        else:
            record[name] = array.tolist()
    return json.dumps(_finite(record), allow_nan=False)


def _arrays_of(plan: Plan) -> tuple[str, ...]:
    powers = () if plan.link_power_w is None else _POWERS
    clocked = () if plan.timeline.window_s is None else _CLOCKED
    return (*_ARRAYS, *powers, *clocked, *(_HARVEST if plan.harvests else ()))


def _stored(plan: Plan, name: str) -> NDArray[Any]:
    """An array of a plan; one row of its exchanges stands for all, where all are alike."""
    array = np.asarray(getattr(plan, name))
    return array[:1] if name in ("exchange_j", "receive_j") and alike(array) else array


def _finite(value: Any) -> Any:
    """JSON knows no infinity: null in its place."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def check_format(path: str | Path) -> str:
    """The suffix of a file that a plan can be written to."""
    suffix = Path(path).suffix
    if suffix.lower() not in _FORMATS:
        *first, last = _FORMATS
        raise ScenarioError(f"{path}: plans end in {', '.join(first)} or {last}, not {suffix!r}")
    return suffix.lower()


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write the plan as the path's suffix says, whole or not at all."""
    write_whole(path, partial(_FORMATS[check_format(path)], plan))


def _write_npz(plan: Plan, draft: IO[bytes]) -> None:
    arrays: dict[str, NDArray[Any]] = {name: _stored(plan, name) for name in _arrays_of(plan)}
    arrays["plan"] = np.array(json.dumps(_finite(plan_record(plan)), allow_nan=False))
    arrays["positions_m"] = plan.world.graph.positions_m
    arrays["round_samples"] = plan.work.round_samples
    np.savez(draft, allow_pickle=False, **arrays)


def _write_json(plan: Plan, draft: IO[bytes]) -> None:
    draft.write(f"{plan_json(plan)}\n".encode())


def _write_csv(plan: Plan, draft: IO[bytes]) -> None:
    """The columns of `_COLUMNS`, one row for each iteration (from 1) and device (from 0)."""
    n, count = plan.rounds.shape
    if n * count > _MOST_ROWS:
        raise ScenarioError(
            f"a CSV file of {n} iterations and {count} devices would have {n * count:,} rows, more "
            f"than {_MOST_ROWS:,}; write the plan to an .npz file"
        )
    devices = plan.world.devices
    exchange_j, receive_j = plan.exchange_j, plan.receive_j
    text = io.TextIOWrapper(draft, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    gained = [getattr(plan, name) for name in _HARVEST] if plan.harvests else []
    clocked = plan.timeline.window_s is not None
    heads = (*_COLUMNS[2:], *(_HARVEST if gained else ()), *(_CLOCKED if clocked else ()))
    writer.writerow([*_COLUMNS[:2], *(["name"] if plan.names else []), *heads])
    for t, rounds in enumerate(plan.rounds):
        train_s, train_j = plan.timeline.trained(devices, t)
        joules = (train_j, exchange_j[t], receive_j[t], plan.idle_j(t))
        more = (*(one[t] for one in gained), *((train_s,) if clocked else ()))
        figures = (rounds, *joules, plan.active[t].astype(int), *more)
        columns = zip(*(column.tolist() for column in figures), strict=True)
        writer.writerows((t + 1, i, *plan.names[i : i + 1], *row) for i, row in enumerate(columns))
    text.detach()  # flushes, and leaves the draft open


_FORMATS = {".npz": _write_npz, ".json": _write_json, ".csv": _write_csv}


def stored_record(file: ArrayFile) -> dict[str, Any]:
    """Everything but its arrays in the file of a plan."""
    array = file["plan"]
    if array.dtype.kind != "U" or array.size != 1:
        raise ValueError("its record is damaged")
    record = parse_json(str(array))
    if not isinstance(record, dict):
        raise ValueError("its record is damaged")
    return record


def load_plan(path: str | Path, scenario: Scenario) -> Plan:
    """The plan that `save_plan` wrote, with the figures that it holds."""
    # The world (devices, links, positions) is made again from the scenario; rounds, joules, seconds
    # and who took part are those in the file, whatever this version would plan.
    from joulemesh.planning.ground import Ground, Workload
    from joulemesh.planning.losses import carried_out
    from joulemesh.planning.static import plan_of

    try:
        with open_arrays(Path(path)) as file:
            record = stored_record(file)
            names = ("rounds", "active", "exchanged")
            stored: dict[str, Any] = {name: file[name] for name in names}
            # Kept as one row where all rows are alike.
            stored["active"] = np.broadcast_to(stored["active"], stored["rounds"].shape)
            exchange_j, seconds = file["exchange_j"], file["exchange_s"]
            heard = file.get("receive_j")  # none in what an earlier version wrote
            heard = np.zeros_like(exchange_j) if heard is None else heard
            harvested, spilled = (file.get(name) for name in _HARVEST)
            gained = 0.0
            if harvested is not None and spilled is not None:
                gained, stored["spilled_j"] = harvested - spilled, spilled
            columns = {"transmit_j": exchange_j - heard, "receive_j": heard, "seconds": seconds}
            exchange = Ledger.of(stored["rounds"].shape, **columns, harvested_j=gained)
            samples = file["round_samples"]
            if file.get("training_s") is not None:
                stored["window_s"] = file["latency_s"] - seconds
        sizes = int(record["parameters"]), float(record["model_bits"])
        told = record.get("operations"), record.get("label_distance")
        work = Workload(*sizes, samples, *told)
        known = scenario.with_origins(origins_of(record))
        made = plan_of(Ground(known, work, build_world(known, samples)))
        shape = stored["rounds"].shape[1:]
        if shape != made.rounds.shape[1:]:
            raise ValueError(f"it is of {shape[0]} devices")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{path} holds no plan of this scenario ({reason}); plan again"
        ) from None
    if record.get("drawn"):
        made = carried_out(made)
    exchange = dataclasses.replace(exchange, bits=made.timeline.exchange.bits)
    timeline = dataclasses.replace(made.timeline, exchange=exchange, **stored)
    return dataclasses.replace(made, timeline=timeline)


def plan_from_json(text: str) -> Plan:
    """The plan that ``plan_json`` wrote: planned again, and found the same."""
    from joulemesh.planning.static import plan

    try:
        record = parse_json(text)
        said = record["scenario"], int(record["parameters"]), int(record["device_rounds"])
        spent_j = float(record["energy_j"])
    except (ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"the text is no plan ({type(error).__name__}: {reason}); Plan.to_json writes one"
        ) from None
    values, parameters, rounds = said
    scenario = Scenario(**values).with_origins(origins_of(record))
    made = plan(scenario, parameters=parameters)
    same = made.rounds.tolist() == record["rounds"] if isinstance(record["rounds"], list) else True
    same = same and int(made.rounds.sum()) == rounds
    if not (same and math.isclose(float(made.spent_j.sum()), spent_j, rel_tol=1e-9)):
        raise ScenarioError(
            f"the scenario in the text now gives {int(made.rounds.sum())} rounds and "
            f"{made.spent_j.sum():.6g} J, not its {rounds} and {spent_j:.6g} J; it was made from "
            "the user's own data, from files that changed, or by another version: plan it again"
        )
    return made


def plan_frame(plan: Plan) -> Any:
    """One row per device, as a pandas DataFrame."""
    at = plan.world.graph.positions_m
    return frame(
        {
            "device": np.arange(len(at)),
            **({"name": plan.names} if plan.names else {}),
            "x_m": at[:, 0],
            "y_m": at[:, 1],
            **{name: np.asarray(getattr(plan, name)) for name in ledger_of(plan)},
            "rounds": plan.rounds.sum(axis=0),
            "binding": plan.binding.astype(object),
        },
        "device",
    )


def plan_graph(plan: Plan) -> Any:
    """Devices and links, as a networkx Graph."""
    graph, channel = plan.world.graph, plan.world.channel
    costs = plan.ground.forecast
    used = np.zeros(len(graph.edges), np.bool_)
    used[plan.timeline.route.link_index] = True
    made = require("networkx", "a graph").Graph()
    rounds, spent_j, binding = plan.rounds.sum(axis=0), plan.spent_j, plan.binding
    for i, (x, y) in enumerate(graph.positions_m.tolist()):
        made.add_node(
            i,
            pos=(x, y),
            energy_budget_j=float(plan.energy_budget_j[i]),
            spent_j=float(spent_j[i]),
            rounds=int(rounds[i]),
            binding=str(binding[i]),
            **({"name": plan.names[i]} if plan.names else {}),
        )
    slower_s = np.maximum(costs.forward_s, costs.backward_s)
    weight = costs.for_messages(plan.work.model_bits).weight()
    columns = {
        "gain": channel.mean_gain,
        "rate_bps": 1.0 / slower_s,
        "energy_j_per_bit": weight / 2,
        "weight": weight,
    }
    for k, (i, j) in enumerate(graph.edges.tolist()):
        figures = {name: float(values[k]) for name, values in columns.items()}
        made.add_edge(i, j, **figures, used=bool(used[k]))
    return made
