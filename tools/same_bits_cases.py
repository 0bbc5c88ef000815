"""Scenarios of `tools.same_bits`: every field, scheme, policy, topology, channel and method.

They are small, because they are many: a run takes a second or two, most of it compilation.
"""

from __future__ import annotations

__all__ = ["SCENARIOS", "Case", "columns"]

import csv
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import joulemesh
from tools.same_bits_figures import Values, plain

_SMALL = {
    "devices.count": 6,
    "devices.cycles_per_sample": [1e4, 3e4],
    "budget.energy_j": [0.04, 0.2],
    "budget.deadline_s": 0.0035,
    "plan.iterations": 6,
    "training.model": "mlp",
    "training.hidden": [8],
    "training.eval_every": 2,
    "training.chunk_iterations": 4,
}


@dataclass(frozen=True)
class Case:
    """A scenario, and what is done with it.

    Attributes:
        name: unique.
        fields: of the scenario, in place of the small default's (``...`` leaves it out); the name
            of one of ``files`` in it becomes its path.
        files: texts to be written, by name.
        preset: what the scenario starts from; the small default if empty.
        plan_only: do not train.
        methods: to compare; without any the scenario is run.
        equal: terms of the comparison.
        seeds: repetition seeds.
        worlds: of the comparison.
        model: makes the user's own model.
        data: makes the user's own data.
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    preset: str = ""
    plan_only: bool = False
    methods: tuple[str, ...] = ()
    equal: str = "batteries"
    seeds: int = 1
    worlds: int = 1
    model: Callable[[], Any] | None = None
    data: Callable[[], Any] | None = None

    def scenario(self, folder: Path) -> joulemesh.Scenario:
        """The scenario, its files written to a folder."""
        for name, text in self.files.items():
            (folder / name).write_text(text, "utf-8")
        given = {} if self.preset else {**_SMALL}
        given |= {key: self._path(value, folder) for key, value in self.fields.items()}
        given = {key: value for key, value in given.items() if value is not ...}
        return joulemesh.Scenario.preset(self.preset or "adaptive").override(given)

    def _path(self, value: Any, folder: Path) -> Any:
        """A field's value, the name of a file in it as a path."""
        parts = value.split(":") if isinstance(value, str) else ()
        if not self.files.keys() & set(parts):
            return value
        return ":".join(str(folder / part) if part in self.files else part for part in parts)

    def measure(self, folder: Path) -> Values:
        """Plan, train or compare.

        Args:
            folder: an empty folder, for files and the cache.

        Returns:
            What came out, by part ("plan", "ledger", "parameters", "metrics") and name.
        """
        scenario = self.scenario(folder)
        if self.plan_only:
            return _measure_plan(joulemesh.plan(scenario))
        own: dict[str, Any] = {
            "model": self.model() if self.model else None,
            "data": self.data() if self.data else None,
        }
        if self.methods:
            return _measure_comparison(self, scenario, own, folder / "cache")
        rows: list[dict[str, Any]] = []
        result = joulemesh.run(scenario, seeds=self.seeds, on_metrics=rows.append, **own)
        return {
            **_measure_plan(result.plan),
            "parameters": dict(_leaves(result.params)),
            "metrics": {name: [row[name] for row in rows] for name in rows[0]},
        }


# What is no file, and no JSON either -------------------------------------------------------------


def _bits(plan: joulemesh.Plan) -> Any:
    """[iterations, devices, 2]: bits of the model that each device sends and receives."""
    bits = np.zeros((*plan.rounds.shape, 2))
    for t in range(plan.iterations):
        route = plan.route(t + 1)
        for _, sender, receiver, count in () if route is None else route.messages():
            bits[t, sender, 0] += count
            bits[t, receiver, 1] += count
    return bits


def _schemes(plan: joulemesh.Plan) -> list[str]:
    return [plan.scheme_at(t).name for t in range(1, plan.iterations + 1)]


def _devices_joules(entry: Any) -> dict[str, Any]:
    """What each device spent by a method, and what it had left."""
    return {"each spent_j": entry.spent_j, "each leftover_j": entry.leftover_j}


# -------------------------------------------------------------------------------------------------

# In the ledger, iteration by iteration; what was asked, not planned; or what follows from a plan.
_LEFT_OUT = re.compile(
    "compute_j|exchange_j|receive_j|rounds|active|scenario|origins|operations|certificate"
)


def _measure_plan(plan: joulemesh.Plan) -> Values:
    """A plan, and what it costs each device in each iteration."""
    told = plain(json.loads(plan.to_json()), _LEFT_OUT)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "plan.csv")
        plan.save(file)
        ledger = columns(file.read_text("utf-8"))
    return {
        "plan": {**told, "schemes": _schemes(plan)},
        "ledger": {**ledger, "bits": _bits(plan)},
    }


def columns(text: str) -> dict[str, list[Any]]:
    """The columns of a CSV file; numbers as such."""
    rows = list(csv.DictReader(io.StringIO(text)))
    return {name: [_number(row[name]) for row in rows] for name in rows[0]}


def _number(cell: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(cell)
    return cell


def _leaves(params: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and content of every array in nested dictionaries and lists of parameters."""
    if isinstance(params, Mapping):
        for key in sorted(params):
            yield from _leaves(params[key], f"{path}/{key}")
    elif isinstance(params, list | tuple):
        for number, part in enumerate(params):
            yield from _leaves(part, f"{path}/{number}")
    else:
        yield path or "/", np.asarray(params)


def _measure_comparison(
    case: Case, scenario: joulemesh.Scenario, own: Mapping[str, Any], cache: Path
) -> Values:
    """Every method's row, curves and joules of each device, parts named by method."""
    found = joulemesh.compare(
        scenario, case.methods, case.equal, case.seeds, worlds=case.worlds, cache=cache, **own
    )
    told = plain(found.summary(), re.compile("methods|computed"))
    curves = columns(found.to_csv())
    names = curves.pop("method")
    parts: dict[str, dict[str, Any]] = {"comparison": told}
    for row in plain(found.summary()["methods"]):
        mine = [k for k, name in enumerate(names) if name == row["method"]]
        parts[f"row of {row['method']}"] = row
        parts[f"curves of {row['method']}"] = {
            name: [column[k] for k in mine] for name, column in curves.items()
        }
    for entry in found.entries:
        parts[f"row of {entry.name}"] |= _devices_joules(entry)
    return parts


def _plan(name: str, **fields: Any) -> Case:
    """A case by fields of section ``plan``, and of others as ``section__field``."""
    return Case(name, {_key(key): value for key, value in fields.items()})


def _key(name: str) -> str:
    return name.replace("__", ".") if "__" in name else f"plan.{name}"


_NO_RING = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [1, 4]]

# Links of equal gain; a device that can pay for some three rounds leaves, and the rest go on.
_SQUARE = [(0, 1), (1, 2), (2, 3), (0, 3)]
_DIAGONAL = [*_SQUARE, (0, 2)]
_BRIDGE = [(0, 1), (0, 5), (1, 2), (2, 3), (3, 4)]
_RICH, _POOR = 10.0, 3.5 * 1e-27 * 1e4 * 32 * 4e18


def _leaving(name: str, pairs: list[tuple[int, int]], poor: int, **fields: Any) -> Case:
    count = max(map(max, pairs)) + 1
    energy = [_POOR if device == poor else _RICH for device in range(count)]
    links = "i,j\n" + "".join(f"{i},{j}\n" for i, j in pairs)
    gains = "i,j,gain\n" + "".join(f"{i},{j},1e-9\n" for i, j in pairs)
    given = {
        "devices.count": count,
        "devices.cycles_per_sample": 1e4,
        "network.topology": "graph.csv",
        "network.gains": "gains.csv",
        "budget.energy_j": {"values": energy},
        "budget.deadline_s": 10.0,
        "plan.iterations": 8,
        "plan.on_depletion": "leave",
        "plan.rounds": "fixed",
        "plan.fixed_rounds": 1,
        **{_key(key): value for key, value in fields.items()},
    }
    return Case(name, given, {"graph.csv": links, "gains.csv": gains})


def _trace() -> str:
    """Relative gains of the links of a ring of six, in four coherence blocks."""
    chance = np.random.default_rng(5)
    rows = [
        f"{t},{i},{(i + 1) % 6},{gain:.6f}"
        for t in range(1, 5)
        for i, gain in enumerate(chance.exponential(size=6))
    ]
    return "\n".join(["t,i,j,relative_gain", *rows, ""])


def _table(seed: int = 6) -> str:
    """Samples in two classes, with the device that holds each."""
    chance = np.random.default_rng(seed)
    points = chance.normal(size=(240, 3))
    rows = [
        f"{x:.6f},{y:.6f},{z:.6f},{'high' if x + y * z > 0 else 'low'},site-{k % 6}"
        for k, (x, y, z) in enumerate(points)
    ]
    return "\n".join(["x,y,z,label,site", *rows, ""])


def _own_model() -> Any:
    """A linear classifier of 16 features and 4 classes, as a pair of functions."""

    def init(key: Any) -> Any:
        import jax

        return {"w": 0.1 * jax.random.normal(key, (16, 4)), "b": np.zeros(4, np.float32)}

    def apply(params: Any, x: Any) -> Any:
        return x.reshape(len(x), -1) @ params["w"] + params["b"]

    return init, apply


def _own_data() -> dict[str, Any]:
    chance = np.random.default_rng(7)
    x = chance.normal(size=(400, 16)).astype(np.float32)
    y = np.argmax(x[:, :4] + 0.3 * x[:, 4:8], axis=1)
    return {"x_train": x[:300], "y_train": y[:300], "x_test": x[300:], "y_test": y[300:]}


def _images() -> dict[str, Any]:
    chance = np.random.default_rng(8)
    y = chance.integers(0, 3, size=120)
    x = chance.random((120, 24, 24, 1)).astype(np.float32)
    x[np.arange(120), 8 * y] += 1.0
    return {"x_train": x[:90], "y_train": y[:90], "x_test": x[90:], "y_test": y[90:]}


_SCHEMES = (
    Case("preset default", {"plan.iterations": 12}, preset="default"),
    Case("preset adaptive", {"plan.iterations": 12}, preset="adaptive"),
    Case("preset narrowband", preset="narrowband", plan_only=True),
    Case("preset paper", preset="paper", plan_only=True),
    _plan("tree", aggregation="tree", rounds="theorem4"),
    _plan("ring", aggregation="ring"),
    _plan("ring-chunked", aggregation="ring-chunked"),
    _plan("gossip by ticks", aggregation="gossip", epsilon=0.3),
    _plan("gossip by matchings", aggregation="gossip", gossip_mode="matchings", epsilon=0.3),
    _plan(
        "gossip with probability",
        aggregation="gossip",
        gossip_guarantee="probability",
        epsilon=0.4,
        devices__count=4,
    ),
    _plan(
        "gossip balanced", aggregation="gossip", gossip_rounds="balanced", budget__deadline_s=0.006
    ),
    _plan("gossip of seven ticks", aggregation="gossip", gossip_rounds=7),
    _plan("metropolis", aggregation="metropolis", epsilon=0.3),
    _plan("metropolis of two rounds", aggregation="metropolis", gossip_rounds=2),
    _plan(
        "auto, channel unknown",
        network__channel_known=False,
        network__topology=_NO_RING,
        epsilon=0.3,
        budget__deadline_s=0.006,
    ),
)

_POLICIES = (
    _plan("theorem4, zeta of its own", rounds="theorem4", zeta=9.0),
    _plan("theorem4-literal", rounds="theorem4-literal", budget__deadline_s=0.006),
    _plan("backfill", rounds="backfill"),
    _plan("uniform", rounds="uniform"),
    _plan("fixed", rounds="fixed", fixed_rounds=2),
    _plan("inverse", rounds="inverse"),
    _plan("longest", iterations="longest", budget__energy_j=[0.02, 0.06]),
    _plan(
        "bound",
        iterations="bound",
        training__model="logistic",
        training__l2=0.01,
        training__learning_rate=0.01,
        bounds__strong_convexity=0.01,
        bounds__smoothness=2.0,
        bounds__gradient_variance=1.0,
        bounds__gradient_bound=2.0,
        bounds__divergence=0.5,
        bounds__initial_gap=2.0,
        budget__energy_j=[0.05, 0.2],
    ),
)

_WORLDS = (
    _plan("quasi-ring", network__topology="quasi-ring", devices__count=8),
    _plan("grid", network__topology="grid", devices__count=8),
    _plan("complete", network__topology="complete"),
    _plan(
        "geometric",
        network__topology="geometric",
        network__mean_degree=5.0,
        devices__count=8,
    ),
    _plan("links listed", network__topology=_NO_RING),
    _plan("power law, shadowed, half duplex", network__path_loss="power-law",
          network__shadowing_db=4.0, network__duplex="half", network__max_rate_bps=5e7),
    _plan("the paper's physics", physics="paper"),
    _plan("both ends pay", accounting="both-ends", timing="critical-path"),
    _plan("rayleigh", network__fading="rayleigh"),
    _plan("rayleigh, unknown", network__fading="rayleigh", network__channel_known=False,
          aggregation="tree"),
    _plan("rayleigh, unknown, gossip", network__fading="rayleigh", network__channel_known=False,
          network__topology=_NO_RING, epsilon=0.3, budget__deadline_s=0.009),
    _plan("rician in blocks", network__fading="rician", network__coherence_iterations=2),
    _plan("nakagami", network__fading="nakagami", network__nakagami_m=0.7, aggregation="ring"),
    Case("trace", {"network.fading": "trace:gains.csv", "network.trace_end": "repeat"},
         {"gains.csv": _trace()}),
    _plan("coordination", coordination=True, aggregation="tree", network__topology="complete"),
    _plan("coordination, rayleigh", coordination=True, aggregation="tree",
          network__topology="complete", network__fading="rayleigh"),
    _plan("coordination, rayleigh, unknown", coordination=True, aggregation="tree",
          network__topology="complete", network__fading="rayleigh", network__channel_known=False),
)  # fmt: skip

_DEPARTURES = (
    _leaving("a device leaves the tree", _DIAGONAL, 2),
    _leaving("the ring closes again", _DIAGONAL, 3, aggregation="ring"),
    _leaving("the ring breaks into a tree", _SQUARE, 3, aggregation="ring-chunked"),
    _leaving("the ring breaks into gossip", _SQUARE, 3, aggregation="ring", epsilon=0.3,
             network__channel_known=False),
    _leaving("the ring breaks into gossip, weights by samples", _SQUARE, 3, aggregation="ring",
             epsilon=0.3, network__channel_known=False, training__weights="samples"),
    _leaving("a bridge leaves", _BRIDGE, 2, network__fading="rayleigh"),
)  # fmt: skip

_TRAINING = (
    _plan("weights by samples", training__weights="samples", training__alpha=0.3),
    _plan("iid", training__partition="iid", training__model="logistic"),
    _plan("shards", training__partition="shards"),
    _plan("quantity", training__partition="quantity", training__weights="samples"),
    _plan("resample", training__partition="resample"),
    Case("column of a table", {"training.dataset": "samples.csv", "training.normalize": True,
         "training.partition": "column:site"}, {"samples.csv": _table()}),
    _plan("epochs", training__local_round="epoch", budget__energy_j=[1.0, 2.0],
          budget__deadline_s=0.5, devices__count=4),
    _plan("adam", training__optimizer="adam", training__learning_rate=0.01),
    _plan("rmsprop, metropolis, float64", training__optimizer="rmsprop", aggregation="metropolis",
          epsilon=0.3, training__precision="float64"),
    _plan("bfloat16", training__precision="bfloat16"),
    _plan("messages of 16 bits", network__bits_per_parameter=16),
    _plan("averages of 8 bits", bits=8),
    Case("convolutions", {"training.model": "cnn", "devices.count": 3, "plan.iterations": 2,
         "plan.rounds": "fixed", "plan.fixed_rounds": 2, "budget.energy_j": 1.0,
         "budget.deadline_s": 1.0, "training.alpha": 5.0}, data=_images),
    Case("three seeds of another world", {"seed": 12, "network.path_loss": "3gpp-macro"}, seeds=3),
    Case("own model and data", {"training.alpha": 5.0}, model=_own_model, data=_own_data),
)  # fmt: skip


def _each(head: str, *rows: str) -> str:
    return "\n".join([head, *rows, ""])


def _places() -> str:
    """A ring of six whose devices 1 and 4 move, in four blocks of iterations."""
    chance = np.random.default_rng(9)
    moves = ((t, i, *chance.uniform(0, 200, 2)) for t in (1, 2, 4) for i in (1, 4))
    return _each("t,device,x_m,y_m", *(f"{t},{i},{x:.3f},{y:.3f}" for t, i, x, y in moves))


def _measured() -> dict[str, str]:
    """Devices and links with intervals, as calibration writes them."""
    heads = "name,step_s,step_s_low,step_s_high,step_j,step_j_low,step_j_high,idle_w,energy_j"
    devices = [
        f"d{i},{1e-4 * i},{9e-5 * i},{1.1e-4 * i},{2e-3 / i},{1.8e-3 / i},{2.2e-3 / i},"
        f"{0.01 + 0.002 * i:.3f},{0.2 + 0.1 * i:.1f}"
        for i in range(1, 7)
    ]
    ring = [(i, (i + 1) % 6) for i in range(6)]
    links = [
        f"{i},{j},{1e7 + 1e6 * i},{9e6 + 1e6 * i},{1.1e7 + 1e6 * i},2e-8,1e-8,0.01"
        for i, j in (*ring, (1, 0))
    ]
    columns = "i,j,rate_bps,rate_bps_low,rate_bps_high,energy_j_per_bit,receive_j_per_bit,loss"
    return {"devices.csv": _each(heads, *devices), "links.csv": _each(columns, *links)}


_AWAY = _each("device,from,to", "0,1,6", "1,1,2", "1,5,6", "2,1,4", "3,3,6", "4,1,6", "5,1,6")
_SUN = _each("t,device,watts", "1,0,2.5", "1,1,0.5", "3,0,0", "3,2,4.0", "4,2,1.0")
_CODE = """
import jax
import jax.numpy as jnp


def init(key):
    return {"w": 0.1 * jax.random.normal(key, (64, 10)), "b": jnp.zeros(10)}


def apply(params, x):
    return jnp.tanh(x.reshape(len(x), -1) @ params["w"]) + params["b"]


net = init, apply


def margin(outputs, targets):
    right = jnp.take_along_axis(outputs, targets[:, None], axis=1)
    return jnp.maximum(0.0, 1.0 + outputs - right).mean(axis=1)
"""

_RADIO = (
    _plan("hardware and radio by name", devices__profile="raspberry-pi-4",
          network__profile="bluetooth-le", budget__energy_j=[40.0, 90.0],
          budget__deadline_s=20.0),
    _plan("wi-fi, headers and all", network__profile="wifi", budget__energy_j=[4.0, 9.0],
          budget__deadline_s=1.0),
    _plan("a clock, a capacitance, a power", devices__cpu_hz=[1e9, 2e9],
          devices__capacitance=2e-27, devices__transmit_power_w=[0.1, 0.5]),
    _plan("joules of a bit, of a message and of waiting", devices__send_j_per_bit=1e-8,
          devices__receive_j_per_bit=[5e-9, 9e-9], devices__message_j=1e-4,
          devices__idle_w=[0.05, 0.2], devices__overhead_s=[1e-4, 2e-4], plan__message_s=1e-4,
          budget__deadline_s=0.01),
    _plan("power while receiving and waiting, ring", devices__receive_power_w=0.3,
          devices__idle_w=0.4, aggregation="ring-chunked", budget__deadline_s=0.01),
    _plan("power just in time, circuits drawn", power="just-in-time",
          devices__power_range_w=[0.01, 1.0], devices__circuit_w=0.1, devices__receive_power_w=0.3,
          aggregation="tree-chunked", chunks=4),
    _plan("power by levels, planned with the time", power="auto",
          devices__power_levels_w=[0.01, 0.1, 1.0], devices__power_drawn_w=[0.11, 0.25, 1.2],
          network__medium="shared"),
    _plan("waiting, spread over a total time", devices__idle_w=0.4, rounds="spread",
          budget__deadline_s=None, budget__total_s=0.02),
    _plan("clocks", devices__clock_range=[0.3, 1.0], devices__clock_floor=0.4, clock="auto"),
    _plan("clocks just in time", devices__clock_range=[0.5, 1.0], clock="just-in-time"),
    _plan("least joules", devices__clock_range=[0.3, 1.0], goal="joules"),
    Case("operating points", {"devices.operating_points": "points.csv"},
         {"points.csv": _each("device,name,step_s,step_j", *(
             f"{i},{name},{s},{j}" for i in range(6)
             for name, s, j in (("fast", 1e-4, 4e-3), ("slow", 2.5e-4, 2e-3))))}),
    _plan("measured steps", devices__cycles_per_sample=..., devices__step_s=[1e-4, 3e-4],
          devices__step_j=[1e-3, 4e-3], devices__overhead_s=1e-4),
    _plan("links of a shape", devices__count=8, network__topology="quasi-ring", network__chords=4,
          network__area_m=200.0, network__placement="uniform", network__bandwidth_hz=1e6,
          network__noise_dbm_per_hz=-160.0, budget__deadline_s=0.5, budget__energy_j=[1.0, 2.0]),
    _plan("places, power law", devices__x_m={"values": [0.0, 30.0, 60.0, 60.0, 30.0, 0.0]},
          devices__y_m={"values": [0.0, 0.0, 5.0, 40.0, 45.0, 40.0]},
          network__path_loss="power-law", network__path_loss_exponent=2.5,
          network__path_loss_reference_db=40.0),
    _plan("links that are gone", network__topology="complete", network__without=[[0, 1], [2, 5]]),
    _plan("gains listed", network__topology=_NO_RING,
          network__gains=[1e-9, 2e-9, 3e-9, 1e-9, 2e-9, 5e-10], epsilon=0.3),
    _plan("rician by k", network__fading="rician", network__rician_k_db=2.0, fade_quantile=0.6),
    _plan("a cautious forecast leaves out exchanges", network__fading="nakagami",
          fade_quantile=0.2, aggregation="tree", budget__energy_j=[0.04, 0.05],
          network__area_m=2000.0, budget__deadline_s=0.02),
    _plan("chunks and slack of trees", aggregation="tree-chunked", chunks=3, tree_slack=0.4,
          network__topology="complete", network__area_m=1500.0, budget__deadline_s=0.02),
    *(_plan(f"tree {rule}", aggregation=scheme, tree=rule, network__topology="complete",
            network__area_m=1500.0, budget__deadline_s=0.02)
      for rule, scheme in (("fair", "tree"), ("rotate", "tree-chunked"), ("least", "tree"))),
    _plan("chunks by price", aggregation="tree-chunked", network__topology="complete"),
    _plan("too short a search for a ring", ring_search_limit=2, network__topology="geometric",
          network__mean_degree=4.0, devices__count=10, epsilon=0.3,
          network__channel_known=False, budget__deadline_s=0.02, budget__energy_j=[0.1, 0.3]),
    _plan("neighbours only", exchange="neighbours"),
    Case("measured, with safety", {
        "devices.table": "devices.csv", "network.links": "links.csv", "budget.total_s": 4.0,
        "plan.iterations": 6, "plan.safety": 0.95, "plan.epsilon": 0.3,
        "training.model": "logistic"}, _measured(), preset="default"),
    Case("measured, rounds by the deadline", {
        "devices.table": "devices.csv", "network.links": "links.csv", "budget.deadline_s": 0.3,
        "plan.iterations": 6, "plan.rounds": "theorem4", "plan.aggregation": "ring",
        "training.model": "logistic"}, _measured(), preset="default"),
)  # fmt: skip

_LOSSES = {
    "network.packet_error": 0.2, "network.packet_bits": 4000, "network.header_bits": 400,
    "network.packet_s": 2e-5, "network.tries": 2, "budget.deadline_s": 0.02,
}  # fmt: skip
_MEDIUM = (
    Case("packets are lost", _LOSSES),
    Case("packets are lost, ring", {**_LOSSES, "plan.aggregation": "ring"}),
    Case("packets are lost, gossip", {**_LOSSES, "plan.aggregation": "gossip",
         "plan.epsilon": 0.3, "budget.deadline_s": 0.05, "budget.energy_j": [0.4, 0.9]}),
    Case("packets are lost, fading", {**_LOSSES, "network.fading": "rayleigh"}),
    _plan("packets are lost by their margin", network__packet_error="snr", network__area_m=1500.0,
          network__max_rate_bps=2e6, network__tries=3, budget__deadline_s=0.2,
          budget__energy_j=[0.5, 0.9]),
    _plan("shared, interference", network__medium="shared", network__interference_m=150.0),
    _plan("shared, metropolis, broadcast", network__medium="shared", network__broadcast=True,
          network__topology="grid", devices__count=8, aggregation="metropolis", epsilon=0.3,
          devices__receive_j_per_bit=1e-9, budget__deadline_s=0.02),
    _plan("shared, ring in chunks", network__medium="shared", aggregation="ring-chunked",
          budget__deadline_s=0.02),
    _plan("shared, tree in chunks", network__medium="shared", aggregation="tree-chunked",
          network__topology="complete", network__interference_m=50.0, budget__deadline_s=0.02),
    _plan("shared, gossip", network__medium="shared", aggregation="gossip", epsilon=0.3,
          gossip_mode="matchings", budget__deadline_s=0.02),
    _plan("broadcast, tree", network__broadcast=True, aggregation="tree",
          network__topology="complete", devices__receive_j_per_bit=1e-9),
    Case("broadcast, losses", {**_LOSSES, "network.broadcast": True, "plan.aggregation": "tree",
         "network.topology": "complete"}),
    _plan("broadcast, pattern, coordination", network__broadcast=True, coordination=True,
          network__topology="complete", exchange={"every": 2, "times": 2},
          budget__deadline_s=0.02),
)  # fmt: skip

_TRACES = (
    Case("devices come and go", {"devices.availability": "away.csv"}, {"away.csv": _AWAY}),
    Case("devices come and go, spread", {
        "devices.availability": "away.csv", "plan.rounds": "spread", "budget.deadline_s": None,
        "budget.total_s": 0.02, "network.topology": "complete", "plan.on_depletion": "leave"},
        {"away.csv": _AWAY}),
    Case("batteries are recharged", {
        "devices.harvest_w": "sun.csv", "devices.trace_end": "repeat",
        "devices.capacity_j": [0.02, 0.05], "budget.energy_j": 0.02,
        "plan.on_depletion": "leave", "plan.iterations": 10}, {"sun.csv": _SUN}),
    Case("batteries are recharged, without a forecast", {
        "devices.harvest_w": [0.5, 4.0], "devices.capacity_j": 0.03, "budget.energy_j": 0.02,
        "plan.harvest_forecast": "none", "plan.on_depletion": "leave", "plan.iterations": 10}),
    Case("devices move", {
        "devices.positions": "places.csv", "devices.trace_end": "hold",
        "network.topology": "geometric", "network.mean_degree": 4.0}, {"places.csv": _places()}),
    Case("all traces and fading", {
        "devices.availability": "away.csv", "devices.harvest_w": "sun.csv",
        "devices.positions": "places.csv", "devices.trace_end": "hold",
        "network.fading": "rayleigh", "network.topology": "complete",
        "plan.on_depletion": "leave", "budget.energy_j": 0.02},
        {"away.csv": _AWAY, "sun.csv": _SUN, "places.csv": _places()}),
    _plan("devices leave for good", devices__leave=[[3, 3], [5, 5]], network__topology="complete"),
    _plan("devices leave a ring, spread", devices__leave=[[3, 3]], rounds="spread",
          budget__deadline_s=None, budget__total_s=0.03, aggregation="auto",
          network__packet_error=0.1, network__topology="quasi-ring"),
)  # fmt: skip

_TABLE = {"training.dataset": "samples.csv", "training.label": "kind", "training.alpha": 5.0}
_LEARNING = (
    Case("columns of a table", {
        **_TABLE, "training.ignore_columns": ["site", "z"], "training.test_fraction": 0.4},
        {"samples.csv": _table().replace(",label,", ",kind,")}),
    Case("a table to test on", {**_TABLE, "training.ignore_columns": ["site"],
         "training.test_dataset": "others.csv"},
         {"samples.csv": _table().replace(",label,", ",kind,"),
          "others.csv": _table(16).replace(",label,", ",kind,")}),
    _plan("shards of three labels", training__partition="shards", training__shards_per_device=3,
          training__batch_size=8, training__eval_device_samples=50,
          exchange="neighbours"),
    _plan("samples of each device", devices__samples={"values": [20, 40, 60, 80, 100, 120]},
          training__partition="resample", training__weights="samples"),
    _plan("numbers are predicted", training__dataset="diabetes", training__loss="mse",
          training__learning_rate=0.02, training__score="rmse", training__metrics=["mae"],
          training__partition="iid"),
    _plan("numbers, huber", training__dataset="diabetes", training__loss="huber",
          training__learning_rate=0.02),
    _plan("tokens are predicted", training__dataset="verses", training__model="token-mlp",
          training__loss="token-cross-entropy", training__partition="iid",
          training__metrics=["perplexity"], training__learning_rate=0.2,
          budget__energy_j=[0.4, 2.0], budget__deadline_s=0.05),
    Case("model and loss in a file", {
        "training.model": "own.py:net", "training.loss": "own.py:margin",
        "training.data_dir": "published"}, {"own.py": _CODE, "published": ""}),
)  # fmt: skip

_QUICK = {"training.model": "logistic", "plan.iterations": 4}
_ALL = (
    "adaptive", "spread", "fixed", "inverse", "gossip-learning", "balanced", "pens", "d-psgd",
    "fedavg", "skiptrain", "gossip-pga", "merge", "led",
)  # fmt: skip
_METHODS = (
    Case("every method, equal iterations", _QUICK, equal="iterations", seeds=2, methods=_ALL),
    Case("methods, equal batteries", {**_QUICK, "budget.energy_j": [0.01, 0.04]}, methods=(
        "adaptive:backfill", "fixed:3", "balanced:tau1=2,tau2=2", "fedavg:2")),
    Case("methods, equal time, rayleigh", {**_QUICK, "network.fading": "rayleigh"}, equal="time",
         methods=("adaptive", "fixed:2", "gossip-learning:s=0.5", "d-psgd")),
    Case("methods, coordination, rayleigh, unknown", {
        **_QUICK, "plan.aggregation": "tree", "plan.coordination": True,
        "network.fading": "rayleigh", "network.channel_known": False},
        equal="iterations", methods=("adaptive", "fixed:3", "inverse")),
    Case("compressed methods", _QUICK, equal="iterations", methods=(
        "balanced:tau1=2,tau2=1,compress=topk:0.2", "balanced:compress=qsgd:4",
        "balanced:compress=randk:0.2")),
    Case("methods with own model and data", {"plan.iterations": 4, "training.alpha": 5.0},
         equal="iterations", methods=("adaptive", "pens", "fixed:1"), model=_own_model,
         data=_own_data),
    Case("methods within one budget", {**_QUICK, "budget.total_s": 0.05}, equal="budget", methods=(
        "adaptive", "spread:20", "skiptrain:tau=1", "merge", "d-psgd")),
    Case("spread rounds in a total time", {
        "budget.total_s": 0.05, "plan.rounds": "spread", "plan.iterations": "auto",
        "plan.aggregation": "auto"}),
    Case("a pattern of exchanges", {"plan.exchange": {"every": 3, "final": True}}),
    Case("methods in two worlds", _QUICK, worlds=2, methods=("adaptive", "fixed:2")),
    Case("every method, packets are lost", {**_QUICK, **_LOSSES}, equal="iterations",
         methods=_ALL),
    Case("every method, devices come and go", {**_QUICK, "devices.availability": "away.csv"},
         {"away.csv": _AWAY}, equal="iterations", methods=_ALL),
    Case("every method, batteries are recharged", {
        **_QUICK, "devices.harvest_w": "sun.csv", "devices.trace_end": "repeat",
        "plan.on_depletion": "leave", "budget.energy_j": 0.02}, {"sun.csv": _SUN},
        equal="budget", methods=_ALL),
    Case("every method, devices move and fade", {
        **_QUICK, "devices.positions": "places.csv", "devices.trace_end": "hold",
        "network.fading": "rayleigh"}, {"places.csv": _places()}, equal="iterations",
        methods=_ALL),
    Case("every method, devices leave", {**_QUICK, "devices.leave": [[3, 3]],
         "network.topology": "complete"}, equal="iterations", methods=_ALL),
    Case("every method, shared medium, broadcast, waiting", {
        **_QUICK, "network.medium": "shared", "network.broadcast": True,
        "devices.idle_w": 0.05, "devices.receive_j_per_bit": 1e-9, "budget.deadline_s": 0.02},
        equal="iterations", methods=_ALL),
)  # fmt: skip

SCENARIOS = (
    *_SCHEMES, *_POLICIES, *_WORLDS, *_RADIO, *_MEDIUM, *_TRACES, *_DEPARTURES, *_TRAINING,
    *_LEARNING, *_METHODS,
)  # fmt: skip
