"""The setting of a run or a comparison as a paragraph with figures, for a paper."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from joulemesh.base.optional import TITLES
from joulemesh.base.units import duration, energy, si
from joulemesh.data.dataset import dataset_words
from joulemesh.planning.notes import figures
from joulemesh.planning.plan import Plan
from joulemesh.registries import PARTITIONS
from joulemesh.scenario import Network, Scenario, Training
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import gathered
from joulemesh.views.words import Subject, device_words, few_names, model_words
from joulemesh.world.topology import topology_of

Keys = Mapping[str, tuple[str, ...]]

_NO_KEYS: Keys = {}
_WIDTH = 96
_EVALUATES = ("jax", "jaxlib")  # metrics, whatever trains
_EQUAL = {
    "batteries": "every method stopped before the first iteration that some battery could not pay",
    "time": "every method stopped before it would have exceeded the seconds of the adaptive plan",
    "budget": "every method stopped before it would have exceeded a battery or the total time",
    "iterations": "every method ran as many iterations as the adaptive plan, whatever they cost",
}


class Sizes(NamedTuple):
    """How many samples there are to learn from."""

    train: int  # training samples
    test: int  # test samples
    classes: int  # what they are told apart into; 0 where numbers or tokens are learned


def comparison_methods(
    study: Comparison,
    plan: Plan | None,
    sizes: Sizes | None,
    versions: Mapping[str, str],
    keys: Keys = _NO_KEYS,
) -> str:
    """The setting of a comparison."""
    subject = Subject(dataset=study.dataset, model=study.model)
    parts = [
        *_world(study.scenario, plan),
        *_learning(study.scenario, subject, sizes, study.parameters, keys),
        *_compared(study, keys),
        _software(versions, keys),
    ]
    said = gathered((entry.name, entry.remarks) for entry in study.entries)
    return _paragraph(parts) + _notes([f"{names}: {note}" for names, note in said])


def run_methods(
    scenario: Scenario,
    plan: Plan | None,
    subject: Subject,
    sizes: Sizes | None,
    seeds: Sequence[int],
    versions: Mapping[str, str],
    keys: Keys = _NO_KEYS,
    notes: Sequence[str] = (),
) -> str:
    """The setting of a run."""
    parameters = 0 if plan is None else plan.work.parameters
    cited = _cited(keys, f"method {subject.method}")
    what = f"The method was {subject.method}{cited}. " if subject.method else ""
    times = "once" if len(seeds) == 1 else f"with {len(seeds)} seeds"
    repeats = f"{what}Training was run {times} ({_listed(seeds)})."
    parts = [
        *_world(scenario, plan),
        *_learning(scenario, subject, sizes, parameters, keys),
        *_planned(plan, keys),
        repeats,
        _software(versions, keys),
    ]
    return _paragraph(parts) + _notes(notes)


def _paragraph(parts: Sequence[str]) -> str:
    return textwrap.fill(" ".join(filter(None, parts)), _WIDTH, break_on_hyphens=False) + "\n"


def _notes(notes: Sequence[str]) -> str:
    return "".join(f"\n{_paragraph([f'Note: {note}.'])}" for note in notes)


def _world(scenario: Scenario, plan: Plan | None) -> Iterator[str]:
    network = scenario.network
    links = "" if plan is None else f", with {len(plan.world.graph.edges):,} links"
    area = si(network.area_m, "m")
    yield (
        f"We simulated {device_words(scenario)} in a square of {area} × {area}, connected "
        f"{_topology(network)}{links} (seed {scenario.seed})."
    )
    yield _radio(network)
    yield from _messages(scenario)
    if plan is None:
        return
    devices = plan.world.devices
    yield (
        f"A local round takes {_span(devices.round_latency_s, 's')} and "
        f"{_span(devices.round_energy_j, 'J')} on a device, and devices send with "
        f"{_span(devices.transmit_power_w, 'W')}."
    )
    budget, held = scenario.budget, plan.energy_budget_j
    limits = []
    if budget.deadline_s is not None:
        limits.append(f"an iteration must end within {duration(budget.deadline_s)}")
    if budget.total_s is not None:
        limits.append(f"the whole training must end within {duration(budget.total_s)}")
    clock = f"; {' and '.join(limits)}" if limits else ""
    yield f"Batteries hold {_span(held, 'J')} ({energy(float(held.sum()))} in all){clock}."


def _topology(network: Network) -> str:
    kind = topology_of(network)
    asked = ((name.replace("_", " "), getattr(network, name)) for name in kind.parameters)
    given = [f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
             for name, value in asked]  # fmt: skip
    return f"in {kind.phrase}" + (f" ({', '.join(given)} asked for)" if given else "")


def _radio(network: Network) -> str:
    if network.path_loss == "3gpp-macro":
        loss = "128.1 + 37.6 log10(d/km) dB"
    else:
        slope = 10 * network.path_loss_exponent
        loss = f"{network.path_loss_reference_db:g} + {slope:g} log10(d/m) dB"
    fading = (
        "no fading"
        if network.fading == "none"
        else f"{network.fading} fading, constant within {network.coherence_iterations} "
        f"iteration{'s' if network.coherence_iterations > 1 else ''}"
    )
    profile = f" ({network.profile})" if network.profile else ""
    noise = f"{network.noise_dbm_per_hz:g}".replace("-", "−")
    return (
        f"Links{profile} have a bandwidth of {si(network.bandwidth_hz, 'Hz')}, a noise density of "
        f"{noise} dBm/Hz, a path loss of {loss} and {fading}."
    )


def _messages(scenario: Scenario) -> Iterator[str]:
    network, devices = scenario.network, scenario.devices
    if network.header_bits or network.packet_s:
        yield (
            f"A packet carries {network.packet_bits / 8:,.0f} bytes, with "
            f"{network.header_bits / 8:,.0f} bytes of headers and {duration(network.packet_s)} of "
            "channel access besides."
        )
    if scenario.plan.message_s:
        yield f"Handling a message takes {duration(scenario.plan.message_s)}."
    draws = {"receiving": devices.receive_power_w, "idling": devices.idle_w}
    drawn = [f"{name} draws {si(watts, 'W')}" for name, watts in draws.items()
             if isinstance(watts, float) and watts]  # fmt: skip
    if drawn:
        words = " and ".join(drawn)
        yield f"{words[0].upper()}{words[1:]}."
    *rest, last = [one.means for one in figures(scenario) if one.means] or [""]
    if last:
        yield f"It is assumed that {', '.join(rest)}{' and ' if rest else ''}{last}."


def _learning(
    scenario: Scenario, subject: Subject, sizes: Sizes | None, parameters: int, keys: Keys
) -> Iterator[str]:
    training = scenario.training
    what = dataset_words(subject.dataset or training.dataset)
    model = model_words(subject.model or training.model)
    bits = scenario.network.bits_per_parameter
    size = f" of {parameters:,} parameters ({bits} bits each)" if parameters else ""
    if parameters and scenario.plan.bits != 32:
        width = scenario.plan.bits
        chosen = "as many bits as the plan chooses" if width == "auto" else f"{width} bits"
        size += f", averaged in messages of {chosen} for a number"
    counted = ""
    if sizes is not None:
        counted = f" ({sizes.train:,} training and {sizes.test:,} test samples"
        counted += f" of {sizes.classes} classes)" if sizes.classes else ")"
    data = _cited(keys, f"data set {what}")
    shape = _cited(keys, f"model {subject.model or training.model}")
    dealt = _cited(keys, f"partition {training.partition}")
    yield (
        f"The devices learn {what}{data}{counted} with {model}{shape}{size}; "
        f"{_split(training)}{dealt}."
    )
    rounds = "one step" if training.local_round == "step" else "one pass over the device's samples"
    yield (
        f"A local round is {rounds} of {training.optimizer.upper()} with a batch size of "
        f"{training.batch_size} and a learning rate of {training.learning_rate:g}."
    )


def _split(training: Training) -> str:
    kind = training.partition
    if kind not in PARTITIONS:  # registered by a file that was not loaded
        return f"samples are split by the partition {kind}"
    return PARTITIONS[kind].phrase.format_map(dict(training))


def _planned(plan: Plan | None, keys: Keys) -> Iterator[str]:
    if plan is None:
        return
    rounds, count = plan.rounds, plan.iterations
    times = "1 iteration" if count == 1 else f"{count:,} iterations"
    spread = f"{int(rounds.min())} to {int(rounds.max())} (mean {rounds.mean():.3g})"
    scheme = f"{plan.timeline.scheme.kind.words}{_cited(keys, f'aggregation scheme {plan.scheme}')}"
    skipped = int((~plan.exchanged).sum())
    when = f"after all but {skipped:,} of them" if skipped else "after each"
    yield (
        f"The plan has {times} and averages {scheme} {when}; devices run "
        f"{spread} local rounds in an iteration, by the policy {plan.scenario.plan.rounds}. It "
        f"spends {energy(float(plan.spent_j.sum()))} in {duration(plan.time_s)}."
    )


def _compared(study: Comparison, keys: Keys) -> Iterator[str]:
    ran = [(row["method"], row["iterations"]) for row in study.table() if row["iterations"]]
    named = [(f"{name}{_cited(keys, f'method {name}')}", count) for name, count in ran]
    listed = few_names([f"{name} ({count:,} iterations)" for name, count in named])
    yield f"We compared {listed} on equal {study.equal}: {_EQUAL[study.equal]}."
    left_out = [row["method"] for row in study.table() if row["iterations"] is None]
    if left_out:
        yield f"Not able to run: {few_names(left_out)}."
    if study.rates:
        rates = ", ".join(f"{rate:g}" for rate in study.rates)
        yield (
            f"Each method has its own learning rate, the best of {rates} on "
            f"{len(study.tuned_on)} other seeds."
        )
    if len(study.seeds) == 1:
        yield f"Figures are of {study.repeats} ({study.seeds[0]})."
        return
    yield (
        f"Figures are means of {study.repeats} ({_listed(study.seeds)}) with 95 % intervals over "
        f"{study.unit}s by Student's t; differences are tested by two-sided t-tests, paired by "
        f"{study.unit}, with Holm's correction."
    )


def _software(versions: Mapping[str, str], keys: Keys) -> str:
    where = versions.get("platform", "")
    kinds = dict.fromkeys(filter(None, versions.get("accelerators", "").split(", ")))
    named = ["the CPU" if kind == "cpu" else kind for kind in kinds]
    on = f" on {few_names(named)} ({where})" if named and where else ""
    known = few_names(_named(versions, ("python", "numpy", "scipy")))
    with_these = f" with {known}" if known else ""
    tool = f"Joulemesh {versions['joulemesh']}{_cited(keys, 'Joulemesh')}"
    return f"Everything was computed by {tool}{with_these}{on}. {_trained(versions)}".rstrip()


def _trained(versions: Mapping[str, str]) -> str:
    libraries = list(filter(None, versions.get("trained_by", "jax").split(", ")))
    trained = _named(versions, [one for name in libraries for one in (name, f"{name}lib")])
    if not trained:
        return ""
    measured = _named(versions, [one for one in _EVALUATES if "jax" not in libraries])
    then = f", and evaluated with {few_names(measured)}" if measured else " and evaluated"
    by = f"with {few_names(trained)}"
    return f"Models were trained {by}{then}." if measured else f"Models were trained{then} {by}."


def _named(versions: Mapping[str, str], names: Sequence[str]) -> list[str]:
    return [f"{TITLES.get(name, name)} {versions[name]}" for name in names if name in versions]


def _cited(keys: Keys, what: str) -> str:
    found = keys.get(what, ())
    return f" [{', '.join(found)}]" if found else ""


def _span(values: Any, unit: str) -> str:
    low, high = (si(float(end), unit) for end in (np.min(values), np.max(values)))
    return low if low == high else f"{low} to {high}"


def _listed(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"
