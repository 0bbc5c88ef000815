"""The final figures of further metrics, for a page and for a terminal."""

from __future__ import annotations

__all__ = ["metric_text", "metric_tiles", "metric_words"]

from typing import TYPE_CHECKING

from joulemesh.metrics.curves import Curve
from joulemesh.metrics.losses import Reported
from joulemesh.metrics.metric import Metric, further_of
from joulemesh.views.words import percent

if TYPE_CHECKING:
    from joulemesh.training.trace import Trace


def metric_text(figure: float, of: Metric | Curve) -> str:
    """A figure of a metric: a share in per cent, anything else with four digits.

    >>> from joulemesh.metrics.metric import ACCURACY, LOSS
    >>> metric_text(0.9512, ACCURACY), metric_text(0.123456, LOSS)
    ('95.1 %', '0.1235')
    """
    return percent(figure) if of.share else f"{figure:.4g}"


def _weakest(last: Trace, metric: Metric) -> float | None:
    """The worst figure among devices and seeds; None where devices are not measured."""
    if not metric.devices:
        return None
    ends = last.own[f"device_{metric.name}_{metric.weakest}"]
    return float(ends.min() if metric.weakest == "min" else ends.max())


def metric_tiles(last: Trace, measured: Reported) -> tuple[tuple[str, str, str], ...]:
    """Of each further metric: what it is called, its final figure, and a note on devices."""
    tiles = []
    for metric in further_of(*measured):
        weakest = _weakest(last, metric)
        note = "mean model" if weakest is None else f"weakest device {metric_text(weakest, metric)}"
        figure = float(last.own[f"test_{metric.name}"].mean())
        tiles.append((f"test {metric.label}", metric_text(figure, metric), note))
    return tuple(tiles)


def metric_words(last: Trace, measured: Reported) -> dict[str, str]:
    """Of each further metric, by name, its final figures in words."""
    return {
        name: f"{figure}; {note}"
        for (_, figure, note), name in zip(
            metric_tiles(last, measured), (m.name for m in further_of(*measured)), strict=True
        )
    }
