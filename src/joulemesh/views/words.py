"""What pages say of a run or a comparison in whole sentences (plain text, not escaped)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from joulemesh.base.units import duration, energy, prefixed, si, unit_of
from joulemesh.data.dataset import dataset_words
from joulemesh.metrics import Metric, Reported, further_of, score_metric
from joulemesh.models.curves import Curve
from joulemesh.planning.notes import Figure
from joulemesh.planning.plan import Account, Plan
from joulemesh.registries import MODELS
from joulemesh.scenario import Scenario
from joulemesh.scenario.profiles import DEVICES

if TYPE_CHECKING:
    from joulemesh.training.trace import Trace
    from joulemesh.views.report import Summary


_MOST_PROFILES = 4


@dataclass(frozen=True)
class Subject:
    """What a page is about, as far as the plan does not say it."""

    name: str = ""  # of the scenario; empty if it has none
    when: str = ""  # the start, in ISO 8601; empty if it is not known
    dataset: str = ""  # what was learned; the scenario's if empty
    model: str = ""  # by what; the scenario's if empty
    method: str = ""  # what was run in place of the plan; empty for the plan


def page_title(kind: str, subject: Subject) -> str:
    """A page's title."""
    day = ""
    if subject.when:
        when = datetime.fromisoformat(subject.when)
        day = f"{when.day} {when:%B %Y}"
    known = ", ".join(part for part in (subject.name, day) if part)
    if subject.method:
        return f"{kind} of {subject.method}{f' on {known}' if known else ''}"
    return f"{kind} of {known}" if known else kind


def percent(fraction: float) -> str:
    """A fraction with one decimal."""
    return f"{100 * fraction:.1f} %"


def model_words(name: str) -> str:
    """A model with its article."""
    if name == "custom":  # a pair of functions without a name
        return "a model of the user’s"
    return MODELS[name].phrase if name in MODELS else f"a {name}"


def device_words(scenario: Scenario) -> str:
    """The devices, with their hardware if it is known by name."""
    count, profile = scenario.devices.count, scenario.devices.profile
    devices = "1 device" if count == 1 else f"{count:,} devices"
    if profile in DEVICES:
        return f"{devices} ({profile})"
    kinds = Counter(profile if isinstance(profile, tuple) else ())
    if not 0 < len(kinds) <= _MOST_PROFILES:
        return devices
    return f"{devices} ({', '.join(f'{times:,} {name}' for name, times in kinds.items())})"


def learned(scenario: Scenario, parameters: int, subject: Subject, *, verb: str = "learned") -> str:
    """Who learned what by what; 0 parameters are not known."""
    training = scenario.training
    what = dataset_words(subject.dataset or training.dataset)
    model = model_words(subject.model or training.model)
    size = f" of {parameters:,} parameters" if parameters else ""
    return f"{device_words(scenario)} {verb} {what} with {model}{size}"


def sentence(account: Account, summary: Summary, seeds: int, subject: Subject | None = None) -> str:
    """The run in one sentence: what was learned on which devices, how well and at what price."""
    planned = summary.accuracy is None
    who = learned(
        account.scenario,
        account.work.parameters,
        subject or Subject(),
        verb="are to learn" if planned else "learned",
    )
    n = account.iterations
    times = (
        "1 iteration (communication round)"
        if n == 1
        else f"{n:,} iterations (communication rounds)"
    )
    if isinstance(account, Plan):
        by = f", averaging {account.timeline.scheme.kind.words},"
    else:
        by = f" of {subject.method}" if subject is not None and subject.method else ""
    how = f"in {times}{by}"
    held_j = float(account.supplied_j.sum())
    spent = f"{energy(summary.energy_j)} of {energy(held_j)}"
    reached = "" if planned else f" and reached {_accuracy(summary, seeds)}"
    return f"{who} {how}{reached} for {spent} in {duration(summary.time_s)}."


def _accuracy(summary: Summary, seeds: int) -> str:
    assert summary.accuracy is not None
    weakest, metric = summary.weakest, summary.metric
    notes = [f"mean of {seeds} seeds"] if seeds > 1 else []
    if weakest is not None and not summary.alike:
        notes.append(
            f"the weakest device{' of any seed' if seeds > 1 else ''} {metric.text(weakest)}"
        )
    where = " on every device" if summary.alike else ""
    detail = f" ({'; '.join(notes)})" if notes else ""
    figure = metric.text(summary.accuracy)
    said = f"{figure} test {metric.label}" if metric.share else f"a test {metric.label} of {figure}"
    return f"{said}{where}{detail}"


def reason(plan: Plan) -> str:
    """Why the plan averages as it does, in a sentence."""
    first, _, rest = plan.reason.partition("; ")
    if first == "asked for":
        return f"Why {plan.scheme}: the scenario asks for it{f'; {rest}' if rest else ''}."
    return f"Why {plan.scheme}: {plan.reason}."


def clocks_text(plan: Plan) -> str:
    """How fast processors run, and what that saves, in a few words."""
    devices, shares = plan.world.devices, plan.clock_share[plan.rounds.any(axis=0)]
    full_j = float((plan.rounds.sum(axis=0) * devices.round_energy_j).sum())
    speed = "no device trains"
    if len(shares):
        speed = f"{shares.mean():.0%} of full speed on average ({shares.min():.0%} to "
        speed += f"{shares.max():.0%} by device)"
    curve = devices.round_prices
    source = "modelled: joules of a round fall with the square of the speed"
    if not curve.modelled:
        source = f"by devices.operating_points{': ' * bool(curve.sources)}"
        source += ", ".join(curve.sources[:_MOST_PROFILES])
    return (
        f"{plan.ground.clock}: {speed}; training takes {energy(plan.compute_total_j.sum())}, and "
        f"{energy(full_j)} at full speed ({source})"
    )


def value_words(field: str, value: Any) -> str:
    """A field's value as people say it."""
    if isinstance(value, dict):
        value = value["values"]
    elif isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, float) for v in value):
        return f"{value_words(field, value[0])} to {value_words(field, value[1])}"
    if isinstance(value, tuple):
        return f"[{len(value)} values]" if len(value) > 4 else str(list(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    unit = unit_of(field)
    if unit == "J":
        return energy(value)
    if unit == "s":
        return duration(value)
    if unit in ("dBm/Hz", "dB"):
        return f"{value:g} {unit}"
    if unit is not None:
        return si(value, unit)
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.3g}"


def figure_words(field: str, figure: Figure) -> str:
    """A figure's value, what it means, and how far from it a measured one may be."""
    words = value_words(field, figure.value)
    if figure.means:
        return f"{words} ({figure.means})"
    if figure.within is None:
        return words
    return f"{words} (95 % interval within ±{100 * figure.within:.2g} %)"


def by_section(figures: Iterable[Figure]) -> str:
    """Figures with their values, under the names of their sections."""
    groups: dict[str, list[str]] = {}
    for figure in figures:
        section, _, field = figure.name.partition(".")
        groups.setdefault(section, []).append(f"{field} {figure_words(field, figure)}")
    return "; ".join(f"[{section}] {', '.join(words)}" for section, words in groups.items())


def few_names(names: Sequence[str], most: int = 12) -> str:
    """Names as a list in a sentence; of many the first, and how many more there are."""
    more = len(names) - most
    if more > 0:
        return f"{', '.join(names[:most])} and {more:,} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


# Figures with their intervals ------------------------------------------------------------------

_NO_WIDTH = 1e-6
_TO_TARGET = ("energy_to_target_j", "time_to_target_s")


def figure_text(
    value: float | None, half: float | None, unit: str = "", *, share: bool = True
) -> str:
    """A figure with its interval, as text."""
    if value is None:
        return "–"
    if not unit and not share:
        digits = max(0, 2 - math.floor(math.log10(max(abs(value), 0.1))))
        return f"{value:.{digits}f}" + ("" if half is None else f" ± {half:.{digits}f}")
    if not unit:
        return f"{100 * value:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")
    scale, name = prefixed(value, unit)
    digits = max(0, 2 - math.floor(math.log10(abs(value) / scale))) if value else 0
    if half is None or half / scale < 0.5 * 10.0**-digits:  # as good as the same at every seed
        return si(value, unit)
    return f"{value / scale:.{digits}f} ± {half / scale:.{digits}f} {name}"


def own_heading(metric: Metric) -> str:
    """What the column of the devices' own scores is called."""
    return "devices' own [%]" if metric.share else "devices' own"


def difference_text(value: float | None, half: float | None, *, share: bool = True) -> str:
    """A difference of accuracies in per cent; an asterisk where its interval excludes 0."""
    if value is None:
        return "–"
    text = ("−" if value < 0 else "+") + figure_text(abs(value), half, share=share)
    return f"{text} *" if half is not None and abs(value) > half > _NO_WIDTH else text


def target_text(row: Mapping[str, Any], name: str, unit: str) -> str:
    """What it took to reach the target, with its interval over seeds; or how many seeds did."""
    if row[name] is not None:
        return figure_text(row[name], row[f"{name}_ci95"], unit)
    return f"{row['reached']} of {row['seeds']} seeds" if row["reached"] else "not reached"


def open_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """How far evaluations leave energy and time to the target open, at most; or nothing."""
    found, every = [], list(rows)
    for name, unit in zip(_TO_TARGET, ("J", "s"), strict=True):
        errors = [row[f"{name}_error"] for row in every if row.get(f"{name}_error")]
        found += [si(max(errors), unit)] if errors else []
    if not found:
        return ""
    return f"interpolated between evaluations, to within {' and '.join(found)}"


# What a run reached ----------------------------------------------------------------------------


def target_words(found: Mapping[str, Any], seeds: int) -> str:
    """One sentence's worth."""
    joules, seconds = _texts(found, seeds)
    if found["energy_to_target_j"] is None:
        return f"{found['target_words']}: {joules}"
    unsure = open_text([found])
    given = f", {unsure}" if unsure else ""
    return f"{found['target_words']} after {joules} and {seconds}{given}"


def target_tile(found: Mapping[str, Any], seeds: int) -> tuple[str, str, str]:
    """A tile of a report: its name, the figure, and a note."""
    joules, seconds = _texts(found, seeds)
    note = "" if found["time_to_target_s"] is None else f"time {seconds}"
    unsure = open_text([found])
    note += f"; {unsure}" if unsure else ""
    metric = score_metric(found["target_metric"])
    return f"energy to {metric.text(found['target'])} {metric.label}", joules, note


def _texts(found: Mapping[str, Any], seeds: int) -> tuple[str, str]:
    row = {**found, "seeds": seeds}
    units = (("energy_to_target_j", "J"), ("time_to_target_s", "s"))
    joules, seconds = (target_text(row, name, unit) for name, unit in units)
    return joules, seconds


def metric_text(figure: float, of: Metric | Curve) -> str:
    """A figure of a metric: a share in per cent, anything else with four digits."""
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
