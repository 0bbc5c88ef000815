"""Redo the paper's tables and figures, and file what comes out."""

from __future__ import annotations

import csv
import io
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joulemesh._version import __version__
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import make_folder, read_json, write_text
from joulemesh.base.machine import cpus
from joulemesh.views.printing import ON_SCREEN, Printing
from joulemesh.views.style import save_figure
from yan_li_2024 import FIGURES, LEARNED, redo, redraw
from yan_li_2024.claims import claims_csv, read_claims, sentences
from yan_li_2024.clock import Account, compilations
from yan_li_2024.outcome import Outcome, Picture, rows_csv
from yan_li_2024.page import write_page
from yan_li_2024.pictures import draw_picture
from yan_li_2024.sentences import SENTENCES
from yan_li_2024.verdicts import claims_markdown

if TYPE_CHECKING:
    from yan_li_2024.runner import Runner, Step

__all__ = ["Reproduction", "redraw_folder", "reproduce"]

PAPER = "paper"
"""The folder of figures for a paper, beside those of the page."""

OnStep = Callable[[str, "Step | None"], None]


@dataclass
class Reproduction:
    """A reproduction under way, and in the end what came of it.

    Attributes:
        folder: where files go.
        size: ``"full"`` or ``"quick"``.
        seeds: repetition seeds.
        command: as typed.
        outcomes: of the parts that could be redone, in this call.
        failures: why others could not.
        timings: what ``timings.json`` holds.
        claims: rows of ``claims.csv``; those of parts redone before are kept.
        computed: runs (curves × seeds) that this call trained; the others were in the cache.
        printing: the figures that the folder ``paper`` gets too; None for none.
    """

    folder: Path
    size: str
    seeds: tuple[int, ...]
    command: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    timings: dict[str, Any] = field(default_factory=dict)
    claims: list[dict[str, str]] = field(default_factory=list)
    computed: int = 0
    printing: Printing | None = None

    def begin(self) -> None:
        """Make the folder, and take up what an earlier call of the same size left in it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ScenarioError(
                f"cannot write to {self.folder}: {error.strerror}; choose another --out"
            ) from None
        earlier = _earlier(self.folder / "timings.json")
        same = earlier.get("size") == self.size and earlier.get("seeds") == list(self.seeds)
        figures = earlier.get("figures", {}) if same else {}
        self.timings = {
            "command": self.command,
            "size": self.size,
            "seeds": list(self.seeds),
            "machine": {},
            "figures": figures,
            "notes": earlier.get("notes", {}) if same else {},
            "pictures": earlier.get("pictures", {}) if same else {},
            "setups": earlier.get("setups", {}) if same else {},
        }
        table = self.folder / "claims.csv"
        if same and table.is_file():
            self.claims = read_claims(_text(table))

    def file(self, outcome: Outcome, account: Account) -> None:
        """Write one part's numbers and figures."""
        name, folder = outcome.name, self.folder
        write_text(folder / f"{name}.csv", rows_csv(outcome.rows))
        self.draw(name, outcome.pictures, outcome.setup)
        self.outcomes[name] = outcome
        self.computed += account.computed
        mine = {finding.claim.id: finding.row() for finding in outcome.findings}
        known = {row["id"]: row for row in self.claims} | mine
        self.claims = [known[one.id] for one in SENTENCES if one.id in known]
        # A part that was all in the cache keeps the account of the call that computed it.
        figures = self.timings["figures"]
        if account.computed or not account.cached or name not in figures:
            figures[name] = account.row()
        self.timings["figures"] = {key: figures[key] for key in FIGURES if key in figures}
        self.timings["notes"][name] = list(outcome.notes)
        self._write()

    def draw(self, name: str, pictures: Sequence[Picture], setup: str) -> None:
        """Draw one part's figures."""
        for picture in pictures:
            figure = draw_picture(picture)
            save_figure(figure, self.folder / picture.name, ON_SCREEN.formats)
            if self.printing is not None:
                paper = draw_picture(picture, self.printing.width)
                stem = make_folder(self.folder / PAPER) / picture.name
                save_figure(paper, stem, self.printing.formats)
        self.timings["pictures"][name] = [f"{picture.name}.png" for picture in pictures]
        self.timings["setups"][name] = setup

    def finish(self) -> None:
        """Write the table of claims and the page."""
        self._write()
        self.write_pages()

    def write_pages(self) -> None:
        """Write what is there to be read: the claims in full, and the page."""
        write_text(self.folder / "claims.md", claims_markdown(self.claims))
        page = write_page(
            self.claims,
            pictures=self.timings["pictures"],
            notes=self.timings["notes"],
            failures=self.failures,
            timings=self.timings,
            discussed=(self.folder / "discussion.md").is_file(),
        )
        write_text(self.folder / "README.md", page)

    def _write(self) -> None:
        self.timings["machine"] = _machine()
        write_text(self.folder / "timings.json", json.dumps(self.timings, indent=1) + "\n")
        write_text(self.folder / "claims.csv", claims_csv(self.claims))

    def summary(self) -> dict[str, Any]:
        """The figures of `joulemesh reproduce --json`."""
        return {
            "out": str(self.folder),
            "figures": list(self.outcomes),
            "failures": self.failures,
            "computed": self.computed,
            "claims": self.claims,
            "sentences": {tests[0]["sentence"]: found for found, tests in sentences(self.claims)},
            "timings": self.timings,
        }


def reproduce(
    figures: Sequence[str] = FIGURES,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out: str | Path | None = None,
    data_dir: str | Path | None = None,
    cache: str | Path | None = None,
    command: str = "joulemesh reproduce",
    on_step: OnStep | None = None,
) -> Reproduction:
    """Redo some or all of the paper's tables and figures.

    Args:
        figures: some of `FIGURES`.
        quick: digits and few devices: minutes on a CPU, no word on learning.
        seeds: how many; 5 unless given, 2 if quick.
        out: folder for the results; ``reproduction``, or ``reproduction-quick``, unless given.
        data_dir: folder with the data sets' published files.
        cache: folder of single runs; the user's cache folder unless given.
        command: to be quoted in the results.
        on_step: called with the figure at work, and how far it is.

    Returns:
        The reproduction. A part whose data are missing is in ``failures``; the others are done.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = reproduce(["table1"], out=folder)
    ...     sorted(path.name for path in Path(folder).iterdir())[:3]
    ['README.md', 'claims.csv', 'claims.md']
    """
    for name in figures:
        if name not in FIGURES:
            raise ScenarioError(f"{name!r} is not redone here: use {', '.join(FIGURES)} or all")
    count = seeds if seeds is not None else 2 if quick else 5
    size = "quick" if quick else "full"
    folder = (
        Path(out) if out is not None else Path("reproduction-quick" if quick else "reproduction")
    )
    made = Reproduction(folder, size, tuple(range(count)), command)
    made.begin()
    runner: Runner | None = None
    for name in figures:
        if name in LEARNED and runner is None:
            runner = _runner(made.seeds, data_dir, cache)
        _redo(made, name, quick, runner, on_step)
    made.finish()
    return made


def redraw_folder(folder: str | Path, printing: Printing | None = None) -> Reproduction:
    """Draw the figures and write the page of a reproduction anew, from the numbers it left.

    Args:
        folder: with ``timings.json``, ``claims.csv`` and the tables of the figures.
        printing: figures for a paper, in the folder ``paper``; None for none.

    Returns:
        The reproduction as it was; nothing is trained, and no number or verdict changes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     made = reproduce(["table1"], out=place)
    ...     again = redraw_folder(place)
    >>> again.claims == [{name: str(cell) for name, cell in row.items()} for row in made.claims]
    True
    """
    place = Path(folder)
    kept = _earlier(place / "timings.json")
    table = place / "claims.csv"
    if not kept.get("figures") or not table.is_file():
        raise ScenarioError(
            f"{place} holds no reproduction: timings.json or claims.csv is missing; run it first"
        )
    for name in ("notes", "pictures", "setups"):
        kept.setdefault(name, {})
    seeds, told = tuple(kept["seeds"]), kept["command"]
    made = Reproduction(place, kept["size"], seeds, told, timings=kept, printing=printing)
    made.claims = read_claims(_text(table))
    if not made.claims:
        raise ScenarioError(
            f"claims.csv in {place} was written by another version of Joulemesh: run it again"
        )
    for name in kept["figures"]:
        try:
            rows = list(csv.DictReader(io.StringIO(_text(place / f"{name}.csv"), newline="")))
            shown = redraw(name, rows, quick=made.size == "quick")
        except (OSError, KeyError, ValueError):
            raise ScenarioError(
                f"{name}.csv in {place} is missing or not as it was written: redo {name} first"
            ) from None
        made.draw(name, *shown)
    write_text(place / "timings.json", json.dumps(made.timings, indent=1) + "\n")
    made.write_pages()
    return made


def _redo(
    made: Reproduction, name: str, quick: bool, runner: Runner | None, on_step: OnStep | None
) -> None:
    """Redo one part and file it, or note why it cannot be done."""
    pool = [] if runner is None else runner.account.pool  # programs are shared between figures
    account, clock = Account(pool=pool), time.perf_counter()
    before = (0, 0.0)
    if on_step is not None:
        on_step(name, None)
    if name in LEARNED and runner is not None:
        compiled = compilations()
        before = (compiled.count, compiled.seconds)
        runner.account = account
        runner.on_step = None if on_step is None else lambda step: on_step(name, step)
    try:
        outcome = redo(name, quick=quick, runner=runner)
    except JoulemeshError as error:
        made.failures[name] = str(error)
        return
    account.wall_s = time.perf_counter() - clock
    if name in LEARNED:
        compiled = compilations()
        account.compilations = compiled.count - before[0]
        account.compile_s = compiled.seconds - before[1]
    made.file(outcome, account)


def _runner(
    seeds: tuple[int, ...], data_dir: str | Path | None, cache: str | Path | None
) -> Runner:
    from joulemesh.base.files import user_cache
    from joulemesh.training.jax.platform import configure
    from yan_li_2024.runner import Runner

    home = user_cache()
    configure(cache_dir=home / "xla")
    return Runner(
        seeds, data_dir=data_dir, cache=home / "reproduce" if cache is None else Path(cache)
    )


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8")


def _earlier(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _machine() -> dict[str, str]:
    """Hardware and versions; JAX is not loaded to ask it."""
    import numpy
    import scipy

    made = {
        "joulemesh": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "system": f"{platform.system()} {platform.machine()}, {cpus()} cores",
    }
    if "jax" in sys.modules:
        import jax

        devices = jax.local_devices()
        made["jax"] = jax.__version__
        made["accelerator"] = f"{len(devices)} × {devices[0].device_kind}"
    return made
