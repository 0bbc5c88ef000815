"""In: a model's outputs and the targets. Out: what training minimises, what evaluations measure
(accuracy, R², the user's own), and the one list of curves with their words. JAX is loaded late.
May not know: what is trained, or what it costs (``models``, ``planning``, ``training``).
"""

from __future__ import annotations

from joulemesh.metrics.losses import Loss
from joulemesh.metrics.metric import Metric, metrics_of

__all__ = ["Loss", "Metric", "metrics_of"]
