"""Find the best plan for a scenario's budgets, show it, and keep it in a folder."""

from __future__ import annotations

__all__ = ["Tuned", "tune"]

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from joulemesh.base.bounded import parse_json
from joulemesh.base.checksums import commit_all
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, sweep, write_text
from joulemesh.base.lock import FolderLock
from joulemesh.data import Dataset
from joulemesh.metrics import reported
from joulemesh.scenario import Scenario
from joulemesh.study.identity import asked, difference, record_of
from joulemesh.study.inputs import keep_inputs, portable
from joulemesh.study.objective import SCORE, Objective
from joulemesh.study.search import CANDIDATES, MakeTuner, Progress, tune_scenario
from joulemesh.study.space import Space
from joulemesh.study.tuning import Tuning
from joulemesh.training.prepare import said_loss, the_dataset, the_model, with_data
from joulemesh.training.software import software
from joulemesh.views.printing import ON_SCREEN, Printing

RECORD = "tuning.json"


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(Tuning):
    """A tuning that can be kept in a folder.

    Attributes:
        own_data: the user's, if it was given in memory.
        own_model: whether the model was the user's own, not the scenario's.
    """

    own_data: Dataset | None = None
    own_model: bool = False

    def save(self, folder: str | Path, *, code: Sequence[str | Path] = ()) -> None:
        """Write ``candidates.csv``, ``best.toml``, ``report.html`` and ``tuning.json``.

        ``best.toml`` is the winning scenario, which `joulemesh run` takes; ``scenario.toml`` is
        what was asked. Files that they name are copied (``inputs/``).

        Args:
            folder: made if need be; files of these names in it are replaced.
            code: Python files of the user's own, to be kept too.
        """
        place = make_folder(folder)
        with FolderLock(place):
            self._write(place, [Path(path) for path in code])

    def save_figure(
        self,
        folder: str | Path,
        *,
        formats: str | Sequence[str] | None = None,
        width: str | float | None = None,
    ) -> list[Path]:
        """Draw the candidates, their front and the winner beside what `save` wrote.

        Args:
            folder: of the tuning.
            formats: some of ``"pdf"``, ``"svg"``, ``"pgf"`` and ``"png"``, in a list or in one
                text with commas; PNG and SVG unless given.
            width: for the column of a paper: ``"ieee"``, ``"ieee-wide"``, ``"acm"``,
                ``"acm-wide"``, or inches; None for a screen.

        Returns:
            The files that were written.
        """
        from joulemesh.views.figures import tuning_figure
        from joulemesh.views.style import save_figure

        printing = Printing.asked(formats, width) or ON_SCREEN
        place = make_folder(folder)
        with FolderLock(place):
            figure = tuning_figure(self, printing.width)
            wrote = save_figure(figure, place / "figure", printing.formats)
            commit_all(place, stage="tuning")
        return wrote

    def _write(self, place: Path, code: Sequence[Path]) -> None:
        from joulemesh.study.formats import flat
        from joulemesh.views.tuning import render_tuning

        sweep(place)
        keep_inputs(self.scenario, place, self.own_data, own_model=self.own_model, code=list(code))
        write_text(place / "scenario.toml", portable(self.scenario).to_toml())
        write_text(place / "best.toml", portable(self.best).to_toml())
        write_text(place / "candidates.csv", self.to_csv())
        now = datetime.now(UTC).isoformat(timespec="seconds")
        page = render_tuning(self, versions=flat(software(self.library)), when=now)
        write_text(place / "report.html", page)
        record = {
            **_asked(
                self.scenario, self.space, self.objective, self.seeds, self.fresh, self.library
            ),
            "found": self.summary(),
            "made": now,
        }
        write_text(place / RECORD, json.dumps(record, indent=1) + "\n")
        commit_all(place, stage="tuning")


def tune(
    scenario: Scenario,
    space: Space | Mapping[str, Any] | None = None,
    objective: str = SCORE,
    *,
    seeds: int = 5,
    search_seeds: int = 3,
    candidates: int = CANDIDATES,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    cache: str | Path | None = None,
    code: Sequence[str | Path] = (),
    tuner: MakeTuner | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Tuned:
    """Find the best plan for a scenario's budgets, on its model and its data.

    Every point of the space is planned, which prices it exactly; points without a plan, and those
    that learn the same as another at a higher price, are dropped with the reason. The rest is
    trained by successive halving: all with a tenth of the joules, seconds and iterations, the best
    third of them with a third, and the best of these with the whole, at the same seeds and on the
    same batches. Half of the test samples choose the winner; the other half reports it, beside
    the scenario as it is, at seeds that no choice was made by.

    Every run is kept by content: a tuning that was stopped goes on where it was when it is asked
    for again, and finds the same.

    Args:
        scenario: what is asked; it is also the first candidate, as it is.
        space: lists of values by field, as in ``{"training.learning_rate": [0.05, 0.1]}``;
            ``"grid"`` for ``plan.iterations`` is a geometric grid up to what the budgets pay for.
            By default schemes, policies, iterations and learning rates (`study.space.AXES`).
        objective: ``"score"`` of the mean model when the budget is spent, which is its accuracy
            unless ``training.loss`` or ``training.score`` say otherwise; or the joules or seconds
            until it first reaches a target, ``"energy-to:0.8"`` or ``"time-to:0.8"``.
        seeds: how many fresh seeds report the winner.
        search_seeds: how many seeds judge the candidates.
        candidates: how many are trained, at most.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.
        loss: what is minimised, as in `joulemesh.run`.
        out: a folder for what is found; see `Tuned.save`.
        resume: go on with the tuning that was begun in the folder.
        cache: folder of kept runs; in the user's cache folder unless given.
        code: Python files of the user's own that were loaded, to be kept in the folder too.
        tuner: makes what decides which candidates are tried, from the priced candidates;
            successive halving unless given (`study.adapters` has Optuna).
        on_progress: called after every chunk of iterations.
        on_stage: called with what is begun before that.

    Returns:
        What was found. ``found.best`` is the winning scenario.

    Raises:
        InfeasibleError: no candidate has a plan.
        ScenarioError: space, objective or folder do not do.

    >>> import joulemesh, tempfile
    >>> scenario = joulemesh.Scenario.preset("adaptive").override(
    ...     {"plan.iterations": 20, "training.model": "logistic", "devices.count": 4})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = joulemesh.tune(scenario, {"training.learning_rate": [1e-5, 0.1]}, seeds=2,
    ...                            search_seeds=1, cache=folder)
    >>> found.winner.candidate.changes, [len(rung.rows) for rung in found.rungs]
    ({}, [2, 2, 2])
    """
    scenario = said_loss(scenario, loss)
    if isinstance(data, str | Path):
        scenario, data = with_data(scenario, data), None
    stage = on_stage or (lambda words: None)
    axes = space if isinstance(space, Space) else Space.of(space) if space else None
    stage("loading data")
    dataset = the_dataset(scenario, data)
    own = None if data is None else dataset
    library = the_model(scenario, model, dataset).library
    with ExitStack() as stack:
        if out is not None:
            first = scenario.seed + search_seeds
            asked = _asked(
                scenario,
                axes or Space.default(scenario),
                Objective.parse(objective, reported(scenario.training).score),
                range(scenario.seed, first),
                range(first, first + seeds),
                library,
            )
            place = make_folder(out)
            stack.enter_context(FolderLock(place))
            _begin(place, asked, resume=resume)
        found = tune_scenario(
            scenario,
            axes,
            objective,
            seeds=seeds,
            search_seeds=search_seeds,
            candidates=candidates,
            model=model,
            data=dataset,
            cache=cache,
            tuner=tuner,
            on_progress=on_progress,
            on_stage=on_stage,
        )
        values = {f.name: getattr(found, f.name) for f in fields(found)}
        values["scenario"] = with_data(found.scenario, own)
        tuned = Tuned(**values, own_data=own, own_model=model is not None)
        if out is not None:
            stage(f"writing {out}")
            tuned._write(place, [Path(path) for path in code])
    return tuned


def _asked(
    scenario: Scenario,
    space: Space,
    objective: Objective,
    seeds: Sequence[int],
    fresh: Sequence[int],
    library: str,
) -> dict[str, Any]:
    """What a tuning is asked, as plain values."""
    return {
        **record_of(asked(scenario), seeds, library),
        "fresh_seeds": list(fresh),
        "objective": str(objective),
        "space": space.to_dict(),
    }


def _begin(place: Path, asked: Mapping[str, Any], *, resume: bool) -> None:
    """Take a folder into use: an empty one, or, to resume, that of the same tuning.

    Raises:
        ScenarioError: it holds a tuning, and is not to be resumed or asked something else.
    """
    path = place / RECORD
    if path.exists():
        if not resume:
            raise ScenarioError(f"{place} holds a tuning; add --resume, or choose another --out")
        _check_same(path, asked)
    else:
        write_text(path, json.dumps(asked, indent=1) + "\n")


def _check_same(path: Path, asked: Mapping[str, Any]) -> None:
    try:
        then = parse_json(path.read_bytes().decode())
        if not isinstance(then, dict):
            raise ValueError
    except (OSError, ValueError):
        raise ScenarioError(f"{path} is damaged; remove it, or choose another --out") from None
    now = json.loads(json.dumps(asked))
    for name in ("objective", "space", "fresh_seeds"):
        if then.get(name) != now[name]:
            raise ScenarioError(
                f"{path.parent} holds another tuning: {name} was {_short(then.get(name))} and is "
                f"{_short(now[name])}; choose another --out"
            )
    other = difference(then, now)
    if other is not None:
        raise ScenarioError(f"{path.parent} holds another tuning: {other}; choose another --out")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
