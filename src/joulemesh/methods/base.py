"""What a method is: a contender, its parameters as they are read, and methods by name.

A name is ``method``, ``method:value`` or ``method:key=value,key=value``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require_call
from joulemesh.base.registry import Citation, Registry
from joulemesh.ledger import Ledger
from joulemesh.tolerance import left_of
from joulemesh.training.arrays import tree_map

if TYPE_CHECKING:
    from joulemesh.methods.setting import Setting
    from joulemesh.planning.plan import Plan
    from joulemesh.training.exchange import Exchange
    from joulemesh.training.schedule import Schedule

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Contender:
    """A method made ready for one scenario.

    Attributes:
        name: as the user wrote it, for instance ``"fixed:3"``.
        schedule: what the engine plays.
        exchange: the method's own exchange; None for the schedule's mixing.
        reserve: what the iterations cost, known before training; for a method whose messages
            depend on the weights (``settle`` is given), what they cost at most.
        battery_j: float64 [N].
        notes: what a reader of the results should know, one line each.
        settle: what one repetition's ``sent`` (a pytree of [n, ...]) cost.
        plan: the plan that the schedule carries out from its beginning to its end, if there is one.
        traced: does it follow the traces of the scenario's devices?
        drawn: where packets are lost, are transmissions and lost messages drawn, and not merely
            priced as expected?
        clocked: are its joules those of the scenario's clocks (``plan.clock``)? Of others, devices
            compute no faster than the slowest needs.
        variants: the same method with other values of a parameter that it chose itself, as a user
            would write them: they are tried where learning rates are.
    """

    name: str
    schedule: Schedule
    exchange: Exchange | None
    reserve: Ledger
    battery_j: FloatArray
    notes: tuple[str, ...] = ()
    settle: Callable[[Any], Ledger] | None = None
    plan: Plan | None = None
    traced: bool = False
    drawn: bool = False
    clocked: bool = False
    variants: tuple[str, ...] = ()

    @property
    def simulation_only(self) -> str:
        """Why real devices cannot carry it out, in a few words; empty if they can.

        They need to know what one of them does in an exchange, and to make the plan again when one
        of them fails.
        """
        if self.exchange is not None:
            return (
                "its exchange works on the parameters of all devices at once; choose one whose "
                "exchange is a scheme's"
            )
        if self.plan is not None:
            from joulemesh.planning.plan import digest_of
            from joulemesh.planning.static import plan_of

            if digest_of(plan_of(self.plan.ground)) == digest_of(self.plan):
                return ""
        return (
            "it has no plan that devices could make again when one of them fails; say what you "
            "want in the scenario (plan.rounds, plan.exchange, …)"
        )

    @property
    def deployable(self) -> bool:
        """Can real devices carry it out?"""
        return not self.simulation_only

    def ledger(self, sent: Any = None, seed: int = 0) -> Ledger:
        """Price a run.

        Args:
            sent: the trace's ``sent``, a pytree of [n, seeds, ...]; needed only where the
                messages depend on the weights. Without it the answer is the reserve.
            seed: which of the repetitions, by position.

        Returns:
            The ledger of that repetition.
        """
        if self.settle is None or sent is None:
            return self.reserve
        return self.settle(tree_map(lambda leaf: np.asarray(leaf)[:, seed], sent))

    def leftover_j(self, ledger: Ledger | None = None) -> FloatArray:
        """float64 [N]: what stays in the batteries; negative where they are overdrawn."""
        spent = (self.reserve if ledger is None else ledger).spent_j
        return left_of(self.battery_j, spent)


AS_PLANNED = "the adaptive plan's mean"
"""The number of rounds of a method that is given none (`Setting.rounds`)."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method.

    Attributes:
        read: makes the value of a text; ValueError for one that is out of range.
        what: what the text must be, in words.
        meaning: what it decides, in words.
        default: what holds if it is not given: a text that ``read`` takes, or words.
        words: all texts that may be given, if they can be listed.
        cites: publications that a value rests on, besides the method's own.
        example: a text that may be given, where they cannot be listed.
    """

    read: Callable[[str], Any]
    what: str
    meaning: str = ""
    default: str = ""
    words: tuple[str, ...] = ()
    cites: Callable[[Any], tuple[Citation, ...]] = lambda value: ()
    example: str = ""


def whole(least: int = 1, *, meaning: str = "", default: str = "") -> Parameter:
    """A whole number of at least ``least``."""

    def read(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(text)
        return value

    return Parameter(read, f"a whole number of at least {least}", meaning, default)


def number(most: float = 1.0, *, meaning: str = "", default: str = "") -> Parameter:
    """A number above 0, up to ``most``."""

    def read(text: str) -> float:
        value = float(text)
        if not 0 < value <= most:
            raise ValueError(text)
        return value

    return Parameter(read, f"a number above 0, at most {most:g}", meaning, default)


def entry(registry: Registry[Any], *, meaning: str = "", default: str = "") -> Parameter:
    """The name of an entry of a registry, built in or the user's own."""

    def read(text: str) -> str:
        if text not in registry:
            raise ValueError(text)
        return text

    words = registry.built_in
    return Parameter(read, f"one of {', '.join(words)}", meaning, default, words)


def choice(*words: str, meaning: str = "", default: str = "") -> Parameter:
    """One of some words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return Parameter(read, f"one of {', '.join(words)}", meaning, default, words)


Builder: TypeAlias = "Callable[[str, Setting, Mapping[str, Any]], Contender]"


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

    >>> from joulemesh import Scenario
    >>> from joulemesh.methods import build
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
    method, given = parsed(name)
    own = () if method.citation is None else (method.citation,)
    more = (cited for key, value in given.items() for cited in method.parameters[key].cites(value))
    return (*own, *more)


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


def parsed(text: str) -> tuple[Method, dict[str, Any]]:
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
