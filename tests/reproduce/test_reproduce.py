"""The reproduction: how curves are trained and kept, and all figures at quick size."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from joulemesh.base.errors import ScenarioError
from joulemesh.cli.studies import publication
from joulemesh.cli.studies import reproduce as command
from joulemesh.data import partition
from joulemesh.models.curves import CURVES
from joulemesh.study import record
from joulemesh.study.record import Entry, Record
from joulemesh.training.learner import DivergedError
from joulemesh.views.markdown import escape
from yan_li_2024 import FIGURES, LEARNED, fig6, fig9, redo
from yan_li_2024.clock import Account, Chunk
from yan_li_2024.folder import reproduce
from yan_li_2024.jobs import Job, pad, planned
from yan_li_2024.runner import Runner, Step
from yan_li_2024.sentences import SENTENCES
from yan_li_2024.stage import DIGITS

SEEDS = (0, 1)


def job(label: str, rounds: list[int], *, devices: int = 4, padded_to: int = 0) -> Job:
    scenario = DIGITS.scenario(devices, partition="dirichlet 0.5", each=100, eval_every=2, chunk=3)
    return planned(label, scenario, rounds, padded_to=padded_to)


# Curves -----------------------------------------------------------------------------------------


def test_padding_keeps_everybodys_samples() -> None:
    held = partition(np.arange(40) % 4, 3, kind="dirichlet", seed=5, sizes=[7, 9, 4])
    padded = pad(held, 6, 5, 50)
    assert padded.sizes.tolist() == [7, 9, 4, 5, 5, 20]
    assert len(padded.order) == 50
    for device in range(3):
        assert padded.indices(device).tolist() == held.indices(device).tolist()


@pytest.mark.slow
def test_padded_curves_equal_plain_ones(tmp_path: Path) -> None:
    """Devices that never take part change nothing but the shape of the program's arrays."""
    runner = Runner(SEEDS, cache=tmp_path)
    rounds = [2, 1, 3, 2]
    found = runner.train([job("plain", rounds), job("padded", rounds, padded_to=7)])
    plain, padded = found["plain"], found["padded"]
    assert plain.iteration.tolist() == padded.iteration.tolist() == [2, 4]
    for curve in CURVES:
        if curve != "train_loss":  # measured on other samples of each device
            np.testing.assert_allclose(padded.curves[curve], plain.curves[curve], atol=2e-5)
    # Both are the mean of four devices' losses on samples of their own.
    np.testing.assert_allclose(padded.curves["train_loss"], plain.curves["train_loss"], rtol=0.3)
    assert runner.account.device_steps == 2 * 2 * 4 * sum(rounds)  # curves, seeds, devices


def test_only_what_is_missing_is_computed(tmp_path: Path) -> None:
    first, second = job("first", [1, 2]), job("second", [2, 1])
    runner = Runner(SEEDS, cache=tmp_path)
    alone = runner.train([first])["first"]
    assert (runner.account.computed, runner.account.cached) == (2, 0)
    again = Runner(SEEDS, cache=tmp_path)
    both = again.train([first, second])
    assert (again.account.computed, again.account.cached) == (2, 2)
    for curve in CURVES:
        assert both["first"].curves[curve].tolist() == alone.curves[curve].tolist()


def test_an_interrupted_figure_keeps_its_finished_curves(tmp_path: Path) -> None:
    jobs = [job("first", [1, 2]), job("second", [2, 1])]

    def interrupt(step: Step) -> None:
        if step.label == "second":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Runner(SEEDS, cache=tmp_path, on_step=interrupt).train(jobs)
    after = Runner(SEEDS, cache=tmp_path)
    after.train(jobs)
    assert (after.account.computed, after.account.cached) == (2, 2)


def test_a_diverged_seed_is_replaced_so_that_the_program_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineups: list[tuple[int, ...]] = []

    def together(*given: Any) -> list[Record]:
        seeds = given[-1]
        lineups.append(seeds)
        for seed in (7, 9):
            if seed in seeds:
                raise DivergedError(seed, seed, 0.1)
        one = Record(np.array([1]), np.ones((1, 8)), np.ones(8), np.ones(1), np.ones(1), np.ones(4))
        return [one] * len(seeds)

    monkeypatch.setattr(Runner, "_together", together)
    entry = Runner((7, 8, 9), cache=tmp_path).train([job("a", [1])])["a"]
    assert [len(seeds) for seeds in lineups] == [3, 3, 3]
    assert entry.diverged == {7: 7, 9: 9}
    assert np.isfinite(entry.final["test_accuracy"]).tolist() == [False, True, False]


def test_a_figure_whose_seeds_all_diverge_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def together(*given: Any) -> list[Record]:
        raise DivergedError(1, max(given[-1]), 0.1)

    monkeypatch.setattr(Runner, "_together", together)
    entry = Runner(SEEDS, cache=tmp_path).train([job("a", [1])])["a"]
    assert set(entry.diverged) == {0, 1}


def test_time_is_split_by_what_calls_did() -> None:
    """2 s for 10 steps and 3 s an evaluation; of the second program only another figure tells."""
    account = Account(pool=[Chunk("b", 4, 0, 4.0), Chunk("b", 4, 2, 8.0)])
    for chunk in (Chunk("a", 10, 1, 5.0), Chunk("a", 20, 0, 4.0), Chunk("b", 4, 1, 6.0)):
        account.charge(chunk)
    training, evaluating = account.split()
    assert (training, evaluating) == pytest.approx((2 + 4 + 4, 3 + 2))


def entry_of(curves: list[list[float]], iteration: list[int]) -> Entry:
    records = {
        seed: Record(
            np.array(iteration),
            np.tile(np.array(curve)[:, None], (1, 8)),
            np.zeros(8),
            np.zeros(len(curve)),
            np.zeros(len(curve)),
            np.zeros(1),
        )
        for seed, curve in enumerate(curves)
    }
    return record.entry_of("a", records, np.zeros(1))


def test_iterations_to_a_target_by_hand() -> None:
    curves = [
        [0.3, 0.6, 0.7],  # between 10 and 20: 10 + (0.5 − 0.3)/(0.6 − 0.3) · 10
        [0.6, 0.7, 0.8],  # between 0 (accuracy 0.1) and 10: 0.4/0.5 · 10
        [0.2, 0.3, 0.4],  # never: the whole run
        [0.2, 0.5, 0.4],  # reached exactly
    ]
    reached = fig6.iterations_to(entry_of(curves, [10, 20, 30]), 0.5)
    assert reached == pytest.approx([10 + 20 / 3, 8.0, 30.0, 20.0])


class EnoughError(Exception):
    """All that is wanted of a figure is known."""


class Listening:
    """A runner that only hears what it should train."""

    seeds = SEEDS

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def train(self, jobs: list[Job]) -> Any:
        self.jobs += jobs
        raise EnoughError


def test_few_programs_serve_all_curves() -> None:
    """Compiling is most of a quick figure's time: curves that can share a program do."""
    programs: set[Any] = set()
    for name in LEARNED:
        runner: Any = Listening()
        with pytest.raises(EnoughError):
            redo(name, quick=True, runner=runner)
        labels = [one.label for one in runner.jobs]
        assert len(set(labels)) == len(labels)
        for one in runner.jobs:
            schedule, training = one.contender.schedule, one.scenario.training
            mixing = schedule.mixing
            each = isinstance(mixing, np.ndarray) and len(mixing) > 1  # a matrix per iteration
            samples = training.eval_device_samples
            shape = (schedule.devices, schedule.kind, each, training.chunk_iterations, samples)
            programs.add((one.contender.exchange, *shape))
    # Mean, dense, GL and PENS of 6 devices; Fig. 5's mean and Fig. 6's dense of 7.
    assert len(programs) == 6


# Fig. 9's terms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", fig9.CONFIG.rounds)
@pytest.mark.parametrize("arena", fig9.CONFIG.arenas)
def test_fig9_batteries_just_pay_for_the_adaptive_plan(arena: fig9.Arena, rounds: int) -> None:
    scenario = fig9.calibrated(fig9.CONFIG, arena, rounds)
    made = fig9.contenders(fig9.CONFIG, scenario, rounds, "energy")
    adaptive = made[fig9.ADAPTIVE]
    assert (adaptive.schedule.rounds.sum(axis=0) == arena.iterations * rounds).all()
    compute_j = adaptive.reserve.compute_j.sum(axis=0) / (arena.iterations * rounds)
    assert adaptive.leftover_j() == pytest.approx(compute_j / 2)  # half a round to spare
    for contender in made.values():
        assert (contender.leftover_j() >= 0).all()
        assert contender.schedule.iterations >= 1
    for label in ("GL", "balanced DFL", "PENS"):
        assert (made[label].schedule.rounds == rounds).all()


# All of it, at quick size -----------------------------------------------------------------------


def call(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


class Quick:
    """`joulemesh reproduce all --quick`, once for all tests of this file."""

    def __init__(self, folder: Path) -> None:
        self.out, self.cache = folder / "out", folder / "cache"
        self.result = call("all", "--quick", "--out", str(self.out), "--cache", str(self.cache))

    def rows(self, name: str) -> list[dict[str, str]]:
        with (self.out / f"{name}.csv").open(encoding="utf-8") as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    return Quick(tmp_path_factory.mktemp("reproduction"))


@pytest.mark.slow
def test_every_figure_is_produced(quick: Quick) -> None:
    assert quick.result.exit_code == 0, quick.result.output
    for name in FIGURES:
        assert quick.rows(name), name
        for suffix, head in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
            assert (quick.out / f"{name}{suffix}").read_bytes().startswith(head)
    assert (quick.out / "fig9-energy.svg").is_file()


@pytest.mark.slow
def test_every_claim_has_a_verdict_and_two_seeds_decide_nothing(quick: Quick) -> None:
    rows = quick.rows("claims")
    assert [row["id"] for row in rows] == [one.id for one in SENTENCES]
    for row in rows:
        if row["figure"] in LEARNED:
            assert row["verdict"] == "undecided", row
            assert row["basis"] == "2 seeds"
        else:
            assert row["verdict"] in ("holds", "does not hold", "depends"), row
            assert row["basis"] == "exact"
    assert (quick.out / "claims.md").read_text("utf-8").count("\n") == len(rows) + 2
    count = len({row["sentence"] for row in rows})
    assert f"of {count} sentences ({len(rows)} tests)" in quick.result.stdout
    assert not [row for row in rows if "T = 400" in row["quantity"]]


@pytest.mark.slow
def test_the_page_shows_every_figure_and_sentence(quick: Quick) -> None:
    page = (quick.out / "README.md").read_text("utf-8")
    for name in FIGURES:
        assert f"({name}.png)" in page
    for one in SENTENCES:
        assert escape(one.sentence) in page
    assert "`joulemesh reproduce all --quick`" in page
    assert str(quick.out) not in page  # nothing of this machine's folders


@pytest.mark.slow
def test_where_the_time_went(quick: Quick) -> None:
    timings = json.loads((quick.out / "timings.json").read_text("utf-8"))
    assert timings["size"] == "quick"
    assert {"jax", "python", "accelerator", "joulemesh"} <= set(timings["machine"])
    assert list(timings["figures"]) == list(FIGURES)
    for name, row in timings["figures"].items():
        assert (row["device_steps"] > 0) == (name in LEARNED)
        parts = row["compile_s"] + row["train_s"] + row["evaluate_s"]
        assert parts <= row["wall_s"] + 0.1


@pytest.mark.slow
def test_device_steps_are_what_was_asked_for(quick: Quick) -> None:
    """Fig. 8: two halves of 4 and 5 schemes, each spending its whole total on every device."""
    timings = json.loads((quick.out / "timings.json").read_text("utf-8"))
    each = 2 * (4 * 48 + 5 * 24) * 6 * 2  # partitions, rounds, devices, seeds
    assert timings["figures"]["fig8"]["device_steps"] == each


@pytest.mark.slow
def test_what_methods_spent_is_within_equal_batteries(quick: Quick) -> None:
    energy: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in quick.rows("fig9"):
        place = energy.setdefault((row["task"], row["rounds"], row["equal"]), {})
        place[row["method"]] = float(row["total_energy_j"])
    assert len(energy) == 2 * 2 * 2
    for (task, rounds, equal), spent in energy.items():
        assert set(spent) == {"adaptive", "GL", "balanced DFL", "PENS"}
        same = energy[task, rounds, "iterations"]["adaptive"]
        assert spent["adaptive"] == same  # the same run serves both
        if equal == "energy":  # all batteries hold half a round more than the plan spends
            assert max(spent.values()) <= same * 1.1


@pytest.mark.slow
def test_called_again_nothing_is_computed_and_the_same_is_written(quick: Quick) -> None:
    assert quick.result.exit_code == 0
    kept = [*quick.out.glob("*.csv"), *quick.out.glob("*.svg"), quick.out / "claims.md"]
    before = {path: path.read_bytes() for path in kept}
    made = reproduce(
        ["fig4", "fig7", "fig9"],
        quick=True,
        out=quick.out,
        cache=quick.cache,
        command="joulemesh reproduce all --quick",
    )
    assert made.computed == 0
    assert {path: path.read_bytes() for path in kept} == before


@pytest.mark.slow
def test_figures_and_page_can_be_had_again_from_the_numbers(quick: Quick, tmp_path: Path) -> None:
    """Nothing is trained: all that is drawn and written is in the tables."""
    out = tmp_path / "again"
    shutil.copytree(quick.out, out)
    drawn = [path for path in out.iterdir() if path.suffix in (".png", ".svg", ".md")]
    before = {path: path.read_bytes() for path in out.iterdir() if path not in drawn}
    for path in drawn:
        path.unlink()
    done = call("--redraw", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert {path: path.read_bytes() for path in before} == before
    assert all(path.is_file() for path in drawn)
    assert (out / "README.md").read_bytes() == (quick.out / "README.md").read_bytes()


@pytest.mark.slow
def test_one_figure_alone_keeps_the_others_verdicts(quick: Quick) -> None:
    count = len(quick.rows("claims"))
    made = reproduce(["table1"], quick=True, out=quick.out, cache=quick.cache)
    assert list(made.outcomes) == ["table1"]
    assert len(made.claims) == len(quick.rows("claims")) == count


# Refusals ---------------------------------------------------------------------------------------


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No data set can be had; tells which were asked for."""
    asked: list[str] = []

    def refuse(scenario: Any, data: Any = None) -> Any:
        asked.append(scenario.training.dataset)
        raise ScenarioError(f"{asked[-1]}: files.gz was not found in /data: name its folder")

    monkeypatch.setattr("yan_li_2024.runner.the_dataset", refuse)
    return asked


def test_missing_data_cost_their_own_figures_only(no_data: list[str], tmp_path: Path) -> None:
    made = reproduce(["fig5", "table1", "fig6", "fig8"], out=tmp_path / "out", cache=tmp_path)
    assert list(made.outcomes) == ["table1"]
    assert set(made.failures) == {"fig5", "fig6", "fig8"}
    assert made.failures["fig5"] == "mnist: files.gz was not found in /data: name its folder"
    assert no_data == ["mnist", "cifar-10"]  # each is asked for once
    page = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "Not redone: mnist: files.gz was not found" in page


def test_without_the_sources_it_is_said_where_they_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An installed package has none beside it; a checkout that one stands in has."""
    monkeypatch.setattr("joulemesh.__file__", str(tmp_path / "lib" / "joulemesh" / "__init__.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError, match="comes with the sources"):
        publication()
    monkeypatch.chdir(Path(__file__).parents[2])
    assert publication().FIGURES == FIGURES
