"""Methods by name: ``method``, ``method:value`` or ``method:key=value,key=value``."""

from __future__ import annotations

__all__ = [
    "METHODS",
    "Method",
    "build",
    "citations",
    "libraries",
    "lookup",
    "names",
    "register",
    "split",
]

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from joulemesh.base.citation import Citation
from joulemesh.base.errors import ScenarioError, named_refusals
from joulemesh.base.own_code import place_of, require_call
from joulemesh.base.registry import Registry
from joulemesh.methods.base import Contender, Parameter
from joulemesh.methods.setting import Setting
from joulemesh.models.torch_model import NotOfJaxError, TorchModel
from joulemesh.scenario import Scenario
from joulemesh.scenario.scenario import rounded_to
from joulemesh.training.recorded import exchanges_of_matrices

if TYPE_CHECKING:
    from joulemesh.data import Dataset
    from joulemesh.models.core import Model

Builder = Callable[[str, Setting, Mapping[str, Any]], Contender]


@dataclass(frozen=True)
class Method:
    """A method, as the registry knows it.

    Attributes:
        name: by which it is called.
        build: makes a contender of it.
        description: what it does, in one line.
        citation: where it was published, or None.
        parameters: what may stand behind the colon.
        main: the parameter that a bare value stands for.
    """

    name: str
    build: Builder
    description: str = ""
    citation: Citation | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    main: str | None = None

    @property
    def listed(self) -> tuple[tuple[str, Parameter], ...]:
        """The parameters with their names, the main one first."""
        return tuple(sorted(self.parameters.items(), key=lambda item: item[0] != self.main))

    @property
    def built_in(self) -> bool:
        """Whether it comes with Joulemesh."""
        return (self.build.__module__ or "").startswith(f"{__package__}.")


# Each registers itself when its module is first needed: JAX is loaded by those that use it.
METHODS: Registry[Method] = Registry(
    "method",
    {
        "adaptive": "joulemesh.methods.adaptive",
        "spread": "joulemesh.methods.adaptive",
        "fixed": "joulemesh.methods.adaptive",
        "inverse": "joulemesh.methods.adaptive",
        "gossip-learning": "joulemesh.methods.gossip_learning",
        "balanced": "joulemesh.methods.balanced",
        "pens": "joulemesh.methods.pens",
        "d-psgd": "joulemesh.methods.d_psgd",
        "fedavg": "joulemesh.methods.fedavg",
        "skiptrain": "joulemesh.methods.skiptrain",
        "gossip-pga": "joulemesh.methods.gossip_pga",
        "merge": "joulemesh.methods.merge",
        "led": "joulemesh.methods.led",
    },
)

# What a parameter's text may hold: it stands wherever the method's name does.
_GIVEN = re.compile(r"[\w.+\-/%:*]*")


def register(
    name: str,
    builder: Builder,
    *,
    description: str = "",
    citation: Citation | None = None,
    parameters: Mapping[str, Parameter] | None = None,
    main: str | None = None,
) -> None:
    """Make a method known by name; a name that is taken gets the new method.

    Args:
        name: of letters, digits, ``.``, ``+``, ``-`` and ``_``, so that it can stand in a list of
            methods, in tables, figures, pages and file names as it is.
        builder: (name as written, setting, parameters as read) -> Contender.
        description: what the method does, in one line; otherwise the first line of the builder's
            docstring, or of its file's.
        citation: where it was published.
        parameters: what may stand behind the colon.
        main: the parameter that a bare value stands for.

    >>> def hasty(name, setting, given):  # one round, then the plan's exchange
    ...     route = setting.scheme.route(setting.costs(0))
    ...     return setting.contender(name, 1, setting.route_prices(1, lambda t: route, alike=True))
    >>> with METHODS.scoped():
    ...     register("hasty", hasty)
    ...     build("hasty", Scenario.preset("adaptive")).schedule.rounds.shape
    (100, 20)
    """
    require_call(builder, "name, setting, parameters", f"the builder of method {name!r}")
    said = " ".join(description.split()) or _first_line(builder)
    METHODS.register(Method(name, builder, said, citation, dict(parameters or {}), main))


def _first_line(builder: Builder) -> str:
    module = sys.modules.get(getattr(builder, "__module__", ""))
    text = getattr(builder, "__doc__", None) or getattr(module, "__doc__", None) or ""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def names() -> tuple[str, ...]:
    """The methods that are known."""
    return METHODS.names()


def lookup(name: str) -> Method:
    """What is known about a method, by its name alone or as it stands in a comparison.

    Raises:
        ScenarioError: the method is unknown.

    >>> lookup("fixed:3").citation.arxiv, list(lookup("fixed:3").parameters)
    ('2403.20075', ['tau'])
    """
    return METHODS[name.strip().partition(":")[0]]


def citations(name: str) -> tuple[Citation, ...]:
    """The publications of a method as it stands in a comparison, with those of its parameters.

    Raises:
        ScenarioError: the method or a parameter is unknown.

    >>> [cited.arxiv for cited in citations("balanced:compress=qsgd:8")]
    ['2107.12048', '1902.00340', '1610.02132']
    >>> citations("spread")
    ()
    """
    method, given = _parse(name)
    own = () if method.citation is None else (method.citation,)
    more = (cited for key, value in given.items() for cited in method.parameters[key].cites(value))
    return (*own, *more)


def libraries(name: str) -> tuple[str, ...]:
    """The libraries whose models a method trains, found by making it ready for a small fleet.

    A method of the user's own that asks for the model of JAX (`Setting.model`) trains no others.

    Args:
        name: as it stands in a comparison; parameters may decide it.

    Returns:
        Some of ``"jax"`` and ``"torch"``; none if the method cannot be made ready there.

    Raises:
        ScenarioError: the method or a parameter is unknown.

    >>> libraries("d-psgd"), libraries("pens")
    (('jax', 'torch'), ('jax', 'torch'))
    """
    _parse(name)
    small = {"devices.count": 6, "network.topology": "complete", "plan.iterations": 4}
    scenario = Scenario.preset("adaptive").override(small)
    try:
        build(name, Setting(scenario, model=TorchModel("a module", None), parameters=650))
    except NotOfJaxError:
        return ("jax",)
    except Exception:  # the user's own may ask for anything
        return ()
    return ("jax", "torch")


def split(text: str) -> list[str]:
    """Take a list of methods apart; commas also separate the parameters of one."""
    methods: list[str] = []
    for piece in (part.strip() for part in text.split(",")):
        # A parameter has its equals sign before any colon; a method never has.
        if methods and "=" in piece.partition(":")[0]:
            methods[-1] += f",{piece}"
        elif piece:
            methods.append(piece)
    return methods


_TRACES = ("availability", "harvest_w", "positions", "leave")


def build(
    name: str,
    scenario: Scenario | Setting,
    *,
    equal: str = "iterations",
    seeds: Sequence[int] = (0,),
    model: Model | TorchModel | None = None,
    parameters: int | None = None,
    data: Dataset | None = None,
) -> Contender:
    """Make a method ready for a scenario.

    Args:
        name: for instance ``"adaptive:backfill"``, ``"fixed:3"``, ``"balanced:tau1=4,tau2=2"``.
        scenario: what is asked; or a `Setting`, made once for several methods.
        equal: ``"iterations"``, ``"batteries"``, ``"time"`` or ``"budget"``; see `Setting`.
        seeds: repetition seeds.
        model: the user's own model.
        parameters: its size, if the model itself is not at hand.
        data: the user's own data, in place of the scenario's.

    Returns:
        The contender.

    Raises:
        ScenarioError: unknown method or parameter.
        InfeasibleError: the budget does not pay for one iteration.

    >>> contender = build("fixed:3", Scenario.preset("adaptive"), equal="batteries")
    >>> int(contender.schedule.rounds.max()), bool((contender.leftover_j() >= 0).all())
    (3, True)
    """
    method, given = _parse(name)
    if not isinstance(scenario, Setting):
        scenario = Setting(scenario, equal, seeds, model=model, parameters=parameters, data=data)
    setting = scenario
    with named_refusals(lambda: setting.ground.names):
        try:
            made = method.build(name, setting, given)
        except NotOfJaxError:
            raise NotOfJaxError(
                f"{name} asks for setting.model, which is of JAX, and {setting.module} is a "
                f"PyTorch module: leave {name} out, or use context.losses in its exchange"
            ) from None
    if not isinstance(made, Contender):
        raise ScenarioError(
            f"the builder of {name!r} ({place_of(method.build)}) gives {type(made).__name__}: "
            "return setting.contender(...)"
        )
    if setting.world.traces.given and not made.traced:
        devices = setting.scenario.devices
        given_here = [f"devices.{one}" for one in _TRACES if getattr(devices, one)]
        raise ScenarioError(
            f"{name} does not follow {' and '.join(given_here)}, by which devices come, go, move "
            "or recharge: make it with walk(setting, name, follow), as the methods that come with "
            "Joulemesh are, or leave the field out"
        )
    if setting.world.packets is not None and not made.drawn and made.reserve.bits.any():
        said = "where devices come, go, move or recharge, " * made.traced
        raise ScenarioError(
            f"{said}{name} does not say what becomes of messages that are lost "
            "(joulemesh.methods.walk); choose a method that is planned (adaptive, spread, "
            "inverse), or set network.packet_error = 0"
        )
    return _rounded(setting, made)


def _rounded(setting: Setting, made: Contender) -> Contender:
    """The method with messages rounded as ``network.bits_per_parameter`` says, if it has not.

    A method's own exchange is rounded by training (`Exchange.rounds`); of a schedule that has
    matrices, what is sent is rounded before, and what comes of it.
    """
    wire = rounded_to(setting.scenario.network.bits_per_parameter)
    if not wire or made.schedule.wire:
        return made
    if made.exchange is not None:
        return replace(made, schedule=replace(made.schedule, wire=wire))
    schedule = replace(
        made.schedule,
        mixing=exchanges_of_matrices(made.schedule, wire),
        mixing_rounds=1,
        exact=np.zeros(made.schedule.iterations, bool),
        wire=wire,
    )
    return replace(made, schedule=schedule)


def _parse(text: str) -> tuple[Method, dict[str, Any]]:
    name, colon, rest = text.strip().partition(":")
    method = METHODS[name]
    given: dict[str, Any] = {}
    for index, piece in enumerate(rest.split(",") if colon else []):
        key, equals, value = piece.partition("=")
        if not equals and index == 0 and method.main is not None:
            key, value = method.main, piece
        if key not in method.parameters:
            listed = ", ".join(method.parameters)
            known = f"known parameters: {listed}" if listed else "it takes none"
            raise ScenarioError(f"{text}: {name} has no parameter {key!r}; {known}")
        if key in given:
            raise ScenarioError(f"{text}: {key} is given twice: give it once")
        parameter = method.parameters[key]
        if not _GIVEN.fullmatch(value):
            raise ScenarioError(
                f"{name}: {key} = {value!r} is unusable: use letters, digits and . + - _ / % : *"
            )
        try:
            given[key] = parameter.read(value)
        except ValueError:
            wrong = "is out of range: give" if _is_number(value) else "is not a number: give"
            wrong = "is not" if parameter.words else wrong
            raise ScenarioError(f"{text}: {key} = {value!r} {wrong} {parameter.what}") from None
    return method, given


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
