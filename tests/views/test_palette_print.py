"""Curves on paper: told apart in grey, by colour-blind readers, and on white."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from numpy.typing import NDArray

from joulemesh.views.figures import curve_look
from joulemesh.views.printing import BINDING_PRINTED, PRINTED

FloatArray = NDArray[np.float64]

# Machado, Oliveira, Fernandes: "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", IEEE Transactions on Visualization and Computer Graphics 15(6), 2009; severity 1.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.072175],
        [0.0193339, 0.119192, 0.9503041],
    ]
)


def linear(colour: str) -> FloatArray:
    """Linear light of an sRGB colour."""
    values = np.array(to_rgb(colour))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(light: FloatArray) -> FloatArray:
    """CIELAB, D65."""
    ratio = TO_XYZ @ light / np.array([0.95047, 1.0, 1.08883])
    root = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = root
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def lightness(colour: str) -> float:
    return float(lab(linear(colour))[0])


def test_lightness_is_measured_as_it_should_be() -> None:
    assert lightness("#000000") == pytest.approx(0, abs=1e-3)
    assert lightness("#ffffff") == pytest.approx(100, abs=1e-3)
    assert lightness("#777777") == pytest.approx(50.03, abs=0.05)


@pytest.mark.parametrize("colours", [PRINTED, tuple(BINDING_PRINTED.values())])
def test_colours_on_paper_differ_in_grey(colours: tuple[str, ...]) -> None:
    for one, other in combinations(colours, 2):
        assert abs(lightness(one) - lightness(other)) >= 8, (one, other)


def test_neighbouring_curves_differ_most_in_grey() -> None:
    for one, other in pairwise(PRINTED):
        assert abs(lightness(one) - lightness(other)) >= 17, (one, other)


@pytest.mark.parametrize("vision", VISION)
def test_curves_on_paper_differ_for_every_eye(vision: str) -> None:
    seen = [lab(np.clip(VISION[vision] @ linear(one), 0, 1)) for one in PRINTED]
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(one - other) >= 25


def test_curves_differ_without_colour() -> None:
    looks = [curve_look(k) for k in range(56)]
    assert len({look["color"] for look in looks[:8]}) == 8
    assert len({str(look["linestyle"]) for look in looks[:8]}) == 8
    assert len({look["marker"] for look in looks[:7]}) == 7
    assert len({(str(look["linestyle"]), look["marker"]) for look in looks}) == 56
