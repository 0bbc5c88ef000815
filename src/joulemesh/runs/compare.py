"""Compare methods on equal terms."""

from __future__ import annotations

__all__ = ["compare"]

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from joulemesh.results.comparison import Comparison
from joulemesh.scenario import Scenario
from joulemesh.setup.prepare import said_loss, the_dataset, with_data
from joulemesh.studies.compare import DEFAULT_METHODS, Progress, compare_methods
from joulemesh.studies.compare_worlds import compare_worlds
from joulemesh.studies.rates import TUNING_SEEDS, Rates


def compare(
    scenario: Scenario,
    methods: Sequence[str] | str = DEFAULT_METHODS,
    equal: str | None = None,
    seeds: int | Sequence[int] = 5,
    *,
    worlds: int = 1,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
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
        equal: unless given, ``"budget"`` where the scenario has ``budget.total_s``, otherwise
            ``"batteries"``. ``"batteries"`` (each method stops before the first iteration that
            some battery cannot pay; ``"energy"`` is another name for it), ``"time"`` (before it
            would exceed the adaptive plan's seconds), ``"budget"`` (before either: the same
            batteries, and the seconds of ``budget.total_s``, or of the adaptive plan without it)
            or ``"iterations"`` (the adaptive plan's number; overdrafts are reported).
        seeds: how many repetition seeds, or which; they redraw partition, initial parameters and
            batches, never the world.
        worlds: in how many worlds: the scenario's own, and others whose seeds are higher by whole
            millions. They redraw what is drawn from the scenario's seed: placement, batteries and
            other ranges, channel. With more than one, intervals are over worlds.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.
        loss: what is minimised, as in `joulemesh.run`.
        target: accuracy of the mean model, or other score, for energy and time to target; 95 % of
            the best final accuracy unless given.
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
    >>> scenario = joulemesh.Scenario.preset("adaptive").override(
    ...     {"plan.iterations": 5, "training.model": "logistic", "devices.count": 4})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = joulemesh.compare(scenario, ["adaptive", "fixed:1"], seeds=2, cache=folder)
    ...     again = joulemesh.compare(scenario, ["adaptive", "fixed:1"], seeds=2, cache=folder)
    >>> [row["method"] for row in found.table()], found.computed, again.computed
    (['adaptive', 'fixed:1'], 4, 0)
    """
    scenario = said_loss(scenario, loss)
    if isinstance(data, str | Path):
        scenario, data = with_data(scenario, data), None
    own = None if data is None else the_dataset(scenario, data)
    options = {"model": model, "data": own, "target": target, "cache": cache}
    options |= {"tune_lr": tune_lr, "tune_seeds": tune_seeds}
    options |= {"on_progress": on_progress, "on_stage": on_stage}
    if worlds == 1:
        found = compare_methods(scenario, methods, equal, seeds, **options)
    else:
        found = compare_worlds(scenario, worlds, methods, equal, seeds, **options)
    asked = with_data(found.scenario, own)
    return replace(found, scenario=asked, own_data=own, own_model=model is not None)
