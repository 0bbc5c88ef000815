"""Scenario files that nobody would write, or somebody did by mistake.

Whatever lies on the disk, loading and planning end soon, within little memory, and either give a
plan or refuse with one line.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.base import machine
from joulemesh.base.errors import JoulemeshError
from joulemesh.planning import iterations, pricing, static
from joulemesh.registries import CHANNELS
from joulemesh.scenario import SECTIONS
from tests.samples import sample

LIMIT_S = 20.0  # of processor time, since other work on a machine slows a case down
WAIT_S = 300.0  # of waiting, for what does not compute
ROOM_BYTES = 2 * 2**30  # above what the process holds already

FEW: dict[str, Any] = {"max_examples": 60, "derandomize": True}
QUIET: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate, Phase.shrink),
}


class HungError(BaseException):
    """A case took too long; no refusal, so nothing may catch it."""


@contextlib.contextmanager
def confined() -> Iterator[None]:
    """A clock that rings and a wall around the memory."""

    def ring(*_: Any) -> None:
        raise HungError(f"not done after {LIMIT_S:g} s")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = [(number, signal.signal(number, ring)) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    signal.setitimer(signal.ITIMER_REAL, WAIT_S)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before:
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def check(path: Path) -> joulemesh.Plan | None:
    """Load and plan; a refusal is one line that says something."""
    with confined():
        try:
            return joulemesh.plan(joulemesh.Scenario.load(path))
        except JoulemeshError as refusal:
            text = str(refusal)
    assert text.strip()
    assert len(text.splitlines()) == 1, text
    assert len(text) < 2000, text[:200]
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad files that scenarios can name."""
    place = tmp_path_factory.mktemp("fuzz")
    (place / "folder").mkdir()
    (place / "empty.csv").write_bytes(b"")
    (place / "binary.csv").write_bytes(bytes(range(256)) * 4)
    (place / "binary.npz").write_bytes(b"PK\x03\x04" + bytes(range(256)))
    (place / "devices.csv").write_text("cpu_hz,energy_j\n" + "1e9,0.5\n" * 5)
    (place / "links.csv").write_text("i,j\n0,1\n1,2\n2,3\n3,4\n")
    (place / "gains.csv").write_text(
        "i,j,gain\n" + "".join(f"{i},{i + 1},1e-9\n" for i in range(4))
    )
    (place / "trace.csv").write_text(
        "t,i,j,gain\n"
        + "".join(
            f"{t},{i},{j},{10 ** (t - 9)}\n" for t in range(9) for i in range(5) for j in range(i)
        )
    )
    np.savez(place / "own.npz", x_train=np.zeros((9, 3)), y_train=np.arange(9) % 3)
    return place


@pytest.fixture(autouse=True)
def small_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is large because it was asked for is no mistake; refuse it sooner here."""
    for module in (static, iterations):
        monkeypatch.setattr(module, "MOST_ENTRIES", 100_000)
    monkeypatch.setattr(pricing, "_MOST_PAIRS", 100_000)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 10**8)


# Scenario files -----------------------------------------------------------------------------------


def literals(kind: Any) -> list[str]:
    """The words that an annotation allows."""
    if get_origin(kind) is Literal:
        return [word for word in get_args(kind) if isinstance(word, str)]
    return [word for part in get_args(kind) for word in literals(part)]


FIELDS = [(name, field) for name, section in SECTIONS.items() for field in section.model_fields]
WORDS = sorted(
    {
        word
        for section in SECTIONS.values()
        for info in section.model_fields.values()
        for word in literals(info.annotation)
    }
    | {"longest", "bound", "estimate", "epsilon", "balanced", "partition", "digits", "sgd"}
    | {"ring", "quasi-ring", "grid", "complete", "geometric", "-inf"}
    | {*CHANNELS.names(), "trace:trace.csv", "trace:gains.csv", "trace:missing.csv", "trace:"}
)
FILES = ["folder", "missing.csv", "empty.csv", "binary.csv", "devices.csv", "links.csv"]
FILES += [
    "gains.csv",
    "trace.csv",
    "binary.npz",
    "own.npz",
    "missing.npz",
    ".",
    "/",
    "",
    "\0",
    "a" * 300,
]
NUMBERS: list[float] = [
    0,
    1,
    2,
    3,
    5,
    -1,
    64,
    10**5,
    10**6,
    10**9,
    10**12,
    2**63 - 1,
    2**63,
    10**30,
    10**400,
]
NUMBERS += [0.0, -0.0, 0.5, 1.5, 1e-9, 1e9, 5e-324, 1e-300, 1e300, 1.7e308, -1e308]
NUMBERS += [float("nan"), float("inf"), -float("inf")]
numbers = st.one_of(
    st.sampled_from(NUMBERS), st.integers(-10, 200), st.floats(), st.floats(0.001, 100.0)
)
QUANTITIES = ["100 Wh", "5 min", "1 h 5 min", "2 GHz", "23 dBm", "-174 dBm/Hz", "8 dB", "0.5 km"]
QUANTITIES += ["10 Mbit/s", "3,6 kJ", "20 mHz", "2500 mAh", "1e400 J", "1e-320 s", "9e9 dBm", "0 W"]
texts = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(FILES),
    st.sampled_from(QUANTITIES),
    st.text(max_size=20),
)
DATES = ["1979-05-27", "07:32:00", "1979-05-27T07:32:00Z"]
values = st.recursive(
    st.one_of(numbers, texts, st.booleans(), st.sampled_from(DATES).map(lambda d: {"date": d})),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(st.sampled_from(["range", "values", "x", ""]), inner, max_size=2),
    ),
    max_leaves=8,
)
SIZES = [n for n in NUMBERS if n > 0 and n < float("inf")]


def likely(section: str, field: str) -> st.SearchStrategy[Any]:
    """Values of a field's own kind, however large or small: they get further than others."""
    info = SECTIONS[section].model_fields[field]
    if words := literals(info.annotation):
        return st.sampled_from(words)
    if isinstance(info.default, bool):
        return st.booleans()
    if isinstance(info.default, int):
        return st.sampled_from([n for n in SIZES if isinstance(n, int)]) | st.integers(1, 50)
    if isinstance(info.default, str) and section != "bounds":
        return st.sampled_from(FILES) | st.sampled_from(WORDS)
    sizes = st.sampled_from([float(n) for n in SIZES if n < 1e308]) | st.floats(1e-9, 1e9)
    pair = st.tuples(sizes, sizes).map(sorted)
    return sizes | (pair if section in ("devices", "budget") else sizes)


# A good scenario to start from, so that what is odd is met by the planner and not by the reader.
BASES: list[dict[str, dict[str, Any]]] = [
    {"devices": {"count": 5}, "plan": {"iterations": 8}},
    {"devices": {"count": 6}, "plan": {"iterations": "longest", "zeta": 50.0}},
    {"devices": {"count": 6}, "network": {"topology": "grid"}, "plan": {"aggregation": "gossip"}},
    {"devices": {"count": 7}, "network": {"topology": "complete", "fading": "rayleigh"}},
    {
        "devices": {"count": 5},
        "network": {"topology": "complete", "fading": "trace:trace.csv"},
        "plan": {"iterations": 8},
    },
    {"devices": {"count": 6}, "network": {"fading": "rician", "channel_known": False}},
    {"devices": {"count": 9}, "network": {"topology": "geometric"}, "plan": {"rounds": "fixed"}},
    {"devices": {"count": 8}, "network": {"topology": "quasi-ring", "duplex": "half"}},
    {"devices": {"table": "devices.csv"}, "plan": {"iterations": 4}},
    {"devices": {"count": 5}, "network": {"topology": "links.csv", "gains": "gains.csv"}},
    {"devices": {"count": 4}, "plan": {"aggregation": "metropolis", "iterations": 5}},
    {"devices": {"count": 5}, "training": {"local_round": "epoch"}, "budget": {"energy_j": 50.0}},
    {"devices": {"count": 5}, "budget": {"energy_j": 0.01}, "plan": {"on_depletion": "leave"}},
    {},
]


def toml(value: Any) -> str:
    """A value as TOML, odd ones included."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case {"date": str(date)}:
            return date
        case dict():
            inside = ", ".join(f"{json.dumps(key)} = {toml(own)}" for key, own in value.items())
            return "{ " + inside + " }"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
    return repr(value)


def whole(sections: dict[str, dict[str, Any]]) -> str:
    lines = []
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{field} = {toml(value)}" for field, value in section.items())]
    return "\n".join(lines) + "\n"


def asks_the_network(section: str, field: str, value: Any) -> bool:
    """Data sets that would have to be fetched."""
    away = ("mnist", "fashion-mnist", "cifar-10")
    return (section, field) == ("training", "dataset") and (
        value in away or str(value).startswith("hf:")
    )


@st.composite
def scenario_texts(draw: st.DrawFn) -> str:
    sections = {name: dict(own) for name, own in draw(st.sampled_from(BASES)).items()}
    for section, field in draw(st.lists(st.sampled_from(FIELDS), max_size=4)):
        value = draw(values if draw(st.integers(0, 9)) == 0 else likely(section, field))
        if field == "ring_search_limit" and isinstance(value, int) and value > 1000:
            value = 1000  # whoever asks for a long search gets one
        if not asks_the_network(section, field, value):
            sections.setdefault(section, {})[field] = value
    return whole(sections)


def scenarios(folder: Path, text: str | bytes) -> None:
    path = folder / "scenario.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    check(path)


@settings(**FEW, **QUIET)
@given(text=scenario_texts())
def test_odd_values(folder: Path, text: str) -> None:
    scenarios(folder, text)


# Enormous ones ------------------------------------------------------------------------------------


ENORMOUS: list[tuple[dict[str, Any], str]] = [
    (
        {"devices.count": 10**12},
        r"devices.count = 1000000000000 with 1000000000000 links takes about 6.5e\+05 GB to plan, "
        r"and this machine has 0.1 GB; lower devices.count",
    ),
    (
        {"devices.count": 10**4, "network.topology": "complete"},
        r"10000 with 49995000 links takes about 7.5 GB .* or take fewer links",
    ),
    (
        {"devices.count": 10**4, "network.topology": "geometric", "network.mean_degree": 1e300},
        "10000 with 49995000 links takes about 7.5 GB",
    ),
    (
        {"devices.count": 100, "network.topology": "quasi-ring", "network.chords": 10**15},
        "100 with 1000000000000100 links",
    ),
    ({"plan.iterations": 10**9}, "1,000,000,000 iterations .* set plan.iterations to at most 5000"),
    ({"plan.iterations": 10**17}, "plan.iterations: must be at most 9007199254740992, not 1000"),
    (
        {"plan.iterations": 100, "plan.aggregation": "gossip", "plan.gossip_rounds": 2000},
        "100 iterations with 2000 ticks of gossip each are 200,000 to draw and price, more than",
    ),
    ({"devices.capacitance": 1e300}, r"device 0 has a round of .* J, beyond 1e-100 to 1e\+100;"),
    ({"budget.energy_j": 1e200}, r"a battery of 1e\+200 J, .* correct budget.energy_j"),
    ({"budget.deadline_s": 1e200}, r"budget.deadline_s = 1e\+200 is beyond"),
    ({"network.noise_dbm_per_hz": 1e9}, r"noise_dbm_per_hz = 1e\+09 .* thermal noise is -174"),
    ({"network.shadowing_db": 1e9}, "has no usable rate"),
    (
        {"network.topology": "geometric", "network.area_m": 1e200},
        r"device \d+ stands \S+e\+\d+ m from the origin, beyond 1e\+100; correct .* network.area_m",
    ),
    (
        {
            "devices.count": 3,
            "devices.x_m": [0.0, 1.0, -1e300],
            "devices.y_m": [0.0, 1.0, 2.0],
            "network.topology": "geometric",
        },
        r"device 2 stands 1e\+300 m from the origin, beyond 1e\+100; correct devices.x_m",
    ),
    (
        {
            "devices.count": 3,
            "devices.x_m": [0.0, 1.0, 2.0],
            "devices.y_m": [0.0, 1.0, 2.0],
            "network.topology": "geometric",
            "network.area_m": 1e300,
        },
        r"network.area_m = 1e\+300 is beyond 1e\+100; lower it",
    ),
    ({"bounds.smoothness": 10**400}, "bounds.smoothness: must be a finite number, not 1000"),
]


@pytest.mark.parametrize(("changes", "words"), ENORMOUS)
def test_enormous_figures_are_refused_with_the_figure_and_the_fix(
    changes: dict[str, Any], words: str
) -> None:
    with confined(), pytest.raises(JoulemeshError, match=words):
        joulemesh.plan(joulemesh.Scenario().override(changes))


# Ten thousand of them -----------------------------------------------------------------------------

PIECE = 100  # of them in a test, which takes up to a minute; its number is their seed


def piece_of(number: int, examples: int, case: Callable[..., None], **drawn: Any) -> None:
    """Try some of the examples, the same ones whenever and wherever the piece is run."""
    seeded = seed(number)(settings(max_examples=examples, **QUIET)(given(**drawn)(case)))
    seeded()


@pytest.mark.slow
@pytest.mark.parametrize("number", sample(range(50), 2))
def test_thousands_of_odd_values(folder: Path, number: int) -> None:
    piece_of(number, PIECE, lambda text: scenarios(folder, text), text=scenario_texts())
