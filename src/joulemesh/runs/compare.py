"""Compare methods on equal terms, and show what came out."""

from __future__ import annotations

__all__ = ["Comparison", "WorldsComparison", "compare"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulemesh.data import Dataset
from joulemesh.errors import ScenarioError
from joulemesh.files import make_folder, write_text
from joulemesh.files.lock import FolderLock
from joulemesh.files.verify import commit_all
from joulemesh.files.whole import sweep
from joulemesh.optional import frame, require
from joulemesh.scenario import Scenario
from joulemesh.setup.prepare import the_dataset, with_data
from joulemesh.studies.compare import DEFAULT_METHODS, Progress, compare_methods
from joulemesh.studies.rates import TUNING_SEEDS, Rates
from joulemesh.studies.study import AXES, Study
from joulemesh.studies.worlds import WorldsStudy, compare_worlds

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Study):
    """A study that can be looked at: as figures, as a page, in a notebook.

    Attributes:
        own_data: the user's, if it was given in memory.
        own_model: whether the model was the user's own, not the scenario's.
    """

    own_data: Dataset | None = None
    own_model: bool = False

    def figure(self, x: str | Sequence[str] = AXES) -> Figure:
        """Draw accuracy with its 95 % bands.

        Args:
            x: against ``"iterations"``, ``"joules"`` or ``"seconds"``, or several of these.

        Returns:
            A figure with one panel for each.
        """
        from joulemesh.views.comparison.figure import comparison_figure

        return comparison_figure(self, (x,) if isinstance(x, str) else tuple(x))

    def save(self, folder: str | Path, *, code: Sequence[str | Path] = ()) -> None:
        """Write ``comparison.csv``, ``table.csv``, the figures and ``report.html``.

        Where learning rates were tuned, ``rates.csv`` has what each method reached at each.

        What it takes to make the comparison again is written too, with names relative to the
        folder: ``scenario.toml``, copies of the files that it names (``inputs/``), and
        ``study.json``, which has methods, seeds, terms, versions and the command.

        Args:
            folder: made if need be; files of these names in it are replaced.
            code: Python files of the user's own that register methods, to be kept too.
        """
        place = make_folder(folder)
        with FolderLock(place):
            sweep(place)
            self._write(place, [Path(path) for path in code])
            commit_all(place, stage="study")

    def _write(self, place: Path, code: list[Path]) -> None:
        from joulemesh.runs.again import keep_study
        from joulemesh.runs.formats import flat
        from joulemesh.runs.identity import versions
        from joulemesh.views.comparison.page import render_comparison
        from joulemesh.views.style import save_figure

        keep_study(self, place, self.own_data, own_model=self.own_model, code=code)
        self.to_csv(place / "comparison.csv")
        write_text(place / "table.csv", self.table_csv())
        if self.rates:
            write_text(place / "rates.csv", self.rates_csv())
        for name, axes in (("figure", AXES), *((axis, (axis,)) for axis in AXES)):
            drawn = self.figure(axes)
            for suffix in (".png", ".svg"):
                save_figure(drawn, place / f"{name}{suffix}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        page = render_comparison(self, versions=flat(versions()), when=now)
        write_text(place / "report.html", page)

    def frame(self, what: str = "curves") -> Any:
        """Curves or table, as a pandas DataFrame.

        Args:
            what: ``"curves"`` (a row for every method, seed and evaluation) or ``"table"`` (a row
                for every method, with intervals and differences).

        Returns:
            The columns of ``comparison.csv`` or of ``table.csv``.
        """
        if what not in ("curves", "table"):
            raise ScenarioError(f"frame({what!r}) is unknown; use 'curves' or 'table'")
        if what == "table":
            rows = self.table()
            return frame({name: [row[name] for row in rows] for name in rows[0]})
        text = StringIO(self.to_csv())
        return require("pandas", "a data frame").read_csv(text)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from joulemesh.views.notebook.html import study_html

        return study_html(self)


@dataclass(frozen=True, eq=False, repr=False)
class WorldsComparison(Comparison, WorldsStudy):
    """A comparison in several worlds; its intervals are over worlds."""

    def _write(self, place: Path, code: list[Path]) -> None:
        super()._write(place, code)
        write_text(place / "worlds.csv", self.worlds_csv())


def compare(
    scenario: Scenario,
    methods: Sequence[str] | str = DEFAULT_METHODS,
    equal: str = "batteries",
    seeds: int | Sequence[int] = 5,
    *,
    worlds: int = 1,
    model: Any = None,
    data: Any = None,
    target: float | None = None,
    tune_lr: Rates = None,
    tune_seeds: int = TUNING_SEEDS,
    cache: str | Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Comparison:
    """Train several methods on the same scenario and data, on equal terms.

    Single runs (one method at one seed) are kept by content: what has been computed is not
    computed again, another method or seed costs only itself, and a comparison that was stopped
    goes on where it was. Seeds of a method are trained together in one program.

    Args:
        scenario: what is asked.
        methods: for instance ``["adaptive", "fixed:3", "balanced:tau1=4,tau2=2"]``, or these in
            one text with commas; differences in the table are against the first.
        equal: ``"batteries"`` (each method stops before the first iteration that some battery
            cannot pay; ``"energy"`` is another name for it), ``"time"`` (before it would exceed
            the adaptive plan's seconds), ``"budget"`` (before either: the same batteries, and
            the seconds of ``budget.total_s``, or of the adaptive plan without it) or
            ``"iterations"`` (the adaptive plan's number; overdrafts are reported).
        seeds: how many repetition seeds, or which; they redraw partition, initial parameters and
            batches, never the world.
        worlds: in how many worlds: the scenario's own, and others whose seeds are higher by whole
            millions. They redraw what is drawn from the scenario's seed: placement, batteries and
            other ranges, channel. With more than one, intervals are over worlds.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.
        target: accuracy of the mean model, for energy and time to target; 95 % of the best final
            accuracy unless given.
        tune_lr: give each method its own learning rate, of one grid: True (a quarter to eight
            times the scenario's), or the rates, for instance ``[0.05, 0.1, 0.2]``. All methods
            are tried at all of them on the same seeds, which the result does not use; the highest
            final accuracy of the mean model decides, and a rate that diverges loses. What a
            method plans from the learning rate stays as the scenario's has it.
        tune_seeds: how many seeds that is decided on.
        cache: folder of kept runs; in the user's cache folder unless given.
        on_progress: called after every chunk of iterations.
        on_stage: called with what is begun before that: ``"loading data"`` and ``"planning"``.

    Returns:
        The comparison. A method that the budget or the topology cannot carry is in it with the
        reason; a seed that diverged is left out of its method's figures, and named. With several
        worlds it is a `WorldsComparison`.

    Raises:
        ScenarioError: unknown method, parameter, or way to be equal.

    >>> import joulemesh, tempfile
    >>> scenario = joulemesh.Scenario.preset("default").override(
    ...     {"plan.iterations": 5, "training.model": "logistic", "devices.count": 4})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = joulemesh.compare(scenario, ["adaptive", "fixed:1"], seeds=2, cache=folder)
    ...     again = joulemesh.compare(scenario, ["adaptive", "fixed:1"], seeds=2, cache=folder)
    >>> [row["method"] for row in found.table()], found.computed, again.computed
    (['adaptive', 'fixed:1'], 4, 0)
    """
    if isinstance(data, str | Path):
        scenario, data = with_data(scenario, data), None
    own = None if data is None else the_dataset(scenario, data)
    options = {"model": model, "data": own, "target": target, "cache": cache}
    options |= {"tune_lr": tune_lr, "tune_seeds": tune_seeds}
    options |= {"on_progress": on_progress, "on_stage": on_stage}
    kind: type[Comparison] = Comparison
    if worlds == 1:
        study = compare_methods(scenario, methods, equal, seeds, **options)
    else:
        kind = WorldsComparison
        study = compare_worlds(scenario, worlds, methods, equal, seeds, **options)
    found = {f.name: getattr(study, f.name) for f in fields(study)}
    found["scenario"] = with_data(study.scenario, own)
    return kind(**found, own_data=own, own_model=model is not None)
