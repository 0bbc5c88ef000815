"""The list of curves: what every evaluation of a run gives, in the order of the columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from joulemesh.metrics import ACCURACY, LOSS, Metric, further_of, score_metric

COUNTS = ("test_samples", "train_samples", "device_samples")
"""Of a trace: on how many samples each evaluation was made."""


@dataclass(frozen=True)
class Curve:
    """One figure of every evaluation.

    Attributes:
        name: of the column in ``metrics.csv`` and in a `Trace`.
        words: what it is, for axes and tables.
        short: what a switch that shows it says; empty for curves that only stand beside others.
        better: whether higher or lower is better.
        share: whether it lies between 0 and 1 and is written in per cent; otherwise it has no unit.
        metric: the metric that it is a curve of; empty for those of the parameters.
        of: whose figure it is: the mean model's, or among the devices' own models their mean, the
            smallest or the largest.
    """

    name: str
    words: str
    short: str = ""
    better: Literal["higher", "lower"] = "lower"
    share: bool = False
    metric: str = ""
    of: Literal["", "mean", "min", "max"] = ""


def _curves_of_metric(metric: Metric, *, first: bool = False) -> tuple[Curve, ...]:
    """Of the mean model and, where they are measured, of the devices' own models."""
    label, better, share = metric.label, metric.better, metric.share
    weakest, strongest = ("min", "max") if better == "higher" else ("max", "min")
    model = Curve(
        f"test_{metric.name}", f"test {label} of the mean model", label, better, share, metric.name
    )
    if not metric.devices:
        return (model,)
    words = {
        "mean": f"test {label} of the devices' own models, mean",
        weakest: f"test {label} of the weakest device's own model",
        strongest: f"test {label} of the best device's own model",
    }
    said = {"mean": "devices’ own", weakest: "weakest device"}
    short = {end: text if first else f"{label}, {text}" for end, text in said.items()}

    def devices(end: Literal["mean", "min", "max"]) -> Curve:
        name = f"device_{metric.name}_{end}"
        return Curve(name, words[end], short.get(end, ""), better, share, metric.name, end)

    return (model, devices("mean"), devices("min"), devices("max"))


def own_curves(metrics: Iterable[str] = (), score: str = ACCURACY.name) -> tuple[Curve, ...]:
    """The curves of the metrics besides the score and the loss."""
    added = further_of(metrics, score)
    return tuple(curve for metric in added for curve in _curves_of_metric(metric))


def curves_of(metrics: Iterable[str] = (), score: str = ACCURACY.name) -> tuple[Curve, ...]:
    """All curves of a run: those that every run has, and those of the metrics that it adds."""
    minimised = () if score == LOSS.name else _curves_of_metric(LOSS)
    return (
        Curve("train_loss", "training loss of the mean model, with its regulariser"),
        *minimised,
        *_curves_of_metric(score_metric(score), first=True),
        Curve("drift", "relative consensus error before the exchange"),
        Curve("consensus", "relative consensus error after the exchange", "consensus error"),
        *own_curves(metrics, score),
    )


def column_names(metrics: Iterable[str] = (), score: str = ACCURACY.name) -> tuple[str, ...]:
    """The names of all curves of a run."""
    return tuple(curve.name for curve in curves_of(metrics, score))


def score_columns(score: str = ACCURACY.name) -> dict[str, str]:
    """The columns of the score, by what a `Trace` calls them."""
    ends = {f"device_score_{end}": f"device_{score}_{end}" for end in ("mean", "min", "max")}
    return {"test_score": f"test_{score}", **ends}


def trace_names() -> tuple[str, ...]:
    """What a `Trace` calls the curves that every run has, whatever its score."""
    of_score = {column: name for name, column in score_columns().items()}
    return tuple(of_score.get(name, name) for name in CURVES)


def score_place(score: str = ACCURACY.name) -> int:
    """The place of the mean model's score among `column_names`; that of devices is the next."""
    return column_names((), score).index(f"test_{score}")


CURVES = column_names()
"""The curves that every run of a classification has."""
