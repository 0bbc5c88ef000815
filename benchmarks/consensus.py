"""How fast CHOCO brings devices together, by its step γ: compressors, graphs and sizes.

Devices begin with independent normal parameters and mix, without training. The rate is −ln of the
factor by which their distance from the mean shrinks in one mixing. Steps are multiples of the share
δ of a message's squared norm that a compressor surely passes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from benchmarks.common import machine, progress, publish, table
from joulemesh.aggregation.gossip import metropolis_weights
from joulemesh.methods.choco import Compressor, compressor

TITLE = "CHOCO's consensus step"
MULTIPLES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
COMPRESSORS = (
    "qsgd:1", "qsgd:4", "qsgd:8", "qsgd:16", "topk:0.01", "topk:0.1", "topk:0.5", "randk:0.1",
    "randk:0.5",
)  # fmt: skip
SIZES = (500, 25_000)
DEVICES = (9, 25)
GRAPHS = ("ring", "grid", "geometric", "complete")
MIXINGS = 60

FloatArray = NDArray[np.float64]


def weights_of(graph: str, devices: int) -> FloatArray:
    """Metropolis weights of a graph."""
    side = round(devices**0.5)
    made = {
        "ring": lambda: nx.cycle_graph(devices),
        "grid": lambda: nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, devices // side)),
        "geometric": lambda: _geometric(devices),
        "complete": lambda: nx.complete_graph(devices),
    }[graph]()
    return np.asarray(metropolis_weights(np.array(made.edges), devices).toarray())


def _geometric(devices: int) -> Any:
    """The first connected graph of devices at random in a square."""
    drawn = (nx.random_geometric_graph(devices, 0.45, seed=seed) for seed in range(1, 1000))
    return next(graph for graph in drawn if nx.is_connected(graph))


def rates(squeeze: Compressor, graph: str, devices: int, size: int, steps: Any) -> FloatArray:
    """The rate of consensus with each of some steps γ; negative where devices drift apart."""
    import jax
    import jax.numpy as jnp

    from joulemesh.training.jax.platform import precision_scope

    with precision_scope("float64"):
        weights = jnp.asarray(weights_of(graph, devices))
        start = jnp.asarray(np.random.default_rng(0).normal(size=(devices, size)))
        left = jax.lax.map(partial(_left, squeeze, weights, start), jnp.asarray(steps))
        # What drifts apart may overflow; it is as bad as can be.
        found = np.nan_to_num(np.asarray(left), nan=1e9, posinf=1e9)
    return np.asarray(-np.log(found) / MIXINGS)


def _left(squeeze: Compressor, weights: Any, start: Any, step: Any) -> Any:
    """The distance from the mean after all mixings, as a share of that before them."""
    import jax
    import jax.numpy as jnp

    from joulemesh.methods.choco import compress
    from joulemesh.training import draws

    def mix(number: Any, carry: Any) -> Any:
        x, copies = carry
        key = draws.fold((jnp.uint32(1), jnp.uint32(2)), number.astype(jnp.uint32))
        each = draws.fold(key, jnp.arange(len(x), dtype=jnp.uint32))
        copies = copies + compress(squeeze, x - copies, each)
        return x + step * (weights @ copies - copies), copies

    def spread(x: Any) -> Any:
        return jnp.linalg.norm(x - x.mean(axis=0))

    x, _ = jax.lax.fori_loop(0, MIXINGS, mix, (start, jnp.zeros_like(start)))
    return spread(x) / spread(start)


def case(text: str, graph: str, devices: int, size: int) -> dict[str, Any]:
    """The rate of the default γ beside that of the best of the grid."""
    squeeze = compressor(text)
    grid = np.minimum(squeeze.passes(size) * np.array(MULTIPLES), 1.0)
    default = squeeze.step(size)
    found = rates(squeeze, graph, devices, size, [default, *grid])
    best = int(np.argmax(found[1:]))
    return {
        "compressor": text,
        "graph": graph,
        "devices": devices,
        "size": size,
        "default": default,
        "rate": float(found[0]),
        "best": float(grid[best]),
        "best_rate": float(found[1 + best]),
        "largest": float(
            max((g for g, r in zip(grid, found[1:], strict=True) if r > 0), default=0)
        ),
    }


def page(record: dict[str, Any]) -> str:
    rows = []
    for text in dict.fromkeys(one["compressor"] for one in record["cases"]):
        for graph in GRAPHS:
            own = [
                one for one in record["cases"] if (one["compressor"], one["graph"]) == (text, graph)
            ]
            share = [one["rate"] / one["best_rate"] for one in own]
            rows.append(
                [
                    text,
                    graph,
                    _span([one["default"] for one in own]),
                    _span([one["rate"] for one in own]),
                    _span([one["best"] for one in own]),
                    _span([one["best_rate"] for one in own]),
                    f"{100 * min(share):.0f} %",
                    _span([one["largest"] for one in own]),
                ]
            )
    header = [
        "compressor", "graph", "default γ", "its rate", "best γ", "its rate", "share at least",
        "largest γ that converges",
    ]  # fmt: skip
    worst = min(one["rate"] / one["best_rate"] for one in record["cases"])
    return (
        "Devices mix with CHOCO and do not train; the rate is −ln of the factor by which their "
        f"distance from the mean shrinks in one mixing, over {MIXINGS} of them. The best γ is that "
        f"of a grid of {len(MULTIPLES)}, from {MULTIPLES[0]:g} to {MULTIPLES[-1]:g} times the "
        "share δ of the squared norm that a compressor surely passes. Ranges are over "
        f"{' and '.join(map(str, DEVICES))} devices and "
        f"{' and '.join(f'{size:,}' for size in SIZES)} parameters. The default γ reaches "
        f"{100 * worst:.0f} % of the best rate at the least.\n\n" + table(header, rows)
    )


def _span(values: list[float]) -> str:
    low, high = (f"{value:.2g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def main() -> None:
    cases = []
    for text in COMPRESSORS:
        for graph in GRAPHS:
            progress(f"{text} on {graph}")
            cases += [case(text, graph, n, size) for n in DEVICES for size in SIZES]
    record = {"machine": machine("jax", "numpy"), "cases": cases}
    publish("consensus", TITLE, page(record), record)


if __name__ == "__main__":
    main()
