"""What a command is doing, on standard error: live lines in a terminal, otherwise now and then one.

In a file or a pipe a line is printed at most once a second, and always the latest: what was
overtaken within that second is left out, and so is all that ends sooner.
"""

from __future__ import annotations

__all__ = ["Display", "Pace", "facts", "progress_line"]

import math
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.text import Text

from joulemesh.base.printable import say
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
    """What is known of a training under way, the most important first.

    >>> facts(40, 1000, accuracy=0.95, energy_j=12.5, seconds_left=75.2)
    ['iteration 40 of 1,000', 'accuracy 0.950', '1 min 16 s left', '12.5 J spent']
    """
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
    """A line that fits: name, bar, facts and time; facts are left out from the end, never cut.

    Args:
        name: of what is being done, padded as the lines above and below it need.
        share: of it that is done; None if that is not known.
        said: facts about it, the most important first.
        elapsed_s: since its beginning.
        width: columns that the line may take.

    >>> progress_line("training", 0.5, ["iteration 50 of 100", "accuracy 0.95"], 75.0, 60).plain
    'training ━━━━━━───── iteration 50 of 100, accuracy 0.95 1:15'
    >>> progress_line("training", 0.5, ["iteration 50 of 100", "accuracy 0.95"], 75.0, 40).plain
    'training iteration 50 of 100 1:15'
    """
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
    """How long the rest will take, by how long the last iterations took.

    >>> pace = Pace(clock=iter([10.0, 14.0]).__next__)
    >>> pace.left_s("fixed:3", 20, 100), pace.left_s("fixed:3", 40, 100)
    (nan, 12.0)
    """

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
    """Shows what is being done, and how far it has come.

    Args:
        quiet: show nothing.
        every_s: seconds between two lines, if the output is not a terminal.

    >>> with Display(quiet=True) as display:
    ...     display.stage("loading data")
    ...     display.step("training", 0.4, facts(40, 100))
    """

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
        """Say how far it has come.

        Args:
            words: what is being done.
            share: of it that is done.
            said: what is known, see `facts`.
            name: which of several things that are done one after another, each with its line.
        """
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
        if self._shown is not None:
            self._shown.close(well=kind is None)


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
