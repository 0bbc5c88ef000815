"""A file of the user's own, given by --load: what works, and what is said when it does not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from joulemesh.base import optional as own_code
from tests.commands import Command, Outcome

HEAD = """import jax, jax.numpy as jnp
from joulemesh.aggregation.route import Route
from joulemesh.methods import register
from joulemesh.training import Exchange
"""
EXCHANGE = """
def build(name, setting, given):
    prices = setting.route_prices(2, lambda t: None)
    return setting.contender(name, 2, prices, exchange=Exchange(lambda params: (), apply))
register("own", build)
"""
BUILD = """
def build(name, setting, given):
    return setting.contender(name, 2, setting.route_prices(2, lambda t: {route}, alike={alike}))
register("own", build)
"""


@pytest.fixture
def command(
    small: Command, monkeypatch: pytest.MonkeyPatch, own_methods: None
) -> Callable[..., Outcome]:
    """Compare the method of a file with the adaptive plan, in this process."""
    monkeypatch.setattr(own_code, "_FILES", set())

    def run(text: str, *options: str, before: tuple[str, ...] = ()) -> Outcome:
        Path("mine.py").write_text(HEAD + text)
        words = ["compare", "small.toml", "--load", "mine.py", "--methods", "own,adaptive"]
        return small(*before, *words, "--seeds", "1", "--cache", "kept", *options)

    return run


EMPTY = "Route.build('own', edges=[], edge=[], forward=[], step=0, bits=8.0, repeats=1, uses=1)"


@pytest.mark.parametrize(
    ("route", "alike"), [("None", True), ("None", False), (EMPTY, True)], ids=str
)
def test_a_method_that_sends_nothing_trains_alone(
    route: str, alike: bool, command: Command
) -> None:
    code, out, err = command(BUILD.format(route=route, alike=alike), "--json")
    assert (code, err) == (0, "")
    own, adaptive = json.loads(out)["methods"]
    assert (own["exchange_j"], own["bits"]) == (0.0, 0.0)
    assert own["energy_j"] == own["compute_j"] > 0
    assert "sends nothing: every device trains alone" in own["notes"]
    # Alone, a device's own model is worse than the mean; after the plan's exchange they are one.
    assert own["device_accuracy"] < own["accuracy"]
    assert adaptive["device_accuracy"] == pytest.approx(adaptive["accuracy"], abs=0.02)


def test_iterations_without_a_message_have_no_exchange(command: Command) -> None:
    from joulemesh.methods import build
    from joulemesh.scenario import Scenario

    some = "metropolis_route(setting.world.graph.edges, 8.0, 1) if t % 2 else None"
    text = "from joulemesh.aggregation.gossip import metropolis_route\n"
    assert command(text + BUILD.format(route=some, alike=False), "--json")[0] == 0
    made = build("own", Scenario.load("small.toml"))
    assert made.schedule.exchanged.tolist() == [False, True, False, True]
    assert (made.reserve.bits > 0).tolist() == [False, True, False, True]
    assert not any("sends nothing" in note for note in made.notes)


FAULTS = {
    "an exception": (
        "def build(name, setting, given):\n    return given['tau']\nregister('own', build)\n",
        "mine.py, line 6, in build: KeyError: 'tau' (",
    ),
    "while loading": ("1 / 0\n", "mine.py, line 5: ZeroDivisionError: division by zero"),
    "syntax": ("def build(:\n", "mine.py, line 5: SyntaxError: invalid syntax ("),
    "an import": ("import no_such\n", "mine.py, line 5: ModuleNotFoundError: No module named"),
    "beside it": ("import beside\n", "beside.py, line 2, in broken: ValueError: two lines ("),
    "a refusal": ("register('a b', print)\n", "mine.py, line 5: method name 'a b' is unusable"),
    "few arguments": (
        "register('own', lambda name, setting: None)\n",
        "mine.py, line 5: the builder of method 'own' cannot be called with (name, setting, par",
    ),
    "no contender": (
        "def build(name, setting, given):\n    pass\nregister('own', build)\n",
        "the builder of 'own' (mine.py, line 5, in build) gives NoneType: return setting.contender",
    ),
    "no route": (BUILD.format(route="[1]", alike=True), "route(0) gives list (mine.py, line 7)"),
    "few arguments of apply": (
        "def apply(params, state, key): pass" + EXCHANGE,
        "mine.py, line 8, in build: the exchange's apply cannot be called with (params, state,",
    ),
}  # fmt: skip

# Found only when the program is compiled: the method's line of progress stands above.
LATE = {
    "in JAX": (
        "def apply(params, state, key, context):\n"
        "    return jax.tree.map(lambda leaf: leaf @ jnp.ones(3), params), state, ()" + EXCHANGE,
        "mine.py, line 6: TypeError: dot_general requires contracting dimensions",
    ),
    "two values": (
        "def apply(params, state, key, context):\n    return params, state" + EXCHANGE,
        "the exchange's apply (mine.py, line 5, in apply) gives 2 values: return (params, state, s",
    ),
    "another shape": (
        "def apply(params, state, key, context):\n"
        "    return jax.tree.map(lambda leaf: leaf[0], params), state, ()" + EXCHANGE,
        "gives params['b'] as float32[10], not float32[4,10]: keep shapes and types",
    ),
    "another structure": (
        "def apply(params, state, key, context):\n    return params, (1, 2), ()" + EXCHANGE,
        "gives state as (*, *), not (): keep the structure",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_users_code_raises_is_one_line(
    fault: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    Path("beside.py").write_text("def broken():\n    raise ValueError('two\\nlines')\nbroken()\n")
    text, message = FAULTS[fault]
    code, out, err = command(text)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("fault", LATE)
def test_what_the_users_exchange_does_wrong_is_one_line(fault: str, command: Command) -> None:
    text, message = LATE[fault]
    code, out, err = command(text, "--json")
    assert code == 2
    if fault == "in JAX":  # no refusal of ours
        assert out == ""
    else:
        assert message in json.loads(out)["error"]["text"]
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_the_traceback_is_shown_when_asked_for(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, message = FAULTS["an exception"]
    assert "Traceback" not in command(text)[2]
    code, _, err = command(text, before=("--traceback",))
    assert code == 2
    assert "Traceback (most recent call last)" in err
    assert message in err.splitlines()[-1]
    assert "Traceback" not in command(text)[2]  # it holds for one command
    monkeypatch.setenv("JOULEMESH_TRACEBACK", "1")
    assert "Traceback" in command(text)[2]
    assert "Traceback" in command("", "--equal", "joules")[2]  # of a refusal too


def test_a_defect_of_joulemesh_is_not_blamed_on_the_users_file(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("joulemesh.study.compare.compare", broken)
    with pytest.raises(RuntimeError, match="ours"):
        command("")
