"""How far a run, comparison, tuning or sweep has come: a bar in a notebook, or in a terminal."""

from __future__ import annotations

__all__ = ["ProgressBar"]

import html
import math
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol, Self

from joulemesh.views.progress import Display, facts

_EVERY_S = 0.1  # a notebook's browser need not draw more often


class _Shown(Protocol):
    def show(self, words: str, share: float | None, said: list[str]) -> None: ...
    def close(self, *, well: bool) -> None: ...


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
        self._shown: _Shown | None = None
        self._ended = False

    def __call__(self, step: Any) -> None:
        """Show how far it has come: give this as ``on_progress``."""
        words, share, said = described(step)
        self._open().show(words, share, said)
        self._ended = share is not None and share >= 1
        if self._ended:
            self.close()

    def stage(self, words: str) -> None:
        """Say what is being done: give this as ``on_stage``."""
        if not self._ended:  # what follows the last iteration is short
            self._open().show(words, None, [])

    def close(self, *, well: bool = True) -> None:
        """Leave the last state in place."""
        if self._shown is not None:
            self._shown.close(well=well)
            self._shown = None

    def _open(self) -> _Shown:
        if self._shown is None:
            self._shown = _Cell() if self._notebook else _Terminal()
        return self._shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self.close(well=kind is None)


def in_notebook() -> bool:
    """Does this code run in a notebook's kernel? IPython is not imported to find out.

    >>> in_notebook()
    False
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def described(step: Any) -> tuple[str, float | None, list[str]]:
    """What is being done, the share of it that is done, and what is known.

    Args:
        step: the progress of a run, a comparison, tuning or a sweep.
    """
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


class _Terminal:
    """A live line in a terminal, otherwise lines on standard error."""

    def __init__(self) -> None:
        self._display = Display().__enter__()

    def show(self, words: str, share: float | None, said: list[str]) -> None:
        if share is None:
            self._display.stage(words)
        else:
            self._display.step(words, share, said)

    def close(self, *, well: bool) -> None:
        self._display.__exit__(None if well else Exception, None, None)


class _Cell:
    """HTML below a notebook's cell, updated in place.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from IPython.display import HTML, display

        self._html, self._clock, self._begun = HTML, clock, clock()
        self._latest = bar_html("", None, [], 0.0)
        self._handle = display(HTML(self._latest), display_id=True)
        self._drawn = -math.inf

    def show(self, words: str, share: float | None, said: list[str]) -> None:
        now = self._clock()
        self._latest = bar_html(words, share, said, now - self._begun)
        if now - self._drawn >= _EVERY_S or share == 1:
            self._draw(now)

    def _draw(self, now: float) -> None:
        self._drawn = now
        self._handle.update(self._html(self._latest))

    def close(self, *, well: bool) -> None:
        del well  # what was reached last is shown either way
        self._draw(self._clock())


def bar_html(words: str, share: float | None, said: list[str], elapsed_s: float) -> str:
    """A bar and what is known, as HTML that needs neither style nor script.

    >>> bar_html("training", 0.5, ["iteration 1 of 2"], 3.2)
    '<div><progress max="1" value="0.5000" aria-label="training"></progress> training: ...
    """
    value = "" if share is None else f' value="{min(max(share, 0.0), 1.0):.4f}"'
    name = html.escape(words)
    text = html.escape(f"{words}: {', '.join(said)}" if said else words)
    minutes, seconds = divmod(int(elapsed_s), 60)
    return (
        f'<div><progress max="1"{value} aria-label="{name}"></progress> {text} '
        f"<small>{minutes}:{seconds:02d}</small></div>"
    )
