"""The progress bar of notebooks: one display, updated in place, for every kind of progress."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import joulemesh
from joulemesh.study.compare import Progress as Compared
from joulemesh.study.request import Progress
from joulemesh.views.progress import ProgressBar, bar_html, described, in_notebook


class Handle:
    """What IPython gives for a display, and what it showed."""

    def __init__(self, first: str) -> None:
        self.shown = [first]

    def update(self, value: str) -> None:
        self.shown.append(value)


@pytest.fixture
def displays(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """A notebook's kernel, by the display protocol alone."""
    made: list[Handle] = []

    def display(value: str, *, display_id: bool) -> Handle:
        assert display_id
        made.append(Handle(value))
        return made[-1]

    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    shown = SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return made


def step(completed: int, **more: Any) -> Progress:
    return Progress(completed, 4, 0.5, 2.0, 3.0, **more)


def test_a_notebook_shows_one_bar_that_is_updated(displays: list[Handle]) -> None:
    assert in_notebook()
    with joulemesh.ProgressBar() as bar:
        bar.stage("planning")
        for completed in (1, 2, 4):
            bar(step(completed))
        bar.stage("writing")
    (one,) = displays
    assert "planning" in one.shown[1]
    assert 'value="1.0000"' in one.shown[-1]
    assert "iteration 4 of 4, accuracy 0.500" in one.shown[-1]


def test_an_interrupted_run_leaves_what_it_had_reached(displays: list[Handle]) -> None:
    bar = ProgressBar()
    bar(step(1))
    bar(step(2))  # at once: not drawn yet
    bar.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert "iteration 2 of 4" in displays[0].shown[-1]


def test_outside_a_notebook_it_writes_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert not in_notebook()
    with ProgressBar() as bar:
        bar(step(4))
    assert "training: iteration 4 of 4" in capsys.readouterr().err


def test_every_kind_of_progress_is_understood() -> None:
    compared = Compared("fixed:3", 1, 4, 5, 10, 0.5, 0, 2.0)
    assert described(compared)[:2] == ("fixed:3 (2 of 4)", 0.375)
    swept = SimpleNamespace(position=2, combinations=9, share=0.25, step=compared)
    words, share, said = described(swept)
    assert (words, share, said[0]) == ("combination 3 of 9", 0.25, "fixed:3 (2 of 4)")
    tuned = SimpleNamespace(stage="rung 1 of 3", share=0.1, best="spread 0.9")
    assert described(tuned) == ("rung 1 of 3", 0.1, ["best so far: spread 0.9"])


def test_words_are_escaped() -> None:
    assert "<b>" not in bar_html("<b>", 0.5, ["<b>"], 0.0)


@pytest.mark.slow
def test_a_run_in_a_real_notebook(tmp_path: Any) -> None:
    pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    import nbformat
    from nbclient import NotebookClient

    code = (
        "import joulemesh\n"
        "s = joulemesh.Scenario.preset('adaptive').override({'devices.count': 3, "
        "'plan.iterations': 4, 'training.chunk_iterations': 2})\n"
        "r = joulemesh.run(s, on_progress=joulemesh.ProgressBar())"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(book, timeout=120, kernel_name="python3").execute(cwd=str(tmp_path))
    shown = [one for one in book.cells[0].outputs if one.output_type == "display_data"]
    assert len(shown) == 1  # updated in place, not repeated
    assert "iteration 4 of 4" in shown[0].data["text/html"]
