"""In: a model's logits and the labels. Out: what evaluations measure (accuracy, loss, the user's
own), and the one list of curves with their words. JAX is loaded when a metric is computed.
May not know: what is trained, or what it costs (``models``, ``planning``, ``training``).
"""

from __future__ import annotations

from joulemesh.metrics.metric import Metric, metrics_of

__all__ = ["Metric", "metrics_of"]
