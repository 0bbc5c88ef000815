from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.container import BarContainer

import joulemesh
from joulemesh.planning.plan import Plan
from joulemesh.views import charts as digest
from joulemesh.views.charts import link_energy_j
from joulemesh.views.plan_figure import energy_bands, plan_figure
from joulemesh.views.printing import BINDING
from joulemesh.views.style import save_figure

KINDS = ["default", "paper-grid", "fading", "leave", "gossip", "tiny", "many"]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_plan_is_drawn(plans: dict[str, Plan], name: str, tmp_path: Path) -> None:
    plan = plans[name]
    figure = plan_figure(plan)
    titles = [axes.get_title(loc="left") for axes in figure.axes[:3]]
    assert [title[:3] for title in titles] == ["(a)", "(b)", "(c)"]
    heading = figure.get_suptitle()
    assert heading.startswith(f"{plan.scheme.capitalize()}, {len(plan.energy_budget_j):,} devices")
    assert f"n = {plan.iterations:,} " in heading
    keys = [text.get_text() for text in figure.legends[0].get_texts()]
    unused = len(plan.world.graph.edges) - len(np.unique(plan.timeline.route.link_index))
    assert "route" in keys
    assert (f"links not used ({unused:,})" in keys) == (unused > 0)
    (path,) = save_figure(figure, tmp_path / "plan", "png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_map_shows_each_link_and_the_route_by_energy(plans: dict[str, Plan]) -> None:
    plan = plans["leave"]
    axes = plan_figure(plan).axes[0]
    links, route = [c for c in axes.collections if isinstance(c, LineCollection)]
    assert len(links.get_segments()) == len(plan.world.graph.edges)
    assert len(route.get_segments()) == len(plan.edges)
    expected = link_energy_j(plan, np.unique(plan.timeline.route.link_index)) * 1e3  # millijoules
    assert np.allclose(np.asarray(route.get_array()), expected)
    ends = plan.world.graph.positions_m[plan.world.graph.edges[plan.timeline.route.link_index[0]]]
    assert any(np.allclose(segment, ends) for segment in route.get_segments())


def test_departed_devices_are_hollow_and_the_root_is_marked(plans: dict[str, Plan]) -> None:
    plan = plans["leave"]
    axes = plan_figure(plan).axes[0]
    here, gone, root = [c for c in axes.collections if isinstance(c, PathCollection)]
    assert len(np.asarray(here.get_offsets())) == (plan.binding != "left").sum()
    assert len(np.asarray(gone.get_offsets())) == (plan.binding == "left").sum() > 0
    assert {to_hex(face) for face in to_rgba_array(gone.get_facecolor())} == {"#ffffff"}
    assert np.allclose(
        np.asarray(root.get_offsets())[0], plan.world.graph.positions_m[plan.timeline.route.root]
    )


def test_the_heat_map_holds_the_rounds_and_masks_who_left(plans: dict[str, Plan]) -> None:
    plan = plans["leave"]
    image = plan_figure(plan).axes[1].images[0].get_array()
    assert isinstance(image, np.ma.MaskedArray)
    assert np.array_equal(np.ma.getmaskarray(image).T, ~plan.active)
    assert np.array_equal(image.T.filled(0), plan.rounds)


def test_skipped_exchanges_are_ticks_on_the_top_axis(plans: dict[str, Plan]) -> None:
    plan = plans["fading"]
    axes = plan_figure(plan).axes[1]
    (above,) = axes.child_axes
    assert above.get_xticks().tolist() == (np.flatnonzero(~plan.exchanged) + 1).tolist()
    assert 0 < len(above.get_xticks()) < plan.iterations
    assert f"{(~plan.exchanged).sum()} of {plan.iterations}" in axes.get_title(loc="left")


def test_bars_are_the_ledger(plans: dict[str, Plan]) -> None:
    plan = plans["gossip"]
    axes = plan_figure(plan).axes[2]
    drawn = [bars for bars in axes.containers if isinstance(bars, BarContainer)]
    training, exchange, battery = [[bar.get_height() for bar in bars] for bars in drawn]
    assert np.allclose(training, plan.compute_total_j)
    assert np.allclose(exchange, plan.exchange_total_j)
    assert np.allclose(battery, plan.energy_budget_j)
    colours = [to_hex(patch.get_facecolor()).upper() for patch in drawn[0]]
    assert colours == [BINDING[kind] for kind in plan.binding.tolist()]


def test_bands_are_quantiles_of_the_sorted_devices(plans: dict[str, Plan]) -> None:
    plan = plans["many"]
    bounds, battery, spent = energy_bands(plan, 7)
    order = np.lexsort((plan.spent_j, plan.energy_budget_j))
    for k in range(7):
        mine = order[bounds[k] : bounds[k + 1]]
        assert battery[k] == pytest.approx(plan.energy_budget_j[mine].mean())
        for kind, table in spent.items():
            values = plan.spent_j[mine][plan.binding[mine] == kind]
            if len(values):
                assert np.allclose(table[:, k], np.quantile(values, (0.05, 0.5, 0.95)))
            else:
                assert np.isnan(table[:, k]).all()
    assert bounds[-1] == len(order)


def test_many_links_are_thinned_and_the_title_says_so(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plans["many"]
    monkeypatch.setattr(digest, "_MOST_DRAWN", len(plan.edges))
    axes = plan_figure(plan).axes[0]
    links, route, *_ = axes.collections
    for collection in (links, route):
        shades, levels = collection.get_paths(), np.asarray(collection.get_array())
        assert sum(len(np.asarray(path.vertices)) // 2 for path in shades) == len(plan.edges)
        assert len(shades) == len(levels) == 64
        assert (np.diff(levels) <= 0).all()  # the cheap ones last, on top
        assert collection.get_rasterized()
    ends = {tuple(end) for path in route.get_paths() for end in np.asarray(path.vertices).tolist()}
    assert ends == set(map(tuple, plan.world.graph.positions_m.tolist()))  # a tree has all devices
    share = len(plan.edges) / len(plan.world.graph.edges)
    assert axes.get_title(loc="left").startswith(f"(a)  {share:.0%} of the links")


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("PDF", b"%PDF")])
def test_the_same_plan_gives_the_same_file(
    plans: dict[str, Plan], tmp_path: Path, suffix: str, start: bytes
) -> None:
    for name in ("a", "b"):
        save_figure(plan_figure(plans["tiny"]), tmp_path / name, suffix)
    first, second = (path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert first.startswith(start)
    assert first == second
    assert len(list(tmp_path.iterdir())) == 2


def test_equal_links_have_a_colour_scale(tmp_path: Path) -> None:
    square = {"devices.x_m": [0, 100, 100, 0], "devices.y_m": [0, 0, 100, 100]}
    scenario = joulemesh.Scenario.preset("adaptive").override({"devices.count": 4, **square})
    figure = plan_figure(joulemesh.plan(scenario))
    save_figure(figure, tmp_path / "square", "png")
    low, high = figure.axes[0].collections[0].get_clim()
    assert low < high
