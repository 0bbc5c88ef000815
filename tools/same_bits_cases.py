"""Scenarios of `tools.same_bits`: every scheme, policy, topology, partition, channel and method.

They are small, because they are many: a run takes a second or two, most of it compilation.
"""

from __future__ import annotations

__all__ = ["CASES", "Case"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import joulemesh

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
        fields: of the scenario, in place of the small default's; the name of one of ``files``
            in it becomes its path.
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
        fields = {key: self._path(value, folder) for key, value in self.fields.items()}
        if self.preset:
            return joulemesh.Scenario.preset(self.preset).override(fields)
        return joulemesh.Scenario.preset("adaptive").override({**_SMALL, **fields})

    def _path(self, value: Any, folder: Path) -> Any:
        kind, colon, name = value.rpartition(":") if isinstance(value, str) else ("", "", "")
        return f"{kind}{colon}{folder / name}" if name in self.files else value


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


def _table() -> str:
    """Samples in two classes, with the device that holds each."""
    chance = np.random.default_rng(6)
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
    _plan("tree", aggregation="tree", network__topology="quasi-ring"),
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
    _plan("theorem4", rounds="theorem4"),
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
    Case("convolutions", {"training.model": "cnn", "devices.count": 3, "plan.iterations": 2,
         "plan.rounds": "fixed", "plan.fixed_rounds": 2, "budget.energy_j": 1.0,
         "budget.deadline_s": 1.0, "training.alpha": 5.0}, data=_images),
    Case("three seeds", seeds=3),
    Case("own model and data", {"training.alpha": 5.0}, model=_own_model, data=_own_data),
)  # fmt: skip

_QUICK = {"training.model": "logistic", "plan.iterations": 4}
_METHODS = (
    Case("every method, equal iterations", _QUICK, equal="iterations", seeds=2, methods=(
        "adaptive", "fixed", "inverse", "gossip-learning", "balanced", "pens", "d-psgd", "fedavg")),
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
    Case("later methods", _QUICK, equal="iterations", methods=(
        "adaptive", "spread", "skiptrain", "gossip-pga", "merge", "led")),
    Case("methods within one budget", {**_QUICK, "budget.total_s": 0.05}, equal="budget", methods=(
        "adaptive", "spread:20", "skiptrain:tau=1", "merge", "d-psgd")),
    Case("spread rounds in a total time", {
        "budget.total_s": 0.05, "plan.rounds": "spread", "plan.iterations": "auto",
        "plan.aggregation": "auto"}),
    Case("a pattern of exchanges", {"plan.exchange": {"every": 3, "final": True}}),
    Case("methods in two worlds", _QUICK, worlds=2, methods=("adaptive", "fixed:2")),
)  # fmt: skip

CASES = (*_SCHEMES, *_POLICIES, *_WORLDS, *_DEPARTURES, *_TRAINING, *_METHODS)
