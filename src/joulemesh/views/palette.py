"""Colours of everything that is drawn; a module of its own, since pages need no Matplotlib."""

from __future__ import annotations

__all__ = [
    "BINDING",
    "BINDING_ON_ANY",
    "BINDING_PRINTED",
    "CURVES",
    "HUB",
    "INK",
    "PRINTED",
    "SKIPPED",
]

# Okabe and Ito's colours, told apart by colour-blind readers too. Their yellow is too pale for a
# curve on white: an eighth curve is ochre.
_BLUE, _VERMILLION, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_ORANGE, _SKY, _BLACK, _YELLOW = "#E69F00", "#56B4E9", "#000000", "#F0E442"

CURVES = (_BLUE, _VERMILLION, _GREEN, _PURPLE, _ORANGE, _SKY, _BLACK, "#8A6D00")
"""Of curves in one figure, in this order."""

PRINTED = (
    "#255BA0",
    "#EE550E",
    "#51174E",
    "#6CA7DC",
    "#A15D79",
    "#000000",
    "#862505",
    "#AAC07B",
)
"""Of curves on paper, in this order: apart by lightness alone, so that a grey print shows them."""

BINDING = {
    "energy": _VERMILLION,
    "deadline": _BLUE,
    "time": _PURPLE,
    "idle": _ORANGE,
    "policy": _GREEN,
    "left": "#7F7F7F",
}
"""Of devices, by what limits their rounds."""

BINDING_ON_ANY = {
    "energy": "#e0701a",
    "deadline": "#2a8fd0",
    "time": "#c2699a",
    "idle": "#b98200",
    "policy": "#12a67c",
    "left": "#8a8f98",
}
"""The same, brightened or darkened until they stand on white and on black."""

BINDING_PRINTED = {
    "energy": "#EE550E",
    "deadline": "#255BA0",
    "time": "#51174E",
    "idle": "#6CA7DC",
    "policy": "#AAC07B",
    "left": "#D2D2D2",
}
"""The same on paper, apart by lightness alone."""

HUB = _YELLOW
"""Of the star that marks the root of a tree."""

SKIPPED = _VERMILLION
"""Of iterations that go without an exchange."""

INK = "#18212D"
"""Of a route's edge, so that it is the boldest line whatever its links cost."""
