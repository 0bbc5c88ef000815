"""What a run, a comparison or a scenario rests on, and where that was published."""

from __future__ import annotations

__all__ = ["references", "used_by", "used_in"]

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from joulemesh._version import __version__
from joulemesh.base.bounded import read_json
from joulemesh.base.citation import JOULEMESH, PAPER, Citation
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.registry import Registry
from joulemesh.data.catalog import DATASETS
from joulemesh.data.load import spec_for
from joulemesh.data.reading import HUB
from joulemesh.methods import citations
from joulemesh.planning.static import plan
from joulemesh.registries import MODELS, PARTITIONS, SCHEMES
from joulemesh.scenario import Scenario, profiles
from joulemesh.study.result import ADAPTIVE
from joulemesh.views.latex import Used, bibtex

STUDY = "study.json"

_SCENARIOS = ("scenario.toml", "best.toml")


def references(used: Sequence[Used]) -> str:
    """The text of a ``.bib`` file for what was used."""
    return bibtex(used, version=__version__)


def used_in(path: str | Path) -> list[Used]:
    """What is used in a folder of a run, a comparison, a tuning or a sweep, or by a scenario.

    Args:
        path: a folder with ``scenario.toml``, or a scenario's file.

    Raises:
        ScenarioError: it is neither.
    """
    place = Path(path)
    if not place.is_dir():
        return used_by(Scenario.load(place), (ADAPTIVE,))
    found = next((place / name for name in _SCENARIOS if (place / name).is_file()), None)
    if found is None:
        raise ScenarioError(
            f"{place} has no scenario.toml: name a folder that run, compare, tune or sweep made, "
            "or a scenario"
        )
    study, start = _record(place / STUDY), _record(place / "versions.json")
    listed = study.get("methods") or [start.get("method") or ADAPTIVE]
    return used_by(Scenario.load(found), [str(name) for name in listed])


def used_by(scenario: Scenario, methods: Sequence[str]) -> list[Used]:
    """What methods use on a scenario, in the order in which a paper tells it.

    Args:
        scenario: devices, data and model.
        methods: as they stand in a comparison.

    Returns:
        Everything that was chosen by name; what has no publication is among it, and says so.

    >>> used = used_by(Scenario.preset("adaptive"), ["d-psgd", "spread"])
    >>> [one.what for one in used][:4]
    ['Joulemesh', 'the paper that Joulemesh implements', 'method d-psgd', 'method spread']
    """
    training = scenario.training
    return [
        Used("Joulemesh", (JOULEMESH,)),
        Used("the paper that Joulemesh implements", (PAPER,)),
        *(_method(name) for name in methods),
        *(_entry("aggregation scheme", SCHEMES, name) for name in _schemes(scenario)),
        _data(scenario),
        _entry("partition", PARTITIONS, training.partition),
        _entry("model", MODELS, training.model),
        *_profiles(scenario),
    ]


def _record(path: Path) -> Mapping[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _method(name: str) -> Used:
    try:
        return Used(f"method {name}", citations(name))
    except ScenarioError:  # the user's own, of another machine
        return Used(f"method {name}", (), "it is not known here; name its file with --load")


def _schemes(scenario: Scenario) -> tuple[str, ...]:
    """The scheme that the plan takes; that of the scenario where there is no plan."""
    try:
        return (plan(scenario).scheme,)
    except JoulemeshError:
        asked = str(scenario.plan.aggregation)
        return (asked,) if asked in SCHEMES else ()


def _data(scenario: Scenario) -> Used:
    name = scenario.training.dataset
    if name in DATASETS:
        cited = spec_for(scenario).citation
        return Used(f"data set {name}", () if cited is None else (cited,))
    if name.startswith(HUB):
        return Used(f"data set {name}", (), "see the citation on its card on the hub")
    return Used(f"data set {Path(name).name}", (), "the user's own file")


def _entry(kind: str, registry: Registry[Any], name: str) -> Used:
    cited: Citation | None = None
    if name in registry:
        cited = registry[name].citation
    return Used(f"{kind} {name}", () if cited is None else (cited,))


def _profiles(scenario: Scenario) -> Iterator[Used]:
    """Data sheets and papers behind the figures of named devices and radios."""
    named = scenario.devices.profile
    chosen = [named] if isinstance(named, str) else list(named or ())
    listed = [*chosen, *filter(None, [scenario.network.profile])]
    for name in dict.fromkeys(listed):
        if name not in (*profiles.DEVICES, *profiles.RADIOS):  # a column of the devices' table
            note = "`joulemesh profiles NAME` lists the sources of each"
            yield Used(f"profiles in the column {name!r} of the devices' table", (), note)
            continue
        sheets = profiles.find(name).sources
        # A title begins with who published it, in several ways: it is left whole.
        made = (Citation("", one.title, one.year, kind="misc", address=one.url) for one in sheets)
        yield Used(f"profile {name}", tuple(made))
