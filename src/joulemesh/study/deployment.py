"""The report of a deployment: journals, plan and simulation of a fleet, in one page and receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh._version import __version__
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import make_folder, write_text
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.fleet.fleet import HOSTS, Fleet, read_hosts
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.record.history import History, accuracies, history_of, read_history, views_of
from joulemesh.deploy.record.receipt import Receipt, planned, planned_again
from joulemesh.deploy.record.replay import course_of_histories
from joulemesh.metrics import reported
from joulemesh.planning.plan import Plan, digest_of
from joulemesh.planning.static import plan_of
from joulemesh.views.deployment import Curve, DeploymentView, render_deployment, sentence
from joulemesh.views.words import Subject, few_names

if TYPE_CHECKING:
    from joulemesh.deploy.effects import Learner


PAGE, JSON, CSV = "report.html", "receipt.json", "receipt.csv"
JOURNALS, SIMULATED, _RUN = "journals", "simulated", "run"
_LOSSES = (
    "The simulated run draws lost packets (network.packet_error); devices send again until packets "
    "arrive and lose no message, so that the parameters of the two may differ.",
)


@dataclass(frozen=True, eq=False)
class Reported:
    page: Path  # where
    receipt: Receipt  # what is in `receipt.json` and `receipt.csv` beside it
    sentence: str  # the deployment in a sentence or two
    notes: tuple[str, ...]  # what a reader should know, one line each


def report_of_fleet(
    folder: Path,
    out: Path | None = None,
    *,
    journals: Path | None = None,
    run: Path | None = None,
    simulate: bool = True,
    replay: bool = False,
) -> Reported:
    """Write ``report.html``, ``receipt.json`` and ``receipt.csv`` of a fleet, finished or not."""
    fleet = Fleet.load(folder)
    plan = plan_of(fleet.ground())
    histories = [
        _history(folder, journals, device, name) for device, name in enumerate(fleet.names)
    ]
    if not any(len(one.events) or len(one.iterations) for one in histories):
        place = journals or folder / JOURNALS
        raise ScenarioError(
            f"no journal of {few_names(fleet.names, 3)} was found; copy each device's folder "
            f"'run' to {place / fleet.names[0]}, and so on"
        )
    before = planned(plan)
    after, notes = planned_again(plan, before, views_of(histories), fleet.settings.reserve)
    if digest_of(plan) != fleet.digest:
        notes.insert(
            0,
            f"Joulemesh {__version__} plans this fleet's scenario otherwise than the version that "
            f"made it ({fleet.version}): planned and simulated figures are not what devices "
            "followed.",
        )
    receipt = Receipt(
        histories,
        before,
        after,
        fleet=fleet.id,
        plan=fleet.digest,
        battery_j=plan.energy_budget_j,
        deadline_s=plan.deadline_s,
        reserve=fleet.settings.reserve,
    )
    said: list[str] = []
    if replay:
        curve: Curve | None = replayed_curve(fleet, histories)
    else:
        curve, said = simulated_curve(folder, plan, run, simulate=simulate)
    view = DeploymentView.of(
        plan,
        receipt,
        histories,
        curve=curve,
        subject=Subject(plan.scenario.name or folder.resolve().name, _when(histories)),
        versions=_versions(fleet, histories),
        notes=(*plan.notes, *notes, *said),
        together=_on_one_machine(folder, fleet.names),
    )
    place = make_folder(out or folder)
    write_text(place / JSON, receipt.to_json())
    write_text(place / CSV, receipt.to_csv())
    write_text(place / PAGE, render_deployment(view))
    return Reported(place / PAGE, receipt, sentence(view), tuple(view.notes))


def _history(folder: Path, journals: Path | None, device: int, name: str) -> History:
    """The newest journal of a device that can be found; an empty history without one."""
    if journals is not None:
        places = [journals / name, journals / name / _RUN]
    else:
        places = [folder / JOURNALS / name, folder / DEVICES / name / _RUN]
    found = [place for place in places if journals_in(place)]
    if not found:
        return history_of((), device, name)
    newest = max(found, key=lambda place: journals_in(place)[-1].stat().st_mtime)
    return read_history(newest, device, name)


def simulated_curve(
    folder: Path, plan: Plan, run: Path | None, *, simulate: bool
) -> tuple[Curve | None, list[str]]:
    """The simulated accuracy: of a run folder, or of a run that is carried out now and kept."""
    if run is None and not simulate:
        return None, []
    kept = run or folder / SIMULATED
    try:
        if run is None:
            from joulemesh.study.run import run as carry_out

            carry_out(plan.scenario, out=kept, resume=True)
        return _curve_of(kept), list(_LOSSES) if plan.world.packets is not None else []
    except JoulemeshError as refusal:
        if run is not None:
            raise
        return None, [f"Not simulated: {' '.join(str(refusal).split())}"]


def _curve_of(run: Path) -> Curve:
    from joulemesh.study.folder import RunFolder, trace_of

    folder = RunFolder(run)
    seeds = tuple(int(seed) for seed in folder.start_record()["seeds"])
    score = reported(folder.account().scenario.training).score
    if score != "accuracy":
        raise ScenarioError(f"{run} is measured by {score}, and this page draws accuracies")
    trace = trace_of(folder.metrics_text(), seeds, np.float64)
    if not len(trace.iteration):
        raise ScenarioError(f"{run} holds no evaluation yet; name a run that has come further")
    count = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    accuracy = np.asarray(trace.device_score_mean, np.float64).T
    return Curve(f"a run without failures, {count}", trace.iteration, accuracy)


def _on_one_machine(folder: Path, names: Sequence[str]) -> bool:
    """Do all devices listen where no other machine reaches them?"""
    try:
        hosts = read_hosts(folder / HOSTS, names).values()
    except JoulemeshError:
        return False
    return bool(hosts) and all(one.is_here for one in hosts)


def _when(histories: Sequence[History]) -> str:
    begins = [one.first_at for one in histories if np.isfinite(one.first_at)]
    return datetime.fromtimestamp(min(begins), UTC).date().isoformat() if begins else ""


def _versions(fleet: Fleet, histories: Sequence[History]) -> dict[str, str]:
    last = [
        one.starts[-1].figures.get("version", "not recorded") for one in histories if one.starts
    ]
    there = Counter(map(str, last))
    trained = Counter(one.trained_by or "not recorded" for one in histories)
    return {
        "fleet": fleet.id,
        "plan": fleet.digest,
        "joulemesh here": __version__,
        "on the devices": ", ".join(f"{name} ({n:,})" for name, n in there.most_common(8)),
        "trained by": ", ".join(f"{name} ({n:,})" for name, n in trained.most_common(8)),
    }


def replayed_curve(fleet: Fleet, histories: Sequence[History]) -> Curve:
    """Train all devices again in this process, as their journals say that they did."""
    silent = [one.name for one in histories if not len(one.iterations)]
    if silent:
        raise ScenarioError(
            f"without the journal of {few_names(silent)} nobody knows what happened; leave "
            "--replay out, or copy it here"
        )
    wanted = set(accuracies(histories)[0].tolist())
    if not wanted:
        raise ScenarioError("the devices have measured no accuracy yet; leave --replay out")
    from joulemesh.deploy.device.simulated import simulated_learner
    from joulemesh.deploy.record.replay import plans_of, replay

    learners = [simulated_learner(fleet, device) for device in range(len(fleet.names))]
    course = course_of_histories(histories, len(fleet.names), fleet.spares)
    found: dict[int, float] = {}
    for played in replay(course, plans_of(fleet.ground()), learners):
        if played.iteration > max(wanted):
            break
        if played.iteration in wanted:
            members = list(course.view(played.iteration).members)
            found[played.iteration] = _accuracy(learners[0], played.vectors[members])
    made = np.array(sorted(found), np.int64)
    curve = np.array([[found[t] for t in made.tolist()]])
    return Curve("played again with the same views", made, curve)


def _accuracy(learner: Learner, vectors: NDArray[np.floating]) -> float:
    """Mean over devices; those with the same parameters are evaluated once."""
    each, counts = np.unique(vectors, axis=0, return_counts=True)
    scores = []
    for vector in each:
        learner.load(vector)
        scores.append(learner.evaluate()["accuracy"])
    return float(np.average(scores, weights=counts))
