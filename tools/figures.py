"""The pictures in docs/figures: `python -m tools.figures`, in the repository's root.

Everything but the report's screenshot needs nothing that Joulemesh does not need itself; that one
wants a browser of the Chromium family, and stays as it is where there is none.
"""

from __future__ import annotations

__all__ = ["main"]

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from joulemesh.planning.rounds import backfill, inverse, theorem4, uniform
from joulemesh.scenario import Scenario
from joulemesh.views.style import save_figure
from joulemesh.world.links import Framing, link_costs

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")  # Okabe and Ito


def _joulemesh(*words: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "joulemesh", *words], cwd=folder, check=True)


def plan_picture() -> None:
    """docs/figures/plan.png, the default scenario's plan."""
    _joulemesh("plan", "--figure", str(FIGURES / "plan.png"), folder=FIGURES)


def compare_picture() -> None:
    """docs/figures/compare.png, the tutorial's comparison."""
    with tempfile.TemporaryDirectory() as name:
        methods = ("--methods", "spread,adaptive,d-psgd", "--seeds", "3")
        _joulemesh("compare", *methods, "--out", "study", folder=Path(name))
        picture = Path(name, "study", "figure.png").read_bytes()
    (FIGURES / "compare.png").write_bytes(picture)


def rounds_picture() -> None:
    """docs/figures/rounds.svg: 300 rounds in 100 iterations of at most 6, by each policy."""
    policies = {
        "theorem4, ζ = 400 (default)": theorem4(100, 300, 6, 400.0),
        "theorem4, ζ = 100": theorem4(100, 300, 6, 100.0),
        "backfill": backfill(100, 300, 6),
        "uniform": uniform(100, 300, 6),
        "inverse": inverse(100, 300, 6, 400.0),
    }
    figure = Figure(figsize=(6.4, 3.0), layout="constrained")
    axes = figure.subplots()
    for colour, (name, rounds) in zip(COLOURS, policies.items(), strict=True):
        axes.step(np.arange(1, 101), rounds, where="mid", label=name, color=colour, linewidth=1.4)
    axes.set(xlabel="iteration t", ylabel="rounds τ", xlim=(1, 100), ylim=(0, 6.5))
    axes.legend(fontsize=8, frameon=False, loc="upper center", ncols=2, bbox_to_anchor=(0.5, 1.32))
    save_figure(figure, FIGURES / "rounds", "svg")


def links_picture() -> None:
    """docs/figures/links.svg: joules to send a megabit in packets, against distance, by radio."""
    radios = ("wifi", "bluetooth-le", "zigbee", "lora", "lte")
    distance_m = np.geomspace(1.0, 1000.0, 200)
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for colour, name in zip(COLOURS, radios, strict=True):
        scenario = Scenario(network={"profile": name})
        network, power_w = scenario.network, float(scenario.devices.transmit_power_w)
        if network.path_loss == "power-law":
            exponent = network.path_loss_exponent
            loss_db = network.path_loss_reference_db + 10 * exponent * np.log10(distance_m)
        else:
            loss_db = 128.1 + 37.6 * np.log10(distance_m / 1000)
        links = np.stack([np.zeros(200, int), np.arange(1, 201)], axis=1)
        costs = link_costs(
            links,
            10 ** (-loss_db / 10),
            np.full(201, power_w),
            network.bandwidth_hz,
            10 ** (network.noise_dbm_per_hz / 10) * 1e-3,
            network.max_rate_bps or np.inf,
        )
        costs = costs.framed(links, Framing.of(scenario)).for_messages(1e6)
        axes.loglog(distance_m, 1e6 * costs.forward_j, label=name, color=colour)
    axes.set(xlabel="distance [m]", ylabel="energy of one megabit [J]", xlim=(1, 1000))
    axes.set_ylim(1e-3, 1e4)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False, ncols=2)
    save_figure(figure, FIGURES / "links", "svg")


def report_picture() -> None:
    """docs/figures/report.png, the report of the default run."""
    from tests.browser import Browser, find_browser

    program = find_browser()
    if program is None:
        print("no browser of the Chromium family: docs/figures/report.png is left as it is")
        return
    with tempfile.TemporaryDirectory() as name, Browser(program) as browser:
        _joulemesh("run", "--seeds", "3", "--out", "run", folder=Path(name))
        browser.resize(1100, 800)
        browser.scheme("light")
        browser.open(Path(name, "run", "report.html"))
        browser.settle()
        browser.screenshot(FIGURES / "report.png")


def main() -> None:
    """Draw them all."""
    FIGURES.mkdir(exist_ok=True)
    for draw in (plan_picture, rounds_picture, links_picture, compare_picture, report_picture):
        draw()


if __name__ == "__main__":
    main()
