"""The registries that a scenario's fields choose from.

Each names its built-in entries and the modules that register them; the records' types are defined
beside the code that uses them. Methods, which comparisons choose from, are in `joulemesh.methods`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from joulemesh.base.registry import Registry

if TYPE_CHECKING:
    from joulemesh.aggregation.scheme import SchemeKind
    from joulemesh.data.partition import PartitionKind
    from joulemesh.fading import FadingModel
    from joulemesh.metrics import Loss, Metric
    from joulemesh.models.kinds import ModelKind
    from joulemesh.planning.policy import Policy
    from joulemesh.world.topology import Topology

__all__ = [
    "CHANNELS",
    "LOSSES",
    "METRICS",
    "MODELS",
    "PARTITIONS",
    "POLICIES",
    "REGISTRIES",
    "SCHEMES",
    "TOPOLOGIES",
    "scoped",
]

CHANNELS: Registry[FadingModel] = Registry(
    "fading model",
    {
        "none": "joulemesh.fading",
        "rayleigh": "joulemesh.fading",
        "rician": "joulemesh.fading",
        "nakagami": "joulemesh.fading",
        "trace": "joulemesh.fading",
    },
)

SCHEMES: Registry[SchemeKind] = Registry(
    "aggregation scheme",
    {
        "tree": "joulemesh.aggregation.tree",
        "tree-chunked": "joulemesh.aggregation.tree",
        "ring": "joulemesh.aggregation.ring",
        "ring-chunked": "joulemesh.aggregation.ring",
        "gossip": "joulemesh.aggregation.gossip",
        "metropolis": "joulemesh.aggregation.gossip",
    },
)

TOPOLOGIES: Registry[Topology] = Registry(
    "topology",
    {
        "ring": "joulemesh.world.topologies",
        "quasi-ring": "joulemesh.world.topologies",
        "grid": "joulemesh.world.topologies",
        "complete": "joulemesh.world.topologies",
        "geometric": "joulemesh.world.topologies",
    },
)

PARTITIONS: Registry[PartitionKind] = Registry(
    "partition",
    {
        "iid": "joulemesh.data.partition",
        "dirichlet": "joulemesh.data.partition",
        "shards": "joulemesh.data.partition",
        "quantity": "joulemesh.data.partition",
        "resample": "joulemesh.data.partition",
    },
)

MODELS: Registry[ModelKind] = Registry(
    "model",
    {
        "logistic": "joulemesh.models.kinds",
        "mlp": "joulemesh.models.kinds",
        "cnn": "joulemesh.models.kinds",
        "token-mlp": "joulemesh.models.kinds",
    },
)

POLICIES: Registry[Policy] = Registry(
    "rounds policy",
    {
        **dict.fromkeys(
            ("theorem4", "theorem4-literal", "backfill", "uniform", "fixed", "inverse"),
            "joulemesh.planning.rounds",
        ),
        "spread": "joulemesh.planning.rounds",
    },
)

METRICS: Registry[Metric] = Registry(
    "metric",
    {
        **dict.fromkeys(("accuracy", "loss", "brier", "balanced_accuracy"), "joulemesh.metrics"),
        **dict.fromkeys(("r2", "rmse", "mae"), "joulemesh.metrics"),
        **dict.fromkeys(("token_accuracy", "perplexity"), "joulemesh.metrics"),
    },
)

LOSSES: Registry[Loss] = Registry(
    "loss",
    {
        "cross-entropy": "joulemesh.metrics",
        **dict.fromkeys(("mse", "mae", "huber"), "joulemesh.metrics"),
        "token-cross-entropy": "joulemesh.metrics",
    },
)

REGISTRIES: tuple[Registry[Any], ...] = (
    CHANNELS,
    SCHEMES,
    TOPOLOGIES,
    PARTITIONS,
    MODELS,
    POLICIES,
    METRICS,
    LOSSES,
)


@contextmanager
def scoped() -> Iterator[None]:
    """Forget, at the end, what is registered meanwhile in any of them."""
    with ExitStack() as stack:
        for registry in REGISTRIES:
            stack.enter_context(registry.scoped())
        yield
