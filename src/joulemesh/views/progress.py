"""How far a command, or a call in a notebook, has come."""

from __future__ import annotations

import html
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from joulemesh.base.errors import say
from joulemesh.base.units import duration, energy
from joulemesh.views.terminal import open_console

_EVERY_S = 1.0
_LEAST_BAR, _MOST_BAR = 8, 30
_STAGE = ""  # the name of the line that says what is being done


def facts(
    completed: int,
    iterations: int,
    *,
    accuracy: float = math.nan,
    score: str = "accuracy",
    energy_j: float = math.nan,
    seconds_left: float = math.nan,
) -> list[str]:
    """What is known of a training under way, the most important first."""
    known = [f"iteration {completed:,} of {iterations:,}"]
    if math.isfinite(accuracy):
        known.append(f"{score} {accuracy:.3f}")
    if math.isfinite(seconds_left) and completed < iterations:
        known.append(f"{duration(float(math.ceil(seconds_left)))} left")
    if math.isfinite(energy_j):
        known.append(f"{energy(energy_j)} spent")
    return known


def progress_line(
    name: str, share: float | None, said: Sequence[str], elapsed_s: float, width: int
) -> Text:
    """A line that fits: name, bar, facts and time; facts are left out from the end, never cut."""
    minutes, seconds = divmod(int(elapsed_s), 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    left = list(said)
    while left and len(name) + len(", ".join(left)) + len(clock) + 2 > width:
        left.pop()
    words = ", ".join(left)
    line = Text(name, no_wrap=True, overflow="crop")
    room = width - len(name) - len(words) - len(clock) - 2 - bool(words)
    if share is not None and room >= _LEAST_BAR:
        size = min(room, _MOST_BAR)
        full = round(size * min(max(share, 0.0), 1.0))
        line.append(" ").append("━" * full, "green" if full == size else "magenta")
        line.append("─" * (size - full), "dim")
    if words:
        line.append(f" {words}")
    return line.append(f" {clock}", "dim")


class Pace:
    """How long the rest will take, by how long the last iterations took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[str, tuple[float, int]] = {}

    def left_s(self, name: str, completed: int, iterations: int) -> float:
        """Seconds to the end; NaN after the first chunk, most of which may be compilation."""
        now = self._clock()
        since, before = self._begun.setdefault(name, (now, completed))
        if completed <= before:
            self._begun[name] = (now, completed)  # begun again, without a seed that diverged
            return math.nan
        return (now - since) / (completed - before) * (iterations - completed)


class Display:
    """Shows what is being done, and how far it has come."""

    def __init__(self, *, quiet: bool = False, every_s: float = _EVERY_S) -> None:
        console = open_console(stderr=True)
        self._shown: _Live | _Lines | None = None
        if not quiet:
            live = console.is_terminal and not console.is_dumb_terminal
            self._shown = _Live(console) if live else _Lines(every_s)

    def stage(self, words: str) -> None:
        """Say what is being done: loading data, planning, …; a note stays on the screen."""
        if self._shown is not None and words.startswith("note: "):
            say(words, err=True)
        elif self._shown is not None:
            self._shown.show(_STAGE, words, None, ())

    def step(
        self, words: str, share: float, said: Sequence[str], *, name: str | None = None
    ) -> None:
        """Say how far it has come."""
        if self._shown is not None:
            self._shown.show(_STAGE if name is None else name, words, share, said)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close(well=kind is None)

    def close(self, *, well: bool) -> None:
        """Leave the last state in place."""
        if self._shown is not None:
            self._shown.close(well=well)


class _Live:
    """One line for each thing that is done, and one for what is done beside."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(_Column(self), console=console)
        self._tasks: dict[str, TaskID] = {}
        self.console, self.widest = console, 0

    def show(self, name: str, words: str, share: float | None, said: Sequence[str]) -> None:
        if not self._tasks:
            self._bars.start()
        if name != _STAGE and _STAGE in self._tasks:  # its time is over
            self._bars.remove_task(self._tasks.pop(_STAGE))
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(words, total=None, share=share, said=said)
        self.widest = max(len(words), self.widest if len(self._tasks) > 1 else 0)
        task = self._tasks[name]
        self._bars.update(task, description=words, share=share, said=said)
        if share is not None and share >= 1:
            self._bars.update(task, total=1.0, completed=1.0)  # which stops its clock

    def close(self, *, well: bool) -> None:
        if not self._tasks:
            return
        if _STAGE in self._tasks:
            self._bars.remove_task(self._tasks.pop(_STAGE))
        # An error, or what was found, is what is left to be read.
        self._bars.live.transient = not (well and self._tasks)
        self._bars.stop()


class _Column(ProgressColumn):
    """A whole line, as wide as the terminal."""

    def __init__(self, live: _Live) -> None:
        super().__init__()
        self._live = live

    def render(self, task: Task) -> Text:
        """The line."""
        name = f"{task.description:<{self._live.widest}}"
        elapsed = (task.finished_time if task.finished else task.elapsed) or 0.0
        known: dict[str, Any] = task.fields
        width = self._live.console.width
        return progress_line(name, known["share"], known["said"], elapsed, width)


class _Lines:
    """The latest line, at most once in a while."""

    def __init__(self, every_s: float, write: Callable[[str], None] | None = None) -> None:
        self._every_s, self._write = every_s, write or _to_stderr
        self._changed = threading.Condition()
        self._line, self._next, self._open = "", time.monotonic() + every_s, True
        self._writer: threading.Thread | None = None

    def show(self, name: str, words: str, share: float | None, said: Sequence[str]) -> None:
        del name, share
        with self._changed:
            self._line = f"{words}: {', '.join(said)}" if said else words
            self._changed.notify()
            if self._writer is None:
                self._writer = threading.Thread(target=self._work, daemon=True)
                self._writer.start()

    def _work(self) -> None:
        with self._changed:
            while self._open:
                wait_s = self._next - time.monotonic()
                if self._line and wait_s <= 0:
                    self._print()
                self._changed.wait(max(wait_s, 0.001) if self._line else None)

    def _print(self) -> None:
        self._write(self._line)
        self._line, self._next = "", time.monotonic() + self._every_s

    def close(self, *, well: bool) -> None:
        with self._changed:
            self._open = False
            self._changed.notify()
        if self._writer is not None:
            self._writer.join()
        if well and self._line:
            self._print()


def _to_stderr(line: str) -> None:
    say(line, err=True)


_CELL_EVERY_S = 0.1  # a notebook's browser need not draw more often


class ProgressBar:
    """Shows how far `run`, `compare`, `tune` or `sweep` has come, wherever Python runs.

    In a notebook it is a bar below the cell, which is updated in place; in a terminal a live line,
    otherwise a line now and then on standard error. Nothing is shown before the first call.

    Args:
        notebook: whether to show HTML through IPython; found out unless given.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"plan.iterations": 2})
    >>> with joulemesh.ProgressBar() as bar:
    ...     result = joulemesh.run(scenario, on_progress=bar, on_stage=bar.stage)
    """

    def __init__(self, *, notebook: bool | None = None) -> None:
        self._notebook = in_notebook() if notebook is None else notebook
        self._shown: Display | _Cell | None = None
        self._ended = False

    def __call__(self, step: Any) -> None:
        """Show how far it has come: give this as ``on_progress``."""
        words, share, said = described(step)
        if share is None:
            self._open().stage(words)
        else:
            self._open().step(words, share, said)
        self._ended = share is not None and share >= 1
        if self._ended:
            self.close()

    def stage(self, words: str) -> None:
        """Say what is being done: give this as ``on_stage``."""
        if not self._ended:  # what follows the last iteration is short
            self._open().stage(words)

    def close(self, *, well: bool = True) -> None:
        """Leave the last state in place."""
        if self._shown is not None:
            self._shown.close(well=well)
            self._shown = None

    def _open(self) -> Display | _Cell:
        if self._shown is None:
            self._shown = _Cell() if self._notebook else Display()
        return self._shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self.close(well=kind is None)


def in_notebook() -> bool:
    """Does this code run in a notebook's kernel? IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def described(step: Any) -> tuple[str, float | None, list[str]]:
    """What is being done, the share of it that is done, and what is known."""
    if hasattr(step, "combinations"):
        inner, _, said = described(step.step)
        count = f"combination {step.position + 1} of {step.combinations}"
        return count, float(step.share), [inner, *said]
    if hasattr(step, "stage"):
        best = getattr(step, "best", "")
        return str(step.stage), float(step.share), [f"best so far: {best}"] if best else []
    known = facts(
        step.completed,
        step.iterations,
        accuracy=step.accuracy,
        score=getattr(step, "score", "accuracy"),
        energy_j=step.energy_j,
        seconds_left=getattr(step, "seconds_left", math.nan),
    )
    own = step.completed / step.iterations if step.iterations else 1.0
    if hasattr(step, "method"):
        share = (step.position + own) / max(step.methods, 1)
        return f"{step.method} ({step.position + 1} of {step.methods})", share, known
    return "training", own, known


class _Cell:
    """HTML below a notebook's cell, updated in place."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from IPython.display import HTML, display

        self._html, self._clock, self._begun = HTML, clock, clock()
        self._latest = bar_html("", None, [], 0.0)
        self._handle = display(HTML(self._latest), display_id=True)
        self._drawn = -math.inf

    def stage(self, words: str) -> None:
        self.step(words, None, [])

    def step(self, words: str, share: float | None, said: Sequence[str]) -> None:
        now = self._clock()
        self._latest = bar_html(words, share, said, now - self._begun)
        if now - self._drawn >= _CELL_EVERY_S or share == 1:
            self._draw(now)

    def _draw(self, now: float) -> None:
        self._drawn = now
        self._handle.update(self._html(self._latest))

    def close(self, *, well: bool) -> None:
        del well  # what was reached last is shown either way
        self._draw(self._clock())


def bar_html(words: str, share: float | None, said: Sequence[str], elapsed_s: float) -> str:
    """A bar and what is known, as HTML that needs neither style nor script."""
    value = "" if share is None else f' value="{min(max(share, 0.0), 1.0):.4f}"'
    name = html.escape(words)
    text = html.escape(f"{words}: {', '.join(said)}" if said else words)
    minutes, seconds = divmod(int(elapsed_s), 60)
    return (
        f'<div><progress max="1"{value} aria-label="{name}"></progress> {text} '
        f"<small>{minutes}:{seconds:02d}</small></div>"
    )
