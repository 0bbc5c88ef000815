"""What pages say of a run or a comparison in whole sentences (plain text, not escaped)."""

from __future__ import annotations

__all__ = [
    "Subject",
    "by_section",
    "device_words",
    "figure_words",
    "learned",
    "model_words",
    "page_title",
    "percent",
    "reason",
    "sentence",
    "value_words",
]

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from joulemesh.base.units import duration, energy, si, unit_of
from joulemesh.data.dataset import dataset_words
from joulemesh.planning.notes import Figure
from joulemesh.planning.plan import Account, Plan
from joulemesh.registries import MODELS
from joulemesh.scenario import Scenario
from joulemesh.scenario.profiles import DEVICES

if TYPE_CHECKING:
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
    times = "1 iteration" if account.iterations == 1 else f"{account.iterations:,} iterations"
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
