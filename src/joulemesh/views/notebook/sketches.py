"""Small pictures in SVG, in the colour of the text around them: a curve, and a map."""

from __future__ import annotations

__all__ = ["curve_svg", "map_svg"]

import base64
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.plan import Plan
from joulemesh.views.palette import BINDING_ON_ANY
from joulemesh.views.run.charts import map_data

FloatArray = NDArray[np.floating[Any]]

_LINE = BINDING_ON_ANY["deadline"]
_WIDTH, _HEIGHT, _SIDE = 360, 150, 200
_MOST_DOTS = 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 22


def curve_svg(
    x: NDArray[Any],
    y: FloatArray,
    *,
    band: tuple[FloatArray, FloatArray] | None = None,
    zero: bool = False,
    percent: bool = False,
) -> str:
    """One curve over the iterations, with the ends of its axes.

    Args:
        x: iterations, ascending.
        y: figures.
        band: low and high around them.
        zero: begin the axis at 0.
        percent: figures are fractions.

    Returns:
        An ``svg`` element.

    >>> curve_svg(np.array([1, 2]), np.array([0.0, 1.0]), percent=True).count("100.0&nbsp;%")
    1
    """
    parts = [y] if band is None else [y, *band]
    known = np.concatenate([part[np.isfinite(part)] for part in parts])
    if not len(known):
        return "<p><small>no finite figure to draw</small></p>"
    low, high = float(known.min()), float(known.max())
    low = min(low, 0.0) if zero else low
    high = high if high > low else low + 1.0

    def points(values: FloatArray) -> list[str]:
        across = (x - x[0]) / max(float(x[-1] - x[0]), 1.0)
        px = _LEFT + across * (_WIDTH - _LEFT - _RIGHT)
        py = _HEIGHT - _BOTTOM - (values - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)
        return [f"{a:.1f},{b:.1f}" for a, b in zip(px, py, strict=True) if np.isfinite(b)]

    shade = ""
    if band is not None:
        around = " ".join(points(band[0]) + points(band[1])[::-1])
        shade = f'<polygon points="{around}" fill="{_LINE}" opacity=".22"/>'
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    words = [
        (_LEFT - 5, bottom + 3, "end", _figure(low, percent)),
        (_LEFT - 5, _TOP + 8, "end", _figure(high, percent)),
        (_LEFT, _HEIGHT - 6, "start", f"{int(x[0]):,}"),
        (right, _HEIGHT - 6, "end", f"{int(x[-1]):,}"),
    ]
    labels = "".join(f'<text x="{a}" y="{b}" text-anchor="{c}">{d}</text>' for a, b, c, d in words)
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" '
        f'opacity=".35"/>{shade}<polyline points="{" ".join(points(y))}" fill="none" '
        f'stroke="{_LINE}" stroke-width="2" stroke-linejoin="round"/>{labels}</svg>'
    )


def _figure(value: float, percent: bool) -> str:
    return f"{100 * value:.1f}&nbsp;%" if percent else f"{value:.3g}"


def map_svg(plan: Plan) -> str:
    """Devices in the colour of what binds them, links, and the route on top.

    >>> import joulemesh
    >>> picture = map_svg(joulemesh.plan(joulemesh.Scenario.preset("adaptive")))
    >>> picture.count("<circle"), picture.count("<title>")
    (20, 20)
    """
    opening = f'<svg width="{_SIDE}" height="{_SIDE}" viewBox="0 0 {_SIDE} {_SIDE}" role="img">'
    if plan.world.graph.devices > _MOST_DOTS:
        from joulemesh.views.plan.figure import map_image  # needs matplotlib, which takes a second

        picture = base64.b64encode(map_image(plan, 2 * _SIDE)).decode("ascii")
        size = f'width="{_SIDE}" height="{_SIDE}"'
        return f'{opening}<image href="data:image/png;base64,{picture}" {size}/></svg>'
    data = map_data(plan)
    left, right, bottom, top = data["frame"]
    scale = _SIDE / max(right - left, top - bottom)
    at = [((x - left) * scale, (top - y) * scale) for x, y in data["at"]]

    def lines(ends: list[list[int]], style: str) -> str:
        path = "".join(
            f"M{at[i][0]:.1f} {at[i][1]:.1f}L{at[j][0]:.1f} {at[j][1]:.1f}" for i, j in ends
        )
        return f'<path d="{path}" fill="none" stroke="currentColor" {style}/>' if ends else ""

    radius = 5.0 if len(at) <= 60 else 2.2
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius * (1.6 if i == data["root"] else 1):.1f}" '
        f'fill="{BINDING_ON_ANY[data["binding"][i]]}">'
        f"<title>{escape(plan.name(i))}: {data['rounds'][i]:,} rounds</title></circle>"
        for i, (x, y) in enumerate(at)
    )
    thin = lines(data["links"]["ends"], 'stroke-width=".8" opacity=".22"')
    thick = lines(data["route"]["ends"], 'stroke-width="2.6"')
    return f"{opening}{thin}{thick}{dots}</svg>"
