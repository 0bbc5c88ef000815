"""Training and tuning for a tab: each in a process of its own, so that planning never waits."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.optional import run_file
from joulemesh.base.units import duration, energy
from joulemesh.scenario import Scenario

_GRACE_S = 6.0  # for which a tab may be gone: a page that is loaded again
_MOST_JOBS = 2

Queue: TypeAlias = "queue.SimpleQueue[tuple[str, Any]]"


@dataclass(eq=False)
class Job:
    """One process."""

    kind: str  # ``"simulate"`` or ``"tune"``
    process: subprocess.Popen[str]  # that does the work
    # what it has told, for a page that is loaded again
    history: list[tuple[str, Any]] = field(default_factory=list)
    stopped: bool = False

    def end(self) -> None:
        """End the process now: it keeps nothing that could be half-written."""
        self.stopped = True
        self.process.kill()


class Jobs:
    """The jobs of all tabs, at most one for each; and who listens to them."""

    def __init__(self, load: Sequence[Path] = ()) -> None:
        self._load = [str(path) for path in load]
        self._jobs: dict[str, Job] = {}
        self._listeners: dict[str, list[Queue]] = {}
        self._lock = threading.Lock()

    def start(self, tab: str, kind: str, scenario: Scenario, order: Mapping[str, Any]) -> None:
        """Begin a job for a tab, in place of one that it has."""
        self.stop(tab)
        with self._lock:
            busy = sum(job.process.poll() is None for job in self._jobs.values())
            if busy >= _MOST_JOBS:
                raise ScenarioError(
                    f"{busy} other tabs are training; stop one of them, or wait until it ends"
                )
            asked: dict[str, Any] = {
                "kind": kind,
                "scenario": scenario.to_json(),
                "options": _options(order),
            }
            asked["load"] = self._load
            process = subprocess.Popen(
                [sys.executable, "-m", "joulemesh.studio.jobs"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C is the server's, which ends it
            )
            job = self._jobs[tab] = Job(kind, process)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        threading.Thread(target=self._follow, args=(tab, job), daemon=True).start()

    def _follow(self, tab: str, job: Job) -> None:
        self._tell(tab, job, "job", {"kind": job.kind, "state": "started"})
        assert job.process.stdout is not None
        last = "started"
        for line in job.process.stdout:
            try:
                told = json.loads(line)
            except ValueError:  # a library printed something
                continue
            if isinstance(told, dict):
                last = str(told.get("state", last))
                self._tell(tab, job, "job", {"kind": job.kind, **told})
        job.process.wait()
        if last not in ("done", "refused"):
            how = "stopped" if job.stopped else "failed"
            words = "" if job.stopped else "the process that trained ended without a result"
            self._tell(tab, job, "job", {"kind": job.kind, "state": how, "text": words})

    def _tell(self, tab: str, job: Job, name: str, data: Any) -> None:
        with self._lock:
            if self._jobs.get(tab) is not job:
                return
            job.history.append((name, data))
            listeners = list(self._listeners.get(tab, ()))
        for listener in listeners:
            listener.put((name, data))

    def stop(self, tab: str) -> None:
        """End a tab's job, if it has one."""
        with self._lock:
            job = self._jobs.get(tab)
        if job is not None:
            job.end()

    def close(self) -> None:
        """End all jobs, and tell their listeners."""
        with self._lock:
            jobs = list(self._jobs.values())
            listeners = [one for every in self._listeners.values() for one in every]
        for job in jobs:
            job.end()
        for listener in listeners:
            listener.put(("closing", {}))

    @contextlib.contextmanager
    def listen(self, tab: str) -> Iterator[Queue]:
        """What a tab's job tells, from its beginning; a job whose tab is gone is ended soon."""
        listener: Queue = queue.SimpleQueue()
        with self._lock:
            self._listeners.setdefault(tab, []).append(listener)
            job = self._jobs.get(tab)
            for event in () if job is None else job.history:
                listener.put(event)
        try:
            yield listener
        finally:
            with self._lock:
                self._listeners[tab].remove(listener)
            timer = threading.Timer(_GRACE_S, self._end_if_alone, (tab,))
            timer.daemon = True
            timer.start()

    def _end_if_alone(self, tab: str) -> None:
        with self._lock:
            alone = not self._listeners.get(tab)
        if alone:
            self.stop(tab)


def _options(order: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, most in (("seeds", 20), ("candidates", 500)):
        if name in order:
            try:
                number = int(order[name])
            except (TypeError, ValueError):
                number = 0
            if not 1 <= number <= most:
                raise ScenarioError(f"{name} must be a whole number from 1 to {most}")
            options[name] = number
    if order.get("objective"):
        options["objective"] = str(order["objective"])
    return options


Tell = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Do what is asked for, and say so."""
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_watch, daemon=True).start()
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not for the page

    def tell(data: Mapping[str, Any]) -> None:
        out.write(json.dumps(_finite(data)) + "\n")

    try:
        for path in asked["load"]:
            run_file(Path(path), f"--load {path}")
        scenario = Scenario.from_json(asked["scenario"])
        {"simulate": _simulate, "tune": _tune}[asked["kind"]](scenario, asked["options"], tell)
    except JoulemeshError as error:
        tell({"state": "refused", "text": str(error)})


def _watch() -> None:
    while sys.stdin.read(4096):
        pass
    os._exit(1)


def _finite(value: Any) -> Any:
    """Plain JSON values: what is not a finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _simulate(scenario: Scenario, options: Mapping[str, Any], tell: Tell) -> None:
    from joulemesh.study.run import run

    result = run(
        scenario,
        seeds=options.get("seeds", 1),
        on_stage=lambda words: tell({"stage": words}),
        on_metrics=lambda row: tell({"row": row}),
        on_progress=lambda made: tell({"done": made.completed, "of": made.iterations}),
    )
    figures = (result.final.test_score, result.energy_j[-1], result.time_s[-1])
    score, joules, seconds = (float(values.mean()) for values in figures)
    seeds, cost = len(result.seeds), f"{energy(joules)} in {duration(seconds)}"
    runs = "" if seeds == 1 else f" (mean of {seeds} seeds)"
    words = f"{result.metric.label} {result.metric.text(score)} for {cost}{runs}"
    tell({"state": "done", "text": words})


def _tune(scenario: Scenario, options: Mapping[str, Any], tell: Tell) -> None:
    from joulemesh.study.tune import tune

    known: set[tuple[int, int]] = set()

    def progress(made: Any) -> None:
        new = [one for one in made.judged if (one[0], one[2].candidate) not in known]
        known.update((rung, one.candidate) for rung, _, one in new)
        points = [
            {
                "rung": rung,
                "candidate": one.candidate,
                "name": name,
                "accuracy": one.accuracy,
                "joules": one.energy_j,
                "seconds": one.time_s,
            }
            for rung, name, one in new
            if one.score is not None
        ]
        tell({"stage": made.stage, "share": made.share, "best": made.best, "points": points})

    found = tune(
        scenario,
        objective=options.get("objective", "accuracy"),
        seeds=options.get("seeds", 2),
        candidates=options.get("candidates", 15),
        on_stage=lambda words: tell({"stage": words}),
        on_progress=progress,
    )
    winner = found.winner
    tell(
        {
            "state": "done",
            "text": f"{winner.candidate.name}: {100 * winner.accuracy.mean():.1f} % with "
            f"{winner.iterations:,} iterations",
            "changes": [
                {"field": field, "value": value, "how": "set"}
                for field, value in winner.candidate.changes.items()
            ],
        }
    )


if __name__ == "__main__":
    main()
